"""The bytes that the devices will hold in a run, predicted from the bytes of one micro-batch."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ..checks import shown
from ..cluster import Bytes, Compute, Counted
from ..cluster.requests import Program
from ..collectives.group import Group, cut_into_chunks
from ..order.actions import CLOSING, FORWARD, RULES, UPDATED, WEIGHT
from ..order.counting import updates
from ..order.programs import NOTHING, Wires, gather_parameters
from ..order.schedule import Schedule
from ..order.simulate import FORESIGHTS
from ..parallel.stage import KEPT
from ..parallel.totals import Totals, Versions
from ..ties import Tied, program_of_ties
from .measuring import Footprint

ALWAYS = ("parameters", "optimizer state")  # the kinds that a stage holds during the whole run


class StandIn:
    """A stand-in for a stage in a run without arrays: it holds and sends as many bytes as the stage would.

    Args:
        footprints: the `Footprint` of the stage for each micro-batch.
        patterns: for each micro-batch, the kinds of its actions in order.
        n: the micro-batches of one update.
        wanted: {micro-batch of this stage: the version of the weights that it uses}, if
            there are updates.
        place: (rank, size), if its optimizer has the state of one of `size` shards of
            the stage; else None.
        in_parts: whether it has only the parameters of that shard, unless they are
            gathered.
    """

    def __init__(
        self, footprints: Sequence[Footprint], patterns: Sequence[str], n: int,
        wanted: dict[int, int] | None = None, place: tuple[int, int] | None = None, in_parts: bool = False,
    ):
        first = footprints[0]
        self.totals = Totals(n, first.accumulate)
        self._footprints, self._patterns = footprints, patterns
        self._versions = None if wanted is None else Versions(wanted, None)
        self._gradients = Bytes(first.gradients, first.itemsize)
        self._statistics = Bytes(first.statistics)
        self._held = Counted(dict.fromkeys((*ALWAYS, "weight versions", "gradients", *KEPT, "work"), 0))
        state = first.optimizer_state
        self._part: Any = None
        self._in_parts = in_parts
        if place is not None:
            rank, size = place
            self._part = (cut_into_chunks([self._gradients], size)[rank] or [Bytes(0)])[0]
            if self._gradients.size:  # the same for each number
                state = state * self._part.size // self._gradients.size
        self._held.update(zip(ALWAYS, (first.parameters, state), strict=True))
        if in_parts:  # besides its shard, it always has values without a gradient, such as running statistics
            self._versions = None
            self._own_bytes = first.parameters - self._gradients.nbytes + self._part.nbytes
            self._held["parameters"] = self._own_bytes
        self._kept: dict = {}  # micro-batch -> {kind: bytes}

    def take(self, kind: str, i: int) -> None:
        """Count the arguments of an action that is about to begin."""
        self._held["work"] += self._action(kind, i)[0]

    def act(self, kind: str, i: int) -> None:
        """Count the results of an action instead of its arguments, and the bytes that the stage keeps."""
        if kind == "X":
            self._held["parameters"] = self._own_bytes
            return
        before, after, kept = self._action(kind, i)
        self._held["work"] += after - before
        for name, n_bytes in self._kept.get(i, {}).items():
            self._held[name] -= n_bytes
        for name, n_bytes in kept.items():
            self._held[name] += n_bytes
        self._kept[i] = kept
        adds = RULES[kind].adds
        all_layers: Any = self._gradients
        if adds & FORWARD and self._statistics.nbytes:
            self.totals.add_statistics(i, self._statistics)
        if adds & WEIGHT:
            self.totals.add(i, 0, all_layers)
        if self._in_parts and adds & UPDATED:
            self._held["parameters"] = self._own_bytes
            self.totals.forget(i)
        if self._versions is not None:
            self._change_versions(adds, i)

    def let_go(self) -> None:
        """Drop the results of a finished action: they are sent, or not needed."""
        self._held["work"] = 0

    def dW(self, layer: int) -> Bytes:
        """Return `Bytes` that stand for dW of the tied layer at index `layer` of the network."""
        tied = self._footprints[0].tied
        return Bytes(next(n_bytes for (_, place), n_bytes in tied.items() if place == layer))

    def keep_dW(self, layer: int, dW: Bytes) -> None:
        """Hold the sum of the dW of all layers that share the W of the one at index `layer`."""
        self.totals.of_tied[layer] = dW

    def all_reduce(self, i: int, group: Group, algorithm: str) -> Program:
        """A program: send the bytes of an all-reduce, and hold the sums that it leaves."""
        return self.totals.all_reduce(i, group, algorithm)

    def reduce_scatter(self, i: int, group: Group) -> Program:
        """A program: send the bytes of a reduce-scatter, and hold the part that it leaves."""
        return self.totals.reduce_scatter(i, group)

    def gather(self, group: Group) -> Program:
        """A program: gather the parameters from all shards; then the stage holds all of them."""
        # a shard of the parameters has as many bytes as that of the gradients
        yield from gather_parameters(group, [self._part])
        if self._in_parts:
            self._held["parameters"] = self._own_bytes + self._gradients.nbytes

    def holdings(self) -> Counted:
        """Return {kind: bytes}, which change when the next action begins."""
        n_gradients, n_statistics = self.totals.n_held()
        sums = n_gradients * self._gradients.nbytes + n_statistics * self._statistics.nbytes
        self._held["gradients"] = sums + sum(dW.nbytes for dW in self.totals.of_tied.values())
        self._held["gradients"] += sum(part.nbytes for part in self.totals.part or ())
        return self._held

    def _action(self, kind, i):
        """Return (before, after, kept) of an action; an update works in place and keeps nothing."""
        return self._footprints[i].actions[self._patterns[i]].get(kind, (0, 0, {}))

    def _change_versions(self, adds, i):
        if adds & UPDATED:
            self._versions.add(None)
            self.totals.forget(i)
        elif adds & WEIGHT:
            self._versions.used_by(i)
        self._held["weight versions"] = len(self._versions.older) * self._held["parameters"]


@FORESIGHTS("of footprints", needs="footprints")
class Foresight:
    """Stand-ins for all stages of a schedule, with all that `cluster_of` needs for their programs.

    Args:
        schedule: the `Schedule`.
        footprints: a list with the `Footprint` of each stage, or one such list for each
            micro-batch if their sizes differ.

    The bytes of different micro-batches add up, because no two of them share an array.
    The sums over micro-batches and the versions of the weights that a stage keeps
    follow from the order of its actions.
    """

    def __init__(self, schedule: Schedule, footprints: list):
        footprints = _for_each_microbatch(schedule, footprints)
        self.wires = Wires(schedule, _skips(footprints[0]))
        self.stages = _stand_ins(self.wires, footprints)  # (stage, device) -> StandIn
        ties: dict[str, list[Tied]] = {}  # name -> its `Tied` layers, in order
        for stage, footprint in enumerate(footprints[0]):
            for name, layer in footprint.tied:
                ties.setdefault(name, []).append(Tied(layer, stage, layer))
        if ties and "S" in schedule.kinds:
            raise ValueError(
                f"footprints of tied layers ({', '.join(ties)}) do not foresee ZeRO, which {schedule.name!r} "
                "has: leave out tie, or count the bytes of a network with zero and count_bytes=True"
            )
        self.sum_tied = program_of_ties(ties, self.wires, self.stages)
        self._sent = [[_sent(of_stage) for of_stage in stages] for stages in footprints]

    def perform_on(self, device: int) -> Callable[..., Program]:
        """Return the `perform` of a device: actions take time; arguments, results and messages have bytes."""
        stages = {stage: stand_in for (stage, place), stand_in in self.stages.items() if place == device}

        def perform(action, inputs):
            parts, results = [], []
            for kind, stage, i in action.parts:
                stand_in = stages[stage]
                stand_in.take(kind, i)
                parts.append((stand_in, kind, i))
                results.append(self._sent[i][stage][RULES[kind].message])

            def act():
                for stand_in, kind, i in parts:
                    stand_in.act(kind, i)

            yield Compute(action, act)
            for stand_in, _, _ in parts:
                stand_in.let_go()
            return results

        return perform

    def holdings(self) -> list[Callable[[], Counted]]:
        """Return for each device a function that returns {kind: bytes}."""
        on_device: dict[int, list] = {}
        for (_, device), stand_in in self.stages.items():
            on_device.setdefault(device, []).append(stand_in.holdings)
        return [_added_up(on_device[device]) for device in sorted(on_device)]


def _added_up(holdings):
    """Return one function for all that a device holds, from one function for each of its stand-ins."""
    if len(holdings) == 1:
        return holdings[0]

    def held():
        total = Counter()
        for of_stage in holdings:
            total.update(of_stage())
        return Counted(total)

    return held


def _skips(footprints):
    """Return [(name, stage of its Fork, stage of its Join)] of the skip connections between stages."""
    ends = {"F": {}, "B": {}}  # its Fork sends forward, its Join back
    for stage, footprint in enumerate(footprints):
        for message, name in footprint.skips:
            ends[message][name] = stage
    return [(name, begin, ends["B"][name]) for name, begin in ends["F"].items()]


def _stand_ins(wires, footprints):
    """Return {(stage, device): StandIn}, one for all copies that have a stage on the same device."""
    schedule = wires.schedule
    patterns, n = _patterns(schedule, footprints), _microbatches_per_update(schedule)
    microbatches = range(schedule.n_microbatches)
    found = {}
    for stage in range(schedule.n_stages):
        versions = schedule.versions[stage] if schedule.versions else [0] * schedule.n_microbatches
        of_stage = [footprints[i][stage] for i in microbatches]
        order = [patterns[stage, i] for i in microbatches]
        holders = wires.holders(stage)
        for placement in schedule.placements:
            device = placement[stage]
            place = (holders.index(device), len(holders)) if "S" in schedule.kinds else None
            wanted = None
            if "U" in schedule.kinds:
                wanted = {i: versions[i] for i in microbatches if wires.device(stage, i) == device}
            if (stage, device) not in found:
                found[stage, device] = StandIn(
                    of_stage, order, n, wanted, place=place, in_parts="X" in schedule.kinds
                )
    return found


def _sent(footprint):
    """Return {kind of message: (bytes to the next stage, {skip connection: bytes sent there})}."""
    sent = {message: (Bytes(n_bytes), {}) for message, n_bytes in footprint.sent.items()}
    for (message, name), n_bytes in footprint.skips.items():
        _, skips = sent[message]
        skips[name] = Bytes(n_bytes)
    return {"": NOTHING} | sent


def _for_each_microbatch(schedule, footprints):
    """Return the footprints of the stages for each micro-batch; raise `ValueError` if they do not fit."""
    M, found = schedule.n_microbatches, footprints
    if isinstance(found, list) and found and isinstance(found[0], Footprint):
        found = [found] * M
    lists = found if isinstance(found, list) and found else [None]
    if not all(isinstance(stages, list) and {*map(type, stages)} == {Footprint} for stages in lists):
        raise ValueError(
            f"footprints={shown(footprints)} must be a list with a Footprint for each stage, or such a list "
            "for each micro-batch: pass footprints(...) or measure(...).footprints"
        )
    footprints = found
    ways = sorted({of_stage.accumulate for stages in footprints for of_stage in stages})
    if len(ways) > 1:
        raise ValueError(f"footprints with accumulate={' and '.join(ways)}: make all with one of them")
    n_stages = {len(stages) for stages in footprints}
    if len(footprints) != M or n_stages != {schedule.n_stages}:
        raise ValueError(
            f"footprints are of {len(footprints)} micro-batches and {', '.join(map(str, sorted(n_stages)))} "
            f"stages, but the schedule has {M} and {schedule.n_stages}: make them for a network with as many "
            "stages, for each size of its micro-batches"
        )
    return footprints


def _patterns(schedule, footprints):
    """Return {(stage, micro-batch): the kinds of its actions in order, such as "FRB"}, without A, S, U, G, X.

    Raise `ValueError` for a pattern that the footprints do not have.
    """
    patterns = {}
    for _, part, _ in schedule.walk():
        if part.kind not in CLOSING:
            place = part.stage, part.microbatch
            patterns[place] = patterns.get(place, "") + part.kind
    for (stage, i), pattern in patterns.items():
        known = footprints[i][stage].actions
        if pattern not in known:
            raise ValueError(
                f"the schedule does {pattern} on stage {stage}, but the footprints are of "
                f"{', '.join(known)}: make them with patterns=[{pattern!r}, ...]"
            )
    return patterns


def _microbatches_per_update(schedule):
    """Return the number of micro-batches in each update."""
    if not schedule.asynchronous:
        return schedule.n_microbatches
    sizes = {len(applied) for *_, applied in updates(schedule)}
    if len(sizes) > 1:
        raise ValueError(
            f"the updates of {schedule.name!r} apply {sorted(sizes)} micro-batches: their bytes are only "
            "foreseen where all apply equally many"
        )
    return sizes.pop()
