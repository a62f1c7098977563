"""The bytes that the devices will hold in a run, foreseen from those of one micro-batch."""

from collections import Counter

from ..cluster import Bytes, Compute, Counted
from ..pipeline.closing import Tied
from ..pipeline.holdings import KEPT
from ..pipeline.totals import Totals
from ..pipeline.versions import Versions
from ..pipeline.wires import MAIN
from ..schedules.counting import check_versions, updates
from ..schedules.rules import CLOSING, RULES, WEIGHT
from .one_microbatch import Footprint

ALWAYS = ("parameters", "optimizer state")  # what a stage holds from its beginning to its end


class StandIn:
    """What stands for a stage where there are only bytes: it holds what the stage would, and sends what the stage would.

    footprints: the `Footprint` of the stage for each micro-batch.
    patterns: for each micro-batch, the kinds of its actions in order.
    n: the micro-batches of one update.
    wanted: for each micro-batch the version of the weights that it uses, if there are updates.
    """

    def __init__(self, footprints, patterns, n, wanted=None):
        self.totals = Totals(n)
        self._footprints, self._patterns = footprints, patterns
        self._versions = None if wanted is None else Versions(wanted, None)
        self._gradients, self._statistics = Bytes(footprints[0].gradients), Bytes(footprints[0].statistics)
        self._held = Counted.fromkeys((*ALWAYS, "weight versions", "gradients", *KEPT, "work"), 0)
        self._held.update(zip(ALWAYS, (footprints[0].parameters, footprints[0].optimizer_state), strict=True))
        self._kept = {}  # micro-batch -> {kind: bytes}
        self._n_changes = 0

    def get(self, kind, i):
        """An action is about to begin: the stage works with what it is given."""
        self._held["work"] += self._action(kind, i)[0]

    def act(self, kind, i):
        """An action changes what the stage holds, and what it works with."""
        before, after, kept = self._action(kind, i)
        self._held["work"] += after - before
        for name, n_bytes in self._kept.get(i, {}).items():
            self._held[name] -= n_bytes
        for name, n_bytes in kept.items():
            self._held[name] += n_bytes
        self._kept[i] = kept
        rule = RULES[kind]
        if rule.alive > 0 and self._statistics.nbytes:
            self.totals.add_statistics(i, self._statistics)
        if rule.adds & WEIGHT:
            self.totals.add(i, self._gradients)
        if self._versions is not None:
            self._change_versions(kind, i)

    def dW(self, layer):
        """In the place of the gradient of a tied layer."""
        return Bytes(next(n_bytes for (_, index), n_bytes in self._footprints[0].tied.items() if index == layer))

    def holdings(self):
        """{kind: bytes}"""
        if self._n_changes != self.totals.n_changes:
            n_gradients, n_statistics = self.totals.n_held()
            sums = n_gradients * self._gradients.nbytes + n_statistics * self._statistics.nbytes
            self._held["gradients"] = sums + sum(dW.nbytes for dW in self.totals.of_tied.values())
            self._n_changes = self.totals.n_changes
        return Counted(self._held)

    def let_go(self):
        """An action is over: what it has worked with is sent, or dropped."""
        self._held["work"] = 0

    def _action(self, kind, i):
        return self._footprints[i].actions[self._patterns[i]].get(kind, (0, 0, {}))

    def _change_versions(self, kind, i):
        if kind == "U":
            self._versions.add(None)
            self.totals.forget(i)
        elif RULES[kind].adds & WEIGHT:
            self._versions.used_by(i)
        self._held["weight versions"] = len(self._versions.older) * self._held["parameters"]


