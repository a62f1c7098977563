"""Which versions of its weights a stage keeps where updates do not wait for all micro-batches."""

from collections import Counter


class Versions(dict):
    """{version: weights} of a stage: the `newest`, and each older one until no backward needs it any more.

    wanted: {micro-batch: the version that it uses}, of those that the stage works on; version v is what v
        updates have made of `first`.
    first: the weights before the first update.

    >>> versions = Versions(wanted={0: 0, 1: 0, 2: 1}, first="W0")
    >>> versions.add("W1"), versions.used_by(0), list(versions.older)
    (None, None, ['W0'])
    >>> versions.used_by(1), list(versions.older)
    (None, [])
    """

    def __init__(self, wanted, first):
        super().__init__({0: first})
        self.wanted, self.newest = wanted, 0
        self._uses = Counter(wanted.values())  # version -> backwards to come that need it

    @property
    def older(self):
        """The weights of all versions but the newest."""
        return [weights for version, weights in self.items() if version != self.newest]

    def of(self, i):
        """The weights that micro-batch i uses."""
        return self[self.wanted[i]]

    def add(self, weights):
        """An update has made the next version."""
        self.newest += 1
        self[self.newest] = weights
        self._drop(self.newest - 1)

    def used_by(self, i):
        """Micro-batch i has had its backward."""
        self._uses[self.wanted[i]] -= 1
        self._drop(self.wanted[i])

    def _drop(self, version):
        """Drop a version once nothing needs it; the newest stays."""
        if version != self.newest and not self._uses[version]:
            del self[version]
