"""Stages as objects, ticks, ragged micro-batches, memory, and every wrong input at the door."""

import weakref
from functools import partial
from math import ceil

import numpy as np
import pytest
from compared import assert_refused, assert_same, parameters
from sampling import one_in

import minipipe as mp
from minipipe.cluster import Compute, bytes_by_kind
from minipipe.sums import TreeSum
from minipipe.order.programs import Wires, program
from minipipe.schedules import build, names_having
from minipipe.order import peak_microbatches, with_updates

LAYERS = [mp.Linear(4, 6), mp.ReLU(), mp.Linear(6, 5), mp.Tanh(), mp.Linear(5, 3)]
rng = np.random.default_rng(0)
X, Y = rng.standard_normal((4, 10)), mp.one_hot(rng.integers(0, 3, 10), 3)
LOSS = mp.SoftmaxCrossEntropy()


def pipeline(stages=3, microbatches=4, schedule="gpipe", recompute="never", **options):
    return mp.Pipeline(LAYERS, LOSS, stages, microbatches, schedule=schedule, recompute=recompute, **options)


@pytest.mark.parametrize("schedule, recompute", one_in(6, names_having(flush=True), ["never", "always"]))
def test_ticking_leaves_the_trace_cost_and_gradients_of_running(schedule, recompute):
    whole, stepped = (pipeline(4, 8, schedule, recompute) for _ in range(2))
    J = whole.forward_backward(X, Y)
    stepped.start(X, Y)
    ticks = 1
    while stepped.tick():
        ticks += 1
    assert stepped.trace == whole.trace and ticks == ceil(whole.trace.makespan)
    assert stepped.J == J
    assert_same(stepped.gradients, whole.gradients)


def test_after_three_ticks_the_stashes_match_the_diagram():
    pipe = pipeline()
    pipe.start(X, Y)
    for _ in range(3):
        pipe.tick()
    assert [sorted(stage.stash) for stage in pipe.stages] == [[0, 1, 2], [0, 1], [0]]


def test_parameters_that_a_layer_has_are_kept():
    layer = mp.Linear(4, 3, W=np.ones((3, 4)), b=np.ones((3, 1)))
    net = mp.Sequential([layer], mp.MeanSquaredError())
    assert np.array_equal(net.layers[0].W, np.ones((3, 4)))
    net.layers[0].W += 1
    assert np.array_equal(layer.W, np.ones((3, 4)))


@pytest.mark.parametrize("schedule, alive", [("gpipe", [8, 8, 8]), ("1f1b", [3, 2, 1]), ("naive", [1, 1, 1])])
def test_peak_bytes_match_the_arrays_really_held(schedule, alive):
    """Linear layers of 8 units and micro-batches of 2, counted by hand: device 0 in the middle of its last F.

    Each micro-batch alive is one input (8 x 2 numbers); the parameters are W (8 x 8) and b (8 x 1). At the
    peak in the forward phase the newest output is held too, and in GPipe all inputs.
    """
    layers = [mp.Linear(8, 8) for _ in range(3)]
    pipe = mp.Pipeline(layers, mp.MeanSquaredError(), 3, 8, schedule=schedule, count_bytes=True)
    pipe.forward_backward(np.ones((8, 16)), np.ones((8, 16)))
    assert peak_microbatches(pipe.trace) == alive
    parameters, activation = 8 * (64 + 8), 8 * 16
    starts_of_F = [span.start for span in pipe.trace.spans_of(0) if span.label.kind == "F"]
    held = dict(pipe.trace.memory(0))
    in_first_phase = starts_of_F[:alive[0]]
    assert [held[tick] for tick in in_first_phase] == [
        parameters + (i + 1) * activation + activation for i in range(alive[0])
    ]


def test_at_the_end_a_device_holds_parameters_and_gradients_alone():
    """Two stages on the first device, one on the second; nothing is left in a cache, a stash or an inbox."""
    schedule = mp.Schedule.from_text(["0F0 1F0 0F1 1F1 1B0 0B0 1B1 0B1", "2F0 2B0 2F1 2B1"])
    pipe = pipeline(3, 2, schedule, count_bytes=True)
    pipe.forward_backward(X, Y)
    numbers = [4 * 6 + 6 + 6 * 5 + 5, 5 * 3 + 3]
    assert [pipe.trace.memory(device)[-1][1] for device in (0, 1)] == [8 * 2 * n for n in numbers]
    assert all(layer.cache is None for layer in pipe.layers) and pipe.loss.cache is None
    pipe.predict(X)
    assert all(layer.cache is None for layer in pipe.layers)


def test_the_last_stage_stashes_its_own_labels_only():
    """Its caches of a micro-batch of 2: the input of Linear, the softmax, and its labels; not all of Y."""
    pipe = mp.Pipeline([mp.Linear(4, 3)], mp.SoftmaxCrossEntropy(), 1, 5)
    pipe.start(X, Y)
    pipe.tick()
    assert bytes_by_kind({"stash": pipe.stages[0].stash}) == {"stash": 8 * 2 * (4 + 3 + 3)}


