"""Which stages fit into the memory of their device."""

import numpy as np

from .bisection import stages_needed
from .dynamic_programming import best_cut, integers
from .integers import checked, in_proportion, readable, sums


def within_memory(price, never, memory, memory_limit, n_layers, n_stages):
    """The function `price`, with `never` for the stages that do not fit; `ValueError` if no cut fits.

    price, never: as in `best_cut`.
    memory: what each layer holds.
    memory_limit: what a device may hold, in the same unit; one number, or one per device.
    n_layers, n_stages: of the network and the cut.
    """
    if memory is None or memory_limit is None:
        given, missing = ("memory_limit", "memory") if memory is None else ("memory", "memory_limit")
        raise ValueError(
            f"{given} is given without {missing}: "
            "give both, in one unit: what each layer holds, and the limit"
        )
    memory = checked("memory", memory, n_layers)
    limits = list(memory_limit) if hasattr(memory_limit, "__len__") else [memory_limit] * n_stages
    limits = checked("memory_limit", limits, n_stages, of="devices")
    (memory, limits), scale = in_proportion(memory, limits)
    above_all = 1 + sum(memory) + max(limits)
    ends = integers(sums(memory), above_all)

    def excess(stage, starts, end):
        return ends[end] - ends[starts] - limits[stage]

    def restricted(stage, starts, end):
        return np.where(excess(stage, starts, end) > 0, never, price(stage, starts, end))

    missing, _ = best_cut(n_layers, n_stages, excess, np.maximum, above_all)
    if missing:
        raise ValueError(_what_is_missing(memory, limits, missing, lambda n: readable(n, scale)))
    return restricted


def _what_is_missing(memory, limits, missing, shown):
    """Why no cut fits, and what to do.

    memory, limits: of the layers and of the devices, as integers.
    missing: by how much each limit falls short.
    shown: the number that the user has given, from the integer in proportion to it.
    """
    largest = max(range(len(memory)), key=memory.__getitem__)
    if len(set(limits)) > 1:
        words = f"limits that differ, {shown(sum(limits))} in all"
        remedy = f"give each device {shown(missing)} more"
    else:
        words = f"a limit of {shown(limits[0])} each"
        remedy = f"use a limit of {shown(limits[0] + missing)}"
        if memory[largest] <= limits[0]:
            remedy += f", or {stages_needed(sums(memory), limits[0])} devices"
    return (
        f"no cut of the {len(memory)} layers fits {len(limits)} devices with {words}: "
        f"the layers hold {shown(sum(memory))} together, "
        f"and layer {largest} alone {shown(memory[largest])}: {remedy}"
    )
