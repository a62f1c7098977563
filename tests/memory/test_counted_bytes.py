"""What devices hold is counted if it is asked for, by what each action adds and drops."""

import sys
from functools import partial

import numpy as np
import pytest
from compared import assert_same
from sampling import one_in

import minipipe as mp
from minipipe import plots
from minipipe.cluster import bytes_by_kind
from minipipe.order import in_copies, with_updates, with_zero
from minipipe.parallel.stage import Holdings
from minipipe.schedules import build, data_parallel

LAYERS = [
    mp.Linear(4, 6), mp.Fork("skip"), mp.Tanh(), mp.Linear(6, 6, tie="W"), mp.Join("skip"),
    mp.BatchNorm(6), mp.Linear(6, 6, tie="W"), mp.Linear(6, 3),
]
PLAIN = [mp.Linear(4, 6), mp.ReLU(), mp.Linear(6, 6), mp.Tanh(), mp.Linear(6, 3)]
LOSS = mp.MeanSquaredError()


def mini_batch(m=16):
    rng = np.random.default_rng(m)
    return rng.standard_normal((4, m)), rng.standard_normal((3, m))


# Asked for, or not.

NETWORKS = {
    "Pipeline": partial(mp.Pipeline, PLAIN, LOSS, 3, 4),
    "DataParallel": partial(mp.DataParallel, PLAIN, LOSS, 2),
    "TensorParallel": partial(mp.TensorParallel, PLAIN, LOSS, 2),
    "Parallel": lambda count_bytes=False: mp.Parallel(
        PLAIN, LOSS, replicas=2, shards=2, stages=2, microbatches=4, count_bytes=count_bytes,
        link=mp.Link(bandwidth=64),
    ),
}
READERS = (
    lambda trace: trace.peak_bytes(), lambda trace: trace.peak_bytes(["caches"]),
    lambda trace: trace.peak_bytes(["nonsense"]), lambda trace: trace.memory(0),
    lambda trace: trace.ledger(0), plots.memory, lambda trace: plots.ledger(trace, 0),
)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_trace_without_counted_bytes_says_how_to_ask_for_them(name):
    """All else in it is the same, messages with their bytes, too."""
    net, asked = NETWORKS[name](), NETWORKS[name](count_bytes=True)
    J = net.forward_backward(*mini_batch())
    assert asked.forward_backward(*mini_batch()) == J
    for read in READERS:
        with pytest.raises(ValueError) as refused:
            read(net.trace)
        assert str(refused.value) == (
            "this run has not counted the bytes that devices hold: make the network with count_bytes=True; "
            "simulate counts them with footprints, and a Cluster with holdings"
        )
    assert min(asked.trace.peak_bytes()) > 0
    for part in ("spans", "messages", "idle"):
        assert getattr(net.trace, part) == getattr(asked.trace, part)
    assert sum(message.n_bytes for message in net.trace.messages) > 0
    assert_same(net.gradients, asked.gradients)


def test_with_a_limit_bytes_are_counted():
    limited, asked = (
        mp.Parallel(PLAIN, LOSS, stages=3, microbatches=4, **memory)
        for memory in (dict(memory_limit=10**9), dict(count_bytes=True))
    )
    for net in (limited, asked):
        net.forward_backward(*mini_batch())
    assert limited.trace == asked.trace


# What is added and dropped is what is there.

def everything(stages):
    """Return {kind: bytes}, by a walk through all that these stages hold."""
    found = {}
    for stage in stages:
        newest, older = stage.weights(), []
        if stage.in_parts:
            newest = [stage.owned.vectors, stage.owned.whole, stage.statistics()]
        elif stage.versions is not None:
            newest, older = stage.versions[stage.versions.newest], stage.versions.older
        of_stage = {
            "parameters": newest, "optimizer state": stage.optimizer_state(), "weight versions": older,
            "gradients": stage.totals.held(), "stashed inputs": stage.inputs,
            "caches": [stage.stash, stage.halves],
        }
        for kind, arrays in of_stage.items():
            found.setdefault(kind, []).append(arrays)
    return bytes_by_kind(found | {"work": []})


