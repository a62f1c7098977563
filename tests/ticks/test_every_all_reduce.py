"""What every all-reduce must hold, and what it states about itself against what is counted.

A new all-reduce is found here by its decorator. `-k its-name` runs its own tests.
"""

from fractions import Fraction
from math import fsum

import numpy as np
import pytest
from compared import assert_all_same, assert_equals_full_batch, assert_same
from sampling import one_in
from ticks.on_ranks import bytes_sent, run

import minipipe as mp
from minipipe.cluster import Cluster, Link
from minipipe.collectives import ALL_REDUCES, Group, all_reduce, all_reduce_ticks, numbers_sent
from minipipe.engines import Threads
from minipipe.exact import Rational, rational
from minipipe.meta import MetaArray
from minipipe.sums import TreeSum

FACTS = ALL_REDUCES.facts
EVERY = pytest.mark.parametrize("name", ALL_REDUCES)
RANKS, MORE = [*range(1, 10), 16], [15, 17, 31, 32, 33]
GAMMAS = [Fraction(1, 64), Fraction(1, 16), Fraction(1, 4)]  # ticks per byte that is added; beta is 1/16


def is_power_of_2(N):
    return N & (N - 1) == 0


@EVERY
def test_all_ranks_get_the_sum_for_the_numbers_that_are_stated(name):
    for N in RANKS:
        assert_sums(name, N, (0, 1, N - 1, 3 * N + 2))


@pytest.mark.slow
@EVERY
def test_more_ranks_get_the_sum_for_the_numbers_that_are_stated(name):
    for N in MORE:
        assert_sums(name, N, (0, 1, N - 1, 3 * N + 2))


def assert_sums(name, N, lengths):
    for n in lengths:
        values = [np.arange(n) * 17 + 5 ** (rank % 20) for rank in range(N)]
        before = [value.copy() for value in values]
        sums, trace = run(all_reduce, values, name)
        assert_all_same([sum(values), *sums])
        assert_same(values, before)
        assert bytes_sent(trace, N) == [8 * numbers for numbers in numbers_sent(name, N, n)], f"{N=}, {n=}"
        assert N > 1 or not trace.messages


@pytest.mark.parametrize("name, gamma", one_in(3, ALL_REDUCES, GAMMAS))
def test_a_run_takes_the_ticks_that_it_says(name, gamma):
    """With a port in and out of each rank; where its formula is for 2^k ranks, no more without ports.

    For each third number of ranks, adding takes no time.
    """
    alpha, beta, per_byte = 100, Fraction(1, 16), gamma
    for N in RANKS:
        gamma = per_byte if N % 3 else 0
        values = [np.zeros(N * 2 ** (N.bit_length() - 1))] * N  # N divides it, and so does the power of 2
        formula = all_reduce_ticks(name, N, values[0].nbytes, alpha, beta, gamma)
        if FACTS[name].exact == "any N" or is_power_of_2(N):
            _, trace = run(all_reduce, values, name, link=Link(alpha), bandwidth=16, gamma=gamma)
            assert trace.makespan == formula, f"N={N}"
        else:
            _, trace = run(all_reduce, values, name, link=Link(alpha, 16), gamma=gamma)
            assert trace.makespan <= formula, f"N={N}"


@EVERY
@pytest.mark.parametrize("N", [2, 3, 4, 5, 8])
def test_floats_have_the_bits_of_the_stated_order_on_all_ranks(name, N):
    values = list(np.random.default_rng(N).normal(size=(N, 40)).astype(np.float32))
    sums, _ = run(all_reduce, values, name)
    assert all(total.dtype == np.float32 for total in sums)
    assert_all_same(sums)
    assert not any(np.shares_memory(total, value) for total in sums for value in values)
    order = FACTS[name].order
    if order == "tree" or (order == "tree of 2^k" and is_power_of_2(N)):
        total = TreeSum(N)
        for rank, value in enumerate(values):
            total.add(rank, value)
        assert_same(sums[0], total.value)
    elif order == "ranks":
        assert_same(sums[0], sum(values[1:], values[0]))
    u = N * 2.0**-24  # a sum of N terms in any order is off by less than N units of rounding of its sizes
    for terms, total in zip(np.transpose(values).astype(float), sums[0], strict=True):
        assert abs(fsum([*terms, -float(total)])) <= u / (1 - u) * fsum(abs(terms))


@EVERY
def test_nested_values_keep_their_form_and_their_dtypes(name):
    def gradients(rank):
        dW, db = np.full((2, 3), rank, np.float32), np.full((2, 1), 10.0 * rank)
        return [(dW, db), (None, None), {"J": Rational(rank, 3), "m": rank, "mean": 0.5}]

    sums, _ = run(all_reduce, [gradients(rank) for rank in range(3)], name)
    dW, db = np.full((2, 3), 3, np.float32), np.full((2, 1), 30.0)
    assert_all_same(sums, [(dW, db), (None, None), {"J": Rational(1), "m": 3, "mean": 1.5}])
    assert all(type(total[2]["m"]) is int for total in sums)


