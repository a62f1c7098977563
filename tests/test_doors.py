"""What may be handed in: numbers leave their door as Python's own, and all else is refused in a sentence."""

import math
from fractions import Fraction

import numpy as np
import pytest

import minipipe as mp
from minipipe.checks import is_plain, real_number, whole_number
from minipipe.schedules import best_schedule, build, gpipe, greedy_schedule, in_copies, in_segments

LAYERS = [mp.Linear(2, 3), mp.ReLU(), mp.Linear(3, 1)]
X, Y = np.ones((2, 4)), np.ones((1, 4))


def network(**options):
    return mp.Sequential(LAYERS, mp.MeanSquaredError(), **options)


def pipeline(**options):
    return mp.Pipeline(LAYERS, mp.MeanSquaredError(), **({"n_stages": 2, "n_microbatches": 2} | options))


def fitted(**options):
    return mp.fit(network(), X, Y, mp.SGD(0.1), n_epochs=1, batch_size=2, report=None, **options)


def carried(n_bytes, bandwidth):
    """The makespan of three messages in a row."""
    def sender():
        for k in range(3):
            yield mp.Send(f"message {k}", None, 1, n_bytes=n_bytes)

    def receiver():
        for k in range(3):
            yield mp.Receive(f"message {k}", 0)

    return mp.Cluster([sender(), receiver()], link=mp.Link(bandwidth=bandwidth)).run().makespan


def simulated(costs=mp.Costs(), link=mp.Link()):
    return mp.simulate(gpipe(4, 8), costs, link).makespan


SUM = (8 + 4 - 1) * 3  # ticks of GPipe with F = 1 and B = 2
IN_NUMPY = {  # what -> (the makespan with NumPy's numbers, that with Python's)
    "costs": (lambda: simulated(mp.Costs(F=np.int32(10**8), B=np.int32(2 * 10**8))), 10**8 * SUM),
    "costs in a list": (lambda: simulated(mp.Costs(F=[np.int8(50)] * 4, B=[np.int8(100)] * 4)), 50 * SUM),
    "costs in an array": (lambda: simulated(mp.Costs(F=np.full(4, 50, np.int8), B=100)), 50 * SUM),
    "bytes": (
        lambda: simulated(mp.Costs(message_bytes=np.int32(10**9)), mp.Link(bandwidth=1)), 20 * 10**9 + 12
    ),
    "latency": (lambda: simulated(link=mp.Link(latency=np.int8(100))), SUM + 600),
    "ticks of a Compute": (
        lambda: mp.Cluster([(mp.Compute(k, ticks=np.int8(100)) for k in range(3))]).run().makespan, 300
    ),
    "duration": (
        lambda: mp.Cluster([(mp.Compute(k) for k in range(3))], lambda _: np.int8(100)).run().makespan, 300
    ),
    "bytes of a Send": (lambda: carried(np.int8(100), np.int8(1)), 300),
    "sizes": (lambda: mp.simulate(build("interleaved", np.int8(64), np.int8(64))).makespan > 0, True),
    "units": (lambda: mp.Linear(np.int8(100), np.int8(100)).macs((100, 100)), 10**6),
}


@pytest.mark.parametrize("name", IN_NUMPY)
def test_numpys_numbers_do_not_overflow(name):
    make, expected = IN_NUMPY[name]
    found = make()
    assert found == expected and type(found) in (int, float, bool, Fraction)


def test_links_and_ports_have_pythons_numbers():
    link, port = mp.Link(np.float32(0.5), np.int8(100)), mp.Port(np.longdouble(2), [0])
    assert [type(number) for number in (link.latency, link.bandwidth, port.bandwidth)] == [float, int, float]
    assert mp.Link(latency=Fraction(1, 3)).latency == Fraction(1, 3)


def test_costs_do_not_change_when_a_list_that_made_them_does():
    given = [1, 2]
    costs = mp.Costs(F=given)
    given[0] = 100
    assert costs.F == [1, 2]