def test_programs_drop_the_arrays_that_they_received_and_sent():
    """What nobody needs any more is freed, not kept alive by a program that waits for its next message."""
    arrays = []

    def perform(action, inputs):
        [(incoming, skips)] = inputs
        results = np.zeros(3), {"b": np.zeros(3)}
        arrays.extend(map(weakref.ref, [incoming, skips["a"], results[0], results[1]["b"]]))
        yield Compute(action)
        return [results]

    schedule = build("gpipe", 3, 2)
    running = program(schedule.devices[1], Wires(schedule, [("a", 0, 1), ("b", 1, 2)]), perform)
    running.send(None)                                    # asks for the first micro-batch
    running.send(np.ones(3))                              # asks for its skip connection
    running.send(np.ones(3))                              # a Compute
    running.send(None)                                    # a Send
    running.send(None)                                    # a Send of the skip connection
    running.send(None)                                    # asks for the second micro-batch
    assert len(arrays) == 4 and all(array() is None for array in arrays)


def test_an_incomplete_sum_is_refused():
    total = TreeSum(3)
    total.add(0, [1])
    with pytest.raises(RuntimeError, match="sum of 3 terms is not complete"):
        total.value  # noqa: B018


def test_a_layer_whose_weights_are_frozen_has_no_gradient():
    class Frozen(mp.Linear):
        def backward_weight(self, dZ):
            return None, None

    pipe = mp.Pipeline([Frozen(4, 4), mp.Linear(4, 3)], mp.SoftmaxCrossEntropy(), 1, 2)
    pipe.forward_backward(X, Y)
    assert pipe.gradients[0] == (None, None) and pipe.gradients[1][0].shape == (3, 4)


def test_seed_and_dtype_decide_the_first_weights():
    first, second, seventh = (
        mp.Parallel(LAYERS, LOSS, stages=3, seed=seed).layers for seed in (1, 2, 7)
    )
    assert not np.array_equal(first[0].W, second[0].W)
    assert pipeline(dtype=np.float32).layers[0].W.dtype == np.float32
    assert pipeline().layers[0].W.dtype == np.float64
    drawn = mp.layers.he(np.random.default_rng([7, 2]), 6, 5)
    assert np.array_equal(seventh[2].W, drawn)  # he is the default


OPTIONS = [
    (dict(dtype=int), "must be one of floats"),
    (dict(recompute=True), "recompute=True must be one of 'never', 'always'"),
    (dict(stages=1, microbatches=1, schedule=mp.Schedule.from_text("F0 R0 B0"), recompute="always"),
     "recomputes already"),
    (dict(schedule=build("gpipe", 2, 4)), "is for 2 stages and 4 micro-batches, but there are 3 stages"),
    (dict(schedule=lambda K, M: None), "<lambda>(3, 4) returns None: a function (K, M) returns a"),
    (dict(schedule=lambda K, M: build("gpipe", K, M + 1)),
     "is for 3 stages and 5 micro-batches, but there are 3 stages and 4 micro-batches: make them equal"),
    (dict(costs=mp.Costs(F=[1, 2])), "F has 2 costs for 3 stages"),
    (dict(costs=mp.Costs(B=0)), "stage 0: B=0 must be above 0 ticks"),
]


def test_wrong_options_get_both_numbers_and_the_remedy():
    assert_refused([(partial(pipeline, **options), words) for options, words in OPTIONS])


CUTS = [
    (2.5, "count", "stages=2.5 must be a whole number"),
    ([5, 0, 0], "count", "stages[1]=0 must be at least 1"),
    (3, 2, "by=2 must be one of 'count', 'parameters', 'macs', 'bytes', 'time', or a function"),
    ([3, 2], "macs", "stages=[3, 2] says where to cut, and so does by='macs': use one"),
]


def test_a_cut_gives_each_stage_a_layer_in_one_way():
    assert_refused([(partial(mp.Cut, stages, by), words) for stages, by, words in CUTS])


SAMPLES = [
    (np.zeros((4, 0)), np.zeros((3, 0)), "a batch of 0 samples"),
    (X[:, :3], Y[:, :3],
     "microbatches=4 exceeds the batch of m=3 samples: use at most 3, or a larger batch"),
    (np.zeros(4), np.zeros(3), "at least two axes"),
    (X, np.ones((3, 9)) / 3, "10 samples but labels of shape (3, 9)"),
    (X, np.zeros(10, int), "one_hot(labels, n_classes=3)"),
    (np.full((4, 10), np.nan), Y, "X holds NaN or infinity in 40 of 40 places"),
    (X, np.full((3, 10), np.nan), "Y holds NaN or infinity"),
    (X, np.ones((2, 10)) / 2, "the labels have shape (2, 10), but the predictions have (3, 10)"),
]


