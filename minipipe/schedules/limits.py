"""The sizes and limits that make sense, for those who make schedules."""

import math
from numbers import Integral


def check_sizes(n_devices, n_microbatches, v=1, latency=0):
    """`ValueError` unless sizes are whole numbers of at least 1, and the ticks of a message are finite."""
    if not all(isinstance(size, Integral) for size in (n_devices, n_microbatches)):
        raise ValueError(
            f"n_stages={n_devices!r} and n_microbatches={n_microbatches!r} must both be whole numbers"
        )
    if n_devices < 1 or n_microbatches < 1:
        raise ValueError(f"n_stages={n_devices} and n_microbatches={n_microbatches} must both be at least 1")
    if v < 1:
        raise ValueError(f"v={v} stages on each device must be at least 1")
    if not 0 <= latency < math.inf:
        raise ValueError(f"latency={latency} must be a finite number of ticks of at least 0")


def one_for_each(name, value, what, n, of):
    """`value`, which is one number for all or one for each, as a list of n; `ValueError` for another length.

    >>> one_for_each("F", 2, "costs", 3, "stage")
    [2, 2, 2]
    """
    values = list(value) if hasattr(value, "__len__") else [value] * n
    if len(values) != n:
        raise ValueError(f"{name} has {len(values)} {what} for {n} {of}s: give one number, or one per {of}")
    return values


def limits_of(most_alive, stages_on, n_microbatches):
    """For each device, the activations that it can keep; `ValueError` for a limit that lets nothing through.

    most_alive: one number for all devices, a number for each, or None for no limit.
    stages_on: how many stages each device has. A micro-batch's activations count once for each of them, and
        its backward begins after the last of its forwards, so a device needs room for all of its stages.
    """
    if most_alive is None:
        return [n_stages * n_microbatches for n_stages in stages_on]
    limits = one_for_each("most_alive", most_alive, "limits", len(stages_on), "device")
    for device, (limit, needed) in enumerate(zip(limits, stages_on)):
        if not isinstance(limit, Integral):
            raise ValueError(
                f"most_alive={limit!r} on device {device} must be a whole number of micro-batches"
            )
        if limit < needed:
            stages = f"{needed} stage{'s' * (needed > 1)}"
            raise ValueError(
                f"most_alive={limit} on device {device} lets no micro-batch through its {stages}: use at "
                f"least {needed}"
            )
    return limits
