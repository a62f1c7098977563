"""Where a layer talks to other devices, in the middle of a forward or a backward."""

from typing import NamedTuple


class Exchange(NamedTuple):
    """What a layer that communicates asks for in the middle of a forward or a backward.

    layer: the layer.
    program: of requests to the hardware; what it returns is what the layer hands on.
    value: what the layer was handed.
    """

    layer: object
    program: object
    value: object


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
