"""Layers that talk to the other devices of a group, which share the work of the layers between them, and the
way through them.

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

Where images are split by rows, each device borrows some of its neighbours, by a `Halo`. And what is left of a
layer whose product is a sum over devices, its `Bias`, stands behind that sum.

Sources: Shoeybi et al. 2019, arXiv 1909.08053; Korthikanti et al. 2022, arXiv 2205.05198.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ..arrays import own_part
from ..checks import without_return
from ..collectives import all_gather, all_reduce, reduce_scatter
from .layer import Layer, as_dtype_of, finite
from .through import (
    backward_input_through, first_with_parameters, forward_through, handed_on, in_one_piece, put_aside,
)


# The way through such layers is a program: it yields an `Exchange`, and is resumed with its result.

class Exchange(NamedTuple):
    """What a layer that communicates asks for in the middle of a forward or a backward.

    layer: the layer.
    program: of requests to the hardware; what it returns is what the layer hands on.
    value: what the layer was handed.
    """

    layer: object
    program: object
    value: object


def forward_program(
    layers: Sequence[Layer], A, skips: dict, call: Callable = handed_on
) -> Generator:
    """Yield each `Exchange`, and return A after consecutive layers.

    layers, A, skips, call: as for `forward_through`.
    """
    for layer in layers:
        if not layer.exchanges[0]:
            A = forward_through([layer], A, skips, call)
            continue
        if layer.join is not None:
            A = A, skips.pop(layer.join)
        A = yield Exchange(layer, layer.forward(A), A)
        if layer.fork is not None:
            A, skips[layer.fork] = A
    return A


def backward_input_program(
    layers: Sequence[Layer], dA, skips: dict, wants_dX: bool, then: Callable
) -> Generator:
    """Yield each `Exchange`, and return dX of consecutive layers.

    layers, dA, skips, wants_dX, then: as for `backward_input_through`.
    """
    first = 0 if wants_dX else first_with_parameters(layers)
    for layer in layers[:first]:
        layer.cache = None
    for index in range(len(layers) - 1, first - 1, -1):
        layer, dZ = layers[index], in_one_piece(dA)
        if layer.exchanges[1]:
            if layer.fork is not None:
                dZ = dZ, skips.pop(layer.fork)
            dA = yield Exchange(layer, layer.backward_input(dZ), dZ)
            half = put_aside(layer, dZ)
            if half is not None:
                then(index, half)
            if layer.join is not None:
                dA, skips[layer.join] = dA
        else:
            dA = backward_input_through([layer], dZ, skips, index > first or wants_dX, _at(index, then))
        if dA is None and index > first:
            raise without_return(layer, "backward_input", "dA_prev")
    return dA if wants_dX else None


def _at(index, then):
    """Return `then` for the only layer of a list, which is at `index` of another."""
    return lambda _, half: then(index, half)


def exchanges_of(layers: Sequence[Layer], loss, wants_dX: bool) -> dict[str, int]:
    """{kind of action: how many `Exchange`s there are in it}.

    layers: of a stage.
    loss: in the last one.
    wants_dX: whether the gradient is wanted below the first layer; if not, it ends at
        the first with parameters.
    """
    forward = sum(owner.exchanges[0] for owner in [*layers, loss] if owner is not None)
    first = 0 if wants_dX else first_with_parameters(layers)
    backward = sum(layer.exchanges[1] for layer in layers[first:])
    return {"F": forward, "R": forward, "B": backward, "I": backward}


def join_group(owners: Iterable, group) -> None:
    """Give this `Group` to each of `owners` that talks to other devices."""
    for owner in owners:
        if True in owner.exchanges:
            owner.group = group


class Exchanging(Layer):
    """What these layers share: a group, and no parameters and no cache."""

    group = None  # the `Group` of the devices, which a run hands to each

    def summed(self, A):
        """A program: the sum of what all devices have."""
        return finite(self, (yield from all_reduce(self.group, A)), "the sum over the devices")

    def gathered(self, A, axis):
        """A program: what all devices have, side by side along `axis`."""
        return np.concatenate((yield from all_gather(self.group, A)), axis=axis)

    def own_part(self, A: np.ndarray, axis: int) -> np.ndarray:
        """Return the part of A along `axis` that belongs to this device."""
        return self.part_of(A, axis, self.group.rank)

    def part_of(self, A: np.ndarray, axis: int, rank: int) -> np.ndarray:
        """Return the part of A along `axis` that belongs to a device; positions, along axis 1, must be equal.
        """
        if axis:
            check_positions(A.shape[axis], self.group.size)
        return own_part(A, axis, rank, self.group.size)

    def summed_part(self, A, axis):
        """A program: this device's part along `axis` of the sum of what all devices have."""
        parts = [self.part_of(A, axis, rank) for rank in range(self.group.size)]
        total = yield from reduce_scatter(self.group, parts, "owners")
        return finite(self, total, "the sum over the devices")


