"""Cut mini-batches into micro-batches, and micro-batches into grains."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

from ..arrays import even_slices, grains_of


# A micro-batch passes a stage as a whole, or grain by grain. Samples are the last axis of its arrays.

def in_grains(value: Any, edges: Sequence[int]) -> list:
    """Return, for each grain, a copy of its samples in `value`.

    Args:
        value: an array, a dict of arrays, or None, which stays None.
        edges: the first sample of each grain, and the end of the last.

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


def side_by_side(values: Sequence) -> Any:
    """Concatenate values along the samples: the inverse of `in_grains`.

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
    """The mini-batch of a micro-batch or grain, and its place in it.

    Args:
        m: the number of samples in the whole mini-batch.
        step: the number of updates before the mini-batch.
        first_sample: the index of the first sample in the mini-batch.
    """

    m: int
    step: int
    first_sample: int


class MicroBatches:
    """Mini-batches that are cut into micro-batches, and these into grains.

    Micro-batch i is part i mod n of mini-batch i // n. Without a `grain`, each is one
    grain, and their sizes differ by at most one sample; with one, by at most one grain.

    Args:
        batches: a list of (X, Y), X (n[0], m) and Y (n[L], m); m may differ.
        n: the number of micro-batches in each mini-batch.
        step: the number of updates before the first mini-batch.
        grain: None, or the samples of a grain; all mini-batches then have the same m.

    Attributes:
        inputs, labels, origins: for each grain, its samples, its labels (arrays of
            their own) and its `Origin`.
        grains: for each micro-batch, the range of its grains' indices.
        n_grains: the number of grains in each mini-batch.
        n_samples: the number of samples in all mini-batches together.

    >>> import numpy as np
    >>> line = MicroBatches([(np.array([[1, 2, 3]]), np.array([[0, 1, 0]]))], n=2, step=7)
    >>> line.inputs, line.origins[1]
    ([array([[1, 2]]), array([[3]])], Origin(m=3, step=7, first_sample=2))
    """

    def __init__(self, batches: Sequence[tuple], n: int, step: int, grain: int | None = None) -> None:
        self.grain, self.n_grains = grain, n
        self.inputs, self.labels, self.grains = [], [], []
        self.origins: list = []
        for t, (X, Y) in enumerate(batches):
            m, first = X.shape[-1], len(self.origins)
            parts = even_slices(m, n) if grain is None else grains_of(m, grain)
            for part in parts:
                # copies: the bits of a product depend on how its factors lie in memory
                self.inputs.append(X[..., part].copy())
                self.labels.append(Y[..., part].copy())
                self.origins.append(Origin(m, step + t, part.start))
            self.n_grains = len(parts)
            self.grains += [range(first + of.start, first + of.stop) for of in even_slices(len(parts), n)]
        self.n_samples = sum(X.shape[-1] for X, _ in batches)

    def edges(self, grains: Sequence[int]) -> list[int]:
        """Return the first sample of each of the `grains`, from 0, and the end."""
        return [0, *accumulate(self.labels[j].shape[-1] for j in grains)]

    def equal_on_all_ranks(self) -> dict[str, Any]:
        """Return {name: value} of what must be equal on all ranks."""
        step = str(self.origins[0].step)
        return {"mini-batches": [*self.inputs, *self.labels], "number of the step": step}


def checked_batches(network: Any, batches: Iterable[tuple], in_one_run: bool = False) -> Sequence[tuple]:
    """Return `batches` as a list of (X, Y); raise `ValueError` if one cannot be cut.

    Args:
        network: the `Parallel` that they train.
        batches: mini-batches (X, Y).
        in_one_run: whether all mini-batches pass the pipeline in one run.
    """
    pairs = network.checked_batches(batches)
    sizes, n, grain = sorted(X.shape[-1] for X, _ in pairs), network.n_microbatches, network.grain
    smallest, largest = sizes[0], sizes[-1]
    n_grains = n if grain is None else len(grains_of(smallest, grain))
    if n > n_grains:
        raise ValueError(
            f"microbatches={n} exceeds the {n_grains} grains of {grain} samples in a batch of "
            f"m={smallest}: a cut would fall into a grain, so use at most {n_grains}, a "
            "smaller grain or a larger batch"
        )
    if grain is not None and in_one_run and smallest < largest:
        raise ValueError(
            f"grain={grain} in one run without a flush needs mini-batches of one size, got {smallest} to "
            f"{largest} samples: cut them equal"
        )
    if n > smallest:
        raise ValueError(
            f"microbatches={n} exceeds the batch of m={smallest} samples: use at most {smallest}, "
            "or a larger batch"
        )
    return pairs
