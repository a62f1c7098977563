"""The setting that is said to be the fastest that fits is that among all real runs; and other precisions."""

import numpy as np
import pytest
from memory.test_foresight import CONNECTED, LAYERS as NORMALISED, LOSS as CROSS_ENTROPY, assert_same_bytes
from sampling import one_in

import minipipe as mp
from minipipe.planning import PRECISIONS, Precision, Setting
from minipipe.planning.fitting import RECOMPUTE_MODES, Estimator, modes_for
from minipipe.schedules import build

LAYERS = [layer for _ in range(4) for layer in (mp.Linear(16, 16), mp.Tanh())]
LOSS, BATCH = mp.MeanSquaredError(), 64
X = np.random.default_rng(0).standard_normal((16, BATCH)).astype(np.float32)
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb-h1", "chimera")


def fits(memory_limit, n_devices, **options):
    return mp.what_fits(LAYERS, LOSS, (16,), BATCH, memory_limit, n_devices, schedules=SCHEDULES, **options)


def run(setting, layers=LAYERS, loss=LOSS, X=X, Y=X, optimizer=None, link=mp.Link()):
    """A real run with arrays, after an update if there is an optimizer."""
    pipe = setting.pipeline(layers, loss, link)
    for _ in range(1 if optimizer is None else 2):
        pipe.forward_backward(X, Y)
        if optimizer is not None:
            pipe.step(optimizer)
    return pipe.trace


def rounded(makespan):
    """To 9 digits, as those are that what_fits takes for equal."""
    return float(f"{float(makespan):.9g}")


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize("K, modes", [
    (2, ("never", "sqrt")), *(slow(K, modes_for(LAYERS)) for K in (1, 2, 4)),
])
def test_it_is_the_fastest_of_all_runs_that_fit(K, modes):
    """Every schedule, M and mode, alone and as a real run; then for limits at some peaks, and just below."""
    runs = []
    for schedule in SCHEDULES:
        for M in (2, 4):
            for mode in modes:
                try:
                    (alone,) = mp.what_fits(LAYERS, LOSS, (16,), BATCH, 1, [K], [M], [schedule], [mode])
                except ValueError:
                    continue  # interleaved, on 4 devices with 2 micro-batches, or chimera on 1
                trace = run(alone)
                assert not alone.fits and max(trace.peak_bytes()) == alone.peak_bytes
                assert trace.makespan == alone.makespan
                runs.append((rounded(trace.makespan), alone.peak_bytes))
    for limit in [peak - less for _, peak in sorted(runs)[::10] for less in (0, 1)]:
        (found,) = fits(limit, [K], n_microbatches=[2, 4], recompute=modes)
        within = [(makespan, peak) for makespan, peak in runs if peak <= limit]
        makespan, peak = min(within) if within else min(runs, key=lambda pair: pair[::-1])
        assert (found.fits, found.peak_bytes) == (bool(within), peak)
        assert rounded(found.makespan) == makespan


@pytest.mark.slow
def test_slow_links_and_overheads_change_what_is_fastest():
    """Where each action costs 1000 more, fewer micro-batches win; where links are slow, GPipe does."""
    (many,), (few,) = (fits(10**9, [4], seconds=lambda macs, more=more: macs + more) for more in (0, 100_000))
    assert many.n_microbatches == 64 and few.n_microbatches < 16
    # 16 * 16 MACs of a Linear and none of a Tanh, 1 sample
    assert many.costs.F == [256] * 4 == [B / 2 for B in many.costs.B]
    (slow,) = fits(10**9, [4], n_microbatches=[8], link=mp.Link(latency=20_000), recompute=["never"])
    assert slow.schedule == "gpipe"


TIED = [mp.Linear(16, 16, tie="W"), mp.Tanh(), mp.Linear(16, 16), mp.Tanh(), mp.Linear(16, 16, tie="W")]
SKIPPING = [
    mp.Linear(16, 16), mp.Fork("skip"), mp.Linear(16, 16), mp.Tanh(), mp.Linear(16, 16), mp.Join("skip"),
]
TRANSFORMER = mp.models.transformer(n_tokens=7, d=8, n_heads=2, n_layers=4, n_places=5, tied=True)
CELLS = mp.models.amoebanet_d(6, 8, n_classes=2)
NETWORKS = {  # layers, loss, X, Y
    "layers": (LAYERS, LOSS, X[:, :8], X[:, :8]),
    "tied": (TIED, LOSS, X[:, :8], X[:, :8]),
    "skipping": (SKIPPING, LOSS, X[:, :8], X[:, :8]),
    # one matrix for both ends, and a skip from the first block to the last
    "transformer": (
        [*TRANSFORMER[:3], mp.Fork("skip"), *TRANSFORMER[3:5], mp.Join("skip"), *TRANSFORMER[5:]],
        mp.SoftmaxCrossEntropy(), np.zeros((5, 8), int), mp.one_hot(np.zeros((5, 8), int), 7, np.float32),
    ),
    # what comes back to the last cell has no derivative by its second output
    "cells": (CELLS, LOSS, np.ones((3, 32, 32, 8), np.float32), np.ones((2, 8), np.float32)),
}
SLOW = [mp.Link(bandwidth=1), mp.Link(latency=100), mp.Link(latency=100, blocking=True)]


