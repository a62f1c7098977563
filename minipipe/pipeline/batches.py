"""Mini-batches cut into micro-batches, as the stages are handed them."""

from typing import NamedTuple

from ..functions import even_slices


class Origin(NamedTuple):
    """Where a micro-batch comes from.

    m: the samples of its whole mini-batch.
    step: the number of updates before that one.
    first_sample: the index of its first sample there.
    """

    m: int
    step: int
    first_sample: int


class MicroBatches:
    """Mini-batches X (n[0], m), Y (n[L], m) in `n` parts each along the samples, with sizes at most one apart, in one line.

    batches: a list of (X, Y), each with an m of its own. step: the number of updates before the first. Micro-batch i is part
    i mod n of mini-batch i // n: it has `inputs[i]` and `labels[i]`, arrays of their own, and an `origins[i]`.

    >>> import numpy as np
    >>> line = MicroBatches([(np.array([[1, 2, 3]]), np.array([[0, 1, 0]]))], n=2, step=7)
    >>> line.inputs, line.origins[1]
    ([array([[1, 2]]), array([[3]])], Origin(m=3, step=7, first_sample=2))
    """

    def __init__(self, batches, n, step):
        self.n = n
        self.inputs, self.labels, self.origins = [], [], []
        for t, (X, Y) in enumerate(batches):
            m = X.shape[-1]
            for part in even_slices(m, n):
                self.inputs.append(X[..., part].copy())
                self.labels.append(Y[..., part].copy())
                self.origins.append(Origin(m, step + t, part.start))

    def take_inputs(self, i):
        """The samples of micro-batch i, which then belong to the stage that works on them."""
        inputs, self.inputs[i] = self.inputs[i], None
        return inputs
