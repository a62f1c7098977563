"""What stands for a stage in a run in which there are only bytes."""

from itertools import accumulate

from ..cluster import Bytes, Counted
from ..collectives.group import cut
from ..order.rules import FORWARD, RULES, UPDATED, WEIGHT
from ..parallel.holdings import KEPT
from ..parallel.totals import Totals
from ..parallel.versions import Versions

ALWAYS = ("parameters", "optimizer state")  # what a stage holds from its beginning to its end


class StandIn:
    """What stands for a stage where there are only bytes: it holds and sends what the stage would.

    footprints: the `Footprint` of the stage for each micro-batch.
    patterns: for each micro-batch, the kinds of its actions in order.
    n: the micro-batches of one update.
    wanted: {micro-batch of this stage: the version of the weights that it uses}, if there are updates.
    place: (rank, size), if its optimizer keeps something for one of so many parts of the stage; else None.
    in_parts: whether it has the parameters of that part alone, unless they are gathered.
    """

    partial = ()  # the layers of which other devices of a group have a summand of the gradients

    def __init__(self, footprints, patterns, n, wanted=None, place=None, in_parts=False):
        first = footprints[0]
        ends = list(accumulate(of_one.n_grains for of_one in footprints))
        self.totals = Totals(ends[n - 1], first.accumulate)
        self._grains = [range(end - of_one.n_grains, end) for end, of_one in zip(ends, footprints)]
        self._footprints, self._patterns = footprints, patterns
        self._versions = None if wanted is None else Versions(wanted, None)
        self._gradients = Bytes(first.gradients, first.itemsize)
        self._statistics = Bytes(first.statistics)
        self._held = Counted.fromkeys((*ALWAYS, "weight versions", "gradients", *KEPT, "work"), 0)
        state = first.optimizer_state
        self._part, self._in_parts = None, in_parts
        if place is not None:
            rank, size = place
            self._part = (cut([self._gradients], size)[rank] or [Bytes(0)])[0]
            if self._gradients.size:  # as much for each number
                state = state * self._part.size // self._gradients.size
        self._held.update(zip(ALWAYS, (first.parameters, state), strict=True))
        if in_parts:  # beside its part, it always has what no gradient moves, such as running statistics
            self._versions = None
            self._own_bytes = first.parameters - self._gradients.nbytes + self._part.nbytes
            self._held["parameters"] = self._own_bytes
        self._kept = {}  # micro-batch -> {kind: bytes}
        self._n_changes = 0

    def last_grain(self, i):
        """The number of the last grain of micro-batch i."""
        return self._grains[i][-1]

    def take(self, kind, i):
        """An action is about to begin: the stage has its arguments."""
        self._held["work"] += self._action(kind, i)[0]

    def act(self, kind, i):
        """An action makes results of its arguments, and changes what the stage keeps."""
        if kind == "W*":
            self._act_late()
            return
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
        for j in self._grains[i]:
            if adds & FORWARD and self._statistics.nbytes:
                self.totals.add_statistics(j, self._statistics)
            if adds & WEIGHT:
                self.totals.add(j, 0, self._gradients)  # those of all its layers
        if self._in_parts and adds & UPDATED:
            self._held["parameters"] = self._own_bytes
            self.totals.forget(self._grains[i][-1])
        if self._versions is not None:
            self._change_versions(adds, i)

    def _act_late(self):
        """One product makes the sum of all gradients, and what it has read of each micro-batch is gone."""
        microbatches = sorted(self._kept)
        first, last = self._grains[microbatches[0]], self._grains[microbatches[-1]]
        self.totals.add_run(range(first.start, last.stop), {0: self._gradients})
        for i in microbatches:
            for name, n_bytes in self._kept.pop(i, {}).items():
                self._held[name] -= n_bytes
            if self._versions is not None:
                self._change_versions(WEIGHT, i)

    def let_go(self):
        """An action is over: its arguments and results are sent, or dropped."""
        self._held["work"] = 0

    def dW(self, layer):
        """In the place of the gradient of a tied layer; layer: its place in the network."""
        tied = self._footprints[0].tied
        return Bytes(next(n_bytes for (_, place), n_bytes in tied.items() if place == layer))

    @property
    def owned(self):
        """It stands for what its stage owns of the parameters, too."""
        return self

    @property
    def vectors(self):
        """In the place of the own part of the parameters, which is as large as that of the gradients."""
        return [self._part]

    def gather(self, parts):
        """Parameters change their numbers; where they were in parts, all of them are there besides, too."""
        if self._in_parts:
            self._held["parameters"] = self._own_bytes + self._gradients.nbytes

    def holdings(self):
        """{kind: bytes}, which change when the next action begins."""
        if self._n_changes != self.totals.n_changes:
            n_gradients, n_statistics = self.totals.n_held()
            sums = n_gradients * self._gradients.nbytes + n_statistics * self._statistics.nbytes
            self._held["gradients"] = sums + sum(dW.nbytes for dW in self.totals.of_tied.values())
            self._held["gradients"] += sum(part.nbytes for part in self.totals.part or ())
            self._n_changes = self.totals.n_changes
        return self._held

    def _action(self, kind, i):
        """(before, after, kept); an update works in place, and a micro-batch keeps nothing any more."""
        return self._footprints[i].actions[self._patterns[i]].get(kind, (0, 0, {}))

    def _change_versions(self, adds, i):
        if adds & UPDATED:
            self._versions.add(None)
            self.totals.forget(self._grains[i][-1])
        elif adds & WEIGHT:
            self._versions.used_by(i)
        self._held["weight versions"] = len(self._versions.older) * self._held["parameters"]
