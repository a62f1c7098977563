"""Which stages fit into the memory of their device."""

import numpy as np

from .bisection import stages_needed
from .dynamic_programming import best_cut, integers
from .integers import checked, in_proportion, readable, sums


class MemoryLimits:
    """What each layer holds, and how much each device may hold; `ValueError` if no cut keeps within that.

    memory: what each layer holds.
    memory_limit: what a device may hold, in the same unit; one number, or one per device.
    n_layers, n_stages: of the network and the cut.
    """

    def __init__(self, memory, memory_limit, n_layers, n_stages):
        if memory is None or memory_limit is None:
            given, missing = ("memory_limit", "memory") if memory is None else ("memory", "memory_limit")
            raise ValueError(
                f"{given} is given without {missing}: "
                "give both, in one unit: what each layer holds, and the limit"
            )
        memory = checked("memory", memory, n_layers)
        limits = list(memory_limit) if hasattr(memory_limit, "__len__") else [memory_limit] * n_stages
        limits = checked("memory_limit", limits, n_stages, of="devices")
        (self.memory, self.limits), self.scale = in_proportion(memory, limits)
        self.never = 1 + sum(self.memory) + max(self.limits)
        self.ends = integers(sums(self.memory), self.never)
        self._check()

    def restricted(self, price, never):
        """The function `price`, with `never` for the stages that do not fit."""

        def restricted(stage, starts, end):
            too_much = self._excess(stage, starts, end) > 0
            return np.where(too_much, never, price(stage, starts, end))

        return restricted

    def _excess(self, stage, starts, end):
        return self.ends[end] - self.ends[starts] - self.limits[stage]

    def _check(self):
        n_layers, n_stages = len(self.memory), len(self.limits)
        missing, _ = best_cut(n_layers, n_stages, self._excess, np.maximum, self.never)
        if not missing:
            return
        largest = max(range(n_layers), key=self.memory.__getitem__)
        if len(set(self.limits)) > 1:
            limits = f"limits that differ, {self._shown(sum(self.limits))} in all"
            remedy = f"give each device {self._shown(missing)} more"
        else:
            limits = f"a limit of {self._shown(self.limits[0])} each"
            remedy = f"use a limit of {self._shown(self.limits[0] + missing)}"
            if self.memory[largest] <= self.limits[0]:
                remedy += f", or {stages_needed(sums(self.memory), self.limits[0])} devices"
        raise ValueError(
            f"no cut of the {n_layers} layers fits {n_stages} devices with {limits}: "
            f"the layers hold {self._shown(sum(self.memory))} together, "
            f"and layer {largest} alone {self._shown(self.memory[largest])}: {remedy}"
        )

    def _shown(self, integer):
        return readable(integer, self.scale)