@EVERY
def test_arrays_without_numbers_cost_what_arrays_cost(name):
    for N, n in [(4, 64), (5, 13)]:
        real, meta = [np.ones(n)] * N, [MetaArray(n)] * N
        traces = [run(all_reduce, values, name, link=Link(1), bandwidth=4, gamma=1 / 8)[1]
                  for values in (real, meta)]
        assert traces[0].messages == traces[1].messages and traces[0].spans == traces[1].spans
    huge, _ = run(all_reduce, [MetaArray((10**6, 10**6), np.float32)] * 4, name)
    assert huge[0].shape == (10**6, 10**6) and huge[0].dtype == np.float32


def twice(rank, N, name, found, unit=1.0):
    """The program of a rank that sums two values, one right after the other."""
    group = Group(rank, range(N), name="gradients: ")
    for factor in (1, 10):
        found[rank, factor] = yield from all_reduce(group, unit * (np.arange(7) * factor + rank), name)


@EVERY
def test_labels_name_the_group_and_tell_two_calls_apart(name):
    """By them, two groups of one device, and two calls in a row, keep their messages apart."""
    found = {}
    both = Cluster([twice(rank, 5, name, found) for rank in range(5)]).run().messages  # of both calls
    assert all(str(message.label).startswith("gradients: ") for message in both)
    assert len({(message.source, message.to, str(message.label)) for message in both}) == len(both)
    for factor in (1, 10):
        assert_all_same([5 * np.arange(7.0) * factor + 10, *(found[rank, factor] for rank in range(5))])


@EVERY
@pytest.mark.parametrize("N", [2, 3, 4])
def test_threads_have_the_bits_of_the_cluster(name, N):
    simulated, measured = {}, {}
    Cluster([twice(rank, N, name, simulated, 1 / 3) for rank in range(N)]).run()
    Threads([twice(rank, N, name, measured, 1 / 3) for rank in range(N)]).run()
    assert_same(sorted(measured.items()), sorted(simulated.items()))


LAYERS = [mp.Linear(2, 4), mp.ReLU(), mp.Linear(4, 4), mp.ReLU(), mp.Linear(4, 2)]
LOSS = mp.MeanSquaredError()


@pytest.mark.parametrize("name, D, buckets", one_in(4, ALL_REDUCES, [2, 3, 4], [None, 100]))
def test_copies_have_the_gradients_of_the_full_batch(name, D, buckets):
    """In rational numbers; at the end of the mini-batch, and while others are still computed."""
    layers = [layer.copy(rational) for layer in mp.Sequential(LAYERS, LOSS).layers]
    X, Y = (rational(np.random.default_rng(D).integers(-8, 8, (2, 11))) for _ in range(2))
    sums = mp.Sums(all_reduce=name, buckets=buckets)
    assert_equals_full_batch(mp.DataParallel(layers, LOSS, D, D + 2, sums=sums), X, Y)


def test_an_all_reduce_of_a_notebook_works_by_its_name(monkeypatch):
    monkeypatch.setattr(ALL_REDUCES, "facts", dict(ALL_REDUCES.facts))
    monkeypatch.setitem(ALL_REDUCES, "mine", None)
    del ALL_REDUCES["mine"]  # and monkeypatch deletes what takes its place

    @ALL_REDUCES("mine", ticks=lambda N, n, alpha, beta, gamma: N, numbers_sent=lambda rank, N, n: rank,
                 order="own", source="no known paper")
    def of_a_notebook(group, vectors):
        return (yield from ALL_REDUCES["ring"](group, vectors))

    assert (all_reduce_ticks("mine", 3, 6), numbers_sent("mine", 3, 6)) == (3, [0, 1, 2])
    X, Y = (np.random.default_rng(D).integers(-8, 8, (2, 11)) for D in range(2))
    nets = [mp.DataParallel(LAYERS, LOSS, 3, 5, sums=mp.Sums(all_reduce=name)) for name in ("mine", "ring")]
    assert_all_same([(net.forward_backward(X, Y), net.gradients) for net in nets])


@pytest.mark.parametrize("fact, words", [
    (dict(order="any"), "order='any' must be one of 'tree', 'tree of 2^k', 'ranks', 'own'"),
    (dict(exact="sometimes"), "exact='sometimes' must be one of 'any N', '2^k'"),
])
def test_a_fact_that_means_nothing_is_refused(fact, words):
    facts = dict(ticks=min, numbers_sent=min, order="own", source="no known paper") | fact
    with pytest.raises(ValueError) as refused:
        ALL_REDUCES("mine", **facts)
    assert words in str(refused.value)
