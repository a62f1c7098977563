"""What devices hold is counted if it is asked for."""

import sys
from functools import partial

import numpy as np
import pytest
from compared import assert_same

import minipipe as mp
from minipipe import plots
from minipipe.cluster.memory import Kept, Shelf, bytes_by_kind

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
            "this run has not counted the bytes that devices hold: make the network with count_bytes=True, "
            "or a Cluster with holdings"
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


def test_ticking_counts_the_same_bytes_as_running():
    whole, stepped = (NETWORKS["Pipeline"](count_bytes=True) for _ in range(2))
    whole.forward_backward(*mini_batch())
    stepped.start(*mini_batch())
    while stepped.tick():
        assert sum(stepped.trace.peak_bytes()) > 0
    assert stepped.trace == whole.trace


# The time of a mini-batch grows with its micro-batches, not with their square.

def n_calls(schedule, M, **options):
    """Return how many functions are called in the first mini-batch, Python's and C's."""
    layers, X = [mp.Linear(2, 2), mp.Linear(2, 2)], np.ones((2, M))
    net = mp.Pipeline(layers, LOSS, 2, M, schedule=schedule, **options)
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


@pytest.mark.parametrize("schedule, recompute, count_bytes", [
    ("gpipe", "never", False), ("gpipe", "always", False), ("1f1b", "never", False),
    ("gpipe", "never", True), ("gpipe", "always", True),
])
def test_the_first_mini_batch_is_linear_in_its_micro_batches(schedule, recompute, count_bytes):
    """Of twice as many micro-batches it has twice as many calls, also if bytes are counted."""
    options = {"recompute": recompute, "count_bytes": count_bytes}
    n_calls(schedule, 8, **options)  # what Python imports and remembers once
    few, many = (n_calls(schedule, M, **options) for M in (50, 100))
    assert 1.8 * few < many < 2.1 * few


def test_what_comes_and_goes_is_counted_as_at_a_look():
    """A buffer counts once, under the first kind: views of it in several items and kinds, in any order."""
    rng = np.random.default_rng(0)
    arrays = [np.zeros(n) for n in range(1, 7)]
    halves: list = []
    shelves = {"inputs": Shelf(), "caches": Shelf(halves)}
    kept = {kind: Kept(shelf) for kind, shelf in shelves.items()}
    for step in range(600):
        of_kind = kept[rng.choice(["inputs", "caches"])]
        i = int(rng.integers(4))
        if i in of_kind:
            of_kind.pop(i)
        else:
            of_kind[i] = [arrays[k][:rng.integers(1, 9)] for k in rng.integers(0, 6, rng.integers(0, 4))]
        parameters, halves[:], work = ([arrays[k] for k in rng.integers(0, 6, 2)] for _ in range(3))
        plain = {"inputs": dict(kept["inputs"]), "caches": [dict(kept["caches"]), halves]}
        counted, looked_at = (
            bytes_by_kind({"parameters": parameters, **items, "work": work}) for items in (shelves, plain)
        )
        assert counted == looked_at, step
        assert list(counted) == list(looked_at)
