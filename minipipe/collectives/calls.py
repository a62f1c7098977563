"""The collectives: programs, which other programs call with `yield from`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce as fold
from typing import Any

from ..checks import listed, one_of
from .all_reduces import ALL_REDUCES, OWNERS, at_owners
from .group import (
    Group, Program, added, exchanged, flattened, ring_add, ring_gather, unflattened,
)


def all_reduce(group: Group, value: Any, algorithm: str = OWNERS) -> Program:
    """Return the sum of all ranks' values, on all ranks, with the same bits.

    Args:
        group: the `Group` of this rank.
        value: arrays or numbers, or lists, tuples and dicts of them, with the same
            structure on all ranks. It is not changed.
        algorithm: "naive", "tree", "doubling", "halving", "ring", "owners", or another
            name in `ALL_REDUCES`; they differ in ticks, bytes and, with floats, in the
            order of the additions.

    >>> import numpy as np
    >>> from minipipe.cluster import Cluster
    >>> from minipipe.collectives import Group
    >>> def program(rank):
    ...     group = Group(rank, range(3))
    ...     print((yield from all_reduce(group, np.arange(2) + rank, "ring")))
    >>> trace = Cluster([program(rank) for rank in range(3)]).run()
    [3 6]
    [3 6]
    [3 6]
    >>> len(trace.messages)
    12
    """
    program = ALL_REDUCES[one_of("algorithm", algorithm, ALL_REDUCES)]
    vectors = yield from program(group, flattened(value))
    return unflattened(vectors, value)


def all_reduce_sum(group: Group, total: Any, algorithm: str = OWNERS) -> Program:
    """Return the total of a sum whose terms are spread over the ranks, on all ranks.

    Args:
        group: the `Group` of this rank.
        total: a `TreeSum` or a `RunningSum` with the terms of this rank. If no rank has
            terms, the result is None.
        algorithm: as for `all_reduce`. With "owners", a `TreeSum` has the bits of one
            rank that adds all terms. With the others, each rank first adds its own
            partial sums, from left to right.

    With "owners", a rank with p partial sums, at most 2 log2 n, sends them all to the
    owners of the chunks. An aligned run of 2^j terms of a tree is one partial sum, and
    costs as many bytes as a ring.
    """
    total, _ = yield from all_reduce_sum_and_gather(group, total, None, algorithm)
    return total


def all_reduce_sum_and_gather(group: Group, total: Any, value: Any, algorithm: str = OWNERS) -> Program:
    """Return (the total, as `all_reduce_sum` does; the list of all ranks' `value`).

    Args:
        group, total, algorithm: as for `all_reduce_sum`.
        value: a small value. With "owners", it is sent in the messages of the terms,
            without a latency of its own; with the others, in messages before.
    """
    if one_of("algorithm", algorithm, ALL_REDUCES) == OWNERS:
        return (yield from at_owners(group, total, value))
    values = [None] * group.size
    if value is not None:
        values = yield from exchanged(group, lambda rank: value, group.begin("values"))
    # from left to right: a node of a tree is (level, place), and its first term is number place * 2^level
    first_term = {node: node[1] << node[0] if isinstance(node, tuple) else 0 for node in total.pending}
    terms = [total.pending[node] for node in sorted(first_term, key=first_term.__getitem__)]
    if len(terms) > 1:
        terms = [unflattened(fold(added, map(flattened, terms)), terms[0])]
    return (yield from all_reduce(group, terms[0] if terms else None, algorithm)), values


def all_gather(group: Group, value: Any) -> Program:
    """Return the list of all ranks' values, on all ranks.

    Args:
        group: the `Group` of this rank.
        value: any value; ranks may have different kinds of values.

    The values are passed round a ring: (N - 1) (alpha + n beta), if the longest has n
    bytes.
    """
    values = [value] * group.size
    yield from ring_gather(group, values, group.rank, group.begin("ring all-gather"))
    return values


def reduce_scatter(group: Group, values: Sequence) -> Program:
    """Return part r of the sum of all ranks' values, on rank r.

    Args:
        group: the `Group` of this rank.
        values: a list of N parts; part r has the same structure on all ranks.

    The parts are passed round a ring: (N - 1) (alpha + n (beta + gamma)), if the
    longest has n bytes.
    """
    size, rank = group.size, group.rank
    values = listed("values", values, least=0)
    if len(values) != size:
        raise ValueError(f"{len(values)} parts for {size} ranks: pass one part for each rank")
    chunks = [flattened(part) for part in values]
    yield from ring_add(group, chunks, rank - 1, group.begin("ring reduce-scatter"))
    return unflattened(chunks[rank], values[rank])


def all_to_all(group: Group, values: Sequence) -> Program:
    """Return the list of the values that all ranks have for this rank.

    Args:
        group: the `Group` of this rank.
        values: the list of this rank's values, one for each rank.

    (N - 1) (alpha + n beta) for n bytes to each rank. In step s, rank r sends to rank r
    + s.
    """
    label, size, rank = group.begin("all-to-all"), group.size, group.rank
    values = listed("values", values, least=0)
    if len(values) != size:
        raise ValueError(f"{len(values)} values for {size} ranks: pass one value for each rank")
    found = [*values]
    for step in range(1, size):
        yield group.send(rank + step, label, values[(rank + step) % size])
        found[rank - step] = yield group.receive(rank - step, label)
    return found
