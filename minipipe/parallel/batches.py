"""Mini-batches cut into micro-batches, and these into grains, as the stages are handed them."""

from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from ..arrays import even_slices, grains_of


# A micro-batch passes a stage in one go, or cut into grains: samples are the last axis of its arrays.

def in_grains(value, edges):
    """Return for each grain a copy of its samples in `value`: an array, a dict of arrays, or None.

    Args:
        edges: where the grains begin, and the end of the last.

    >>> in_grains({"skip": np.array([[1, 2, 3]])}, [0, 2, 3])
    [{'skip': array([[1, 2]])}, {'skip': array([[3]])}]
    """
    return [_samples(value, slice(*pair)) for pair in pairwise(edges)]


def _samples(value, part):
    if value is None:
        return None
    if isinstance(value, dict):
        return {name: _samples(array, part) for name, array in value.items()}
    return value[..., part].copy()


def side_by_side(values):
    """Return one value of the values that `in_grains` has cut it into.

    >>> side_by_side([np.array([[1, 2]]), np.array([[3]])])
    array([[1, 2, 3]])
    """
    first = values[0]
    if first is None or len(values) == 1:
        return first
    if isinstance(first, dict):
        return {name: side_by_side([value[name] for value in values]) for name in first}
    return np.concatenate(values, axis=-1)


class Origin(NamedTuple):
    """Where a micro-batch, or a grain of it, comes from.

    Args:
        m: the samples of its whole mini-batch.
        step: the number of updates before that one.
        first_sample: the index of its first sample there.
    """

    m: int
    step: int
    first_sample: int


class MicroBatches:
    """Mini-batches in one line, each cut along the samples into micro-batches with sizes at most one apart.

    Micro-batch i is part i mod n of mini-batch i // n. It is one grain; or, with a
    `grain`, as many as the others or one more, `grains[i]`, a range of numbers. Grain j
    has `inputs[j]` and `labels[j]`, arrays of their own, and an `origins[j]`; each
    mini-batch has `n_grains` of them. All have `n_samples` together.

    Args:
        batches: a list of (X, Y), X (n[0], m) and Y (n[L], m), each with an m of its
            own.
        n: the micro-batches of each.
        step: the number of updates before the first.
        grain: None, or the samples of a grain; all mini-batches then have the same m.
        n_takers: how many stages take the samples of each: the first one of each shard
            of the network.

    >>> import numpy as np
    >>> line = MicroBatches([(np.array([[1, 2, 3]]), np.array([[0, 1, 0]]))], n=2, step=7)
    >>> line.inputs, line.origins[1]
    ([array([[1, 2]]), array([[3]])], Origin(m=3, step=7, first_sample=2))
    """

    def __init__(self, batches, n, step, grain=None, n_takers=1):
        self.grain, self.n_grains = grain, n
        self.inputs, self.labels, self.origins, self.grains = [], [], [], []
        for t, (X, Y) in enumerate(batches):
            m, first = X.shape[-1], len(self.origins)
            parts = even_slices(m, n) if grain is None else grains_of(m, grain)
            for part in parts:
                # copies: a view would keep the whole mini-batch alive until its last micro-batch is through
                self.inputs.append(X[..., part].copy())
                self.labels.append(Y[..., part].copy())
                self.origins.append(Origin(m, step + t, part.start))
            self.n_grains = len(parts)
            self.grains += [range(first + of.start, first + of.stop) for of in even_slices(len(parts), n)]
        self._n_left = [n_takers] * len(self.inputs)
        self.n_samples = sum(X.shape[-1] for X, _ in batches)

    def edges(self, grains):
        """Return where these grains in a row begin, counted from the first, and the end of the last."""
        return [0, *accumulate(self.labels[j].shape[-1] for j in grains)]

    def equal_on_all_ranks(self):
        """Return {name: value} of what must be equal on all ranks: mini-batches, number of the step."""
        step = str(self.origins[0].step)
        return {"mini-batches": [*self.inputs, *self.labels], "number of the step": step}

    def take_inputs(self, j):
        """Return the samples of grain j, and forget them when the last of `n_takers` has asked."""
        inputs = self.inputs[j]
        self._n_left[j] -= 1
        if not self._n_left[j]:
            self.inputs[j] = None  # from here on they live as long as a stage's cache needs them
        return inputs


def checked_batches(network, batches, in_one_run=False):
    """Return a list of (X, Y) that can train `network` in micro-batches; raise `ValueError` for others.

    Args:
        in_one_run: whether they go through the pipeline in one run; with a grain, they
            then are of one size.
    """
    batches = network.checked_batches(batches)
    sizes, n = sorted(X.shape[-1] for X, _ in batches), network.n_microbatches
    smallest = sizes[0]
    if network.grain is not None:
        _check_grains(network.grain, n, smallest, sizes[-1] if in_one_run else smallest)
    if n > smallest:
        raise ValueError(
            f"microbatches={n} exceeds the batch of m={smallest} samples: use at most {smallest}, "
            "or a larger batch"
        )
    return batches


def _check_grains(grain, n, smallest, largest):
    """Raise `ValueError` unless n micro-batches can be cut at the edges of grains."""
    n_grains = len(grains_of(smallest, grain))
    if n > n_grains:
        raise ValueError(
            f"microbatches={n} exceeds the {n_grains} grains of {grain} samples in a batch of "
            f"m={smallest}: a cut would fall into a grain, so use at most {n_grains}, a "
            "smaller grain or a larger batch"
        )
    if smallest < largest:
        raise ValueError(
            f"grain={grain} in one run without a flush needs mini-batches of one size, got {smallest} to "
            f"{largest} samples: cut them equal"
        )
