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


PASSING = "F", "R", "B", "I"  # the kinds of action by which a micro-batch passes a stage


def passing(kind, stage, line, keep_input_only, grains, incoming, skips):
    """Let consecutive grains pass a stage, one by one; return (outgoing, skips).

    kind: one of `PASSING`.
    line: the `MicroBatches`.
    keep_input_only: whether, after an F, there will be an R.
    grains: their numbers.
    incoming, skips: what the stage has been given for all of them.
    """
    if len(grains) > 1:
        given = _given_to_each(grains, line, incoming, skips)
        results = [passing(kind, stage, line, keep_input_only, [j], *of_j) for j, of_j in given]
        return tuple(map(side_by_side, zip(*results)))
    j = grains[0]
    if kind == "B":
        return stage.backward(j, incoming, skips)
    if kind == "I":
        return stage.backward_input(j, incoming, skips)
    labels = None if stage.loss is None else line.labels[j]
    if kind == "R":
        return stage.recompute(j, line.origins[j], labels)
    A_prev = line.take_inputs(j) if stage.index == 0 else incoming
    return stage.forward(j, A_prev, skips, line.origins[j], labels, keep_input_only)


def passing_program(kind, stage, line, keep_input_only, grains, incoming, skips):
    """The same for a `TalkingStage`: a program."""
    results = []
    for j, of_j in _given_to_each(grains, line, incoming, skips):
        results.append((yield from passing(kind, stage, line, keep_input_only, [j], *of_j)))
    return tuple(map(side_by_side, zip(*results)))


def _given_to_each(grains, line, incoming, skips):
    """Return [(grain, (incoming, skips) of it)]."""
    if len(grains) == 1:
        return [(grains[0], (incoming, skips))]
    edges = line.edges(grains)
    return list(zip(grains, zip(in_grains(incoming, edges), in_grains(skips, edges), strict=True)))
