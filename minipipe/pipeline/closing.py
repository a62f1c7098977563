"""How sums come together at the end of a mini-batch: those of the copies of a stage, and those of tied layers."""

from typing import NamedTuple

from ..cluster import Receive, Send
from ..network import sum_of_tied


def all_reduce(number, totals, stage, i, device, devices):
    """A program: all `devices` that have a copy of a stage get the sums over the micro-batches of all of them.

    Each hands its partial sums to the first, which puts them together along the tree of the mini-batch and sends the totals
    back; so the bits do not depend on where a micro-batch was computed.

    number: how many such meetings of this stage came before. totals: the `Totals` of `stage` on this device, None without
    numbers. i: the last micro-batch of those to be summed. device: this one. devices: those that have the stage, in order.
    """
    name = f"stage {stage}" if number == 0 else f"stage {stage}, update {number}"
    first, *others = devices
    if device == first:
        for other in others:
            sums = yield Receive(f"sums of {name}", other)
            if totals is not None:
                totals.absorb(i, sums)
        for other in others:
            yield Send(f"totals of {name}", None if totals is None else totals.pending(i), other)
    else:
        yield Send(f"sums of {name}", None if totals is None else totals.pending(i), first)
        sums = yield Receive(f"totals of {name}", first)
        if totals is not None:
            totals.replace(i, sums)


class Tied(NamedTuple):
    """A layer that shares its W: its index in the network, its stage, and its index there."""

    layer: int
    stage: int
    index: int


def exchange_tied(ties, placements, stages, device):
    """A program: tied layers send their dW to the first of them, which sends the sum back to the others; so in each copy.

    ties: {name: its `Tied` layers, in order}. placements: for each copy of the network, the device of each stage. stages:
    {(stage, device): the stage}.
    """
    families = {
        (name, *(placement[tied.stage] for tied in layers)): layers for placement in placements for name, layers in ties.items()
    }  # of copies with all of these layers on the same devices, there is one
    for (name, first, *others), (_, *layers) in families.items():
        for tied, place in zip(layers, others, strict=True):
            if place == device:
                yield Send(_label("dW of", name, tied), stages[tied.stage, device].dW(tied.index), first)
    for (name, first, *others), (own, *layers) in families.items():
        if first == device:
            stage = stages[own.stage, device]
            parts = [stage.dW(own.index)]
            for tied, place in zip(layers, others, strict=True):
                parts.append((yield Receive(_label("dW of", name, tied), place)))
            total = sum_of_tied(parts)
            stage.totals.keep_tied(own.index, total)
            for tied, place in zip(layers, others, strict=True):
                yield Send(_label("sum for", name, tied), total, place)
    for (name, first, *others), (_, *layers) in families.items():
        for tied, place in zip(layers, others, strict=True):
            if place == device:
                total = yield Receive(_label("sum for", name, tied), first)
                stages[tied.stage, device].totals.keep_tied(tied.index, total)


def _label(what, name, tied):
    return f"{what} layer {tied.layer} ({name})"