@pytest.mark.parametrize("name, n_devices, schedules, modes, link", [
    ("layers", 2, ["chimera", "dualpipe"], ["never"], mp.Link(bandwidth=1)),  # copies exchange gradients
    ("layers", 4, ["interleaved"], ["always"], mp.Link(latency=3000)),        # messages wait on busy devices
    ("tied", 2, ["1f1b", "gpipe", "zb-h1"], ["never"], SLOW[0]),
    ("skipping", 3, ["1f1b", "gpipe", "zb-h1"], ["never"], SLOW[2]),
    ("transformer", 3, ["1f1b"], ["selective"], mp.Link()),
    *(slow("tied", 2, ["1f1b", "gpipe", "zb-h1"], ["never"], link) for link in SLOW[1:]),
    *(slow("skipping", 3, ["1f1b", "gpipe", "zb-h1"], ["never"], link) for link in SLOW[:2]),
    slow("transformer", 3, ["1f1b"], RECOMPUTE_MODES, mp.Link()),
    slow("cells", len(CELLS) - 2, ["naive"], ["never"], SLOW[0]),
])
def test_what_is_found_takes_the_ticks_and_bytes_of_a_run(name, n_devices, schedules, modes, link):
    """Whatever is sent takes its time, and whatever waits its bytes: only the footprints know of them."""
    layers, loss, X, Y = NETWORKS[name]
    for schedule in schedules:
        for mode in modes:
            (found,) = mp.what_fits(
                layers, loss, X.shape[:-1], X.shape[-1], 10**9, [n_devices], [4], [schedule], [mode],
                optimizer=mp.Adam(), link=link,
            )
            trace = run(found, layers, loss, X, Y, mp.Adam(), link)
            assert (trace.makespan, max(trace.peak_bytes())) == (found.makespan, found.peak_bytes)


SIMPLE = [(LAYERS, [1, 2]), (TIED, [2]), (SKIPPING, [3])]


@pytest.mark.parametrize("link, cells", one_in(6, SLOW, [False, True]))
def test_what_the_search_goes_by_is_no_more_than_the_makespan(link, cells, monkeypatch):
    """Where nothing fits, everything is foreseen: each makespan is compared with its two lower bounds."""
    seen, foreseen = [], Estimator.foreseen

    def compared(network, choice):
        trace = foreseen(network, choice)
        seen.append(choice.setting.schedule)
        assert network.work(choice) <= network.least_makespan(choice) <= trace.makespan
        return trace

    monkeypatch.setattr(Estimator, "foreseen", compared)
    if cells:
        network = CELLS, mp.SoftmaxCrossEntropy(), (3, 32, 32)
        mp.what_fits(*network, 8, 1, [len(CELLS) - 2], [4], ["naive"], ["never"], link=link)
        assert set(seen) == {"naive"}
        return
    for layers, n_devices in SIMPLE:
        mp.what_fits(layers, LOSS, (16,), 8, 1, n_devices, [4], SCHEDULES, link=link)
    assert set(seen) == {*SCHEDULES}


def test_what_cannot_be_the_fastest_is_not_foreseen(monkeypatch):
    """A naive device works as long as one of GPipe, but waits for the other: nobody counts its bytes."""
    seen, foreseen = [], Estimator.foreseen
    monkeypatch.setattr(Estimator, "foreseen", lambda *given: seen.append(given[1]) or foreseen(*given))
    mp.what_fits(LAYERS, LOSS, (16,), BATCH, 10**9, [2], [4], ["naive", "gpipe"], ["never"])
    assert [choice.setting.schedule for choice in seen] == ["gpipe"]


def test_a_huge_network_is_not_built():
    layers = [mp.Linear(100_000, 100_000)] * 8
    one, eight = mp.what_fits(
        layers, LOSS, (100_000,), 8, 100 * 2**30, (1, 8), (8,), ("1f1b",), optimizer=mp.Adam()
    )
    assert isinstance(one, Setting) and (one.fits, eight.fits) == (False, False)
    assert eight.peak_bytes > 4 * 4 * 10**10  # W, dW and Adam's two, of one layer
    (eight,) = mp.what_fits(
        layers, LOSS, (100_000,), 8, 300 * 2**30, (8,), (8,), ("1f1b",), optimizer=mp.Adam()
    )
    assert eight.fits and eight.partition == [1] * 8


