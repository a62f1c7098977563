"""Layers that talk to the other devices of a group, which share the work of the layers between them, and the
way through them.

What all devices have alike is *whole*; what each has its own part of is *split*, along the axis of units; and
where each has a summand of the whole, it is *partial*. Each of these layers makes one of another, and its
backward is its mirror image:

    Copied     whole -> whole       forward: nothing        backward: all-reduce
    Summed     partial -> whole     forward: all-reduce     backward: nothing
    Gathered   split -> whole       forward: all-gather     backward: the own part

Copied and Summed are the f and g of Megatron-LM. Their derivatives follow from the chain rule for an A that T
devices use: dA = sum over them of the derivative through each. Where A then goes through all devices alike,
each has the whole derivative already.

What is left of a layer whose product is a sum over devices, its `Bias`, stands behind that sum.

Source: Shoeybi et al. 2019, arXiv 1909.08053.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ..arrays import own_part
from ..checks import without_return
from ..collectives import all_gather, all_reduce
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


class Gathered(Exchanging):
    """A = all devices' A_prev side by side. dA_prev = the own part of dZ."""

    exchanges = True, False

    def forward(self, A_prev):
        return np.concatenate((yield from all_gather(self.group, A_prev)))

    def backward_input(self, dZ):
        return own_part(dZ, 0, self.group.rank, self.group.size)


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