def test_wrong_samples_get_both_numbers_and_the_remedy():
    assert_refused([(partial(pipeline().forward_backward, X, Y), words) for X, Y, words in SAMPLES])


ONE, MSE = [mp.Linear(4, 1)], mp.MeanSquaredError()


OTHER = [
    (lambda: mp.Sequential([], MSE), "layers is an empty list"),
    (lambda: mp.Sequential(ONE, "mse"), "then a loss object, such as MeanSquaredError()"),
    (lambda: mp.Sequential(ONE, None).forward_backward(X, Y), "this network has no loss"),
    (lambda: mp.Sequential(ONE, MSE).forward_backward(X, Y[0]), "make them one row with Y.reshape(1, -1)"),
    (lambda: pipeline().start(X, Y, mp.SGD(1)), "no U for an optimizer: pass it to step(optimizer)"),
    (lambda: pipeline(schedule=with_updates(build("gpipe", 3, 4))).start(X, Y),
     "updates the stages itself: use start(X, Y, optimizer)"),
    (lambda: pipeline(schedule=with_updates(build("gpipe", 3, 4))).forward_backward(X, Y),
     "updates the stages itself: use train([(X, Y), ...], optimizer)"),
]


def test_other_wrong_input_is_answered_with_the_remedy():
    assert_refused(OTHER)


def test_asking_too_early_is_answered_with_what_to_call():
    assert_refused([
        (lambda: pipeline().gradients, "nothing has run yet"),
        (lambda: pipeline().trace, "nothing has run yet"),
        (lambda: pipeline().tick(), "nothing has run yet"),
        (lambda: pipeline().step(mp.SGD(1)), "nothing has run yet"),
        (lambda: mp.Sequential(LAYERS, None).gradients, "no gradients yet"),
        (lambda: after_a_tick().J, "call tick"),
        (lambda: after_a_tick().gradients, "call tick"),
    ], RuntimeError)


def after_a_tick():
    pipe = pipeline()
    pipe.start(X, Y)
    pipe.tick()
    return pipe


def test_a_run_that_fails_leaves_parameters_and_can_be_run_again():
    limited = dict(memory_limit=500)
    pipe = mp.Parallel(LAYERS, LOSS, stages=3, microbatches=4, schedule="gpipe", **limited)
    before = parameters([layer.copy() for layer in pipe.layers])
    with pytest.raises(mp.cluster.MemoryLimitError, match="above its limit of 500"):
        pipe.forward_backward(X, Y)
    with pytest.raises(ValueError):
        pipe.forward_backward(X[:3], Y)
    assert_same(parameters(pipe.layers), before)
    free = pipeline()
    with pytest.raises(FloatingPointError):
        free.forward_backward(1e308 * np.sign(X), Y)
    for ask in (lambda: free.J, free.tick):
        with pytest.raises(RuntimeError, match="the mini-batch has stopped with an error"):
            ask()
    assert free.forward_backward(X, Y) == pipeline().forward_backward(X, Y)


def test_parameters_can_be_set_after_a_failed_run():
    """A second try begins with what the user has set in between, and not with what was before the first."""
    order = with_updates(build("1f1b", 3, 4))
    pipes = [mp.Pipeline(LAYERS, mp.MeanSquaredError(), 3, 4, schedule=order) for _ in range(2)]
    with pytest.raises(FloatingPointError):
        pipes[0].train([(X, Y * 1e300)], mp.SGD(0.1))
    for pipe in pipes:
        pipe.layers[0].W = np.ones((6, 4))
    with pytest.raises(RuntimeError, match="the mini-batch has stopped with an error"):
        pipes[0].tick()
    costs = [pipe.train([(X, Y)], mp.SGD(0.1)) for pipe in pipes]
    assert costs[0] == costs[1]
    assert_same(*(parameters(pipe.layers) for pipe in pipes))


@pytest.mark.parametrize("split, sums", [
    (dict(stages=2, microbatches=3), mp.Sums()), (dict(shards=2, microbatches=3), mp.Sums()),
    (dict(replicas=2, shards=2, microbatches=4), mp.Sums(sync_batch_norm=True)),
])
def test_a_prediction_between_two_ticks_disturbs_no_run(split, sums):
    layers = [mp.Linear(4, 6), mp.BatchNorm(6), mp.Tanh(), mp.Linear(6, 3)]
    net, other = (mp.Parallel(layers, LOSS, **split, sums=sums, link=mp.Link(latency=1)) for _ in "12")
    expected, J = other.predict(X), other.forward_backward(X, Y)
    net.start(X, Y)
    assert_same(net.predict(X), expected)
    while net.tick():
        assert_same(net.predict(X), expected)
    assert net.J == J
    assert_same(net.gradients, other.gradients)