ORDERS = {  # name -> (schedule, M, layers, what is recomputed)
    "gpipe": ("gpipe", 4, LAYERS, "always"), "1f1b": ("1f1b", 4, LAYERS, "except_last"),
    "zb-h1": ("zb-h1", 4, LAYERS, "never"), "late W": ("gpipe-late-w", 4, PLAIN, "never"),
    "two stages on each device": (build("zb-v", stages=4, microbatches=4), 4, LAYERS, "never"),
    "two directions": ("chimera", 4, PLAIN, "never"),
    "updates in copies": (with_updates(in_copies(build("1f1b", 4, 2), 2)), 4, PLAIN, "always"),
    "ZeRO 3": (with_zero(data_parallel(2, 4, 4), 3), 4, PLAIN, "never"),
    "no flush": ("pipedream", 1, PLAIN, "never"),
}


@pytest.mark.parametrize("name, accumulate", one_in(2, ORDERS, ["tree", "running"]))
def test_the_bytes_are_those_of_a_walk_through_all_that_is_held(name, accumulate, monkeypatch):
    """At each look, though a look walks only through what has changed since the one before."""
    schedule, M, layers, recompute = ORDERS[name]
    net = mp.Parallel(
        layers, LOSS, stages=4, microbatches=M, schedule=schedule, recompute=recompute, count_bytes=True,
        sums=mp.Sums(accumulate),
    )
    compare_each_look(monkeypatch, net)


@pytest.mark.parametrize("schedule", ["gpipe", "zb-h1"])
def test_so_are_those_between_two_exchanges_of_an_action(schedule, monkeypatch):
    """Of two pairs of layers in a stage, each of which sums over two devices; with B, or with I and W."""
    layers = [PLAIN[0], *[mp.Linear(6, 6) for _ in range(6)], PLAIN[-1]]
    net = mp.Parallel(layers, LOSS, shards=2, stages=2, microbatches=4, schedule=schedule, count_bytes=True)
    compare_each_look(monkeypatch, net)


def compare_each_look(monkeypatch, net):
    """Train on two mini-batches; whenever bytes are counted, those of a walk must be the same."""
    count, looks = Holdings.__call__, []

    def compared(holdings):
        tally = count(holdings)
        looks.append(holdings)
        assert tally.with_work(None) == everything(holdings._stages)
        return tally

    monkeypatch.setattr(Holdings, "__call__", compared)
    net.train([mini_batch(), mini_batch(18)], mp.Adam())
    assert len(looks) > 2 * net.n_stages * net.n_microbatches


# The time of a mini-batch grows with its micro-batches, not with their square.

def n_calls(schedule, M, **options):
    """Return how many functions are called in the first mini-batch, Python's and C's."""
    net, X = mp.Pipeline([mp.Linear(2, 2)] * 2, LOSS, 2, M, schedule=schedule, **options), np.ones((2, M))
    calls = 0

    def note(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        net.forward_backward(X, X)
    finally:
        sys.setprofile(before)
    return calls


@pytest.mark.parametrize("options", [{}, {"count_bytes": True}], ids=["not counted", "counted"])
@pytest.mark.parametrize("schedule, recompute", [("gpipe", "never"), ("gpipe", "always"), ("1f1b", "never"),
                                                 ("gpipe-late-w", "never")])
def test_the_first_mini_batch_is_linear_in_its_micro_batches(schedule, recompute, options):
    """Of twice as many micro-batches, all of which GPipe keeps, it has twice as many calls."""
    n_calls(schedule, 8, recompute=recompute, **options)  # what Python imports and remembers once
    few, many = (n_calls(schedule, M, recompute=recompute, **options) for M in (100, 200))
    assert 1.8 * few < many < 2.1 * few
