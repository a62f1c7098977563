"""Every collective gives every rank the right value, in the ticks and bytes of its closed form."""

import time
from fractions import Fraction

import numpy as np
import pytest
from sampling import one_in

from minipipe.cluster import Cluster, Compute, DeadlockError, Link, ports
from minipipe.collectives import (
    ALL_REDUCES, Group, all_gather, all_reduce, all_reduce_sum, all_reduce_ticks, all_to_all, barrier,
    broadcast, numbers_sent, reduce, reduce_scatter,
)
from minipipe.collectives.broadcasting import best_segments
from minipipe.exact import Rational
from minipipe.meta import MetaArray
from minipipe.sums import TreeSum

NAMES = list(ALL_REDUCES)
SIZES = range(1, 18)


def run(collective, values, *args, link=Link(), bandwidth=None, gamma=0, names=None):
    """(what each rank gets, the trace) of `collective(group, value, *args)` on one rank for each value."""
    N, found = len(values), {}

    def program(rank):
        group = Group(rank, range(N), gamma=gamma)
        found[rank] = yield from collective(group, values[rank], *args)

    programs = [program(rank) for rank in range(N)]
    trace = Cluster(programs, link=link, ports=ports(N, bandwidth) if bandwidth else ()).run()
    return [found[rank] for rank in range(N)], trace


def bytes_sent(trace, N):
    return [sum(m.n_bytes for m in trace.messages if m.source == rank) for rank in range(N)]


def lengths_for(N):
    return sorted({0, 1, N - 1, N, N + 1, N + 3, 100})


# Values


@pytest.mark.parametrize("name, N", one_in(3, NAMES, SIZES))
def test_the_sum_is_right_on_all_ranks_and_each_sends_the_bytes_of_the_formula(name, N):
    for n in lengths_for(N):
        values = [np.arange(n) * 17 + 5 ** rank for rank in range(N)]
        before = [value.copy() for value in values]
        sums, trace = run(all_reduce, values, name)
        assert all(np.array_equal(total, sum(values)) for total in sums)
        assert all(np.array_equal(value, was) for value, was in zip(values, before, strict=True))
        assert bytes_sent(trace, N) == [8 * numbers for numbers in numbers_sent(name, N, n)]
        assert N > 1 or not trace.messages


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("N", [2, 3, 5, 8, 12])
def test_floats_have_the_same_bits_on_all_ranks(name, N):
    values = list(np.random.default_rng(N).normal(size=(N, 40)).astype(np.float32))
    sums, _ = run(all_reduce, values, name)
    assert all(total.dtype == np.float32 and np.array_equal(total, sums[0]) for total in sums)
    assert not any(np.shares_memory(total, value) for total in sums for value in values)


def test_the_order_of_the_additions_is_that_of_the_program():
    """1e16 + 1 = 1e16 in floats: of 1e16 + 1 - 1e16 + 1, the order decides what is left."""
    values = [np.full(4, x) for x in (1e16, 1, -1e16, 1)]
    found = {name: run(all_reduce, values, name)[0][0].tolist() for name in NAMES}
    assert found.pop("naive") == [1, 1, 1, 1]
    assert found.pop("ring") == [1, 0, 1, 0]
    assert set(found) == {"tree", "doubling", "halving", "owners"}
    assert all(total == [0, 0, 0, 0] for total in found.values())


@pytest.mark.parametrize("name, N", [(name, N) for name in ("tree", "owners") for N in SIZES]
                         + [(name, N) for name in ("doubling", "halving") for N in (1, 2, 4, 8, 16)])
def test_these_add_along_the_binary_tree_over_the_ranks(name, N):
    values = list(np.random.default_rng(N).normal(size=(N, 33)))
    total = TreeSum(N)
    for rank, value in enumerate(values):
        total.add(rank, value)
    assert np.array_equal(run(all_reduce, values, name)[0][0], total.value)