@pytest.mark.parametrize("far", [1e308, 5e-324, 10**400, Fraction(1, 10**400), math.inf, math.nan, -1, True])
def test_numbers_that_would_make_the_clock_infinite_are_refused(far):
    for make in (
        lambda: simulated(mp.Costs(F=far)),
        lambda: simulated(mp.Costs(B=[far, 1, 1, 1])),
        lambda: simulated(mp.Costs(message_bytes=far)),
        lambda: mp.Link(latency=far),
        lambda: mp.Cluster([(mp.Compute(k, ticks=far) for k in range(2))]).run(),
        lambda: carried(far, 1),
    ):
        with pytest.raises(ValueError, match=r"out of reach|must be"):
            make()
    if far != math.inf:
        with pytest.raises(ValueError, match=r"bandwidth=.* (is out of reach|must be)"):
            mp.Link(bandwidth=far)
        with pytest.raises(ValueError, match=r"bandwidth=.* (is out of reach|must be)"):
            mp.Port(far, [0])


def test_what_goes_through_without_a_further_check_is_what_a_check_would_let_through():
    finite = (0, 1, 0.5, Fraction(1, 3), 10**100, 10**101, 5e-324, 1e-99, -1, np.int8(1), np.float64(1))
    for number in (*finite, True, math.nan, math.inf, "1", None):
        try:
            checked = real_number("ticks", number, least=0, clock=True)
        except ValueError:
            checked = None
        assert is_plain(number) == (checked is not None and checked is number)


NO_TRACEBACK = {
    "units that are not whole": (lambda: mp.Linear(2.5, 3), "n_prev=2.5 must be a whole number"),
    "units in words": (lambda: mp.Linear("a", 3), "n_prev='a' must be a whole number"),
    "a truth for a number": (lambda: mp.Linear(True, 3), "n_prev=True must be a whole number"),
    "a name for how to begin": (lambda: mp.Linear(2, 3, "he"), "initialization='he' must be a function"),
    "a list for a tie": (lambda: mp.Linear(2, 3, tie=[]), "tie=[] must be a text"),
    "a number for a tie": (lambda: mp.Embedding(2, 3, tie=3), "tie=3 must be a text"),
    "channels that are not whole": (lambda: mp.Conv2d(2.5, 3, 3), "in_channels=2.5 must be a whole number"),
    "groups that are no int": (lambda: mp.Conv2d(2, 2, 3, groups=2.0), "groups=2.0 must be a whole number"),
    "a kernel in words": (lambda: mp.Conv2d(2, 2, "3"), "kernel_size='3' must be a whole number, or a tuple"),
    "one width": (lambda: mp.Pad(1), "Pad(1): pass a list, with a width for each spatial axis"),
    "half a width": (lambda: mp.Pad([1.5]), "widths[0][0]=1.5 must be a whole number"),
    "a width in words": (lambda: mp.Pad(["ab"]), "widths[0]='ab' must be a list of whole numbers"),
    "one length": (lambda: mp.Reshape(3), "shape=3 must be a list of whole numbers, even of one"),
    "half a length": (lambda: mp.Reshape((2.5,)), "shape[0]=2.5 must be a whole number"),
    "a share in words": (lambda: mp.Dropout("a"), "p='a' must be a number, at least 0 and below 1"),
    "a slope in words": (lambda: mp.LeakyReLU(None), "negative_slope=None must be a number"),
    "no seed": (lambda: pipeline(seed=None), "seed=None must be a whole number"),
    "a seed below 0": (lambda: network(seed=-1), "seed=-1 must be at least 0"),
    "no seed for the shuffling": (lambda: fitted(seed=None), "seed=None must be a whole number"),
    "an unknown dtype": (lambda: pipeline(dtype="foo"), "dtype='foo' is not known"),
    "an unknown dtype of a table": (lambda: mp.describe(LAYERS, (2,), "foo"), "dtype='foo' is not known"),
    "an unknown dtype of labels": (lambda: mp.one_hot([0], 2, "foo"), "dtype='foo' is not known"),
    "an array for recompute": (lambda: pipeline(recompute=[]), "recompute=[] must be one of"),
    "a rate in words": (lambda: mp.SGD("a"), "learning_rate='a' must be a number, above 0"),
    "no rate": (lambda: mp.SGD(None), "learning_rate=None must be a number, above 0"),
    "an infinite rate": (lambda: mp.SGD(math.inf), "learning_rate=inf must be finite"),
    "a momentum in words": (lambda: mp.SGD(0.1, "a"), "momentum='a' must be a number"),
    "one beta": (lambda: mp.Adam(betas=0.9), "betas=0.9 must be a list"),
    "three betas": (lambda: mp.Adam(betas=(0.9, 0.9, 0.9)), "betas has 3 numbers: pass a pair"),
    "None for a line": (lambda: mp.Schedule.from_text([None]), "lines=[None] must be texts, one per device"),
    "a number for lines": (lambda: mp.Schedule.from_text(3), "lines=3 must be a list"),
    "a number for costs": (lambda: best_schedule(2, 2, costs=3), "costs=3 must be Costs(F=..., B=...)"),
    "a number for costs of rules": (lambda: greedy_schedule(2, 2, costs=3), "costs=3 must be Costs("),
    "a latency in words": (lambda: best_schedule(2, 2, latency="a"), "latency='a' must be a number"),
    "nodes in words": (lambda: best_schedule(2, 2, most_nodes="a"), "most_nodes='a' must be a whole number"),
    "stages that are not whole": (lambda: mp.partition(LAYERS, 2.0), "n_stages=2.0 must be a whole number"),
    "a number for layers": (lambda: mp.partition(3, 2), "layers=3 must be a list"),
    "a number for a network": (lambda: mp.Sequential(3, None), "layers=3 must be a list"),
    "a limit in words": (
        lambda: mp.Cluster([], holdings=[], memory_limit="1"), "memory_limit='1' must be a number, above 0"
    ),
    "lists that differ": (lambda: mp.accuracy([[1.0, 0.0]], [[1, 0]]), "accuracy compares two arrays"),
}