def check_positions(n: int, size: int) -> None:
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


class Halo(Exchanging):
    """A = A_prev with the `n` nearest rows of both neighbours around it; beyond the image's edge, zeros.

    A_prev (C, rows, ..., m), A (C, n + rows + n, ..., m).

    The derivative by a row that was borrowed goes back to its owner, who adds it to its own:

        dA_prev = dZ without its outer rows + what the neighbours send for this device's outer rows
    """

    exchanges = True, True
    can_overflow = False

    def __init__(self, n):
        self.n = n

    def forward(self, A_prev):
        """A program."""
        n = self.n
        if A_prev.shape[1] < n:
            raise ValueError(
                f"a kernel that reaches {n} rows beyond its own needs as many on each device, not "
                f"{A_prev.shape[1]}: use fewer shards, or rows=False"
            )
        above, below = yield from self._swapped(A_prev[:, :n], A_prev[:, -n:])
        outside = A_prev[:, :n] * 0
        above, below = (outside if rows is None else rows for rows in (above, below))
        return np.concatenate([above, A_prev, below], axis=1)

    def backward_input(self, dZ):
        """A program."""
        n = self.n
        above, below = yield from self._swapped(dZ[:, :n], dZ[:, -n:])
        dA_prev = dZ[:, n:-n].copy()
        if above is not None:
            dA_prev[:, :n] += above
        if below is not None:
            dA_prev[:, -n:] += below
        return finite(self, dA_prev, "the sum of the rows' derivatives")

    def _swapped(self, first, last):
        """A program: (what the device above has sent down, what the one below has sent up), or None."""
        group, label = self.group, self.group.begin("rows")
        has_above, has_below = group.rank > 0, group.rank < group.size - 1
        if has_above:
            yield group.send(group.rank - 1, f"{label}: up", first.copy())
        if has_below:
            yield group.send(group.rank + 1, f"{label}: down", last.copy())
        above = (yield group.receive(group.rank - 1, f"{label}: down")) if has_above else None
        below = (yield group.receive(group.rank + 1, f"{label}: up")) if has_below else None
        return above, below


class Bias(Layer):
    """A = A_prev + b, the last step of a layer that is split by its inputs.

    b (n, 1) or (n, 1, ..., 1); A_prev, A (n, ..., m). It stands behind that sum, so that b is added once, and
    db is the same on all devices.

        db = sums of dZ over all axes but the first

    >>> layer = Bias(np.array([[10.0], [20.0]]))
    >>> layer.forward(np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([[11., 12.],
           [23., 24.]])
    """

    def __init__(self, b):
        self.b = b

    def forward(self, A_prev):
        self.cache = A_prev.ndim
        return A_prev + as_dtype_of(A_prev, self.b).reshape(-1, *[1] * (self.cache - 1))

    def backward_input(self, dZ):
        return dZ

    def backward_weight(self, dZ):
        rows = dZ.reshape(len(dZ), -1)
        return None, (rows @ np.ones((rows.shape[1], 1), dZ.dtype)).reshape(self.b.shape)

    def parameter_shapes(self):
        return None, self.b.shape

    def __repr__(self):
        return f"Bias of shape {self.b.shape}"
