"""What every all-reduce must hold, what it states about itself against what is counted, and published ticks.

A new all-reduce is found here by its decorator. `-k its-name` runs its own tests. Then come sums whose terms
are spread over ranks, and collectives that are no all-reduce.
"""

import re
from fractions import Fraction
from math import fsum

import numpy as np
import pytest
from compared import assert_all_same, assert_same

import minipipe as mp
from minipipe.cluster import Bytes, Cluster, Link, ports
from minipipe.collectives import (
    ALL_REDUCES, Group, all_gather, all_reduce, all_reduce_sum, all_reduce_ticks, all_to_all, reduce_scatter,
)
from minipipe.exact import Rational
from minipipe.meta import MetaArray
from minipipe.schedules import build
from minipipe.sums import TreeSum


def run(collective, values, *args, link=Link(), bandwidth=None, gamma=0, wires=()):
    """(what each rank gets, the trace) of `collective(group, value, *args)` on one rank for each value."""
    N, found = len(values), {}

    def program(rank):
        group = Group(rank, range(N), gamma=gamma)
        found[rank] = yield from collective(group, values[rank], *args)

    programs = [program(rank) for rank in range(N)]
    trace = Cluster(programs, link=link, ports=ports(N, bandwidth) if bandwidth else wires).run()
    return [found[rank] for rank in range(N)], trace


def bytes_sent(trace, N):
    """The bytes that each rank sends: a list."""
    return [sum(m.n_bytes for m in trace.messages if m.source == rank) for rank in range(N)]


FACTS = ALL_REDUCES.facts
EVERY = pytest.mark.parametrize("name", ALL_REDUCES)
RANKS = [*range(1, 10), 16]
RANKS_AND_MORE = pytest.mark.parametrize(
    "ranks", [[1, 2, 3, 5, 6, 7, 8], pytest.param(range(1, 34), marks=pytest.mark.slow)],
    ids=["few", "1 to 33"],
)
# alpha, and ticks per byte that is added: latency is most of a message, or none of it, or additions are slow
ALPHA_GAMMA = [(100, Fraction(1, 64)), (0, 0), (Fraction(1, 3), Fraction(1, 4))]
BETA = Fraction(1, 16)


def is_power_of_2(N):
    return N & (N - 1) == 0


@EVERY
@pytest.mark.parametrize("N", RANKS)
def test_all_ranks_get_the_sum_and_keep_their_values(name, N):
    for n in (0, 1, N - 1, 3 * N + 2):
        values = [np.arange(n) * 17 + 5 ** (rank % 20) for rank in range(N)]
        before = [value.copy() for value in values]
        sums, trace = run(all_reduce, values, name)
        assert_all_same([sum(values), *sums])
        assert_same(values, before)
        assert N > 1 or not trace.messages
        assert all(message.n_bytes <= 8 * n for message in trace.messages)


def settings(alpha, with_ports):
    """Keywords of `run`: links of latency alpha, and BETA ticks a byte in ports of each rank, or in links."""
    return dict(link=Link(alpha), bandwidth=1 / BETA) if with_ports else dict(link=Link(alpha, 1 / BETA))


@EVERY
@RANKS_AND_MORE
def test_a_run_takes_the_ticks_that_it_says(name, ranks):
    """With a port in and out of each rank, and without; where it says none, chunks or steps are unequal."""
    for N in ranks:
        for place, n in enumerate((0, 1, N - 1, N + 5, 10 * N + 7, 4 * N)):
            alpha, gamma = ALPHA_GAMMA[(N + place) % 3]
            for with_ports in (True, False):
                said = f"N={N}, n={n}, alpha={alpha}, gamma={gamma}, with_ports={with_ports}"
                try:
                    formula = all_reduce_ticks(name, N, n, alpha, BETA, gamma, with_ports)
                except ValueError:
                    assert n % N or not is_power_of_2(N), said
                    continue
                machine = settings(alpha, with_ports)
                _, trace = run(all_reduce, [Bytes(n, 1)] * N, name, gamma=gamma, **machine)
                assert trace.makespan == formula, said


@EVERY
@pytest.mark.parametrize("N", [2, 3, 4, 5, 8])
def test_floats_have_the_bits_of_the_stated_order_on_all_ranks(name, N):
    values = list(np.random.default_rng(N).normal(size=(N, 40)).astype(np.float32))
    sums, _ = run(all_reduce, values, name)
    assert all(total.dtype == np.float32 for total in sums)
    assert_all_same(sums)
    assert not any(np.shares_memory(total, value) for total in sums for value in values)
    order = FACTS[name].order
    assert order in ("tree", "tree of 2^k", "ranks", "own")
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
def test_meta_arrays_take_the_messages_and_ticks_of_arrays(name):
    for N, n in [(4, 64), (5, 13)]:
        real, meta = [np.ones(n)] * N, [MetaArray(n)] * N
        traces = [run(all_reduce, values, name, link=Link(1), bandwidth=4, gamma=1 / 8)[1]
                  for values in (real, meta)]
        assert traces[0].messages == traces[1].messages and traces[0].spans == traces[1].spans
    huge, _ = run(all_reduce, [MetaArray((10**6, 10**6), np.float32)] * 4, name)
    assert huge[0].shape == (10**6, 10**6) and huge[0].dtype == np.float32


