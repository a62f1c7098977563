"""What closes a mini-batch on a device: sums over copies of a stage and over tied layers, then updates."""

from collections import Counter

from ..cluster import Compute, Receive, Send
from ..collectives import (
    Group, all_reduce, all_reduce_sum_and_gather, exchanged, reduce_scatter_sum_and_gather,
)
from ..sums import TreeSum
from .programs import NOTHING
from .rules import MEETING, RULES, SUMMED, adding


class Closing:
    """What one device does at the end of a mini-batch, or wherever its order has an `A` or a `U`.

    wires: the `Wires` of the `Schedule`, which may have all-reduces and updates in its order, or leave them
        to its end.
    device: the number of this one in the schedule.
    stages: {(stage, device): what holds the sums of this stage there}; empty in a run without numbers.
    sum_tied: a function (device) -> program, which sums the gradients of tied layers; None without any.
    algorithm: the all-reduce, one of `minipipe.collectives.ALL_REDUCES`.
    """

    def __init__(self, wires, device, stages, sum_tied, algorithm):
        schedule, self._device = wires.schedule, wires.ranks[device]
        self._stages, self._sum_tied = stages, sum_tied
        self._last = schedule.n_microbatches - 1
        self._own = wires.stages_on(self._device)
        summing = adding(SUMMED, schedule.kinds)
        self._has_sums, self._has_U = bool(summing), "U" in schedule.kinds
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
                    yield from self._wait_for(self._sums if self._sum_tied else [action])
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
        group, own = self._groups.get(stage), self._own_stage(stage)
        if group is None:
            return
        totals, i = own.totals, own.last_grain(i)
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
        group, owned = self._groups[stage], self._own_stage(stage).owned
        part = owned.vectors
        parts = yield from exchanged(group, lambda rank: part, group.begin("gather of parameters"))
        owned.gather(parts)

    def _sum_in_group(self, stage, i):
        """The devices that share the work inside the stage add up gradients of which each has a summand."""
        stage = self._own_stage(stage)
        if stage.partial:
            i = stage.last_grain(i)
            pending = stage.totals.partial_gradients(i, stage.partial)
            total = yield from all_reduce(stage.group, pending, self._algorithm)
            stage.totals.replace_partial(i, total)

    def _exchange_tied(self):
        """Sum the dW of tied layers over their devices. Called again in the same run, do nothing."""
        sum_tied, self._sum_tied = self._sum_tied, None
        if sum_tied is not None:
            yield from sum_tied(self._device)

    def _own_stage(self, stage):
        return self._stages.get((stage, self._device), _NOTHING)


class _Nothing:
    """What stands for a stage, its sums and its part of the parameters in a run that has only ticks."""

    partial, vectors = (), []
    totals = owned = property(lambda self: self)

    def last_grain(self, i):
        """Return the number of the only grain of micro-batch i."""
        return i

    def gradients(self, i):
        """Return a sum without any terms."""
        return TreeSum(1)

    def pending(self, i):
        """Return nothing that other devices could add."""
        return ()

    def take(self, *arguments):
        """Drop what other devices have sent."""

    keep_part = replace_gradients = absorb = gather = take


_NOTHING = _Nothing()


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
