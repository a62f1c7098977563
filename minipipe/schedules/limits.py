"""The sizes and limits that make sense, for those who make schedules."""

import math
from numbers import Integral

from ..checks import real_number, shown, whole_number

MOST_ACTIONS = 4_000_000  # of all devices, F and B counted as two; a run of them takes gigabytes


def check_sizes(n_devices, n_microbatches, v=1, latency=0):
    """(n_devices, n_microbatches, v, latency) as Python numbers.

    `ValueError` for sizes that are not whole numbers of at least 1, or that make too many actions, and for a
    latency that is not at least 0 ticks.
    """
    sizes = {"n_devices": n_devices, "n_microbatches": n_microbatches, "v": v}
    sizes = [whole_number(name, size, 1) for name, size in sizes.items()]
    check_number_of_actions(2 * math.prod(sizes))
    return *sizes, real_number("latency", latency, least=0, note=" ticks", clock=True)


def check_number_of_actions(n):
    """`ValueError` for a schedule of so many actions that it would not fit into memory."""
    if n > MOST_ACTIONS:
        raise ValueError(
            f"a schedule of {shown(n)} actions exceeds the limit of {MOST_ACTIONS:,}: "
            "use fewer devices or micro-batches; a schedule repeats itself long before"
        )


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