@pytest.mark.parametrize("name", NO_TRACEBACK)
def test_a_mistake_is_answered_with_a_sentence(name):
    call, words = NO_TRACEBACK[name]
    with pytest.raises(ValueError) as complaint:
        call()
    assert words in str(complaint.value)


@pytest.mark.parametrize("limit", ["1", [1], math.nan, 0, -1, True])
def test_a_limit_of_memory_is_a_number_of_bytes_everywhere(limit):
    for call in (
        lambda: pipeline(memory_limit=limit),
        lambda: mp.what_fits(LAYERS, mp.MeanSquaredError(), (2,), 4, limit),
        lambda: mp.Cluster([], holdings=[], memory_limit=limit),
    ):
        with pytest.raises(ValueError, match=r"memory_limit=.* must be .*above 0 bytes"):
            call()


def test_layers_may_come_from_a_generator():
    def generator():
        return (layer for layer in LAYERS)

    for make in (lambda layers: mp.Sequential(layers, mp.MeanSquaredError()),
                 lambda layers: mp.Pipeline(layers, mp.MeanSquaredError(), 2, 2),
                 lambda layers: mp.describe(layers, (2,)),
                 lambda layers: mp.partition(layers, 2),
                 lambda layers: mp.footprints(layers, mp.MeanSquaredError(), 2, (2,), 4),
                 lambda layers: mp.what_fits(layers, mp.MeanSquaredError(), (2,), 4, 10**9)):
        assert repr(make(generator())) == repr(make(LAYERS))
    assert mp.measure(generator(), mp.MeanSquaredError(), 2, X, Y, n_rounds=1).footprints


def test_lists_will_do_for_accuracy():
    assert mp.accuracy([[1.0, 0.0], [0.0, 1.0]], [[1, 1], [0, 0]]) == 0.5


def test_a_stride_beyond_the_text_leaves_one_window():
    X, Y = mp.datasets.text.characters("banana").windows(2, 10**30)
    assert X.tolist() == [[1], [0]] and Y.shape == (3, 2, 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: build("gpipe", 10**6, 10**6),
        lambda: gpipe(4, 10**8),
        lambda: build("pipedream", 10**4, 10**4),
        lambda: build("zb-v", 2 * 10**3, 10**4),
        lambda: greedy_schedule(10**4, 10**4),
        lambda: best_schedule(10**4, 10**4),
        lambda: in_copies(gpipe(2, 2), 10**7),
        lambda: in_segments(gpipe(2, 2), 10**7),
    ],
)
def test_a_schedule_that_would_fill_the_memory_is_refused(make):
    with pytest.raises(ValueError, match=r"a schedule of .* actions exceeds the limit of 4,000,000: use"):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: mp.models.resnet(6000002),
        lambda: mp.models.amoebanet_d(3000000, 8),
        lambda: mp.models.transformer(5, 8, 2, 10**7),
    ],
)
def test_a_network_of_too_many_layers_is_refused(make):
    with pytest.raises(ValueError, match="must be at most 10,000"):
        make()


def test_a_huge_number_is_named_without_its_digits():
    with pytest.raises(ValueError, match="m=a number of too many digits to be shown must be at most 5"):
        whole_number("m", 10**5000, most=5)
