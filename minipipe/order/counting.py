"""Counts of a schedule, or of its trace: micro-batches alive, staleness, versions."""

from collections import Counter
from itertools import accumulate

from ..cluster import Trace
from .actions import RULES, WEIGHT
from .costs import as_float, divide_exactly
from .schedule import Schedule, checked_schedule


def alive_microbatches(trace: Trace, device: int) -> list[tuple[float, float]]:
    """Return [(tick, number of micro-batches alive on `device` from then on)].

    A micro-batch is alive from the start of its forward to the end of its backward, or
    of its W: meanwhile the device keeps its activations. Of n stages on a device, each
    counts 1/n. An action of several spans lasts from the first of them to the last.

    Args:
        trace: the `Trace` of a run.
        device: the number of the device.
    """
    starts: dict = {}
    ends: dict = {}
    for span in trace.spans_of(device):
        for part in getattr(span.label, "parts", ()):
            if part.alive > 0:
                starts[part] = min(span.start, starts.get(part, span.start))
            elif part.alive < 0:
                ends[part] = max(span.end, ends.get(part, span.end))
    changes: Counter = Counter()
    for part, tick in starts.items():
        changes[tick] += part.alive
    for part, tick in ends.items():
        changes[tick] += part.alive
    ticks = sorted(changes)
    alive = accumulate(changes[tick] for tick in ticks)
    share = trace.shares[device]
    return [(tick, as_float(divide_exactly(count, share))) for tick, count in zip(ticks, alive)]


def peak_microbatches(trace: Trace) -> list[float]:
    """Return for each device of `trace` the most micro-batches alive at once.

    >>> from minipipe import simulate
    >>> from minipipe.schedules import build
    >>> peak_microbatches(simulate(build("interleaved", 4, 8)))     # two stages on each device
    [5.5, 4.5, 3.5, 2.5]
    """
    curves = [alive_microbatches(trace, device) for device in range(trace.n_devices)]
    return [max((alive for _, alive in curve), default=0) for curve in curves]


def updates(schedule: Schedule) -> list[tuple[int, int, int, list[int]]]:
    """Return (device, stage, micro-batch, those applied) of each U of `schedule`."""
    rows = []
    without_update: dict[tuple[int, int], list[int]] = {}
    for device, part, _ in schedule.walk() if "U" in schedule.kinds else ():
        kind, stage, i = part
        if kind == "U":
            rows.append((device, stage, i, without_update.pop((device, stage), [])))
        elif RULES[kind].adds & WEIGHT:
            without_update.setdefault((device, stage), []).append(i)
    return rows


def staleness(schedule: Schedule) -> list[list[int]]:
    """Return for each stage and micro-batch of `schedule` how many updates it is late.

    This is the number of updates of the stage before the one that applies the gradient,
    less those in the weights that the gradient was computed with: 0 everywhere in a
    synchronous schedule. `ScheduleError` for a schedule with faults.

    >>> from ..schedules.asynchronous import pipedream
    >>> [stage[-1] for stage in staleness(pipedream(4, 8))]
    [3, 2, 1, 0]
    """
    checked_schedule(schedule).validate()
    stale = [[0] * schedule.n_microbatches for _ in range(schedule.n_stages)]
    for _, (kind, stage, i), made in schedule.walk():
        if schedule.versions and RULES[kind].adds & WEIGHT:
            stale[stage][i] = made - schedule.versions[stage][i]
    return stale


def peak_versions(schedule: Schedule) -> list[int]:
    """Return for each stage of `schedule` the most versions of weights kept at once.

    A version is needed from the update that makes it, at least until the next one, to
    the last backward that uses it. `ScheduleError` for a schedule with faults.

    >>> from ..schedules.asynchronous import pipedream, pipedream_2bw
    >>> peak_versions(pipedream(4, 8)), peak_versions(pipedream_2bw(4, 16))
    ([4, 3, 2, 1], [2, 2, 2, 2])
    """
    checked_schedule(schedule).validate()
    peaks = [1] * schedule.n_stages
    kept_until: dict = {}  # (device, stage) -> {version: updates that were made when it was last needed}
    for device, (kind, stage, i), made in schedule.walk():
        known = kept_until.setdefault((device, stage), {})
        known.setdefault(made, made)
        if schedule.versions and RULES[kind].adds & WEIGHT:
            known[schedule.versions[stage][i]] = made
    for (_, stage), known in kept_until.items():
        kept = [sum(version <= now <= last for version, last in known.items()) for now in known]
        peaks[stage] = max(peaks[stage], *kept)
    return peaks
