"""Mini-batches cut into micro-batches, as the stages read them."""

from ..functions import even_slices


class MicroBatches:
    """A mini-batch X (n[0], m), Y (n[L], m) in `n` parts along the samples, with sizes at most one apart.

    step: the number of updates before it.
    """

    def __init__(self, X, Y, n, step):
        self.X, self.Y, self.m = X.copy(), Y.copy(), X.shape[-1]
        self.slices = even_slices(self.m, n)
        self._step = step

    def inputs(self, i):
        """The samples of micro-batch i."""
        return self.X[..., self.slices[i]].copy()

    def labels(self, i):
        """Their labels."""
        return self.Y[..., self.slices[i]].copy()

    def batch_size(self, i):
        """The m of the mini-batch that micro-batch i is part of."""
        return self.m

    def first_sample(self, i):
        """The place of its first sample in the mini-batch."""
        return self.slices[i].start

    def step(self, i):
        """The number of updates before the mini-batch."""
        return self._step


class Stream:
    """Several mini-batches, one after another, as one line of micro-batches: i is part i mod n of mini-batch i // n."""

    def __init__(self, batches, n, step):
        self.batches = [MicroBatches(X, Y, n, step + t) for t, (X, Y) in enumerate(batches)]
        self.n = n

    def inputs(self, i):
        """The samples of micro-batch i."""
        return self.batches[i // self.n].inputs(i % self.n)

    def labels(self, i):
        """Their labels."""
        return self.batches[i // self.n].labels(i % self.n)

    def batch_size(self, i):
        """The m of the mini-batch that micro-batch i is part of."""
        return self.batches[i // self.n].m

    def first_sample(self, i):
        """The place of its first sample in the mini-batch."""
        return self.batches[i // self.n].first_sample(i % self.n)

    def step(self, i):
        """The number of its mini-batch."""
        return self.batches[i // self.n].step(i % self.n)
