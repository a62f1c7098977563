"""Recomputation in smaller pieces: a device's stage cut into several."""

from dataclasses import replace

from .actions import Action, Overlap


def in_segments(schedule, n):
    """`schedule` with each stage cut into `n` consecutive ones on the same device, which do the work of the one in a row.

        device 0: F0 ... B0    becomes, for n = 2,    0F0 1F0 ... 1B0 0B0

    With recomputation, a device then keeps the input of each segment, and has the caches of one segment at a time: for a stage
    of L equal layers about n + L / n of a layer's size for a micro-batch, least for n = sqrt(L), instead of L. Nothing else
    changes, but the stages are n times as many. Source: Chen et al. 2016, arXiv 1604.06174, section 4.

    >>> from .builders import gpipe, with_recompute
    >>> print(with_recompute(in_segments(gpipe(1, 1), 2)))
    device 0: 0F0 1F0 1R0 1B0 0R0 0B0
    """
    if n < 1:
        raise ValueError(f"n={n} segments of a stage must be at least 1")
    devices = tuple(tuple(segment for action in order for segment in _segments(action, n)) for order in schedule.devices)
    versions = tuple(row for row in schedule.versions for _ in range(n))
    return replace(schedule, devices=devices, n_stages=schedule.n_stages * n, name=f"{schedule.name} in {n} segments", versions=versions)


def _segments(action, n):
    if action.kind == "F&B":
        return map(Overlap, *(_segments(part, n) for part in action.parts))
    kind, stage, microbatch = action
    upwards = range(stage * n, (stage + 1) * n)
    return [Action(kind, segment, microbatch) for segment in (reversed(upwards) if kind in "BIR" else upwards)]
