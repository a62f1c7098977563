"""An argument changes something, or is refused; wrong arguments get a sentence."""

import math
import subprocess
import sys

import numpy as np
import pytest

import minipipe as mp
from minipipe import experiments, parallel
from minipipe.partitioning import loads
from minipipe.schedules import data_parallel, gpipe, with_zero

LAYERS, LOSS = [mp.Linear(2, 3), mp.ReLU(), mp.Linear(3, 1)], mp.MeanSquaredError()
X, Y = np.ones((2, 6)), np.ones((1, 6))


def recipe(**field):
    return experiments.Recipe(**field)


REFUSED = {
    "an unknown schedule of copies": (
        lambda: mp.Hybrid(LAYERS, LOSS, 2, schedule="nonsense"),
        "unknown schedule 'nonsense': there are naive,"
    ),
    "two stages on each device of copies": (
        lambda: mp.Hybrid(LAYERS, LOSS, 2, schedule="zb-v"),
        "'zb-v' puts 2 stages on each device, which n_stages=1"
    ),
    "an order of unequal copies": (
        lambda: mp.Hybrid(LAYERS, LOSS, 2, n_microbatches=3, schedule="gpipe"),
        "n_microbatches=3 over 2 replicas of 1 stages: use a multiple of 2",
    ),
    "a ZeRO that there is not, on one device": (
        lambda: mp.DataParallel(LAYERS, LOSS, 1, zero=9, optimizer=mp.SGD(0.1)), "zero=9 must be 1, 2 or 3"
    ),
    "ZeRO 3 of copies with unequal work": (
        lambda: with_zero(data_parallel(2, 3, n_stages=2), 3),
        "devices 0, 1 have 4, 2 gathers of stage 0: each of them is a meeting of all",
    ),
    "sequence without attention": (
        lambda: mp.TensorParallel(LAYERS, LOSS, 2, sequence=True),
        "sequence=True splits nothing here: it needs"
    ),
    "rows without convolutions": (
        lambda: mp.TensorParallel(LAYERS, LOSS, 2, rows=True),
        "rows=True splits nothing here: it needs convolut"
    ),
    "positions split in two ways": (
        lambda: mp.TensorParallel(LAYERS, LOSS, 2, sequence=True, rows=True), "sequence=True and rows=True: "
    ),
    "more shards than units": (
        lambda: mp.TensorParallel(LAYERS, LOSS, 20), "n_shards=20 splits none of these 3 layers: use fewer"
    ),
    "more shards than there can be": (
        lambda: mp.TensorParallel(LAYERS, LOSS, 10**30), f"n_shards={10**30} must be at most 1,000,000"
    ),
    "a round of servers below 0": (
        lambda: parallel.round_ticks([1, 2], 10, -1), "bandwidth=-1 must be above 0 bytes per tick"
    ),
    "rounds below 0": (
        lambda: parallel.synchronous_ticks(-3, 2, 1, 10, 1), "n_rounds=-3 must be at least 1"
    ),
    "more servers than workers": (
        lambda: parallel.synchronous_ticks(3, 2, 1, 10, 1, n_servers=3),
        "n_servers=3 exceeds n_workers=2: use at"
    ),
    "NaN for ticks": (
        lambda: parallel.round_ticks([1, math.nan], 1, 1),
        "ticks=nan must be at least 0 ticks"
    ),
    "text for ticks": (
        lambda: parallel.round_ticks(["1"], 1, 1),
        "ticks='1' must be a number, at least 0 ticks"
    ),
    "bytes through half a server": (
        lambda: parallel.servers.bytes_through_server(2, 8, 0.5), "n_servers=0.5 must be a whole number"
    ),
    "bytes on no worker": (
        lambda: parallel.servers.bytes_on_workers(0, 8),
        "n_workers=0 must be at least 1"
    ),
    "labels of other samples": (
        lambda: parallel.mini_batches(X, np.ones((1, 9)), 2, 3),
        "X of shape (2, 6) and Y of shape (1, 9): give"
    ),
    "costs that no stage has": (
        lambda: loads([1, 2, 3], [1, 1]),
        "counts=(1, 1) adds up to 2 layers, but costs has 3: give each layer a"
    ),
    "words for bias": (lambda: mp.Linear(2, 3, bias="no"), "bias='no' must be True or False"),
    "words for the bias of a kernel": (
        lambda: mp.Conv2d(1, 1, 3, bias="no"),
        "bias='no' must be True or False"
    ),
    "words for causal": (lambda: mp.MultiHeadAttention(4, 2, "no"), "causal='no' must be True or False"),
    "words for a causal block": (
        lambda: mp.TransformerBlock(4, 2, causal="no"), "causal='no' must be True or False"
    ),
    "words for decoupled": (lambda: mp.Adam(decoupled="no"), "decoupled='no' must be True or False"),
    "a base below 0": (lambda: recipe(base=-1), "base=-1 must be above 0"),
    "a reference of text": (lambda: recipe(reference="32"), "reference='32' must be a whole number"),
    "half an epoch": (lambda: recipe(n_epochs=4.5), "n_epochs=4.5 must be a whole number"),
    "a warm-up of NaN": (lambda: recipe(warm_up=math.nan), "warm_up=nan must be above 0"),
    "a decay below 0": (lambda: recipe(weight_decay=-1), "weight_decay=-1 must be at least 0"),
    "more devices than tasks can have": (
        lambda: mp.graph.list_schedule([mp.graph.Task("a")], 10**30),
        "n_devices=1000000000000000000000000000000 "
        "must be at most 4,000,000",
    ),
    "measuring forever": (
        lambda: mp.measure(LAYERS, LOSS, 2, X, Y, n_rounds=10**30), "must be at most 1,000,000"
    ),
    "a schedule for a trace": (
        lambda: mp.plots.timeline(gpipe(1, 1)),
        "is not a Trace: take the trace of a network, or simulate(schedule)"
    ),
    "a network for predictions": (
        lambda: mp.accuracy(mp.Sequential(LAYERS, LOSS), Y), "A holds Sequential([Linear(2, 3)"
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_change_nothing_or_make_no_sense_is_refused(name):
    call, words = REFUSED[name]
    with pytest.raises(ValueError) as complaint:
        call()
    assert words in str(complaint.value)


def test_the_schedule_of_copies_of_one_stage_is_used():
    """With one stage, "gpipe" keeps all micro-batches of a copy alive, and "1f1b" one of them."""
    all_alive, one_alive = (
        mp.Hybrid(LAYERS, LOSS, 2, n_microbatches=4, schedule=name).schedule for name in ("gpipe", "1f1b")
    )
    assert [str(action) for action in all_alive.devices[1]] == ["0F2", "0F3", "0B3", "0B2"]
    assert one_alive.devices == data_parallel(2, 4).devices


def test_rows_that_shards_do_not_divide_are_refused_before_anything_is_computed():
    layers = [mp.Conv2d(1, 1, 3, padding=1), mp.MaxPool2d(2), mp.Conv2d(1, 1, 3, padding=1), mp.Flatten()]
    net = mp.TensorParallel(layers, LOSS, 2, rows=True)
    with pytest.raises(ValueError, match="3 positions over 2 shards: use a number of shards that divides 3"):
        net.start(np.ones((1, 6, 4, 2)), np.ones((6, 2)))
    assert net.forward_backward(np.ones((1, 8, 4, 2)), np.ones((8, 2))) > 0


def test_mini_batches_keep_the_kind_of_their_numbers():
    (tokens, _), *_ = parallel.mini_batches(np.arange(6).reshape(1, 6), Y, 2, 3)
    assert tokens.dtype.kind == "i"


def test_as_many_samples_as_anybody_likes_are_rehearsed():
    def trace(m):
        return mp.rehearse(lambda layers, loss: mp.Pipeline(layers, loss, 2, 2), LAYERS, LOSS, (2,), m)

    small, huge = (sum(trace(m).peak_bytes()) for m in (10**3, 10**12))
    assert huge > 9 * 10**8 * small


@pytest.mark.parametrize("call", [
    "mp.clients_of(X, X, 2, seed=seed)", "Quantised(seed=seed)", "LowRank(seed=seed)",
    "mp.Sequential([mp.ReLU()], None, seed)",
])
def test_a_matrix_for_a_seed_is_refused_and_does_not_end_python(call):
    """NumPy goes round in a circle with it, until the interpreter has no stack left."""
    code = (
        "import numpy as np, minipipe as mp; from minipipe.collectives import LowRank, Quantised\n"
        "X, seed = np.ones((2, 4)), np.matrix([[1, 2]])\n"
        f"try: {call}\nexcept ValueError as error: print(error)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.stdout == "seed=matrix([[1, 2]]) must be a whole number\n", ended
