"""The sizes and limits that make sense, for those who make schedules."""

import math

from ..arguments import argument
from ..checks import items_of, python_number, shown, whole_number

MOST_ACTIONS = 4_000_000  # of all devices, F and B counted as two; a run of them takes gigabytes


def check_sizes(n_devices, n_microbatches, v=1, latency=0):
    """(n_devices, n_microbatches, v, latency) as Python numbers.

    `ValueError` for sizes that are not whole numbers of at least 1, or that make too many actions, and for a
    latency that is not at least 0 ticks.
    """
    sizes = {"n_devices": n_devices, "n_microbatches": n_microbatches, "v": v}
    sizes = [whole_number(name, size, 1) for name, size in sizes.items()]
    check_number_of_actions(2 * math.prod(sizes))
    return *sizes, argument("latency", latency)


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
    items = items_of(value)
    values = [value] * n if items is None else items
    if len(values) != n:
        raise ValueError(f"{name} has {len(values)} {what} for {n} {of}s: give one number, or one per {of}")
    return values


def limits_of(most_alive, stages_on, n_microbatches):
    """For each device, how often it can keep the activations of a stage and a micro-batch, a whole number.

    most_alive: the micro-batches that it can keep, of all its stages: one number for all devices, a number
        for each, or None for no limit.
    stages_on: how many stages each device has. The backward of a micro-batch begins after the last of its
        forwards, so a device needs room for all of its stages; `ValueError` for less.

    >>> limits_of(2.5, [1, 2], n_microbatches=8)
    [2, 5]
    """
    if most_alive is None:
        return [n_stages * n_microbatches for n_stages in stages_on]
    limits = one_for_each("most_alive", most_alive, "limits", len(stages_on), "device")
    for device, limit in enumerate(limits):
        check_most_alive(limit, device)
    return [int(n * min(limit, n_microbatches)) for limit, n in zip(limits, stages_on)]


def check_most_alive(limit, device):
    """`ValueError` for a limit that lets nothing through."""
    if python_number(limit) is None:
        raise ValueError(f"most_alive={shown(limit)} on device {device} must be a number of micro-batches")
    if not limit >= 1:
        raise ValueError(
            f"most_alive={shown(limit)} on device {device} lets no micro-batch through: use at least 1"
        )
