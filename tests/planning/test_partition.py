"""Where to cut: the exact solvers against every cut there is, the costs against counts, the picture against
the numbers.
"""

import itertools
import math
import random
import time
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate

import matplotlib
import numpy as np
import pytest
from compared import assert_refused
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from sampling import one_in

import minipipe as mp
from minipipe import plots
from minipipe.layers import Layer
from minipipe.partitioning import (
    Times, costs_of_layers, histogram, loads, min_max, min_variance, partition, times_of_layers,
)
from minipipe.planning import measuring
from minipipe.plots.curves import BACKGROUNDS, BOTTLENECK

matplotlib.use("Agg")

LAYERS = [mp.Linear(4, 16), mp.ReLU(), mp.Linear(16, 16), mp.ReLU(), mp.Linear(16, 2)]
LOSS = mp.MeanSquaredError()
X, Y = np.ones((4, 6)), np.ones((2, 6))


def every_cut(n_layers, n_stages):
    """All counts of `n_stages` stages with at least one layer each."""
    for ends in itertools.combinations(range(1, n_layers), n_stages - 1):
        yield [end - start for start, end in zip((0, *ends), (*ends, n_layers))]


def exact(numbers):
    return [Fraction(number) for number in numbers]


def integers(numbers):
    """In proportion to the numbers, for quick sums without any rounding."""
    scale = math.lcm(*(number.denominator for number in exact(numbers)))
    return [int(number * scale) for number in exact(numbers)]


def bottleneck(costs, counts):
    return max(loads(exact(costs), counts))


def spread(costs, counts):
    return sum(load**2 for load in loads(exact(costs), counts))


def random_numbers(rng, n):
    """n numbers of one kind: integers with many ties and zeros, large ones, floats, Fractions."""
    kinds = [
        lambda: rng.randrange(4), lambda: rng.randrange(10**6, 10**20), lambda: rng.randrange(90, 111),
        lambda: rng.lognormvariate(0, 2), lambda: rng.random() * 10.0 ** rng.randrange(-20, 20),
        lambda: Fraction(rng.randrange(9), rng.randrange(1, 9)),
    ]
    kind = rng.choice(kinds)
    return [kind() for _ in range(n)]


def random_problem(rng, most_layers):
    n_layers = rng.randrange(1, most_layers + 1)
    return random_numbers(rng, n_layers), rng.randrange(1, n_layers + 1)


@pytest.mark.parametrize("solver, measure", [(min_variance, spread), (min_max, bottleneck)])
def test_the_solvers_are_as_good_as_every_cut(solver, measure):
    rng = random.Random(1)
    for _ in range(100):
        costs, K = random_problem(rng, 9)
        counts = solver(costs, K)
        assert len(counts) == K and min(counts) >= 1 and sum(counts) == len(costs)
        assert measure(costs, counts) == min(measure(costs, cut) for cut in every_cut(len(costs), K))


@pytest.mark.parametrize("draw", one_in(3, [
    lambda rng: rng.lognormvariate(0, 1), lambda rng: rng.randint(1, 100), lambda rng: 1,
]))
def test_10000_layers_in_1024_stages_take_less_than_a_second(draw):
    rng = random.Random(3)
    costs, K = [draw(rng) for _ in range(10_000)], 1024
    begin = time.process_time()
    counts = min_max(costs, K)
    assert time.process_time() - begin < 1
    assert len(counts) == K and min(counts) >= 1 and sum(counts) == len(costs)
    whole = integers(costs)
    needed, load, limit = 1, 0, max(loads(whole, counts)) - 1
    # filling up one stage after the other needs the fewest; within a limit that is smaller by 1, too many
    for cost in whole:
        needed, load = (needed, load + cost) if load + cost <= limit else (needed + 1, cost)
    assert needed > K or max(whole) > limit


