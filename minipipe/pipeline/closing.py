"""What closes a mini-batch on a device: sums over copies of a stage and over tied layers, then updates."""

from typing import NamedTuple

from ..cluster import Compute, Receive, Send
from ..network import sum_of_tied


class Closing:
    """What one device does at the end of a mini-batch, or wherever its order has an `A` or a `U`.

    schedule: the `Schedule`, which may have all-reduces and updates in its order, or leave them to its end.
    device: the number of this one.
    stages: {(stage, device): what holds the sums of this stage there}; empty in a run without numbers.
    ties: {name: the `Tied` layers}.
    """

    def __init__(self, schedule, device, stages, ties):
        self._device, self._stages, self._ties = device, stages, ties
        self._placements, self._last = schedule.placements, schedule.n_microbatches - 1
        self._has_A, self._has_U = "A" in schedule.kinds, "U" in schedule.kinds
        self._sums = [action for action in schedule.devices[device] if action.kind == "A"]
        self._over = set()  # the names of all-reduces that this device knows to be over

    def around(self, perform):
        """`perform`, as `program` takes it, with what an `A` and a `U` need.

        An `A` only starts its all-reduce; a `U` first waits for the sums that it applies.
        """
        def perform_any(action, inputs):
            if action.kind == "A":
                yield Send(_begin(action), None, self._device)
                return [{}]
            if action.kind == "U":
                if self._has_A:
                    yield from self._wait_for(self._sums if self._ties else [action])
                yield from self._exchange_tied()
            return (yield from perform(action, inputs))

        return perform_any

    def communicate(self):
        """The program of the communication lane: the all-reduces, in the order in which they are started."""
        n_before = {}
        for action in self._sums:
            yield Receive(_begin(action), self._device)
            number = n_before.get(action.stage, 0)
            yield from self._all_reduce(number, action.stage, action.microbatch)
            n_before[action.stage] = number + 1
            yield Compute(action)
            yield Send(_end(action), None, self._device)

    def close(self):
        """A program: what the order has left to the end of the mini-batch."""
        if not self._has_A and len(self._placements) > 1:
            for stage in range(len(self._placements[0])):
                yield from self._all_reduce(0, stage, self._last)
        elif self._has_A and not self._has_U:
            yield from self._wait_for(self._sums)
        yield from self._exchange_tied()

    def _wait_for(self, sums):
        """Until these all-reduces are over; each is waited for once."""
        for action in sums:
            if _end(action) not in self._over:
                self._over.add(_end(action))
                yield Receive(_end(action), self._device)

    def _all_reduce(self, number, stage, i):
        devices = list(dict.fromkeys(placement[stage] for placement in self._placements))
        if len(devices) > 1 and self._device in devices:
            holder = self._stages.get((stage, self._device))
            totals = None if holder is None else holder.totals
            yield from all_reduce(number, totals, stage, i, self._device, devices)

    def _exchange_tied(self):
        """Once in a run: before its first update, or else at its end."""
        ties, self._ties = self._ties, {}
        if ties:
            yield from exchange_tied(ties, self._placements, self._stages, self._device)


def _begin(action):
    return f"{action} begins"


def _end(action):
    """One name for the `A` of a mini-batch, which is over then, and for its `U`, which waits for that."""
    return f"{action.stage}A{action.microbatch} is over"


def all_reduce(number, totals, stage, i, device, devices):
    """A program: all devices that have a copy of a stage get the sums over the micro-batches of all copies.

    Each hands its partial sums to the first, which puts them together along the tree of the mini-batch and
    sends the totals back; so the bits do not depend on where a micro-batch was computed.

    number: how many such meetings of this stage came before.
    totals: the `Totals` of `stage` on this device; None without numbers.
    stage: its number.
    i: the last micro-batch of those that are summed.
    device: the number of this one.
    devices: those that have the stage, in order.
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
    """A program: tied layers send their dW to the first of them, which sends the sum back; so in each copy.

    ties: {name: its `Tied` layers, in order}.
    placements: for each copy of the network, the device of each stage.
    stages: {(stage, device): the stage}.
    device: the number of this one.
    """
    families = {}  # (name, first layer, its device) -> (other layer, its device), in all copies with that one
    for placement in placements:
        for name, (own, *others) in ties.items():
            family = families.setdefault((name, own, placement[own.stage]), {})
            family.update({(tied, placement[tied.stage]): None for tied in others})
    for (name, _, first), family in families.items():
        for tied, place in family:
            if place == device:
                yield Send(_label("dW of", name, tied), stages[tied.stage, device].dW(tied.index), first)
    for (name, own, first), family in families.items():
        if first == device:
            stage = stages[own.stage, device]
            parts = {own: stage.dW(own.index)}
            for tied, place in family:
                parts[tied] = yield Receive(_label("dW of", name, tied), place)  # on all devices the same
            total = sum_of_tied(parts.values())
            stage.totals.keep_tied(own.index, total)
            for tied, place in family:
                yield Send(_label("sum for", name, tied), total, place)
    for (name, _, first), family in families.items():
        for tied, place in family:
            if place == device:
                total = yield Receive(_label("sum for", name, tied), first)
                stages[tied.stage, device].totals.keep_tied(tied.index, total)


def _label(what, name, tied):
    return f"{what} layer {tied.layer} ({name})"