@EVERY
def test_labels_name_the_group_and_tell_two_calls_apart(name):
    """By them, two groups of one device, and two calls in a row, keep their messages apart."""
    found = {}

    def twice(rank):
        group = Group(rank, range(5), name="gradients: ")
        for factor in (1, 10):
            found[rank, factor] = yield from all_reduce(group, np.arange(7.0) * factor + rank, name)

    both = Cluster(map(twice, range(5))).run().messages  # of both calls
    assert all(str(message.label).startswith("gradients: ") for message in both)
    assert len({(message.source, message.to, str(message.label)) for message in both}) == len(both)
    for factor in (1, 10):
        assert_all_same([5 * np.arange(7.0) * factor + 10, *(found[rank, factor] for rank in range(5))])


LAYERS = [mp.Linear(2, 4), mp.ReLU(), mp.Linear(4, 4), mp.ReLU(), mp.Linear(4, 2)]
LOSS = mp.MeanSquaredError()


def test_an_all_reduce_of_a_notebook_works_by_its_name(monkeypatch):
    monkeypatch.setattr(ALL_REDUCES, "facts", dict(ALL_REDUCES.facts))
    monkeypatch.setitem(ALL_REDUCES, "mine", None)
    del ALL_REDUCES["mine"]  # and monkeypatch deletes what takes its place

    @ALL_REDUCES("mine", ticks=lambda N, *_: N, order="own", source="no known paper")
    def of_a_notebook(group, vectors):
        return (yield from ALL_REDUCES["ring"](group, vectors))

    assert all_reduce_ticks("mine", 3, 6) == 3
    X, Y = (np.random.default_rng(D).integers(-8, 8, (2, 11)) for D in range(2))
    nets = [
        mp.DataParallel(LAYERS, LOSS, 3, microbatches=5, sums=mp.Sums(all_reduce=name))
        for name in ("mine", "ring")
    ]
    assert_all_same([(net.forward_backward(X, Y), net.gradients) for net in nets])


def table(of_names):
    """{name: what is expected} as the arguments of a test, by name: a new one breaks none of these."""
    return pytest.mark.parametrize("name, expected", of_names.items())


# Values


@table({
    "naive": [1, 1, 1, 1], "ring": [1, 0, 1, 0],
    "tree": [0, 0, 0, 0], "doubling": [0, 0, 0, 0], "halving": [0, 0, 0, 0], "owners": [0, 0, 0, 0],
})
def test_the_order_of_the_additions_matches_the_program(name, expected):
    """1e16 + 1 = 1e16 in floats: of 1e16 + 1 - 1e16 + 1, the order decides what is left."""
    assert run(all_reduce, [np.full(4, x) for x in (1e16, 1, -1e16, 1)], name)[0][0].tolist() == expected


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
        assert_all_same(found, whole.value)


@pytest.mark.parametrize("M, N, nodes", [
    (8, 2, [1, 1]), (8, 4, [1, 1, 1, 1]), (8, 3, [2, 2, 1]), (12, 3, [1, 1, 1]), (12, 4, [2, 2, 2, 2]),
    (6, 2, [2, 2]), (16, 5, [1, 2, 2, 2, 2]),
])
def test_an_aligned_run_of_terms_is_sent_as_one_partial_sum(M, N, nodes):
    sums = spread([np.ones(60)] * M, N)
    assert [len(tree_sum.pending) for tree_sum in sums] == nodes
    _, trace = run(all_reduce_sum, sums)
    half = 8 * 60 * (N - 1) // N
    assert bytes_sent(trace, N) == [count * half + half for count in nodes]


@pytest.mark.parametrize("name", ["tree", "doubling", "halving"])
def test_other_all_reduces_keep_the_bits_of_aligned_runs(name):
    terms = list(np.random.default_rng(0).normal(size=(16, 33)))
    whole, = spread(terms, 1)
    for N in (2, 4, 8, 16):
        assert_same(run(all_reduce_sum, spread(terms, N), name)[0][0], whole.value)


# Ticks


@table({
    "naive": [7, 1, 1, 1, 1, 1, 1, 1], "tree": [3, 1, 2, 1, 3, 1, 2, 1], "doubling": [3] * 8,
    "halving": [7 / 4] * 8, "ring": [7 / 4] * 8, "owners": [7 / 4] * 8,
})
def test_eight_ranks_send_the_bytes_of_the_notebook(name, expected):
    """In multiples of the bytes of a vector."""
    trace = run(all_reduce, [np.zeros(64)] * 8, name)[1]
    assert bytes_sent(trace, 8) == [times * 8 * 64 for times in expected]


