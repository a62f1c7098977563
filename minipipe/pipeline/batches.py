"""Mini-batches cut into micro-batches, as the stages are handed them."""

from typing import NamedTuple

from ..checks import items_of
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
    """Mini-batches in one line, each cut along the samples into `n` parts with sizes at most one apart.

    Micro-batch i is part i mod n of mini-batch i // n: it has `inputs[i]` and `labels[i]`, arrays of
    their own, and an `origins[i]`.

    batches: a list of (X, Y), X (n[0], m) and Y (n[L], m), each with an m of its own.
    n: the parts of each.
    step: the number of updates before the first.

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


def checked_batches(network, batches):
    """A list of (X, Y) that `network` can be trained with in micro-batches; `ValueError` for others."""
    items = items_of(batches)
    batches = [batches] if items is None else items
    if not all(isinstance(batch, (tuple, list)) and len(batch) == 2 for batch in batches):
        raise ValueError("batches must be a list of pairs (X, Y), even for one mini-batch: [(X, Y)]")
    if not batches:
        raise ValueError("0 mini-batches: pass a list of at least 1 pair (X, Y)")
    batches = [network.checked_batch(X, Y) for X, Y in batches]
    smallest, n = min(X.shape[-1] for X, _ in batches), network.n_microbatches
    if n > smallest:
        raise ValueError(
            f"n_microbatches={n} exceeds the batch of m={smallest} samples: use at most {smallest}, "
            "or a larger batch"
        )
    return batches
