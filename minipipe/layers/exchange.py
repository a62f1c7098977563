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


def exchanges_of(owners):
    """{kind of action: how many `Exchange`s there are in it}.

    owners: the layers of a stage, and in the last one the loss.
    """
    forward, backward = (sum(owner.exchanges[way] for owner in owners) for way in (0, 1))
    return {"F": forward, "R": forward, "B": backward, "I": backward}


def join_group(owners, group):
    """Those of `owners` that talk to other devices do so in this `Group`."""
    for owner in owners:
        if True in owner.exchanges:
            owner.group = group
