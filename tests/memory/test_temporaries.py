"""What a layer needs for a moment comes on top of the bytes that are counted, and is foreseen, too.

What is freed after it stays with the process.
"""

import gc
import subprocess
import sys
import tracemalloc
from contextlib import contextmanager
from importlib.util import find_spec

import numpy as np
import pytest
from memory.test_foresight import CONNECTED, LAYERS
from sampling import one_in

import minipipe as mp
from minipipe.cluster.memory import Accounts
from minipipe.meta import LIVE, MetaArray
from minipipe.planning import temporaries
from minipipe.planning.foresight import patterns_of

SOFTMAX, FLOAT32 = mp.SoftmaxCrossEntropy(), dict(dtype=np.float32)
SLACK = 192 * 2**10  # of Python's own objects: AmoebaNet's take up to 97 KiB; pytest's threads add theirs
rng = np.random.default_rng(0)


def classes(n, *shape):
    return mp.one_hot(rng.integers(0, n, shape), n, np.float32)


def digits_like(m):
    return rng.standard_normal((784, m)).astype(np.float32), classes(10, m)


def images(m):
    return rng.standard_normal((3, 32, 32, m)).astype(np.float32), classes(10, m)


def tokens(m, T=64):
    return rng.integers(0, 65, (T, m)), classes(65, T, m)


MLP = mp.models.mlp([784, 512, 512, 512, 10])
TRANSFORMER = mp.models.transformer(65, 64, 4, 4, 64)
RUNS = {
    "mlp": (MLP, digits_like(256), 4, 8, "1f1b", "never"),
    "mlp on 2 devices": (MLP, digits_like(256), 2, 8, "1f1b", "never"),
    "transformer, recomputed": (TRANSFORMER, tokens(32), 4, 8, "1f1b", "always"),
    "transformer, selective": (TRANSFORMER, tokens(32), 4, 8, "1f1b", "selective"),
    "transformer in halves": (TRANSFORMER, tokens(16), 4, 4, "zb-h1", "never"),
    "resnet": (mp.models.resnet(), images(16), 4, 8, "1f1b", "never"),
    "resnet, both directions": (mp.models.resnet(), images(16), 4, 4, "chimera", "except_last"),
    "amoebanet": (mp.models.amoebanet_d(3, 16, n_classes=10), images(24), 3, 2, "1f1b", "never"),
    "lenet5": (mp.models.lenet5(), (rng.standard_normal((1, 28, 28, 64)).astype(np.float32), classes(10, 64)),
               3, 4, "gpipe", "always"),
}


@contextmanager
def real_peaks(monkeypatch):
    """{(device, kind of action, stage): (most bytes held inside it beyond those counted, most held in all)}.

    What is really held, Python's own tracing says, which NumPy reports its arrays to: what the device was
    counted to hold when the action began, and the most that was allocated beyond that until its end. Counted
    is the larger number of those before it and after it.
    """
    found, call = {}, Accounts.call

    def traced_call(accounts, lane, function, args, now):
        device = lane.device

        def counted(work):
            lane.work = work
            return sum(accounts._held(device).values())

        def traced(on, parts, inputs):
            before = counted((on, parts, inputs))
            tracemalloc.reset_peak()
            start, _ = tracemalloc.get_traced_memory()
            answer = function(on, parts, inputs)
            held = before + tracemalloc.get_traced_memory()[1] - start
            after = counted(((on, parts, inputs), answer))
            for kind, stage, _ in parts:
                place = device, kind, stage
                inside, in_all = found.get(place, (0, 0))
                found[place] = max(inside, held - max(before, after)), max(in_all, held)
            return answer

        return call(accounts, lane, traced, args, now)

    with monkeypatch.context() as patch:
        patch.setattr(Accounts, "call", traced_call)
        tracemalloc.start()
        try:
            yield found
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("name", one_in(4, RUNS))
def test_no_action_needs_more_than_is_counted_and_foreseen(name, monkeypatch):
    """By NumPy's own tracing, for each kind of action on each stage; and not much less either."""
    layers, (X, Y), K, M, schedule, recompute = RUNS[name]
    split, memory = dict(stages=K, microbatches=M), dict(recompute=recompute, memory_limit=10**9)
    pipe = mp.Parallel(layers, SOFTMAX, **split, schedule=schedule, **memory, **FLOAT32)
    pipe.forward_backward(X, Y)  # what Python remembers from a first run is no array
    with real_peaks(monkeypatch) as found:
        pipe.forward_backward(X, Y)
    layers = mp.layers.recomputing(layers) if recompute == "selective" else layers
    cut = mp.Cut([len(stage.layers) for stage in pipe.stages])
    patterns = sorted(set(patterns_of(pipe.schedule).values()))
    shape, m = X.shape[:-1], X.shape[-1] // M
    of_stages = temporaries(layers, SOFTMAX, cut, shape, m, "float32", patterns)
    insides = {}
    for (device, kind, stage), (inside, held) in found.items():
        assert inside <= of_stages[stage][kind] + SLACK
        insides[stage] = max(insides.get(stage, 0), inside)
        assert held <= pipe.trace.peak_bytes()[device] + max(of_stages[stage].values()) + SLACK
    for stage, inside in insides.items():
        used = {kind for _, kind, index in found if index == stage}
        assert inside >= 0.7 * max(of_stages[stage][kind] for kind in used) - SLACK


