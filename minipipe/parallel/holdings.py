"""What a stage holds on its device, for those who count bytes."""

from ..cluster import Buffers

KEPT = ("stashed inputs", "caches")  # what a stage keeps of a micro-batch


class Holdings:
    """All that a stage holds in a run, by kind; the mini-batch itself lies on the host.

    What a stage stashes for a micro-batch stays as it is until it is taken out, so its buffers are found
    once; and those of its sums whenever these have changed.
    """

    def __init__(self, stage):
        self.stage = stage
        self._parameters = Buffers(stage.weights())
        self._known = {}  # (name of a stash, micro-batch) -> Buffers
        self._sums, self._n_changes = None, None

    def __call__(self):
        """{kind: arrays, or the `Buffers` of them}"""
        stage = self.stage
        newest, older = self._parameters, []
        if stage.in_parts:
            newest = [stage.owned.vectors, stage.owned.whole, stage.statistics()]
        elif stage.versions is not None:
            newest, older = stage.versions[stage.versions.newest], stage.versions.older
        return {
            "parameters": newest,
            "optimizer state": stage.optimizer_state(),
            "weight versions": older,
            "gradients": self._buffers_of_sums(),
            "stashed inputs": self._buffers("inputs"),
            "caches": [self._buffers("stash"), self._buffers("halves")],
        }

    def _buffers_of_sums(self):
        totals = self.stage.totals
        if self._n_changes != totals.n_changes:
            self._sums, self._n_changes = Buffers(totals.held()), totals.n_changes
        return self._sums

    def _buffers(self, name):
        found = Buffers()
        for i, arrays in getattr(self.stage, name).items():
            if (name, i) not in self._known:
                self._known[name, i] = Buffers(arrays)
            found.update(self._known[name, i])
        return found


def joined(holdings):
    """One function for all that is held on a device. holdings: a function for each of its stages."""
    if len(holdings) == 1:
        return holdings[0]

    def held():
        parts = [of_stage() for of_stage in holdings]
        return {kind: [part[kind] for part in parts] for kind in parts[0]}

    return held