def test_the_best_cut_does_not_depend_on_unit_or_kind_of_number():
    rng = random.Random(4)
    for _ in range(40):
        costs = [rng.randrange(4) for _ in range(rng.randrange(2, 14))]
        K = rng.randrange(1, len(costs) + 1)
        for solver in (min_max, min_variance):
            counts = solver(costs, K)
            for kind in (
                float, lambda n: 0.125 * n, lambda n: Fraction(n, 3), lambda n: n * 10**30, np.float32,
                np.int64,
            ):
                assert solver([kind(cost) for cost in costs], K) == counts


def test_the_best_cut_is_even_and_free_layers_stay_behind():
    assert min_max([1] * 10, 4) == [3, 2, 3, 2]
    assert min_max([5, 0, 5, 0, 5, 0], 3) == [2, 2, 2]
    assert min_max([0] * 5, 3) == [3, 1, 1]
    assert min_max([10, 10, 10, 10, 11, 11], 2) == [3, 3]
    assert bottleneck([10, 10, 10, 10, 11, 11], [3, 3]) == 32


def test_the_histogram_has_its_formula_and_may_leave_a_stage_out():
    rng = random.Random(8)
    for _ in range(300):
        costs, K = random_problem(rng, 12)
        if not any(costs):
            continue
        stages = [
            min(int(K * sum(exact(costs[: i + 1])) / sum(exact(costs))), K - 1) for i in range(len(costs))
        ]
        assert histogram(costs, K) == [stages.count(stage) for stage in range(K)]
    assert histogram([1, 8, 1], 3) == [1, 0, 2]


def test_costs_of_layers_match_the_description():
    rows = mp.describe(LAYERS, (4,)).rows
    assert costs_of_layers(LAYERS) == [row.parameters for row in rows] == [80, 0, 272, 0, 34]
    assert (
        costs_of_layers(LAYERS, "macs", (4,))
        == costs_of_layers(LAYERS, "macs", sample=(X, Y))
        == [64, 0, 256, 0, 32]
    )
    assert costs_of_layers(LAYERS, "bytes", (4,)) == [64, 64, 64, 64, 8]
    assert costs_of_layers(LAYERS, [1, 2.5, Fraction(1, 3), np.float32(4), 0]) == [
        1, 2.5, Fraction(1, 3), 4, 0,
    ]
    seen = []
    assert costs_of_layers(
        LAYERS, lambda layer, shape: seen.append((repr(layer), shape)) or len(seen), (4,)
    ) == [1, 2, 3, 4, 5]
    assert seen == [(repr(layer), shape) for layer, shape in zip(LAYERS, [(4,), (16,), (16,), (16,), (16,)])]


def test_costs_of_layers_with_skips_pairs_and_a_shared_W():
    layers = [
        mp.Linear(3, 3), mp.Fork("s"), mp.Tanh(), mp.Join("s"), mp.BatchNorm(3), mp.Dropout(0.5),
        mp.Linear(3, 2),
    ]
    shapes = []
    costs_of_layers(layers, lambda layer, shape: shapes.append(shape) or 1, (3,))
    assert shapes == [(3,), (3,), (3,), ((3,), (3,)), (3,), (3,), (3,)]
    data = np.random.default_rng(0).standard_normal((3, 8))
    assert all(
        cost >= 0 for cost in costs_of_layers(layers, "time", sample=(data, np.ones((2, 8))), loss=LOSS)
    )
    assert all(layer.W is None for layer in layers if isinstance(layer, mp.Linear))  # copies are measured
    tied = mp.models.transformer(10, 4, 2, 1, tied=True)
    assert costs_of_layers(tied)[0] == 40 and costs_of_layers(tied)[-1] == 10
    assert len(costs_of_layers(mp.models.amoebanet_d(18, 208), "macs", (3, 224, 224))) == 28


class Busy(Layer):
    """A layer that moves a clock by F seconds in its forward and by B in its backward, in whatever rounds are
    not disturbed.
    """

    def __init__(self, clock, F, B):
        self.clock, self.F, self.B = clock, F, B

    def initialize(self, rng, dtype=np.float64):
        self.W, self.b = np.zeros((1, 1)), np.zeros((1, 1))

    def forward(self, A_prev):
        self.clock.pass_by(self.F)
        return A_prev

    def backward_input(self, dZ):
        self.clock.pass_by(self.B / 2)
        return dZ

    def backward_weight(self, dZ):
        self.clock.pass_by(self.B / 2)
        return self.W, self.b