def test_the_counted_bytes_alone_are_not_enough(monkeypatch):
    """A run within its limit of memory exceeds it for a moment; with the temporaries on top it does not."""
    X, Y = digits_like(256)
    pipe = mp.Pipeline(MLP, SOFTMAX, 4, 8, schedule="1f1b", dtype=np.float32, count_bytes=True)
    pipe.forward_backward(X, Y)
    limit = max(pipe.trace.peak_bytes())
    split, memory = dict(stages=4, microbatches=8), dict(memory_limit=limit)
    pipe = mp.Parallel(MLP, SOFTMAX, **split, **memory, **FLOAT32)
    with real_peaks(monkeypatch) as found:
        pipe.forward_backward(X, Y)
    real = max(held for _, held in found.values())
    inside = max(temporaries(MLP, SOFTMAX, 4, (784,), 32, "float32")[0].values())
    assert 1.2 * limit < real <= limit + inside + SLACK


def test_gradients_are_added_layer_by_layer():
    """One layer's dW at a time is there beside the sums, and its sum with another, not a whole stage's."""
    layers = [mp.Linear(100, 100) for _ in range(8)]
    (stage,) = temporaries(layers, mp.MeanSquaredError(), 1, (100,), 4, patterns=["FB"])
    one = 8 * 100 * 101
    assert 2 * one <= stage["B"] < 2.2 * one


def test_no_cache_waits_where_a_forward_will_be_recomputed():
    layers = [mp.Tanh() for _ in range(8)]
    layers = [mp.Linear(10, 10), *layers, mp.Linear(10, 10)]
    (stage,) = temporaries(layers, mp.MeanSquaredError(), 1, (10,), 1000, patterns=["FRB"])
    assert stage["F"] <= 3 * 8 * 10 * 1000  # not 10


def test_inside_an_activation_few_arrays_of_its_size_are_there():
    """Two, beside its input, its output and what it keeps. GELU had 5."""
    for layer in (mp.GELU(), mp.Sigmoid(), mp.LayerNorm(50), mp.SiLU()):
        layers, n_bytes = [mp.Linear(50, 50), layer, mp.Linear(50, 50)], 8 * 50 * 1000
        stages = temporaries(layers, mp.MeanSquaredError(), 3, (50,), 1000, patterns=["FB"])
        assert stages[1]["F"] <= 2 * n_bytes * 1.1, layer


def test_each_kind_of_action_has_its_number_on_each_stage():
    for layers in (LAYERS, CONNECTED):
        stages = temporaries(layers, SOFTMAX, 3, (5,), 4)
        assert [sorted(stage) for stage in stages] == [["B", "F", "I", "R", "W"]] * 3
        assert stages == temporaries(layers, SOFTMAX, 3, (5,), 4)
    of_layers = temporaries(LAYERS, SOFTMAX, len(LAYERS), (5,), 4, "float32")
    assert len(of_layers) == len(LAYERS) and all(min(layer.values()) >= 0 for layer in of_layers)


def test_arrays_without_numbers_are_gone_when_nobody_has_them():
    """An array that referred to itself would wait for Python's collector, and count for too long."""
    gc.disable()
    try:
        before = LIVE.mark()
        A = MetaArray((30, 4), np.float32)
        B = np.exp(A[:10] * 2).reshape(4, 10)
        assert LIVE.now - before == 4 * (120 + 40) and LIVE.peak - before == 4 * (120 + 40 + 40)
        del A, B
        assert LIVE.now == before
    finally:
        gc.enable()


PROGRAM = """
import ctypes, resource
import numpy as np
from minipipe.cluster import Compute
from minipipe.engines.threads import Threads

if not hasattr(ctypes.CDLL(None), "mallopt"):
    raise SystemExit("no setting")

def micro_batch():
    return [np.ones(2**17) for _ in range(16)]  # 1 MiB each

def faults():
    for _ in range(3):
        micro_batch()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    micro_batch()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def nothing():
    yield Compute("F0", lambda: None)

by_default = faults()
RUN
print(by_default, faults())
"""
AGAIN = """
import minipipe as mp
pipe = mp.Pipeline([mp.Linear(1, 1)], mp.MeanSquaredError(), 1, 1)
for _ in range(2):
    pipe.forward_backward(np.ones((1, 1)), np.ones((1, 1)))
"""


@pytest.mark.skipif(not find_spec("resource"), reason="no operating system that counts page faults")
@pytest.mark.parametrize("run", [
    pytest.param("Threads([nothing()]).run()", id="threads"),
    pytest.param(AGAIN, id="a mini-batch again", marks=pytest.mark.slow),
])
def test_memory_is_not_asked_for_again(run):
    """What a micro-batch has freed is there for the next, once threads have run, or a mini-batch again."""
    program = PROGRAM.replace("RUN", run)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    if done.stderr.strip() == "no setting":
        pytest.skip("this C library has no such setting")
    by_default, kept = map(int, done.stdout.split())
    assert by_default > 1000 and kept < 100, done.stderr  # of 4,096 pages
