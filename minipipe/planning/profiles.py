"""From measured costs of layers to a cut, a schedule, and what it will take."""

import csv
from itertools import accumulate, pairwise
from typing import NamedTuple

from ..arguments import argument
from ..checks import checked_name, chosen, listed, path_of, real_number
from ..cluster import Link
from ..order import Costs, Schedule, greedy_schedule, peak_microbatches
from ..order.simulate import simulate
from ..partitioning import min_max
from ..schedules import build, names_having, stages_per_device

COLUMNS = ("name", "forward", "backward", "weight backward", "bytes")
GREEDY = "greedy"  # no name of a schedule, but a search by rules


class Profiled(NamedTuple):
    """A layer, or any part of a network, as a profiler sees it.

    name: what the profiler calls it.
    F, I, W: times of its forward, and of the gradients of its input and of its weights, for a micro-batch.
    n_bytes: that it hands on.
    """

    name: str
    F: float
    I: float
    W: float
    n_bytes: float


class Arranged(NamedTuple):
    """The best schedule for a profile.

    schedule, partition, costs: `simulate(schedule, costs)` runs them; a `Pipeline` takes them with
        `Cut(partition)` and `Machine(costs=costs)`; `schedule.to_csv(path)` is for PyTorch.
    makespan: of a mini-batch.
    alive: on each device, the most micro-batches whose activations it keeps at once, in shares of the device.
    names: for each stage, those of its layers.
    """

    schedule: Schedule
    partition: list
    costs: Costs
    makespan: float
    alive: list
    names: list


def read_profile(path):
    """A list of `Profiled` from a CSV file with the columns name, forward, backward, weight backward, bytes.

    Times are in any one unit; backward is that of the gradient of the input alone. `ValueError` for what
    cannot be read, with the line.
    """
    path = path_of("path", path)
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [row for row in csv.reader(file) if any(cell.strip() for cell in row)]
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {path}: {error}") from None
    header = [cell.strip().lower() for cell in rows[0]] if rows else []
    missing = [column for column in COLUMNS if column not in header]
    if missing:
        raise ValueError(
            f"{path}: the first line has no column {', '.join(missing)}: write {','.join(COLUMNS)} there"
        )
    places = [header.index(column) for column in COLUMNS]
    found = []
    for line, row in enumerate(rows[1:], 2):
        if len(row) != len(header):
            raise ValueError(f"{path}, line {line}: {len(row)} cells for {len(header)} columns")
        name, *numbers = (row[place].strip() for place in places)
        try:
            found.append(Profiled(name, *map(float, numbers)))
        except ValueError:
            raise ValueError(f"{path}, line {line}: {', '.join(numbers)} are not all numbers") from None
    return _checked(found)


def profile_of(measured, names):
    """A list of `Profiled` from `measure(layers, loss, len(layers), X, Y)`, with one layer in each stage."""
    costs, names = argument("measured", measured).costs, listed("names", names)
    if len(names) != len(costs.F):
        raise ValueError(f"names has {len(names)} names for {len(costs.F)} layers: give each one")
    rows = zip(names, costs.F, costs.I, costs.W, costs.message_bytes, strict=True)
    return _checked([Profiled(str(name), *numbers) for name, *numbers in rows])


def names_to_try():
    """Return the names that `arrange` tries: of schedules with a flush and one copy, and "greedy"."""
    return [*names_having(flush=True, late_w=False, copies=1), GREEDY]


def arrange(profile, n_devices, n_microbatches, link=Link(), schedules=None, most_alive=None, unit="ticks"):
    """The fastest schedule for measured costs: the best of all names and of a search by rules, `Arranged`.

    profile: a list of `Profiled`.
    n_devices, n_microbatches: K and M.
    link: between any two devices.
    schedules: names of schedules with a flush and one copy of the network, and "greedy", see
        `greedy_schedule`; left out, all.
    most_alive: the micro-batches whose activations a device can keep, in shares of the device; None: any.
    unit: of the times, "ticks" or "seconds".

    For each number of stages, layers are cut so that the slowest stage is as fast as can be. Of equally fast
    schedules, it is the one with fewer micro-batches alive.

    >>> profile = [Profiled(f"block {i}", 1, 1, 1, 0) for i in range(8)]
    >>> best = arrange(profile, 4, 8)
    >>> best.schedule.name, best.makespan, best.partition
    ('zb-v', 51, [1, 1, 1, 1, 1, 1, 1, 1])
    """
    if most_alive is not None:
        real_number("most_alive", most_alive, above=0, infinite=True)
    profile, link = _checked(profile), argument("arrange.link", link)
    n_devices, M = argument("n_devices", n_devices), argument("n_microbatches", n_microbatches)
    found, reasons = [], []
    to_try = names_to_try()
    for name in chosen("schedules", to_try if schedules is None else schedules, to_try):
        n_stages = n_devices * stages_per_device(name)
        try:
            partition = min_max([layer.F + layer.I + layer.W for layer in profile], n_stages)
            costs = _costs(profile, partition, unit)
            if name == GREEDY:
                schedule = greedy_schedule(n_devices, M, costs, most_alive, halves=True, latency=link.latency)
            else:
                schedule = build(name, n_devices, M)
        except ValueError as error:
            reasons.append(f"{name}: {error}")
            continue
        trace = simulate(schedule, costs, link)
        alive = peak_microbatches(trace)
        if most_alive is not None and max(alive) > most_alive:
            reasons.append(f"{name}: it keeps {max(alive)} micro-batches alive")
            continue
        rounded = float(f"{float(trace.makespan):.9g}")
        found.append((rounded, max(alive), len(found), schedule, partition, costs, trace.makespan, alive))
    if not found:
        raise ValueError(
            f"no schedule for {len(profile)} layers on {n_devices} devices, {M} micro-batches and "
            f"most_alive={most_alive}: {reasons[0]}"
        )
    *_, schedule, partition, costs, makespan, alive = min(found)
    names = [layer.name for layer in profile]
    of_stages = [names[start:end] for start, end in pairwise(accumulate(partition, initial=0))]
    return Arranged(schedule, partition, costs, makespan, alive, of_stages)


def _costs(profile, partition, unit):
    F, I, W = ([sum(getattr(layer, kind) for layer in stage) for stage in _stages(profile, partition)]
               for kind in "FIW")
    sent = [stage[-1].n_bytes for stage in _stages(profile, partition)]
    return Costs(F=F, B=[i + w for i, w in zip(I, W)], I=I, W=W, message_bytes=sent, unit=unit)


def _stages(profile, partition):
    return [profile[start:end] for start, end in pairwise(accumulate(partition, initial=0))]


def _checked(profile):
    for number, layer in enumerate(listed("profile", profile)):
        if not isinstance(layer, Profiled):
            raise ValueError(f"profile[{number}] is no Profiled: use read_profile(path), or profile_of")
        checked_name("name", layer.name)
        for kind in ("F", "I", "W", "n_bytes"):
            real_number(f"{layer.name}: {kind}", getattr(layer, kind), 0, clock=True)
    return list(profile)
