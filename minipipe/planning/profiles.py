"""From measured costs of layers to a cut, a schedule, and what it will take."""

import csv
from fractions import Fraction
from functools import cache
from itertools import accumulate, pairwise
from math import inf
from typing import NamedTuple

from ..arguments import argument
from ..checks import checked_name, listed, path_of, real_number, shown, whole_numbers
from ..cluster import Link
from ..order import Costs, Schedule, greedy_schedule, peak_microbatches
from ..order.names import chosen_schedules
from ..order.simulate import simulate
from ..partitioning import min_max
from ..partitioning.costs_of_layers import checked, sums
from ..schedules import build, names_having, stages_per_device


# Which consecutive layers on how many devices: the dynamic programs of PipeDream and of Alpa.

class Shared(NamedTuple):
    """A cut whose stages have several devices each.

    stages: [(how many layers, how many devices)], stage by stage.
    time: what was minimised.
    """

    stages: list
    time: float


def partition_with_replicas(times, output_bytes, parameter_bytes, bandwidth, n_devices):
    """PipeDream's cut: stages of consecutive layers, each on several devices that share its mini-batches.

    It minimises the time of the slowest part, be it a stage or a place between two,

        stage of the layers i..j on m devices:  max(sum T_l, 4 (m - 1)/m sum w_l / bandwidth) / m
        between the layers i and i + 1:         2 a_i / bandwidth

    where all devices have work: that is the time for each mini-batch, once the pipeline is full.

    times: T_l, of a forward and backward of each layer.
    output_bytes: a_l, of each layer's output.
    parameter_bytes: w_l, of each layer's parameters.
    bandwidth: bytes in a unit of time.
    n_devices: at least 1.

    The dynamic program is A(j, m) = min(T(1..j, m), min over i, m' of max(A(i, m - m'), 2 a_i / bandwidth,
    T(i+1..j, m'))), O(L^2 n^2); nothing is rounded. Source: Harlap et al. 2018, arXiv 1806.03377, section
    3.2; its published code adds where the formula has a max.

    >>> partition_with_replicas([4, 4, 2], [8, 4, 1], [1, 1, 30], 4, 4)
    Shared(stages=[(2, 3), (1, 1)], time=Fraction(8, 3))
    """
    times, n_devices = checked("times", times), argument("partition_with_replicas.n_devices", n_devices)
    n_layers = len(times)
    output_bytes = checked("output_bytes", output_bytes, n_layers)
    parameter_bytes = checked("parameter_bytes", parameter_bytes, n_layers)
    bandwidth = Fraction(argument("partition_with_replicas.bandwidth", bandwidth))
    T, w = (sums(map(Fraction, numbers)) for numbers in (times, parameter_bytes))

    def of_stage(i, j, m):
        exchange = Fraction(4 * (m - 1), m) * (w[j] - w[i]) / bandwidth
        return max(T[j] - T[i], exchange) / m

    best = {}  # (layers, devices) -> (time, stages)
    for j in range(1, n_layers + 1):
        for m in range(1, n_devices + 1):
            found = [(of_stage(0, j, m), [(j, m)])]
            for i in range(1, j):
                between = 2 * Fraction(output_bytes[i - 1]) / bandwidth
                for last in range(1, m):
                    before, stages = best[i, m - last]
                    slowest = max(before, between, of_stage(i, j, last))
                    if slowest < found[0][0]:
                        found = [(slowest, [*stages, (j - i, last)])]
            best[j, m] = found[0]
    time, stages = best[n_layers, n_devices]
    return Shared(stages, time)


