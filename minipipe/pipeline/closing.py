"""What closes a mini-batch on a device: sums over copies of a stage and over tied layers, then updates."""

from collections import Counter
from typing import NamedTuple

import numpy as np

from ..cluster import Compute, Receive, Send
from ..collectives import (
    Group, all_reduce, all_reduce_sum_and_gather, exchanged, reduce_scatter_sum_and_gather,
)
from ..schedules.rules import MEETING, RULES, SUMMED, adding
from ..ties import sum_of_tied
from .totals import Totals
from .wires import NOTHING


class Closing:
    """What one device does at the end of a mini-batch, or wherever its order has an `A` or a `U`.

    wires: the `Wires` of the `Schedule`, which may have all-reduces and updates in its order, or leave them
        to its end.
    device: the number of this one in the schedule.
    stages: {(stage, device): what holds the sums of this stage there}; empty in a run without numbers.
    ties: {name: the `Tied` layers}.
    algorithm: the all-reduce, one of `minipipe.collectives.ALL_REDUCES`.
    """

    def __init__(self, wires, device, stages, ties, algorithm):
        schedule, self._device = wires.schedule, wires.ranks[device]
        self._stages, self._ties = stages, ties
        self._placements, self._last = wires.placements, schedule.n_microbatches - 1
        self._own = wires.stages_on(self._device)
        summing = adding(SUMMED, schedule.kinds)
        self._has_sums, self._has_U = bool(summing), "U" in schedule.kinds
        self._has_parts = "S" in schedule.kinds
        self._started = []
        if schedule.kinds & MEETING:
            self._started = _named(action for action in schedule.devices[device] if action.kind in MEETING)
        self._sums = [action for action, _ in self._started if action.kind in summing]
        self._is_waited_for = "X" in schedule.kinds  # the end of a gather
        self._to_start, self._coming = iter(self._started), {}  # stage -> the name of the gather under way
        self._algorithm, self._groups = algorithm, _groups(wires, self._own, self._device)
        self._over = set()  # the names of sums that this device knows to be over

    def around(self, perform):
        """`perform`, as `program` takes it, with what closes a mini-batch.

        An `A`, an `S` and a `G` only start an exchange; a `U` first waits for the sums that it applies, and
        what needs all parameters for their gather.
        """
        def perform_any(action, inputs):
            if action.kind in MEETING:
                _, name = next(self._to_start)
                if action.kind == "G" and self._is_waited_for:
                    self._coming[action.stage] = name
                yield Send(f"the start of {name}", None, self._device)
                return [NOTHING]
            for part in action.parts:
                if part.stage in self._coming and RULES[part.kind].whole:
                    yield Receive(f"the end of {self._coming.pop(part.stage)}", self._device)
            if action.kind == "U":
                if self._has_sums:
                    yield from self._wait_for(self._sums if self._ties else [action])
                else:
                    yield from self._sum_in_group(action.stage, action.microbatch)
                yield from self._exchange_tied()
            return (yield from perform(action, inputs))

        return perform_any

    def communicate(self):
        """The program of the communication lane: the exchanges, in the order in which they are started."""
        exchanges = {"A": self._all_reduce, "S": self._reduce_scatter, "G": self._gather}
        for action, name in self._started:
            yield Receive(f"the start of {name}", self._device)
            yield from exchanges[action.kind](action.stage, action.microbatch)
            yield Compute(action)
            if action in self._sums:
                yield Send(_end(action), None, self._device)
            elif self._is_waited_for:
                yield Send(f"the end of {name}", None, self._device)

    def close(self):
        """A program: what the order has left to the end of the mini-batch."""
        if not self._has_sums and not self._has_U:
            for stage in self._own:
                yield from self._all_reduce(stage, self._last)
        elif self._has_sums and not self._has_U:
            yield from self._wait_for(self._sums)
        yield from self._exchange_tied()

    def _wait_for(self, sums):
        """Wait until these sums are complete. A sum that was waited for before is skipped."""
        for action in sums:
            if _end(action) not in self._over:
                self._over.add(_end(action))
                yield Receive(_end(action), self._device)

    def _all_reduce(self, stage, i):
        """All devices that have a copy of the stage get the sums of the mini-batch of micro-batch i."""
        yield from self._exchange(stage, i, keeps_part=False)

    def _reduce_scatter(self, stage, i):
        """Each device that has a copy of the stage gets its own part of the sum of the gradients."""
        yield from self._exchange(stage, i, keeps_part=True)

    def _exchange(self, stage, i, keeps_part):
        """Sum over the shards of each copy, and then over the copies: gradients, costs and statistics."""
        yield from self._sum_in_group(stage, i)
        group, own = self._groups.get(stage), self._stages.get((stage, self._device))
        if group is None:
            return
        totals, i = (own.totals, own.last_grain(i)) if own else (Totals(1), i)
        gradients, pending = totals.gradients(i), totals.pending(i)
        if keeps_part:
            part, counted = yield from reduce_scatter_sum_and_gather(group, gradients, pending)
            totals.keep_part(i, part)
        else:
            total, counted = yield from all_reduce_sum_and_gather(group, gradients, pending, self._algorithm)
            totals.replace_gradients(i, total)
        _absorb_counted(group, totals, i, counted)

    def _gather(self, stage, i):
        """Each device gets the parts of the stage's parameters that the others have."""
        group, own = self._groups[stage], self._stages.get((stage, self._device))
        part = own.owned.vectors if own else []
        parts = yield from exchanged(group, lambda rank: part, group.begin("gather of parameters"))
        if own:
            own.owned.gather(parts)

    def _sum_in_group(self, stage, i):
        """The devices that share the work inside the stage add up gradients of which each has a summand."""
        stage = self._stages.get((stage, self._device))
        indices = [] if stage is None else stage.partial
        if indices:
            i = stage.last_grain(i)
            pending = stage.totals.partial_gradients(i, indices)
            total = yield from all_reduce(stage.group, pending, self._algorithm)
            stage.totals.replace_partial(i, total)

    def _exchange_tied(self):
        """Sum the dW of tied layers over their devices. Called again in the same run, do nothing."""
        ties, self._ties = self._ties, {}
        if ties and self._has_parts:
            yield from exchange_tied_parts(ties, self._stages, self._device)
        elif ties:
            yield from exchange_tied(ties, self._placements, self._stages, self._device)