class Foresight:
    """Stand-ins for all stages of a schedule, and the programs that they run.

    footprints: a list with the `Footprint` of each stage, or one such list for each micro-batch if their sizes differ. The
    bytes of different micro-batches add up, because no two of them share an array; the sums over micro-batches and the
    versions of the weights that a stage keeps follow from the order of its actions.
    """

    def __init__(self, schedule, footprints):
        footprints = _for_each_microbatch(schedule, footprints)
        patterns, per_update = _known_patterns(schedule, footprints), _microbatches_per_update(schedule)
        self._of_stages = footprints[0]
        self._placements, self._copy_of = schedule.placements, schedule.copy_of
        microbatches = range(schedule.n_microbatches)
        self.stages = {}  # (stage, device) -> StandIn
        for stage in range(schedule.n_stages):
            wanted = None
            if "U" in schedule.kinds:
                wanted = schedule.versions[stage] if schedule.versions else [0] * schedule.n_microbatches
            of_stage, order = [footprints[i][stage] for i in microbatches], [patterns[stage, i] for i in microbatches]
            for placement in self._placements:
                self.stages[stage, placement[stage]] = StandIn(of_stage, order, per_update, wanted)
        self._sent = [[_sent(of_stage) for of_stage in of_microbatch] for of_microbatch in footprints]

    def perform(self, action, inputs):
        """For `program`: an action that takes its time, and whose arguments, results and messages have their bytes."""
        parts = [(self._stage(stage, i), kind, i) for kind, stage, i in action.parts]
        for stand_in, kind, i in parts:
            stand_in.get(kind, i)
        yield Compute(action, _act, parts)
        for stand_in, *_ in parts:
            stand_in.let_go()
        return [self._sent[i][stage][RULES[kind].message] for kind, stage, i in action.parts]

    def holdings(self):
        """For each device, a function that returns {kind: bytes}."""
        on_device = {}
        for (_, device), stand_in in self.stages.items():
            on_device.setdefault(device, []).append(stand_in.holdings)
        return [_added_up(on_device[device]) for device in sorted(on_device)]

    def skips(self):
        """(name, stage of its Fork, stage of its Join) of the skip connections from one stage to another."""
        begins, ends = (
            {name: stage for stage, footprint in enumerate(self._of_stages) for message, name in footprint.skips if message == way}
            for way in "FB"
        )
        return [(name, begin, ends[name]) for name, begin in begins.items()]

    def ties(self):
        """{name: its `Tied` layers, in order}"""
        ties = {}
        for stage, footprint in enumerate(self._of_stages):
            for name, layer in footprint.tied:
                ties.setdefault(name, []).append(Tied(layer, stage, layer))
        return ties

    def _stage(self, stage, i):
        return self.stages[stage, self._placements[self._copy_of[i] if self._copy_of else 0][stage]]


def _act(parts):
    for stand_in, kind, i in parts:
        stand_in.act(kind, i)


def _added_up(holdings):
    """One function for all that the stand-ins on a device hold. holdings: a function for each of them."""
    if len(holdings) == 1:
        return holdings[0]

    def held():
        total = Counter()
        for of_stage in holdings:
            total.update(of_stage())
        return Counted(total)

    return held


def _sent(footprint):
    """{kind of message: {name: what a stage sends by this name}}"""
    sent = {"": {}} | {message: {MAIN: Bytes(n_bytes)} for message, n_bytes in footprint.sent.items()}
    for (message, name), n_bytes in footprint.skips.items():
        sent[message][name] = Bytes(n_bytes)
    return sent


def _for_each_microbatch(schedule, footprints):
    """A list with the footprints of the stages for each micro-batch; `ValueError` for what does not fit the schedule."""
    M = schedule.n_microbatches
    if not isinstance(footprints, list) or not footprints:
        what = "an empty list" if footprints == [] else f"a {type(footprints).__name__}"
        raise ValueError(f"footprints is {what}: pass footprints(...) or measure(...).footprints, or a list of these")
    footprints = footprints if isinstance(footprints[0], list) else [footprints] * M
    for i, stages in enumerate(footprints):
        if not isinstance(stages, list) or not all(isinstance(of_stage, Footprint) for of_stage in stages):
            raise ValueError(f"footprints[{i}] is {stages!r}, but must be a list with a Footprint for each stage: footprints(...)")
    n_stages = {len(stages) for stages in footprints}
    if len(footprints) != M or n_stages != {schedule.n_stages}:
        raise ValueError(
            f"footprints are of {len(footprints)} micro-batches and {', '.join(map(str, sorted(n_stages)))} stages, but the schedule has "
            f"{M} and {schedule.n_stages}: make them for a network with as many stages, for each size of its micro-batches"
        )
    return footprints


def patterns_of(schedule):
    """{(stage, micro-batch): the kinds of its actions in order, such as "FRB"}, up to the end of its backward.

    >>> from ..schedules import gpipe
    >>> patterns_of(gpipe(1, 2))
    {(0, 0): 'FB', (0, 1): 'FB'}
    """
    kinds = {}
    for device in range(len(schedule.devices)):
        for kind, stage, i in schedule.parts(device):
            if kind not in CLOSING:
                kinds[stage, i] = kinds.get((stage, i), "") + kind
    return kinds


def _known_patterns(schedule, footprints):
    patterns = patterns_of(schedule)
    for (stage, i), pattern in patterns.items():
        known = footprints[i][stage].actions
        if pattern not in known:
            raise ValueError(
                f"the schedule does {pattern} on stage {stage}, but the footprints are of {', '.join(known)}: make them with "
                f"patterns=[{pattern!r}, ...]"
            )
    return patterns


def _microbatches_per_update(schedule):
    """How many micro-batches one update takes in."""
    if not schedule.asynchronous:
        return schedule.n_microbatches
    check_versions(schedule)
    sizes = {len(applied) for *_, applied in updates(schedule)}
    if len(sizes) > 1:
        raise ValueError(
            f"the updates of {schedule.name!r} apply {sorted(sizes)} micro-batches: their bytes are only foreseen where all apply "
            "equally many"
        )
    return sizes.pop()