def meshed_stages(stage_time, n_layers, n_devices, n_microbatches, sizes=None):
    """Alpa's cut: stages of consecutive layers on meshes of devices, for a whole mini-batch.

    It minimises

        sum over the stages of t + (M - 1) max over the stages of t

    the time of M micro-batches through a pipeline in which each micro-batch takes t on a stage, over all cuts
    into consecutive stages, with sizes of meshes that add up to the devices.

    stage_time: stage_time(first, end, size, n_behind) is t of the layers first..end-1 on a mesh of `size`
        devices, with n_behind stages behind it; infinity where it does not fit: a stage keeps the activations
        of n_behind + 1 micro-batches, as in 1F1B.
    n_layers, n_devices, n_microbatches: L, the devices, and M.
    sizes: of meshes; left out, 1, 2, 4, ... up to all devices.

    For each limit t_max out of all stage times, F(s, k, d) = min over i and sizes n of t(k..i, n) + F(s - 1,
    i + 1, d - n) with each t <= t_max; the search over t_max ends where M t_max alone is no better. Raises
    `ValueError` where nothing fits. Source: Zheng et al. 2022, arXiv 2201.12023, section 5.2.

    >>> work = [6, 2, 4, 4]
    >>> meshed_stages(lambda first, end, d, n_behind: sum(work[first:end]) / d + d - 1, 4, 4, 4)
    Shared(stages=[(2, 2), (2, 2)], time=25.0)
    """
    n_layers = argument("meshed_stages.n_layers", n_layers)
    n_devices = argument("meshed_stages.n_devices", n_devices)
    M = argument("n_microbatches", n_microbatches)
    if sizes is None:
        sizes = [2**power for power in range(n_devices.bit_length())]
    sizes = sorted(set(whole_numbers("sizes", sizes, 1)))
    if not sizes or sizes[0] > n_devices:
        raise ValueError(f"sizes={shown(sizes)} are all above n_devices={n_devices}: use smaller ones")
    time = cache(argument("stage_time", stage_time))
    most = min(n_layers, n_devices // sizes[0])
    limits = sorted({
        time(first, end, size, behind)
        for first in range(n_layers) for end in range(first + 1, n_layers + 1)
        for size in sizes if size <= n_devices
        for behind in range(min(most, n_layers - end + 1))
    } - {inf})
    best = Shared([], inf)
    for limit in limits:
        if M * limit >= best.time:
            break
        found = _least_within(time, limit, n_layers, n_devices, sizes, most)
        if found is not None:
            total, slowest, stages = found
            best = min(best, Shared(stages, total + (M - 1) * slowest), key=lambda one: one.time)
    if not best.stages:
        raise ValueError(
            f"no cut of {n_layers} layers fits {n_devices} devices in meshes of "
            f"{', '.join(map(str, sizes))}: use more devices, or more memory"
        )
    return best


def _least_within(time, limit, n_layers, n_devices, sizes, most):
    """(sum, largest, stages) of the least sum with no stage above `limit`; None if there is none."""
    behind = {(n_layers, 0): (0, 0, [])}  # (first layer, devices) of all stages behind -> the best of them
    found = []
    for n_behind in range(most):
        before = {}
        for (end, used), (total, slowest, stages) in behind.items():
            for first in range(end):
                for size in sizes:
                    t = time(first, end, size, n_behind)
                    if used + size > n_devices or t > limit:
                        continue
                    one = total + t, max(slowest, t), [(end - first, size), *stages]
                    key = first, used + size
                    if key not in before or one[:2] < before[key][:2]:
                        before[key] = one
        found += [before[0, n_devices]] if (0, n_devices) in before else []
        behind = before
    return min(found, key=lambda one: one[0]) if found else None


# A profile, and the fastest schedule for it.

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
        raise ValueError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
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
    return _checked_profile(found)


def profile_of(measured, names):
    """A list of `Profiled` from `measure(layers, loss, len(layers), X, Y)`, with one layer in each stage."""
    costs, names = argument("measured", measured).costs, listed("names", names)
    if len(names) != len(costs.F):
        raise ValueError(f"names has {len(names)} names for {len(costs.F)} layers: give each one")
    rows = zip(names, costs.F, costs.I, costs.W, costs.message_bytes, strict=True)
    return _checked_profile([Profiled(str(name), *numbers) for name, *numbers in rows])


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
    profile, link = _checked_profile(profile), argument("arrange.link", link)
    n_devices, M = argument("n_devices", n_devices), argument("n_microbatches", n_microbatches)
    found, reasons = [], []
    to_try = names_to_try()
    for name in chosen_schedules(to_try if schedules is None else schedules, to_try):
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


def _checked_profile(profile):
    for number, layer in enumerate(listed("profile", profile)):
        if not isinstance(layer, Profiled):
            raise ValueError(f"profile[{number}] is no Profiled: use read_profile(path), or profile_of")
        checked_name("name", layer.name)
        for kind in ("F", "I", "W", "n_bytes"):
            real_number(f"{layer.name}: {kind}", getattr(layer, kind), 0, clock=True)
    return list(profile)
