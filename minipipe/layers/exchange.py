"""Where a layer talks to other devices, in the middle of a forward or a backward.

The way through such layers is a program: it yields an `Exchange`, and is resumed with its result.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import NamedTuple

from ..checks import without_return
from .layer import Layer
from .through import (
    backward_input_through, first_with_parameters, forward_through, handed_on, in_one_piece, put_aside,
)


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
