"""The setting that is said to be the fastest that fits, is that among all real runs."""

import numpy as np
import pytest
from sampling import one_in

import minipipe as mp
from minipipe.planning import Setting
from minipipe.planning.choosing import Network
from minipipe.planning.fitting import MODES, modes_for

LAYERS = [layer for _ in range(4) for layer in (mp.Linear(16, 16), mp.Tanh())]
LOSS, BATCH = mp.MeanSquaredError(), 64
X = np.random.default_rng(0).standard_normal((16, BATCH)).astype(np.float32)
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb-h1", "chimera")


def fits(memory_limit, n_devices, **options):
    return mp.what_fits(LAYERS, LOSS, (16,), BATCH, memory_limit, n_devices, schedules=SCHEDULES, **options)


def run(setting, memory_limit=None, optimizer=None, link=mp.Link()):
    """A real run with arrays, after an update if there is an optimizer."""
    pipe = mp.Pipeline(
        LAYERS, LOSS, len(setting.partition), setting.n_microbatches, setting.schedule, setting.recompute,
        dtype=np.float32, partition=setting.partition, costs=setting.costs, link=link,
        memory_limit=memory_limit, accumulate=setting.accumulate,
    )
    for _ in range(1 if optimizer is None else 2):
        pipe.forward_backward(X, X)
        if optimizer is not None:
            pipe.step(optimizer)
    return pipe.trace


def rounded(makespan):
    """To 9 digits, as those are that what_fits takes for equal."""
    return float(f"{float(makespan):.9g}")


@pytest.mark.parametrize("K", one_in(3, [2, 1, 4]))
def test_it_is_the_fastest_of_all_runs_that_fit(K):
    """Every schedule, M and mode, alone and as a real run; then for limits at every
    fifth peak, and just below.
    """
    runs = []
    for schedule in SCHEDULES:
        for M in (2, 4):
            for mode in modes_for(LAYERS):
                try:
                    (alone,) = mp.what_fits(LAYERS, LOSS, (16,), BATCH, 1, [K], [M], [schedule], [mode])
                except ValueError:
                    continue  # interleaved, on 4 devices with 2 micro-batches, or chimera on 1
                trace = run(alone)
                assert not alone.fits and max(trace.peak_bytes()) == alone.peak_bytes
                assert trace.makespan == alone.makespan
                runs.append((rounded(trace.makespan), alone.peak_bytes))
    for limit in [peak - less for _, peak in sorted(runs)[::5] for less in (0, 1)]:
        (found,) = fits(limit, [K], n_microbatches=[2, 4])
        within = [(makespan, peak) for makespan, peak in runs if peak <= limit]
        makespan, peak = min(within) if within else min(runs, key=lambda pair: pair[::-1])
        assert (found.fits, found.peak_bytes) == (bool(within), peak)
        assert rounded(found.makespan) == makespan


def test_a_run_keeps_within_the_limit_and_not_within_a_byte_less():
    (found,) = fits(10**6, [4], optimizer=mp.Adam())
    assert max(run(found, found.peak_bytes, mp.Adam()).peak_bytes()) == found.peak_bytes
    with pytest.raises(mp.MemoryLimitError):
        run(found, found.peak_bytes - 1, mp.Adam())


@pytest.mark.slow
def test_slow_links_and_overheads_change_what_is_fastest():
    """Where each action costs 1000 more, fewer micro-batches win; where links are slow, GPipe does."""
    (many,), (few,) = (fits(10**9, [4], seconds=lambda macs, more=more: macs + more) for more in (0, 100_000))
    assert many.n_microbatches == 64 and few.n_microbatches < 16
    # 16 * 16 MACs of a Linear and none of a Tanh, 1 sample
    assert many.costs.F == [256] * 4 == [B / 2 for B in many.costs.B]
    (slow,) = fits(10**9, [4], n_microbatches=[8], link=mp.Link(latency=20_000), recompute=["never"])
    assert slow.schedule == "gpipe"


def test_messages_that_wait_count():
    """A device with two stages gets messages for the one while it works on the other: how many lie there
    depends on the link.
    """
    peaks = []
    for latency in (0, 3000):
        link = mp.Link(latency=latency)
        (found,) = mp.what_fits(
            LAYERS, LOSS, (16,), BATCH, 1, [4], [16], ["interleaved"], ["always"], link=link,
            accumulate="tree",
        )
        assert max(run(found, link=link).peak_bytes()) == found.peak_bytes
        peaks.append(found.peak_bytes)
    assert peaks[0] != peaks[1]


