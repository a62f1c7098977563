"""What can be counted in a schedule, or in the trace of its run."""

from collections import Counter


def alive_microbatches(trace, device):
    """How many micro-batches are alive on a device: a list of `(tick, number)`, each valid until the next.

    A micro-batch is alive on a device from the start of its forward to the end of its backward, or of the W if the backward is in
    halves: that long the device must keep what the backward needs. Where a device has several stages, each counts by itself.
    """
    changes = []
    for span in trace.spans_of(device):
        for part in getattr(span.label, "parts", ()):
            if part.kind == "F":
                changes.append((span.start, 1))
            elif part.kind in "BW":
                changes.append((span.end, -1))
    curve, alive = {}, 0
    for tick, change in sorted(changes):
        alive += change
        curve[tick] = alive
    return list(curve.items())


def peak_microbatches(trace):
    """For each device, the most micro-batches that were alive at once in `trace`, as `alive_microbatches` counts them."""
    return [max((alive for _, alive in alive_microbatches(trace, device)), default=0) for device in range(trace.n_devices)]


def updates(schedule):
    """Rows of (device, stage, micro-batch of the `U`, the micro-batches whose gradients it applies), device by device in order."""
    rows = []
    for device in range(len(schedule.devices) if schedule.asynchronous else 0):
        without_update = {}
        for kind, stage, i in schedule.parts(device):
            if kind in "BW":
                without_update.setdefault(stage, []).append(i)
            elif kind == "U":
                rows.append((device, stage, i, without_update.pop(stage, [])))
    return rows


def staleness(schedule):
    """For each stage and micro-batch, how many updates the weights had that its gradient was not computed with.

    That is the number of updates of the stage before the one that applies this gradient, less those in the weights that the
    gradient was computed with: 0 everywhere in a synchronous schedule. `ScheduleError` for a schedule with faults, `ValueError`
    for one with updates that does not say by `versions` which weights it works with.

    >>> from .asynchronous import pipedream
    >>> [stage[-1] for stage in staleness(pipedream(4, 8))]
    [3, 2, 1, 0]
    """
    check_versions(schedule)
    stale = [[0] * schedule.n_microbatches for _ in range(schedule.n_stages)]
    made = Counter()
    for _, stage, _, applied in updates(schedule):
        for i in applied:
            stale[stage][i] = made[stage] - schedule.versions[stage][i]
        made[stage] += 1
    return stale


def check_versions(schedule):
    """`ScheduleError` for faults, `ValueError` for updates without `versions`."""
    schedule.validate()
    if schedule.asynchronous and not schedule.versions:
        raise ValueError(
            f"the schedule {schedule.name!r} updates weights but does not say which ones it works with: pass versions, for each "
            "stage a row with the number of updates in the weights for each micro-batch"
        )


def peak_versions(schedule):
    """For each stage, the most versions of its weights that it must keep at once.

    A version is needed from the update that makes it, at least until the next one, to the last backward that uses it. Raises what `staleness` does.

    >>> from .asynchronous import pipedream, pipedream_2bw
    >>> peak_versions(pipedream(4, 8)), peak_versions(pipedream_2bw(4, 16))
    ([4, 3, 2, 1], [2, 2, 2, 2])
    """
    check_versions(schedule)
    peaks = [1] * schedule.n_stages
    for device in range(len(schedule.devices) if schedule.versions else 0):
        needed = Counter()  # (stage, version) -> backwards to come
        for kind, stage, i in schedule.parts(device):
            needed[stage, schedule.versions[stage][i]] += kind in "BW"
        made = Counter()
        for kind, stage, i in schedule.parts(device):
            if kind == "U":
                made[stage] += 1
                kept = {version for (owner, version), n in needed.items() if owner == stage and n and version <= made[stage]}
                peaks[stage] = max(peaks[stage], len(kept | {made[stage]}))
            elif kind in "BW":
                needed[stage, schedule.versions[stage][i]] -= 1
    return peaks