def test_what_is_left_out_is_what_can_be():
    """Three layers cannot be on four devices, and a batch norm takes no micro-batches of one sample:
    neither is tried.
    """
    layers = [mp.Linear(3, 4), mp.BatchNorm(4), mp.Linear(4, 2)]
    found = mp.what_fits(layers, LOSS, (3,), 4, 10**6, schedules=["gpipe"])
    assert [(fit.n_devices, fit.n_microbatches) for fit in found] == [(1, 1), (2, 2)]
    with pytest.raises(ValueError, match="needs at least 2 to have a variance"):
        mp.what_fits(layers, LOSS, (3,), 4, 10**6, n_microbatches=[4], schedules=["gpipe"])


def test_numpys_whole_numbers_count_as_pythons():
    """batch_size=np.int64(64) made derivatives of float64, and other peaks."""
    (found,) = mp.what_fits(
        LAYERS, LOSS, (np.int64(16),), np.int64(BATCH), np.int64(10**6), np.array([2]), np.array([32]),
        SCHEDULES,
    )
    assert [found] == fits(10**6, [2], n_microbatches=[32])
    assert (type(found.n_devices), type(found.fits)) == (int, bool)


def test_iterators_are_read_once():
    """Names and numbers that can be looked at only once are tried for each number of devices, as those
    of a list are.
    """
    lists = dict(n_microbatches=[2, 4], schedules=["gpipe", "1f1b"], recompute=["never", "always"])
    once = {name: iter(values) for name, values in lists.items()}
    found = mp.what_fits(LAYERS, LOSS, (16,), BATCH, 10**6, [1, 2], **lists)
    assert mp.what_fits(iter(LAYERS), LOSS, (16,), BATCH, 10**6, iter([1, 2]), **once) == found


@pytest.mark.parametrize("options, words", [
    (dict(n_devices=[9]), "n_devices=9 does not fit 8 layers: use 1 to 8"),
    (dict(n_microbatches=[3]), "n_microbatches=3 does not divide batch_size=64: use 1"),
    (dict(n_microbatches=[24]), "n_microbatches=24 does not divide batch_size=64: use 8"),
    (dict(recompute=["sometimes"]), "recompute=['sometimes'] must be a list of names out of never, always"),
    (dict(recompute="never"), "recompute='never' must be a list of names"),
    (dict(by="size"), "by='size' is not known"),
    (dict(by=None), "by=None is not known: use one of 'parameters', 'macs'"),
    (dict(by=3), "by=3 is not known: use one of 'parameters', 'macs'"),
    (dict(by="time"), "by='time' needs a sample"),
    (dict(n_devices=2), "n_devices=2 must be a list, even of one: [2]"),
    (dict(n_devices=[]), "n_devices is an empty list: give it at least one"),
    (dict(n_microbatches=4), "n_microbatches=4 must be a list, even of one: [4]"),
    (dict(n_microbatches=[]), "n_microbatches is an empty list"),
    (dict(recompute=[]), "recompute is an empty list"),
    (dict(recompute=3), "recompute=3 must be a list, even of one"),
    (dict(recompute=[["never"]]), "must be a list of names out of never, always"),
    (dict(seconds=3), "seconds=3 must be a function (multiply-accumulates) -> time"),
    (dict(seconds=lambda macs: None), "stage 0: F=None must be a number, above 0 ticks"),
    (dict(seconds=lambda macs: -1), "stage 0: F=-1 must be above 0 ticks"),
    (dict(memory_limit=0), "memory_limit=0 must be above 0 bytes"),
    (dict(memory_limit="8GiB"), "memory_limit='8GiB' must be a number, above 0 bytes, such as 8 * 2**30"),
    (dict(memory_limit=None), "memory_limit=None must be a number, above 0 bytes, such as 8 * 2**30"),
    (dict(layers=[]), "layers is an empty list: give it at least one"),
    (dict(batch_size=0), "batch_size=0 must be at least 1"),
    (dict(schedules=["pipedream"]), "schedules=['pipedream'] must be a list of names out of naive, gpipe"),
    (dict(n_devices=[8], schedules=["zb-v"], batch_size=8),
     "none of the schedules zb-v exists for 8 devices, 8 layers and any of 1, 2, 4, 8 micro-batches"),
])
def test_bad_input_gets_both_numbers_and_the_remedy(options, words):
    good = dict(layers=LAYERS, input_shape=(16,), batch_size=BATCH, memory_limit=10**6, n_devices=[2])
    with pytest.raises(ValueError) as refused:
        mp.what_fits(loss=LOSS, **good | options)
    assert words in str(refused.value)