@pytest.mark.parametrize("name", NAMES)
def test_nested_values_keep_their_form_and_their_dtypes(name):
    def gradients(rank):
        dW, db = np.full((2, 3), rank, np.float32), np.full((2, 1), 10.0 * rank)
        return [(dW, db), (None, None), {"J": Rational(rank, 3), "m": rank, "mean": 0.5}]

    (first, *others), _ = run(all_reduce, [gradients(rank) for rank in range(3)], name)
    (dW, db), nothing, rest = first
    assert dW.dtype == np.float32 and db.dtype == np.float64 and nothing == (None, None)
    assert np.array_equal(dW, np.full((2, 3), 3)) and np.array_equal(db, np.full((2, 1), 30))
    assert rest == {"J": Rational(1), "m": 3, "mean": 1.5} and type(rest["m"]) is int
    assert all(np.array_equal(other[0][0], dW) and other[2] == rest for other in others)


@pytest.mark.parametrize("name", NAMES)
def test_arrays_without_numbers_cost_what_arrays_cost(name):
    for N, n in [(4, 64), (5, 13)]:
        real, meta = [np.ones(n)] * N, [MetaArray(n)] * N
        traces = [run(all_reduce, values, name, link=Link(1), bandwidth=4, gamma=1 / 8)[1]
                  for values in (real, meta)]
        assert traces[0].messages == traces[1].messages and traces[0].spans == traces[1].spans
    huge, _ = run(all_reduce, [MetaArray((10**6, 10**6), np.float32)] * 4, name)
    assert huge[0].shape == (10**6, 10**6) and huge[0].dtype == np.float32


def test_two_levels_give_the_sum_in_any_nodes():
    for N, node_size in [(4, 2), (6, 3), (16, 4), (5, 5), (5, 1)]:
        values = [np.arange(11) * 17 + 5 ** rank for rank in range(N)]
        sums, _ = run(all_reduce, values, "two-level", node_size)
        assert all(np.array_equal(total, sum(values)) for total in sums)


# The tree of the mini-batch, whose terms are spread over the ranks


def spread(terms, N):
    """For each of N ranks a `TreeSum` with a contiguous run of the terms, the first runs longer by one."""
    sums, begin = [], 0
    for rank in range(N):
        end = begin + len(terms) // N + (rank < len(terms) % N)
        total = TreeSum(len(terms))
        for i in range(begin, end):
            total.add(i, terms[i])
        sums.append(total)
        begin = end
    return sums


@pytest.mark.parametrize("M", [1, 2, 3, 6, 8, 12, 16])
def test_the_bits_of_a_tree_do_not_depend_on_the_number_of_ranks(M):
    terms = [[(term, None)] for term in np.random.default_rng(M).normal(size=(M, 3, 7)).astype(np.float32)]
    whole, = spread(terms, 1)
    for N in range(1, M + 1):
        found, _ = run(all_reduce_sum, spread(terms, N))
        assert all(np.array_equal(total[0][0], whole.value[0][0]) and total[0][1] is None for total in found)


@pytest.mark.parametrize("M, N, nodes", [
    (8, 2, [1, 1]), (8, 4, [1, 1, 1, 1]), (8, 3, [2, 2, 1]), (12, 3, [1, 1, 1]), (12, 4, [2, 2, 2, 2]),
    (6, 2, [2, 2]), (16, 5, [1, 2, 2, 2, 2]),
])
def test_what_travels_are_partial_sums_and_for_an_aligned_run_that_is_one(M, N, nodes):
    sums = spread([np.ones(60)] * M, N)
    assert [len(tree_sum.pending) for tree_sum in sums] == nodes
    _, trace = run(all_reduce_sum, sums)
    half = 8 * 60 * (N - 1) // N
    assert bytes_sent(trace, N) == [count * half + half for count in nodes]
    if set(nodes) == {1}:
        assert bytes_sent(trace, N) == [8 * numbers for numbers in numbers_sent("ring", N, 60)]


@pytest.mark.parametrize("name", NAMES)
def test_other_programs_add_up_what_a_rank_has_first(name):
    terms = [np.array([Rational(i, 7)], object) for i in range(8)]
    found, _ = run(all_reduce_sum, spread(terms, 3), name)
    assert all(total[0] == Rational(4) for total in found)


