"""The bytes that the devices will hold in a run, foreseen from those of one micro-batch."""

from collections import Counter

from .treesum import TreeSum


class Foresight:
    """Follows the actions of a schedule, and writes the bytes that each device holds into the record of a run.

    footprints: a list with the `Footprint` of each stage, or one such list for each micro-batch if their sizes differ. The
    bytes of different micro-batches add up, because no two of them share an array; the sums over micro-batches that are
    kept follow from their tree. The versions of weights that asynchronous schedules keep are not foreseen: `ValueError`.
    """

    def __init__(self, schedule, footprints, record):
        M = schedule.n_microbatches
        if schedule.asynchronous:
            raise ValueError(
                f"the schedule {schedule.name!r} keeps versions of weights, which are not foreseen: simulate it without footprints, or "
                "run an AsynchronousPipeline"
            )
        if not isinstance(footprints, list) or not footprints:
            what = "an empty list" if footprints == [] else f"a {type(footprints).__name__}"
            raise ValueError(f"footprints is {what}: pass measure(...).footprints, or a list of these")
        footprints = footprints if isinstance(footprints[0], list) else [footprints] * M
        if len(footprints) != M or any(len(stages) != schedule.n_stages for stages in footprints):
            raise ValueError(
                f"footprints are of {len(footprints)} micro-batches and {len(footprints[0])} stages, but the schedule has "
                f"{M} and {schedule.n_stages}: measure a network with as many stages, for each size of its micro-batches"
            )
        self.footprints, self.record, self.n_microbatches = footprints, record, M
        self.patterns = _patterns(schedule)
        self.copy_of = schedule.copy_of or [0] * M
        self.kept = {}  # (stage, micro-batch) -> bytes of its stash, by kind
        self.sums = {}  # (copy, stage) -> trees of gradients and of statistics
        self.held = [Counter() for _ in schedule.devices]  # for each device, the bytes by kind
        for copy, placement in enumerate(schedule.placements):
            for stage, device in enumerate(placement):
                self.sums[copy, stage] = TreeSum(M), TreeSum(M)
                self.held[device]["parameters"] += footprints[0][stage].parameters
        for device, held in enumerate(self.held):
            record.memory += (device, 0, dict(held))

    def perform(self, device, parts, start, end):
        """The device has done an action with these parts. While it lasts, the larger of what it holds at start and end counts."""
        held, given, made = self.held[device], 0, 0
        at_start = dict(held)
        for kind, stage, i in parts:
            before, after, kept = self.footprints[i][stage].actions[self.patterns[stage, i]][kind]
            given, made = given + before, made + after
            held.subtract(self.kept.get((stage, i), {}))
            held.update(kept)
            held["gradients"] += self._add_to_sums(kind, stage, i)
            self.kept[stage, i] = kept
        at_start, at_end = at_start | {"work": given}, held | Counter(work=made)
        most = max(at_start, at_end, key=lambda counts: sum(counts.values()))
        self.record.memory += (device, start, dict(most), device, end, dict(held))

    def sent(self, kind, stage, i):
        """The bytes of the message that an action sends."""
        return self.footprints[i][stage].sent["F" if kind == "F" else "B"]

    def bytes_of_sums(self, copy, stage):
        """The bytes of what a stage has summed up so far."""
        footprint, (gradients, statistics) = self.footprints[0][stage], self.sums[copy, stage]
        return len(gradients.pending) * footprint.gradients + len(statistics.pending) * footprint.statistics

    def _add_to_sums(self, kind, stage, i):
        """The bytes by which a stage's sums grow; fewer than 0 where they merge."""
        copy = self.copy_of[i]
        before = self.bytes_of_sums(copy, stage)
        gradients, statistics = self.sums[copy, stage]
        if kind == "F":
            statistics.add(i, 0)
        elif kind in "BW":
            gradients.add(i, 0)
        return self.bytes_of_sums(copy, stage) - before


def _patterns(schedule):
    """{(stage, micro-batch): the kinds of its actions in order}"""
    kinds = {}
    for device in range(len(schedule.devices)):
        for kind, stage, i in schedule.parts(device):
            kinds[stage, i] = kinds.get((stage, i), "") + kind
    return kinds
