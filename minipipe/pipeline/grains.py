"""Arrays cut into grains, and put side by side again: samples are their last axis."""

from itertools import pairwise

import numpy as np

from ..layers.through import in_one_piece


def in_grains(value, edges):
    """`value` for each grain: its samples alone, in one piece; so of each array in a dict; None stays None.

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
    return in_one_piece(value[..., part])


def side_by_side(values):
    """What `in_grains` has taken apart, in one again.

    >>> side_by_side([np.array([[1, 2]]), np.array([[3]])])
    array([[1, 2, 3]])
    """
    first = values[0]
    if first is None or len(values) == 1:
        return first
    if isinstance(first, dict):
        return {name: side_by_side([value[name] for value in values]) for name in first}
    return in_one_piece(np.concatenate(values, axis=-1))


def grain_by_grain(line, grains, incoming, skips, work):
    """A program that returns the (outgoing, skips) of an action that takes one grain after the other.

    line: the `MicroBatches`.
    grains: the numbers of consecutive grains.
    incoming, skips: what the action has been given for all of them.
    work: `work(j, incoming, skips)`, the program of one grain.
    """
    if len(grains) == 1:
        return work(grains[0], incoming, skips)
    edges = line.edges(grains)
    return _one_by_one(zip(grains, in_grains(incoming, edges), in_grains(skips, edges)), work)


def _one_by_one(grains, work):
    results = []
    for grain in grains:
        results.append((yield from work(*grain)))
    return tuple(map(side_by_side, zip(*results)))