class Clock:
    """Each reading may be disturbed: in two of six rounds everything takes up to a hundred times as long."""

    def __init__(self):
        self.now, self.disturbance = 0.0, itertools.repeat(1)

    def pass_by(self, seconds):
        self.now += seconds * next(self.disturbance)


def test_measured_times_are_medians_of_undisturbed_rounds(monkeypatch):
    """Lopsided on purpose: the last two of eight layers take nearly all of the time, and equal counts puts
    both in one stage.

    With F and B of a stage summed over its layers, GPipe's makespan is sum F + (M - 1) max F + sum
    B + (M - 1) max B where the stage with the largest F has the largest B. The cut and the two makespans are
    exact here: the clock moves in powers of two.
    """
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", lambda: clock.now)
    seconds = [(1, 2)] * 6 + [(16, 32)] * 2
    layers = [Busy(clock, *pair) for pair in seconds]
    sample = np.ones((1, 4)), np.ones((1, 4))
    per_round = 3 * len(layers) - 1  # the first layer of all computes no dA_prev
    clock.disturbance = itertools.chain.from_iterable(
        [factor] * per_round for factor in (1000, 1, 100, 1, 7, 1)
    )
    times = times_of_layers(layers, LOSS, *sample)
    assert [(F, I + W) for F, I, W in times] == [(1, 1), *seconds[1:]] and times[0].I == 0
    clock.disturbance = itertools.repeat(1)
    assert costs_of_layers(layers, "time", sample=sample, loss=LOSS) == [2] + [3] * 5 + [48] * 2
    K, M, makespans = 4, 8, {}
    for by in ("count", "time"):
        pipe = mp.Pipeline(layers, LOSS, mp.Cut(K, by, sample), M)
        counts = [len(stage.layers) for stage in pipe.stages]
        F, B = loads([t.F for t in times], counts), loads([t.I + t.W for t in times], counts)
        trace = mp.simulate(mp.schedules.gpipe(K, M), mp.Costs(F=F, B=B))
        assert trace.makespan == sum(F) + (M - 1) * max(F) + sum(B) + (M - 1) * max(B)
        makespans[by] = counts, trace.makespan
    total, heavy = 38 + 75, 16 + 32
    assert makespans == {
        "count": ([2, 2, 2, 2], total + 7 * 2 * heavy),
        "time": ([5, 1, 1, 1], total + 7 * heavy),
    }


@pytest.mark.parametrize(
    "by", ["count", "parameters", "macs", "bytes", "time", lambda layer, shape: 20 - math.prod(shape)]
)
def test_pipelines_cut_themselves(by):
    cut = mp.Cut(3, by, sample=(X, Y))
    pipe = mp.Pipeline(LAYERS, LOSS, cut, 2)
    counts = [len(stage.layers) for stage in pipe.stages]
    if by != "time":
        assert counts == ([2, 2, 1] if by == "count" else partition(LAYERS, 3, by, (4,)))
    assert np.isfinite(pipe.forward_backward(X, Y)) and sum(counts) == 5
    stream = mp.Pipeline(LAYERS, LOSS, cut, 1, schedule="pipedream")
    assert by == "time" or [len(stage.layers) for stage in stream.stages] == counts


