"""Where a layer talks to other devices, in the middle of a forward or a backward.

The way through such layers is a program: it yields an `Exchange`, and is resumed with what has come of it.
"""

from typing import NamedTuple

from ..checks import without_return
from .through import backward_input_through, first_with_parameters, forward_through, handed_on, put_aside


class Exchange(NamedTuple):
    """What a layer that communicates asks for in the middle of a forward or a backward.

    layer: the layer.
    program: of requests to the hardware; what it returns is what the layer hands on.
    value: what the layer was handed.
    """

    layer: object
    program: object
    value: object


def forward_program(layers, A, skips, call=handed_on):
    """A program that yields each `Exchange`, and returns A after consecutive layers.

    layers, A, skips, call: as for `forward_through`.
    """
    for layer in layers:
        if layer.exchanges[0]:
            A = yield Exchange(layer, layer.forward(A), A)
        else:
            A = forward_through([layer], A, skips, call)
    return A


def backward_input_program(layers, dA, skips, wants_dX, then):
    """A program that yields each `Exchange`, and returns dX of consecutive layers.

    layers, dA, skips, wants_dX, then: as for `backward_input_through`.
    """
    first = 0 if wants_dX else first_with_parameters(layers)
    for layer in layers[:first]:
        layer.cache = None
    for index in range(len(layers) - 1, first - 1, -1):
        layer, keep = layers[index], _at(index, then)
        if layer.exchanges[1]:
            dZ, dA = dA, (yield Exchange(layer, layer.backward_input(dA), dA))
            half = put_aside(layer, dZ)
            if half is not None:
                then(index, half)
        else:
            dA = backward_input_through([layer], dA, skips, index > first or wants_dX, keep)
        if dA is None and index > first:
            raise without_return(layer, "backward_input", "dA_prev")
    return dA if wants_dX else None


def _at(index, then):
    """Return `then` for the only layer of a list, which is at `index` of another."""
    return lambda _, half: then(index, half)


def exchanges_of(layers, loss, wants_dX):
    """{kind of action: how many `Exchange`s there are in it}.

    layers: of a stage.
    loss: in the last one.
    wants_dX: whether the derivative goes on below; if not, it ends at the first layer with parameters.
    """
    forward = sum(owner.exchanges[0] for owner in [*layers, loss] if owner is not None)
    with_parameters = (index for index, layer in enumerate(layers) if layer.has_parameters)
    first = 0 if wants_dX else next(with_parameters, len(layers))
    backward = sum(layer.exchanges[1] for layer in layers[first:])
    return {"F": forward, "R": forward, "B": backward, "I": backward}


def join_group(owners, group):
    """Those of `owners` that talk to other devices do so in this `Group`."""
    for owner in owners:
        if True in owner.exchanges:
            owner.group = group
