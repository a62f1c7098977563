"""The bytes that the devices will hold in a run, foreseen from those of one micro-batch."""

from collections import Counter

from ..schedules.counting import check_versions, updates
from .one_microbatch import Footprint
from ..pipeline.program import Routes
from ..sums import SumForEach
from ..pipeline.versions import Versions


class Foresight:
    """Follows the actions of a schedule, and writes the bytes that each device holds into the record of a run.

    footprints: a list with the `Footprint` of each stage, or one such list for each micro-batch if their sizes differ. The
    bytes of different micro-batches add up, because no two of them share an array; the sums over micro-batches and the
    versions of the weights that a stage keeps follow from the order of its actions.
    """

    def __init__(self, schedule, footprints, record):
        self.footprints, self.record = _for_each_microbatch(schedule, footprints), record
        self.patterns = _known_patterns(schedule, self.footprints)
        self.copy_of = schedule.copy_of or [0] * schedule.n_microbatches
        per_update = _microbatches_per_update(schedule)
        self.kept = {}      # (stage, micro-batch) -> bytes of its stash, by kind
        self.sums = {}      # (copy, stage) -> sums of gradients and of statistics
        self.versions = {}  # stage -> its versions, if the schedule has updates
        self.held = [Counter() for _ in schedule.devices]  # for each device, the bytes by kind
        for copy, placement in enumerate(schedule.placements):
            for stage, device in enumerate(placement):
                self.sums[copy, stage] = SumForEach(per_update), SumForEach(per_update)
                if schedule.asynchronous:
                    self.versions[stage] = Versions(schedule.versions[stage], None)
                self.held[device]["parameters"] += self.footprints[0][stage].parameters
                self.held[device]["optimizer state"] += self.footprints[0][stage].optimizer_state
        for device, held in enumerate(self.held):
            record.memory += (device, 0, dict(held))

    def perform(self, device, parts, start, end):
        """The device has done an action with these parts. While it lasts, the larger of what it holds at start and end counts."""
        held, given, made = self.held[device], 0, 0
        at_start = dict(held)
        for kind, stage, i in parts:
            before, after, kept = self.footprints[i][stage].actions[self.patterns[stage, i]].get(kind, (0, 0, {}))
            given, made = given + before, made + after
            held.subtract(self.kept.get((stage, i), {}))
            held.update(kept)
            self.kept[stage, i] = kept
            held["gradients"] += self._add_to_sums(kind, stage, i)
            if self.versions:
                held["weight versions"] += self._change_versions(kind, stage, i)
        at_start, at_end = at_start | {"work": given}, held | Counter(work=made)
        most = max(at_start, at_end, key=lambda counts: sum(counts.values()))
        self.record.memory += (device, start, dict(most), device, end, dict(held))

    def keep_sums(self, device, n_bytes, tick):
        """The device has received sums of gradients, and holds so many bytes of them more, or fewer."""
        self.held[device]["gradients"] += n_bytes
        self.record.memory += (device, tick, dict(self.held[device]))

    def ties(self):
        """{name: [(layer, stage, bytes of its dW)]}, in the order of the layers."""
        ties = {}
        for stage, of_stage in enumerate(self.footprints[0]):
            for (name, layer), n_bytes in of_stage.tied.items():
                ties.setdefault(name, []).append((layer, stage, n_bytes))
        return ties

    def sent(self, kind, stage, i):
        """The bytes of the message that an action sends."""
        return self.footprints[i][stage].sent["F" if kind == "F" else "B"]

    def routes(self):
        """What skip connections send, of a Fork's stage to its Join's."""
        begins, ends = ({name: stage for stage, of_stage in enumerate(self.footprints[0]) for message, name in of_stage.skips if message == way}
                        for way in "FB")
        return Routes(tuple((name, begin, ends[name]) for name, begin in begins.items()))

    def bytes_of_sums(self, copy, stage):
        """The bytes of what a stage has summed up so far."""
        footprint, (gradients, statistics) = self.footprints[0][stage], self.sums[copy, stage]
        return gradients.n_pending * footprint.gradients + statistics.n_pending * footprint.statistics

    def _add_to_sums(self, kind, stage, i):
        """The bytes by which a stage's sums grow; fewer than 0 where they merge, or where an update has used them."""
        copy = self.copy_of[i]
        before = self.bytes_of_sums(copy, stage)
        gradients, statistics = self.sums[copy, stage]
        if kind == "F":
            statistics.add(i, 0)
        elif kind in "BW":
            gradients.add(i, 0)
        elif kind == "U":
            gradients.pop(i)
            statistics.pop(i)
        return self.bytes_of_sums(copy, stage) - before

    def _change_versions(self, kind, stage, i):
        """The bytes by which a stage's older versions grow, or shrink."""
        versions = self.versions[stage]
        before = len(versions)
        if kind == "U":
            versions.add(None)
        elif kind in "BW":
            versions.used_by(i)
        return (len(versions) - before) * self.footprints[0][stage].parameters


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
    """{(stage, micro-batch): the kinds of its actions in order, such as "FRB"}; an update is not among them.

    >>> from ..schedules import gpipe
    >>> patterns_of(gpipe(1, 2))
    {(0, 0): 'FB', (0, 1): 'FB'}
    """
    kinds = {}
    for device in range(len(schedule.devices)):
        for kind, stage, i in schedule.parts(device):
            kinds[stage, i] = kinds.get((stage, i), "") + kind
    return {place: order.rstrip("U") for place, order in kinds.items()}


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