@pytest.mark.parametrize("cut, counts", [
    (mp.Cut(3), [2, 2, 1]), (mp.Cut([1, 3, 1]), [1, 3, 1]), (mp.Cut(3, "parameters"), partition(LAYERS, 3)),
    (mp.Cut(2, "macs"), [2, 3]), (mp.Cut(2, lambda layer, shape: 20 - math.prod(shape)), [1, 4]),
])
def test_networks_and_planning_cut_equally(cut, counts):
    """Measuring has a sample of its own, the micro-batch."""
    pipe = mp.Pipeline(LAYERS, LOSS, replace(cut, sample=(X, Y)), 2)
    assert [len(stage.layers) for stage in pipe.stages] == counts
    sent = [8 * len(X[0]) * row.output_shape[0] for row in mp.describe(LAYERS, (4,)).rows]
    ends = [end - 1 for end in accumulate(counts)]
    measured = mp.measure(LAYERS, LOSS, cut, X, Y, rounds=1)
    assert measured.message_bytes == [*(sent[end] for end in ends[:-1]), 0]


@pytest.mark.parametrize("call, words", [
    (lambda: partition(LAYERS, 6), "stages=6 does not fit 5 layers: use 1 to 5 stages"),
    (lambda: min_variance([1, 2], 0), "stages=0 does not fit 2 layers: use 1 to 2 stages"),
    (lambda: min_max([1, -2], 1), "costs[1]=-2 must be at least 0"),
    (lambda: histogram([math.nan, 2], 1), "costs[0]=nan must be at least 0"),
    (lambda: min_variance([math.inf], 1), "costs[0]=inf must be finite"),
    (lambda: min_max(["3"], 1), "costs[0]='3' must be a number, at least 0"),
    (lambda: partition(LAYERS, 2, lambda layer, shape: -1, (4,)), "by[0]=-1 must be at least 0"),
    (lambda: partition(LAYERS, 2, [1, 2, 3]), "by has 3 numbers for 5 layers: give one for each, 5 in all"),
    (lambda: histogram([0, 0], 2), "all 2 costs are 0"),
    (lambda: mp.Pipeline(LAYERS, LOSS, mp.Cut(2, "flops"), 2),
     "by='flops' must be one of 'count', 'parameters', 'macs', 'bytes', 'time', or a function (layer,"),
    (lambda: partition(LAYERS, 2, "macs"), "by='macs' needs the shape of the input"),
    (lambda: partition(LAYERS, 2, "time", (4,)), "by='time' needs a sample"),
    (lambda: mp.Pipeline(LAYERS, LOSS, mp.Cut(2, "time"), 2),
     "by='time' needs data to find the costs: pass sample=(X, Y)"),
    (lambda: partition(LAYERS, 2, "macs", sample=X), "sample=ndarray must be a pair (X, Y)"),
    (lambda: mp.Pipeline(LAYERS, LOSS, mp.Cut(histogram([1, 1, 9, 1, 1], 3)), 2),
     "stages[1]=0 must be at least 1"),
    (lambda: mp.Pipeline(LAYERS, LOSS, mp.Cut([3, 1]), 2),
     "stages=[3, 1] adds up to 4 for 5 layers: give the stages 5 layers in all"),
    (lambda: mp.Parallel(LAYERS, LOSS, stages=6),
     "6 stages do not fit 5 layers: use at most 5, so that each has a layer"),
    (lambda: plots.cut([1, 2, 3], [1, 1]), "counts=[1, 1] adds up to 2 for 3 costs"),
    (lambda: plots.cut([], []), "costs is an empty list: give it at least one"),
])
def test_bad_input_raises_an_error_with_the_numbers_and_a_remedy(call, words):
    with pytest.raises(ValueError) as error:
        call()
    assert words in str(error.value)