@pytest.mark.parametrize("schedule", ["chimera", "dualpipe", "1f1b"])
def test_the_sums_that_two_copies_exchange_take_time(schedule):
    """The makespan is that of the run also on slow links, where copies that hand over their gradients
    at the end pay for it.
    """
    link = mp.Link(bandwidth=1)
    (found,) = mp.what_fits(LAYERS, LOSS, (16,), BATCH, 10**6, [2], [4], [schedule], link=link)
    assert run(found, link=link).makespan == found.makespan


TIED = [mp.Linear(16, 16, tie="W"), mp.Tanh(), mp.Linear(16, 16), mp.Tanh(), mp.Linear(16, 16, tie="W")]
SKIPPING = [
    mp.Linear(16, 16), mp.Fork("skip"), mp.Linear(16, 16), mp.Tanh(), mp.Linear(16, 16), mp.Join("skip"),
]
CELLS = mp.models.amoebanet_d(6, 8, n_classes=2)
SLOW = [mp.Link(latency=100), mp.Link(bandwidth=1), mp.Link(latency=100, blocking=True)]


def assert_same_makespan(layers, X, Y, n_devices, schedule, link):
    """Of what is found, and of a run of it, with 4 micro-batches."""
    (found,) = mp.what_fits(
        layers, LOSS, X.shape[:-1], X.shape[-1], 10**9, [n_devices], [4], [schedule],
        dtype=np.float64, link=link,
    )
    pipe = mp.Pipeline(
        layers, LOSS, n_devices, 4, schedule, found.recompute,
        partition=found.partition, costs=found.costs, link=link,
    )
    pipe.forward_backward(X, Y)
    assert pipe.trace.makespan == found.makespan


@pytest.mark.parametrize("link", SLOW)
@pytest.mark.parametrize(("layers", "n_devices"), [(TIED, 2), (SKIPPING, 3)], ids=["tied", "skipping"])
def test_whatever_is_sent_takes_its_time(layers, n_devices, link):
    """Gradients of tied layers at the end, and skip connections: only the footprints know of them."""
    for schedule in ("1f1b", "gpipe", "zb-h1"):
        assert_same_makespan(layers, np.ones((16, 8)), np.ones((16, 8)), n_devices, schedule, link)


@pytest.mark.slow
def test_half_of_a_pair_may_have_no_derivative_to_send():
    """What comes back to the last cell of AmoebaNet has no derivative by its second output."""
    X, Y = np.ones((3, 32, 32, 8)), np.ones((2, 8))
    assert_same_makespan(CELLS, X, Y, len(CELLS) - 2, "naive", mp.Link(bandwidth=1))


@pytest.mark.parametrize("link", one_in(3, SLOW))
def test_what_the_search_goes_by_is_no_more_than_the_makespan(link, monkeypatch):
    """Where nothing fits, everything is foreseen: each makespan is compared with its two lower bounds."""
    seen, foreseen = [], Network.foreseen

    def compared(network, choice):
        trace = foreseen(network, choice)
        seen.append(choice.setting.schedule)
        assert network.work(choice) <= network.least_makespan(choice) <= trace.makespan
        return trace

    monkeypatch.setattr(Network, "foreseen", compared)
    for layers, n_devices in ((LAYERS, [1, 2]), (TIED, [2]), (SKIPPING, [3])):
        mp.what_fits(layers, LOSS, (16,), 8, 1, n_devices, [4], SCHEDULES, link=link)
    cells = CELLS, mp.SoftmaxCrossEntropy(), (3, 32, 32)
    mp.what_fits(*cells, 8, 1, [len(CELLS) - 2], [4], ["naive"], ["never"], link=link)
    assert {*SCHEDULES, "naive"} == set(seen)


def test_what_cannot_be_the_fastest_is_not_foreseen(monkeypatch):
    """A naive device works as long as one of GPipe, but waits for the other: nobody counts its bytes."""
    seen, foreseen = [], Network.foreseen
    monkeypatch.setattr(Network, "foreseen", lambda *given: seen.append(given[1]) or foreseen(*given))
    mp.what_fits(LAYERS, LOSS, (16,), BATCH, 10**9, [2], [4], ["naive", "gpipe"], ["never"])
    assert [choice.setting.schedule for choice in seen] == ["gpipe"]