# Bytes in other precisions, counted and not computed in

ADAM = mp.Adam()


def counted(precision, layers=NORMALISED, m=6, optimizer=ADAM, **options):
    return mp.footprints(
        layers, CROSS_ENTROPY, 2, (5,), m, optimizer=optimizer, precision=precision, **options
    )


def numbers_of(layers):
    return sum(row.parameters for row in mp.describe(layers, (5,)).rows)


def test_sixteen_bytes_for_each_of_7_5_billion_parameters():
    """ZeRO's example: 120 GB, of parameters 15, of gradients 15, and of the optimizer's state 90."""
    layers = [mp.Linear(74_999, 100_000)]
    network = layers, mp.MeanSquaredError()
    (stage,) = mp.footprints(*network, 1, (74_999,), 1, optimizer=ADAM, precision="mixed")
    parts = stage.parameters, stage.gradients, stage.optimizer_state
    assert parts == (15 * 10**9, 15 * 10**9, 90 * 10**9) and sum(parts) == 120 * 10**9
    for limit in (120 * 10**9, 120 * 10**9 - 1):  # at the end of the backward no activation is left
        (found,) = mp.what_fits(
            *network, (74_999,), 1, limit, [1], [1], ["gpipe"], optimizer=ADAM, precision="mixed"
        )
        assert (found.precision, found.peak_bytes) == ("mixed", 120 * 10**9)
        assert found.fits == (limit == 120 * 10**9)


@pytest.mark.parametrize(("optimizer", "n_memories"), [
    (None, 0), (mp.SGD(0.1), 0), (mp.SGD(0.1, momentum=0.9), 1), (ADAM, 2),
])
def test_mixed_precision_keeps_parameters_and_moments_in_32_bits(
    optimizer, n_memories
):
    """Of all that is trained; a batch norm's running mean and variance are not."""
    n = numbers_of(NORMALISED)
    stages = counted("mixed", optimizer=optimizer)
    assert sum(stage.optimizer_state for stage in stages) == (4 + 4 * n_memories) * n
    assert sum(stage.gradients for stage in stages) == 2 * n
    assert PRECISIONS["mixed"].of_a_parameter(n_memories) == 2 + 2 + 4 + 4 * n_memories


@pytest.mark.parametrize("layers", [NORMALISED, CONNECTED], ids=["layers", "connected"])
def test_all_else_is_what_a_run_in_16_bits_holds_to_the_byte(layers):
    """NumPy's float16 takes the 2 bytes of every such format."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((5, 16)).astype(np.float16), mp.one_hot(rng.integers(0, 3, 16), 3, np.float16)
    pipe = mp.Pipeline(layers, CROSS_ENTROPY, 2, 4, "1f1b", dtype=np.float16)
    pipe.forward_backward(X, Y)
    sizes = [of_stage._replace(optimizer_state=0) for of_stage in counted("mixed", layers, 4)]
    assert_same_bytes(mp.simulate(build("1f1b", 2, 4), footprints=sizes), pipe.trace)


def test_a_precision_of_one_kind_is_that_of_a_run_in_this_dtype():
    for name in ("float32", "float64"):
        assert counted(name) == counted(None, dtype=name)
        assert {stage.precision for stage in counted(name)} == {name}
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((5, 6)).astype(np.float32), mp.one_hot(rng.integers(0, 3, 6), 3, np.float32)
    measured = mp.measure(
        NORMALISED, CROSS_ENTROPY, 2, X, Y, dtype=np.float32, optimizer=ADAM, n_rounds=1
    )
    assert counted("float32") == measured.footprints


def test_a_precision_of_ones_own():
    """Gradients and moments in 16 bits, nothing beside: 8 bytes a parameter with Adam."""
    lean = Precision("lean", 2, 2)
    stages = counted(lean)
    assert sum(stage.parameters + stage.gradients + stage.optimizer_state for stage in stages) == (
        sum(stage.parameters for stage in stages) + 6 * numbers_of(NORMALISED)
    )
    network = NORMALISED, CROSS_ENTROPY, (5,), 32, 10**6, [2], [4], ["1f1b"], ["never"]
    found = {name: mp.what_fits(*network, optimizer=ADAM, precision=name)[0] for name in PRECISIONS}
    assert [fit.precision for fit in found.values()] == ["float64", "float32", "mixed"]
    assert mp.what_fits(*network, optimizer=ADAM)[0] == found["float32"]
    peaks = [fit.peak_bytes for fit in found.values()]
    assert peaks[0] > peaks[1] > peaks[2]
    for wrong in ("bf16", 16, np.float16):
        with pytest.raises(ValueError, match=r"precision=.* not known: use one of float64, float32, mixed"):
            counted(wrong)