def test_a_cut_is_drawn_in_bars_and_stripes_with_its_bottleneck():
    costs, counts = [1, 3, 2, 6, 0, 4], [2, 3, 1]
    ax = plots.cut(costs, counts, list("abcdef"), Figure().add_subplot(), "title", "seconds")
    stripes, bars = ax.patches[:3], ax.patches[3:]
    assert [(stripe.get_x(), stripe.get_x() + stripe.get_width()) for stripe in stripes] == [
        (-0.5, 1.5),
        (1.5, 4.5),
        (4.5, 5.5),
    ]
    assert [bar.get_height() for bar in bars] == costs
    assert [to_hex(bar.get_facecolor()).upper() == BOTTLENECK for bar in bars] == [
        False, False, True, True, True, False,
    ]
    assert [to_hex(stripe.get_facecolor()).upper() for stripe in stripes] == [*BACKGROUNDS, BACKGROUNDS[0]]
    assert [text.get_position()[0] for text in ax.texts] == [0.5, 3, 5], "above the middle of each stripe"
    share = sum(costs) / 3
    assert [text.get_text() for text in ax.texts] == [f"{load / share:.2f}" for load in loads(costs, counts)]
    assert [text.get_fontweight() for text in ax.texts] == ["normal", "bold", "normal"]
    assert [label.get_text() for label in ax.get_xticklabels()] == list(
        "abcdef"
    ) and ax.get_ylabel() == "seconds"


def test_a_cut_of_many_layers_shows_the_bottleneck_only():
    ax = plots.cut([1] * 49 + [5], [2] * 25, list(map(str, range(50))), Figure().add_subplot())
    assert [text.get_text() for text in ax.texts] == ["2.78"] and len(ax.get_xticks()) < 20
    ax = plots.cut([1] * 40, [2] * 16 + [1] * 8, list(map(str, range(40))), Figure().add_subplot())
    assert len(ax.texts) == 24 and len(ax.get_xticks()) == 40, "the most that are written"
    assert plots.cut([0, 0], [1, 1], ax=Figure().add_subplot()).texts[0].get_text() == "0.00"


# Measuring a micro-batch.

def test_several_that_measure_at_once_give_their_mean(monkeypatch):
    """Each thread has layers of its own; of what they have measured, each number is the mean."""
    networks, seconds = [], iter([1.0, 3.0])

    def timed(layers, loss, *batch):
        networks.append([*layers, loss])  # kept, so that no id is used twice
        second = next(seconds)
        return [Times(second, second, second)] + [Times(0, 0, 0)] * (len(layers) - 1)

    monkeypatch.setattr(measuring, "times_of_layers", timed)
    measured = mp.measure(LAYERS, LOSS, 2, X, Y, at_once=2)
    assert [getattr(measured, kind)[0] for kind in "FRIWB"] == [2, 2, 2, 2, 4]
    assert not {*map(id, networks[0])} & {*map(id, networks[1])}


def test_measured_costs_are_seconds_of_each_stage():
    """A stage of 8 products of 200x200 takes longer than one of 1, and bytes are those of a message."""
    n, m = 200, 100
    layers = [mp.Linear(n, n), *[mp.Linear(n, n) for _ in range(8)], mp.Linear(n, 2)]
    X = np.random.default_rng(0).standard_normal((n, m))
    costs = mp.measure(layers, mp.MeanSquaredError(), mp.Cut([1, 8, 1]), X, X[:2])
    for kind in "FBRIW":
        first, second, third = getattr(costs, kind)
        assert 0 < first < second > third > 0
    assert costs.message_bytes == [8 * n * m, 8 * n * m, 0]
    trace = mp.simulate("1f1b", costs, mp.Link(bandwidth=1e9), devices=3, microbatches=6)
    assert 6 * (costs.F[1] + costs.B[1]) < trace.makespan and trace.messages[0].n_bytes == 8 * n * m


def test_skips_and_ties_are_measured_and_nonsense_is_refused():
    tied = [mp.Linear(4, 4, tie="W") for _ in range(2)]
    layers = [mp.Fork("skip"), *tied, mp.Join("skip"), mp.Linear(4, 2)]
    assert all(time > 0 for time in mp.measure(layers, LOSS, mp.Cut([2, 2, 1]), X, Y, rounds=1).I)
    assert_refused([
        (lambda: mp.measure(LAYERS, LOSS, 2, X, Y, rounds=0), "rounds=0 must be at least 1"),
        (lambda: mp.measure(LAYERS, LOSS, 0, X, Y), "stages=0 must be at least 1"),
        (lambda: mp.measure(LAYERS, LOSS, 2, X, Y, at_once=0), "at_once=0 must be at least 1"),
    ])