def test_tied_weights_and_skip_connections_count():
    """A Transformer with one matrix for both ends, and a skip from its first block to its last."""
    layers = mp.models.transformer(n_tokens=7, d=8, n_heads=2, n_layers=4, n_places=5, tied=True)
    layers = [*layers[:3], mp.Fork("skip"), *layers[3:5], mp.Join("skip"), *layers[5:]]
    tokens, Y = np.zeros((5, 8), int), mp.one_hot(np.zeros((5, 8), int), 7)
    for mode in MODES:
        (found,) = mp.what_fits(
            layers, mp.SoftmaxCrossEntropy(), (5,), 8, 1, [3], [4], ["1f1b"], [mode], dtype=np.float64
        )
        pipe = mp.Pipeline(
            layers, mp.SoftmaxCrossEntropy(), 3, 4, "1f1b", mode, partition=found.partition,
            costs=found.costs, accumulate=found.accumulate,
        )
        pipe.forward_backward(tokens, Y)
        assert found.peak_bytes == max(pipe.trace.peak_bytes())


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


def test_bad_input_gets_both_numbers_and_the_remedy():
    for options, message in (
        (dict(n_devices=[9]), "n_devices=9 does not fit 8 layers: use 1 to 8"),
        (dict(n_devices=[2], n_microbatches=[3]), "n_microbatches=3 does not divide batch_size=64: use 1"),
        (dict(n_devices=[2], n_microbatches=[24]), "n_microbatches=24 does not divide batch_size=64: use 8"),
        (
            dict(n_devices=[2], recompute=["sometimes"]),
            r"recompute=\['sometimes'\] must be a list of names out of never, always",
        ),
        (dict(n_devices=[2], recompute="never"), "recompute='never' must be a list of names"),
        (dict(n_devices=[2], partition="size"), "by='size' is not known"),
        (dict(n_devices=[2], partition=None), "by=None is not known: use one of 'parameters', 'macs'"),
        (dict(n_devices=[2], partition=3), "by=3 is not known: use one of 'parameters', 'macs'"),
        (dict(n_devices=[2], partition="time"), "by='time' needs a sample"),
        (dict(n_devices=2), r"n_devices=2 must be a list, even of one: \[2\]"),
        (dict(n_devices=[]), "n_devices is an empty list: give it at least one"),
        (dict(n_devices=[2], n_microbatches=4), r"n_microbatches=4 must be a list, even of one: \[4\]"),
        (dict(n_devices=[2], n_microbatches=[]), "n_microbatches is an empty list"),
        (dict(n_devices=[2], recompute=[]), "recompute is an empty list"),
        (dict(n_devices=[2], recompute=3), r"recompute=3 must be a list, even of one"),
        (dict(n_devices=[2], recompute=[["never"]]), "must be a list of names out of never, always"),
        (dict(n_devices=[2], seconds=3), r"seconds=3 must be a function \(multiply-accumulates\) -> time"),
        (
            dict(n_devices=[2], seconds=lambda macs: None),
            "stage 0: F=None must be a number, above 0 ticks",
        ),
        (
            dict(n_devices=[2], seconds=lambda macs: -1),
            "stage 0: F=-1 must be above 0 ticks",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            fits(10**6, **options)
    with pytest.raises(ValueError, match="memory_limit=0 must be above 0 bytes"):
        fits(0, [2])
    for limit in ("8GiB", None):
        with pytest.raises(
            ValueError, match=r"memory_limit=.* must be a number, above 0 bytes, such as 8 \* 2\*\*30"
        ):
            fits(limit, [2])
    with pytest.raises(ValueError, match="layers is an empty list: give it at least one"):
        mp.what_fits([], LOSS, (16,), 8, 10**6)
    with pytest.raises(ValueError, match="batch_size=0 must be at least 1"):
        mp.what_fits(LAYERS, LOSS, (16,), 0, 10**6)
    with pytest.raises(
        ValueError, match=r"schedules=\['pipedream'\] must be a list of names out of naive, gpipe"
    ):
        mp.what_fits(LAYERS, LOSS, (16,), 8, 10**6, schedules=["pipedream"])
    with pytest.raises(
        ValueError,
        match="none of the schedules zb-v exists for 8 devices, 8 layers and any of 1, 2, 4, 8 micro-batches",
    ):
        mp.what_fits(LAYERS, LOSS, (16,), 8, 10**6, n_devices=[8], schedules=["zb-v"])


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