def _named(actions):
    """[(action, a name that no other has)]; a gather may come several times."""
    found, times = [], Counter()
    for action in actions:
        times[action] += 1
        found.append((action, f"{action}" if times[action] == 1 else f"{action} (time {times[action]})"))
    return found


def _absorb_counted(group, totals, i, counted):
    """Costs and statistics are small: each device gets those of all others, and adds them up itself."""
    for pending in counted[:group.rank] + counted[group.rank + 1:]:
        totals.absorb(i, pending)


def _end(action):
    """One name for the `A` or `S` of a mini-batch, which is over then, and its `U`, which waits for that."""
    return f"the end of the sum of stage {action.stage} up to micro-batch {action.microbatch}"


def _groups(wires, own, device):
    """{stage: the `Group` of the devices that have copies of it, in their order}, of those in `own`."""
    found = {}
    for stage in own:
        devices = wires.holders(stage)
        if len(devices) > 1:  # sums and parameters are replaced in a run, never changed
            found[stage] = Group(devices.index(device), devices, f"stage {stage}: ", stays=True)
    return found


class Tied(NamedTuple):
    """A layer that shares its W.

    layer: its index in the network.
    stage, index: its stage, and its index there.
    parts: with ZeRO, {device that updates a part of it: (which of its vectors that is, its numbers)}.
    """

    layer: int
    stage: int
    index: int
    parts: dict | None = None


def tied_in_parts(ties, wires, memory):
    """The tied layers of a shard, with the parts that devices update of them.

    ties: {name: its `Tied` layers}.
    wires: of the shard.
    memory: {(stage, device): {key of a vector: `Piece`}}, see `Layout`.
    """
    def parts_of(tied):
        return {
            device: (key[0], piece.numbers)
            for device in wires.holders(tied.stage) for key, piece in memory[tied.stage, device].items()
            if piece.parameter[:2] == (tied.layer, "W")
        }

    return {name: [tied._replace(parts=parts_of(tied)) for tied in family] for name, family in ties.items()}


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


def exchange_tied_parts(ties, stages, device):
    """A program: devices that update parts of tied layers send each other what these parts have in common.

    Each then has the sum of all that share the numbers of its own parts, in the order of the layers.

    ties: {name: its `Tied` layers, in order}.
    stages: {(stage, device): the stage}.
    device: the number of this one.
    """
    for name, family in ties.items():
        here = [tied for tied in family if device in tied.parts]
        own = {tied.layer: stages[tied.stage, device].totals.part[tied.parts[device][0]] for tied in here}
        for tied in here:
            for other, to, numbers in _in_common(tied, family, device):
                if to != device:
                    label = _label("a part of dW of", f"{name}, {other.layer}", tied)
                    yield Send(label, _numbers_of(tied, own[tied.layer], device, numbers), to)
        totals = []
        for tied in here:
            pieces = {other.layer: [] for other in family}
            for other, source, numbers in _in_common(tied, family, device):
                if source == device:
                    piece = _numbers_of(other, own[other.layer], device, numbers)
                else:
                    label = _label("a part of dW of", f"{name}, {tied.layer}", other)
                    piece = yield Receive(label, source)
                pieces[other.layer].append(piece)
            totals.append(sum_of_tied(map(np.concatenate, pieces.values())))
        for tied, total in zip(here, totals, strict=True):
            stages[tied.stage, device].totals.keep_vector(tied.parts[device][0], total)


def _in_common(tied, family, device):
    """[(other layer, a device, the numbers that its part has in common with this device's part of `tied`)]"""
    _, own = tied.parts[device]
    found = []
    for other in family:
        for place, (_, theirs) in sorted(other.parts.items(), key=lambda row: row[1][1].start):
            numbers = range(max(own.start, theirs.start), min(own.stop, theirs.stop))
            if numbers:
                found.append((other, place, numbers))
    return found


def _numbers_of(tied, vector, device, numbers):
    """Return these numbers of the W of a tied layer. vector: the part of it that a device has."""
    first = tied.parts[device][1].start
    return vector[numbers.start - first:numbers.stop - first]


def _label(what, name, tied):
    return f"{what} layer {tied.layer} ({name})"