def test_what_a_rank_has_is_added_from_left_to_right():
    """Terms 1 to 7 of 8, in the other order, are pending as 1, 2..3 and 4..7: 1, 1e16 and -1e16."""
    mine, others = TreeSum(8), TreeSum(8)
    numbers = {1: 1.0, 2: 1e16, 4: -1e16}
    for i in reversed(range(8)):
        (mine if i else others).add(i, numbers.get(i, 0.0))
    assert sorted(mine.pending.values()) == sorted(numbers.values())
    assert run(all_reduce_sum, [mine, others], "naive")[0] == [0, 0]


@pytest.mark.parametrize("name", ["tree", "doubling", "halving"])
def test_aligned_runs_keep_the_bits_of_the_tree_in_these_too(name):
    terms = list(np.random.default_rng(0).normal(size=(16, 33)))
    whole, = spread(terms, 1)
    for N in (2, 4, 8, 16):
        assert np.array_equal(run(all_reduce_sum, spread(terms, N), name)[0][0], whole.value)


# Ticks


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("gamma", [0, Fraction(1, 64), Fraction(1, 16), Fraction(1, 4)])
def test_ticks_are_those_of_the_formula(name, gamma):
    alpha, beta = 100, Fraction(1, 16)
    for N in SIZES:
        power = 2 ** (N.bit_length() - 1)
        values = [np.zeros(2 * N * power)] * N
        formula = all_reduce_ticks(name, N, values[0].nbytes, alpha, beta, gamma)
        if name in ("naive", "ring", "owners") or N == power:
            _, trace = run(all_reduce, values, name, link=Link(alpha), bandwidth=16, gamma=gamma)
            assert trace.makespan == formula
        else:
            _, trace = run(all_reduce, values, name, link=Link(alpha, 16), gamma=gamma)
            assert trace.makespan <= formula


@pytest.mark.parametrize("N, n, ticks", [(4, 1024, [584, 656, 328, 496, 696, 296]),
                                         (8, 4096, [3784, 2136, 1068, 1048, 1848, 648])])
def test_six_all_reduces_in_ticks(N, n, ticks):
    """alpha = 100, beta = 1/16; adding takes no time."""
    values = [np.zeros(n, np.uint8)] * N
    traces = [run(all_reduce, values, name, link=Link(100), bandwidth=16)[1] for name in NAMES]
    assert [trace.makespan for trace in traces] == ticks
    assert [all_reduce_ticks(name, N, n, 100, Fraction(1, 16)) for name in NAMES] == ticks


@pytest.mark.parametrize("N, ticks", [(3, 456), (5, 720), (6, 784), (7, 784)])
def test_a_tree_of_any_number_of_ranks(N, ticks):
    values = [np.zeros(1024, np.uint8)] * N
    assert run(all_reduce, values, "tree", link=Link(100), bandwidth=16)[1].makespan == ticks


def test_who_sends_how_many_messages_and_bytes():
    """N = 8 ranks with 8 bytes."""
    traces = [run(all_reduce, [np.zeros(8, np.uint8)] * 8, name)[1] for name in NAMES]
    assert [bytes_sent(trace, 8) for trace in traces] == [
        [56] + [8] * 7, [24, 8, 16, 8, 24, 8, 16, 8], [24] * 8, [14] * 8, [14] * 8, [14] * 8,
    ]
    assert [len(trace.messages) for trace in traces] == [14, 14, 24, 48, 112, 112]


@pytest.mark.parametrize("N, n, numbers", [
    (4, 10, [15, 16, 15, 14]), (4, 3, [4, 5, 5, 4]), (3, 8, [11, 11, 10]),
])
def test_a_ragged_ring(N, n, numbers):
    assert bytes_sent(run(all_reduce, [np.zeros(n, np.uint8)] * N, "ring")[1], N) == numbers


def test_the_ring_step_by_step():
    """4 ranks with x_r[i] = (i + 1) 10^r: in step s, rank r sends chunk r - s to add, then r + 1 - s."""
    values = [(np.arange(8) + 1) * 10 ** rank for rank in range(4)]
    sums, trace = run(all_reduce, values, "ring", gamma=1)
    assert all(total.tolist() == [1111 * (i + 1) for i in range(8)] for total in sums)
    assert len(trace.messages) == 24 and bytes_sent(trace, 4) == [12 * 8] * 4
    assert trace.makespan == 3 * 16  # three additions of 2 numbers of 8 bytes, one after the other


