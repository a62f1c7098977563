"""A micro-batch passes a stage in one go, or cut into grains: samples are the last axis of its arrays."""

from itertools import pairwise

import numpy as np


def in_grains(value, edges):
    """`value` for each grain: its samples alone, a copy; so of each array in a dict; None stays None.

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


def given_to_grains(line, part, incoming, skips):
    """Return [(grain, (incoming, skips) of it)] of the micro-batch of a part of an action."""
    grains = line.grains_of(part)
    if len(grains) == 1:
        return [(grains[0], (incoming, skips))]
    edges = line.edges(grains)
    return list(zip(grains, zip(in_grains(incoming, edges), in_grains(skips, edges), strict=True)))


def together(results):
    """Return (outgoing, skips) of a micro-batch, from those of its grains."""
    return results[0] if len(results) == 1 else tuple(map(side_by_side, zip(*results)))


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
    return np.concatenate(values, axis=-1)
