"""Layers that talk to the other devices of a group, which share the work of the layers between them.

What all devices have alike is *whole*; what each has its own part of is *split*, along an axis of units; and
where each has a summand of the whole, it is *partial*. Each of these layers makes one of another, and its
backward is its mirror image:

    Copied     whole -> whole       forward: nothing        backward: all-reduce
    Summed     partial -> whole     forward: all-reduce     backward: nothing
    Gathered   split -> whole       forward: all-gather     backward: the own part
    Parted     whole -> split       forward: the own part   backward: all-gather

Copied and Summed are the f and g of Megatron-LM. Their derivatives follow from the chain rule for an A that T
devices use: dA = sum over them of the derivative through each. Where A then goes through all devices alike,
each has the whole derivative already.

With its group, `SplitToWhole` and `PartialToSplit` are f and g for a sequence whose positions are split:

    SplitToWhole    split -> whole      forward: all-gather          backward: reduce-scatter
    PartialToSplit  partial -> split    forward: reduce-scatter      backward: all-gather

Sources: Shoeybi et al. 2019, arXiv 1909.08053; Korthikanti et al. 2022, arXiv 2205.05198.
"""

import numpy as np

from ..collectives import all_gather, all_reduce, reduce_scatter
from ..functions import even_slices
from ..layers.layer import Layer, finite


class Exchanging(Layer):
    """What these layers share: a group, and no parameters and no cache."""

    group = None  # the `Group` of the devices, which a run hands to each

    def summed(self, A):
        """A program: the sum of what all devices have."""
        return finite(self, (yield from all_reduce(self.group, A)), "the sum over the devices")

    def gathered(self, A, axis):
        """A program: what all devices have, side by side along `axis`."""
        return np.concatenate((yield from all_gather(self.group, A)), axis=axis)

    def own_part(self, A, axis):
        """The part of A along `axis` that belongs to this device."""
        return self.parts(A, axis)[self.group.rank].copy()

    def parts(self, A, axis):
        """For each device, its part of A along `axis`: of sizes that differ by one at most; equal ones of
        positions, along other axes than the first.
        """
        n, size = A.shape[axis], self.group.size
        if axis:
            check_positions(n, size)
        before = (slice(None),) * axis
        return [A[(*before, part)] for part in even_slices(A.shape[axis], self.group.size)]

    def summed_part(self, A, axis):
        """A program: this device's part along `axis` of the sum of what all devices have."""
        parts = [part.copy() for part in self.parts(A, axis)]
        total = yield from reduce_scatter(self.group, parts, "owners")
        return finite(self, total, "the sum over the devices")


def check_positions(n, size):
    """Raise `ValueError` unless `size` shards divide n positions."""
    if n % size:
        raise ValueError(f"{n} positions over {size} shards: use a number of shards that divides {n}")


class Copied(Exchanging):
    """A = A_prev, whole. dA_prev = the sum of all devices' dZ. Megatron's f."""

    exchanges = False, True
    can_overflow = False

    def forward(self, A_prev):
        return A_prev

    def backward_input(self, dZ):
        return self.summed(dZ)


class Summed(Exchanging):
    """A = the sum of all devices' A_prev. dA_prev = dZ, whole. Megatron's g."""

    exchanges = True, False

    def forward(self, A_prev):
        return self.summed(A_prev)

    def backward_input(self, dZ):
        return dZ


class AlongAxis(Exchanging):
    """What is split along an axis, 0 unless something else is said."""

    def __init__(self, axis=0):
        self.axis = axis


class Gathered(AlongAxis):
    """A = all devices' A_prev side by side. dA_prev = the own part of dZ."""

    exchanges = True, False

    def forward(self, A_prev):
        return self.gathered(A_prev, self.axis)

    def backward_input(self, dZ):
        return self.own_part(dZ, self.axis)


class Parted(AlongAxis):
    """A = the own part of A_prev. dA_prev = all devices' dZ side by side."""

    exchanges = False, True
    can_overflow = False

    def forward(self, A_prev):
        return self.own_part(A_prev, self.axis)

    def backward_input(self, dZ):
        return self.gathered(dZ, self.axis)


class SplitToWhole(AlongAxis):
    """A = all devices' A_prev side by side. dA_prev = the own part of the sum of all devices' dZ."""

    exchanges = True, True

    def forward(self, A_prev):
        return self.gathered(A_prev, self.axis)

    def backward_input(self, dZ):
        return self.summed_part(dZ, self.axis)


class PartialToSplit(AlongAxis):
    """A = the own part of the sum of all devices' A_prev. dA_prev = all devices' dZ side by side."""

    exchanges = True, True

    def forward(self, A_prev):
        return self.summed_part(A_prev, self.axis)

    def backward_input(self, dZ):
        return self.gathered(dZ, self.axis)