def test_two_levels_against_one_flat_ring():
    """16 ranks in 4 nodes: inside (alpha, beta) = (1, 1/16), outside (100, 1)."""
    pairs = [(source, to) for source in range(16) for to in range(16)]
    link = {pair: Link(1, 16) if pair[0] // 4 == pair[1] // 4 else Link(100, 1) for pair in pairs}
    values = [np.zeros(4096, np.uint8)] * 16
    two_level = run(all_reduce, values, "two-level", 4, link=link, bandwidth=16)[1].makespan
    assert two_level == 6 * (1 + 64) + 6 * (100 + 256) == 2526
    flat = run(all_reduce, values, "ring", link=Link(100), bandwidth=1)[1].makespan
    assert flat == 30 * (100 + 256) == 10680


@pytest.mark.parametrize("name, N, ms", [
    ("naive", 4, 60), ("naive", 5, 80), ("owners", 4, 15), ("ring", 4, 15),
])
def test_the_gpus_of_d2l_share_the_port_of_the_one_they_all_send_to(name, N, ms):
    """Dive into Deep Learning, 13.7: 160 MB, 16 MB a millisecond; to the CPU is to a fifth device.

    Without ports, all messages would pass at once, and 60 ms would come out as 20.
    """
    values = [MetaArray(160, np.uint8)] * N
    assert run(all_reduce, values, name, bandwidth=16)[1].makespan == ms
    assert name != "naive" or run(all_reduce, values, name, link=Link(bandwidth=16))[1].makespan == 20


def test_64_ranks_take_seconds_at_most():
    begin = time.process_time()
    run(all_reduce, [np.zeros(64)] * 64, "owners", bandwidth=16)
    run(all_reduce, [np.zeros(64)] * 64, "ring", bandwidth=16)
    assert time.process_time() - begin < 6


# The others


@pytest.mark.parametrize("N", SIZES)
def test_the_other_collectives_give_what_their_names_say(N):
    values = [np.arange(7) + 100 * rank for rank in range(N)]
    parts = [[np.array([100 * rank + c]) for c in range(N)] for rank in range(N)]
    root = N // 2
    for algorithm, *args in [("binomial",), ("scatter",), ("chain", 3)]:
        found, _ = run(broadcast, values, root, algorithm, *args)
        assert all(np.array_equal(value, values[root]) for value in found)
    found, _ = run(reduce, values, root)
    assert np.array_equal(found.pop(root), sum(values)) and found == [None] * (N - 1)
    for algorithm in ("ring", "doubling"):
        found, trace = run(all_gather, values, algorithm)
        assert all(np.array_equal(gathered, values) for gathered in found)
        assert bytes_sent(trace, N) == [8 * 7 * (N - 1)] * N
    for algorithm in ("ring", "owners"):
        found, _ = run(reduce_scatter, parts, algorithm)
        assert found == [sum(100 * rank + r for rank in range(N)) for r in range(N)]
    found, _ = run(all_to_all, parts)
    assert all(np.array_equal(np.concatenate(got), [100 * source + r for source in range(N)])
               for r, got in enumerate(found))


@pytest.mark.parametrize("args, blocking, ticks", [
    (["binomial"], False, 3 * (100 + 256)),                  # 1068
    (["scatter"], False, 10 * 100 + 2 * 224),                # 1448
    (["chain", 4], True, (8 - 2 + 4) * (100 + 64)),
    (["chain", 4], False, (8 - 1) * (100 + 64) + 3 * 64),
])
def test_a_broadcast_takes_the_ticks_of_its_formula(args, blocking, ticks):
    """N = 8, n = 4096, alpha = 100, beta = 1/16."""
    values, link = [np.zeros(4096, np.uint8)] * 8, Link(100, blocking=blocking)
    assert run(broadcast, values, 0, *args, link=link, bandwidth=16)[1].makespan == ticks


def test_all_gather_reduce_scatter_and_all_to_all_in_ticks():
    """N = 8, n = 4096 bytes in all: 7 (100 + 32) = 924 in a ring, 3 * 100 + 224 = 524 by doubling.

    With gamma = beta, the additions take 7 * 32 more.
    """
    chunk, settings = np.zeros(512, np.uint8), dict(link=Link(100), bandwidth=16)
    assert run(all_gather, [chunk] * 8, "ring", **settings)[1].makespan == 924
    assert run(all_gather, [chunk] * 8, "doubling", **settings)[1].makespan == 524
    assert run(reduce_scatter, [[chunk] * 8] * 8, "ring", gamma=1 / 16, **settings)[1].makespan == 1148
    assert run(reduce_scatter, [[chunk] * 8] * 8, "owners", gamma=1 / 16, **settings)[1].makespan == 548
    assert run(all_to_all, [[chunk] * 8] * 8, **settings)[1].makespan == 924


def test_the_best_number_of_segments_is_the_best():
    """6 ranks, 1024 bytes, alpha = 16, beta = 1/16: sqrt(4 * 64/16) = 4."""
    values, link = [np.zeros(1024, np.uint8)] * 6, Link(16, blocking=True)
    settings = dict(link=link, bandwidth=16)
    ticks = {s: run(broadcast, values, 0, "chain", s, **settings)[1].makespan for s in range(1, 12)}
    assert min(ticks, key=ticks.get) == best_segments(6, 1024, 16, 1 / 16) == 4


@pytest.mark.parametrize("N", SIZES)
def test_nobody_leaves_a_barrier_before_the_last_has_entered(N):
    late = N // 3

    def program(rank):
        yield Compute("before", ticks=50 if rank == late else rank % 5)
        yield from barrier(Group(rank, range(N)))
        yield Compute("after", ticks=1)

    trace = Cluster([program(rank) for rank in range(N)], link=Link(100)).run()
    after = [span.start for span in trace.spans if span.label == "after"]
    assert all(start >= 50 for start in after) and max(after) == 50 + 100 * (N - 1).bit_length()


def test_one_after_the_other_do_not_get_mixed():
    """Rank 0 of a broadcast goes on at once, and calls the next one while the first is on its way."""

    def three(group, value):
        found = []
        for factor in (1, 2, 3):
            found.append((yield from broadcast(group, value * factor)))
        total = yield from all_reduce(group, value, "naive")
        return [*found, total]

    found, _ = run(three, [np.array([10 ** rank]) for rank in range(3)], link=Link(7))
    assert all([int(x[0]) for x in got] == [1, 2, 3, 111] for got in found)


# What goes wrong, and says so


def test_collectives_in_different_orders_are_a_deadlock_that_names_both():
    def program(rank):
        group, value = Group(rank, range(2)), np.ones(2)
        calls = [all_reduce(group, value, "ring"), broadcast(group, value)]
        for call in calls if rank == 0 else reversed(calls):
            yield from call

    with pytest.raises(DeadlockError, match=r"(?s)ring all-reduce 1.*binomial broadcast 1"):
        Cluster([program(0), program(1)]).run()


@pytest.mark.parametrize("call, words", [
    (lambda: Group(3, range(3)), "rank=3 is not in the group of 3"),
    (lambda: Group(0, [1, 1]), "has a device twice"),
    (lambda: run(all_reduce, [np.ones(1)], "rings"), "algorithm='rings' must be one of 'naive', 'tree'"),
    (lambda: run(all_reduce, [np.ones(1)] * 3, "two-level", 2), "node_size=2 does not divide 3 ranks"),
    (lambda: run(broadcast, [np.ones(1)], 0, "tree"), "algorithm='tree' must be one of 'binomial'"),
    (lambda: run(broadcast, [np.ones(1)], 2), "root=2 is not in the group of 1"),
    (lambda: run(all_gather, [np.ones(1)], "tree"), "algorithm='tree' must be one of 'ring', 'doubling'"),
    (lambda: run(reduce_scatter, [[np.ones(1)]] * 2), "1 parts for 2 ranks"),
    (lambda: run(all_to_all, [[1, 2, 3]] * 2), "3 values for 2 ranks"),
])
def test_bad_input_gets_a_sentence(call, words):
    with pytest.raises(ValueError, match=words):
        call()