@table({
    "naive": [1, 1, 1, 1, 1], "tree": [1, 0, 0, 0, 0], "ring": [1, 1, 1, 1, 1], "doubling": [1, 0, 0, 0, 0],
    "halving": [0, 0, 0, 0, 0], "owners": [0, 1, 0, 1, 1],
})
def test_ticks_without_a_closed_form_are_refused(name, expected):
    for (N, n, with_ports), holds in zip(
        [(4, 7, True), (6, 12, True), (6, 7, True), (6, 12, False), (6, 7, False)], expected, strict=True
    ):
        if holds:
            assert all_reduce_ticks(name, N, n, 1, 1, 1, with_ports) > 0
            continue
        with pytest.raises(ValueError, match=f"no closed form for N={N}, n={n} and ports=") as refused:
            all_reduce_ticks(name, N, n, 1, 1, 1, with_ports)
        remedy = re.search(r"count the ticks of a run, or use N=(\d+) and n=(\d+)$", str(refused.value))
        ranks, numbers = map(int, remedy.groups())
        assert ranks in (N, 4) and n <= numbers < n + ranks
        assert all_reduce_ticks(name, ranks, numbers, 1, 1, 1, with_ports) > 0


def test_messages_of_a_gpu_share_its_nic():
    """Of 32 GPUs with a NIC each: n bytes at 1000 a tick. `test_plan.py` has NVLink inside nodes, too."""
    n, nics = 4_004_000, ports(32, 1000, between=1)
    trace = run(all_reduce, [Bytes(n, 1)] * 32, "owners", wires=nics)[1]
    assert trace.makespan == 2 * 31 / 32 * n / 1000 == 7757.75


def test_simulations_and_runs_have_the_same_ports():
    """Four stages, two a node: of 3 messages up and 3 down, one each way passes a NIC, in 8/4 ticks."""
    nics, schedule = ports(4, 4, between=2), build("gpipe", 4, 1)
    simulated = mp.simulate(schedule, mp.Costs(message_bytes=8), ports=nics)
    layers = [mp.Linear(1, 1) for _ in range(4)]
    net = mp.Pipeline(layers, LOSS, 4, 1, schedule="gpipe", ports=nics)
    net.forward_backward(np.ones((1, 1)), np.ones((1, 1)))
    assert net.trace.makespan == simulated.makespan == 4 * (1 + 2) + 2 * 8 / 4


@pytest.mark.parametrize("name, N, ms", [
    ("naive", 4, 60), ("naive", 5, 80), ("owners", 4, 15), ("ring", 4, 15),
])
def test_the_gpus_of_d2l_share_the_port_that_they_send_to(name, N, ms):
    """Dive into Deep Learning, 13.7: 160 MB, 16 MB a millisecond; to the CPU is to a fifth device.

    Without ports, all messages would pass at once, and 60 ms would come out as 20.
    """
    values = [MetaArray(160, np.uint8)] * N
    assert run(all_reduce, values, name, bandwidth=16)[1].makespan == ms
    assert name != "naive" or run(all_reduce, values, name, link=Link(bandwidth=16))[1].makespan == 20


# The others


@pytest.mark.parametrize("N", RANKS)
def test_the_other_collectives_give_what_their_names_say(N):
    values = [np.arange(7) + 100 * rank for rank in range(N)]
    parts = [[np.array([100 * rank + c]) for c in range(N)] for rank in range(N)]
    found, trace = run(all_gather, values)
    assert_all_same(found, values)
    assert bytes_sent(trace, N) == [8 * 7 * (N - 1)] * N
    found, _ = run(reduce_scatter, parts)
    assert found == [sum(100 * rank + r for rank in range(N)) for r in range(N)]
    found, _ = run(all_to_all, parts)
    assert all(np.array_equal(np.concatenate(got), [100 * source + r for source in range(N)])
               for r, got in enumerate(found))


@RANKS_AND_MORE
def test_other_collectives_take_the_ticks_of_their_formulas(ranks):
    """512 bytes to each, alpha = 100, beta = 1/16: N - 1 steps of 132; with gamma = beta, 164."""
    for N in ranks:
        chunk = Bytes(512, 1)
        for with_ports in (True, False):
            machine = settings(100, with_ports)
            for collective, value, gamma, step in [
                (all_gather, chunk, 0, 132), (all_to_all, [chunk] * N, 0, 132),
                (reduce_scatter, [chunk] * N, BETA, 164),
            ]:
                trace = run(collective, [value] * N, gamma=gamma, **machine)[1]
                assert trace.makespan == (N - 1) * step, f"{collective.__name__}, N={N}"


# What goes wrong, and says so


@pytest.mark.parametrize("call, words", [
    (lambda: Group(3, range(3)), "rank=3 is not in the group of 3"),
    (lambda: Group(0, [1, 1]), "has a device twice"),
    (lambda: run(all_reduce, [np.ones(1)], "rings"), "algorithm='rings' must be one of 'naive', 'tree'"),
    (lambda: run(reduce_scatter, [[np.ones(1)]] * 2), "1 parts for 2 ranks"),
    (lambda: run(all_to_all, [[1, 2, 3]] * 2), "3 values for 2 ranks"),
    (lambda: run(all_reduce, [range(3)] * 2), r"range\(0, 3\) is neither a number nor an array of numbers"),
])
def test_bad_input_raises_an_error_with_a_remedy(call, words):
    with pytest.raises(ValueError, match=words):
        call()
