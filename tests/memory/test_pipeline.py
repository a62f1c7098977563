"""Stages as objects, ticks, ragged micro-batches, memory, and every wrong input at the door."""

import weakref
from math import ceil

import numpy as np
import pytest
from compared import assert_all_same, assert_same, parameters
from hypothesis import given, settings
from hypothesis import strategies as st

import minipipe as mp
from minipipe.cluster import Compute, bytes_by_kind
from minipipe.functions import leaves
from minipipe.partitioning import equal_counts
from minipipe.sums import TreeSum
from minipipe.pipeline.program import program
from minipipe.pipeline.wires import Wires
from minipipe.schedules import build, build_for_stages, names_having, peak_microbatches, with_updates

LAYERS = [mp.Linear(4, 6), mp.ReLU(), mp.Linear(6, 5), mp.Tanh(), mp.Linear(5, 3)]


def mini_batch(m=10, dtype=np.float64):
    rng = np.random.default_rng(0)
    return rng.standard_normal((4, m)).astype(dtype), mp.one_hot(rng.integers(0, 3, m), 3).astype(dtype)


def pipeline(n_stages=3, n_microbatches=4, schedule="gpipe", recompute=False, **options):
    loss = mp.SoftmaxCrossEntropy()
    return mp.Pipeline(LAYERS, loss, n_stages, n_microbatches, schedule, recompute, **options)


@pytest.mark.parametrize("schedule", names_having(flush=True, late_w=False))
@pytest.mark.parametrize("recompute", [False, True])
def test_ticking_leaves_the_trace_cost_and_gradients_of_running(schedule, recompute):
    X, Y = mini_batch()
    whole, stepped = (pipeline(4, 8, schedule, recompute) for _ in range(2))
    J = whole.forward_backward(X, Y)
    stepped.start(X, Y)
    ticks = 1
    while stepped.tick():
        ticks += 1
    assert stepped.trace == whole.trace and ticks == ceil(whole.trace.makespan)
    assert stepped.J == J
    assert_same(stepped.gradients, whole.gradients)


def test_a_run_with_numbers_takes_the_ticks_of_a_simulation():
    """Same clock, same schedule: the spans of the real run are those of the run without arithmetic."""
    for schedule in names_having(flush=True, late_w=False):
        pipe = pipeline(n_stages=4, n_microbatches=8, schedule=schedule)
        pipe.forward_backward(*mini_batch())
        simulated = mp.simulate(build_for_stages(schedule, 4, 8))
        assert pipe.trace.spans == simulated.spans and pipe.trace.idle == simulated.idle


def test_after_three_ticks_the_stashes_are_those_of_the_diagram():
    pipe = pipeline()
    pipe.start(*mini_batch())
    for _ in range(3):
        pipe.tick()
    assert [sorted(stage.stash) for stage in pipe.stages] == [[0, 1, 2], [0, 1], [0]]


def test_stages_do_not_share_anything():
    stages = pipeline().stages
    assert [len(stage.layers) for stage in stages] == [2, 2, 1]
    assert [stage.loss is None for stage in stages] == [True, True, False]
    assert len({id(layer) for stage in stages for layer in stage.layers}) == 5


def test_a_pipeline_is_a_drop_in_for_sequential():
    """The same weights from the same seed, the same predictions, and gradients in the same order and form."""
    X, Y = mini_batch()
    whole, pipe = mp.Sequential(LAYERS, mp.SoftmaxCrossEntropy(), seed=5), pipeline(seed=5)
    assert np.array_equal(whole.predict(X), pipe.predict(X))
    whole.forward_backward(X, Y)
    pipe.forward_backward(X, Y)
    ours, theirs = (
        [[np.shape(part) for part in pair] for pair in net.gradients] for net in (pipe, whole)
    )
    assert ours == theirs


def test_networks_do_not_share_the_layers_that_they_were_built_from():
    first, second = pipeline(), pipeline()
    first.forward_backward(*mini_batch())
    first.step(mp.SGD(learning_rate=1))
    assert not np.array_equal(first.layers[0].W, second.layers[0].W) and LAYERS[0].W is None


def test_parameters_that_a_layer_has_are_kept():
    layer = mp.Linear(4, 3, W=np.ones((3, 4)), b=np.ones((3, 1)))
    net = mp.Sequential([layer], mp.MeanSquaredError())
    assert np.array_equal(net.layers[0].W, np.ones((3, 4)))
    net.layers[0].W += 1
    assert np.array_equal(layer.W, np.ones((3, 4)))


def test_weights_depend_on_the_place_of_the_layer_alone():
    for n_stages in (1, 2, 5):
        assert_same(parameters(pipeline(n_stages).layers), parameters(pipeline(3).layers))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_messages_have_the_size_of_their_numbers(dtype):
    """10 samples in micro-batches of 3, 3, 2, 2; the cuts are 6 and 5 units wide."""
    pipe = pipeline(dtype=dtype)
    pipe.forward_backward(*mini_batch(dtype=dtype))
    size = np.dtype(dtype).itemsize
    for message in pipe.trace.messages:
        width = 6 if {message.source, message.to} == {0, 1} else 5
        assert message.n_bytes == width * [3, 3, 2, 2][message.label.microbatch] * size


def test_every_buffer_may_be_overwritten_after_it_was_sent(monkeypatch):
    """The sender's arrays become NaN the moment its program goes on; the gradients do not notice."""
    from minipipe.cluster import mail

    X, Y = mini_batch()
    layers = [mp.Linear(4, 6), mp.ReLU(), mp.Linear(6, 6), mp.ReLU(), mp.Linear(6, 3)]
    clean = mp.Pipeline(layers, mp.SoftmaxCrossEntropy(), 5, 4)
    J = clean.forward_backward(X, Y)
    copy = mail.own
    poisoned = 0

    def copy_and_poison(value):
        nonlocal poisoned
        result = copy(value)
        value[...] = np.nan
        poisoned += 1
        return result

    # ReLU keeps a mask and Linear keeps its input, so no stage needs what it has sent
    monkeypatch.setattr(mail, "own", copy_and_poison)
    pipe = mp.Pipeline(layers, mp.SoftmaxCrossEntropy(), 5, 4)
    assert pipe.forward_backward(X, Y) == J and poisoned == 2 * 4 * 4
    assert_same(pipe.gradients, clean.gradients)


@pytest.mark.parametrize("schedule, alive", [("gpipe", [8, 8, 8]), ("1f1b", [3, 2, 1]), ("naive", [1, 1, 1])])
def test_peak_bytes_are_those_of_the_arrays_really_held(schedule, alive):
    """Linear layers of 8 units and micro-batches of 2, counted by hand: device 0 in the middle of its last F.

    Each micro-batch alive is one input (8 x 2 numbers); the parameters are W (8 x 8) and b (8 x 1). At the
    peak in the forward phase the newest output is held too, and in GPipe all inputs.
    """
    layers = [mp.Linear(8, 8)] * 3
    pipe = mp.Pipeline(layers, mp.MeanSquaredError(), 3, 8, schedule)
    pipe.forward_backward(np.ones((8, 16)), np.ones((8, 16)))
    assert peak_microbatches(pipe.trace) == alive
    parameters, activation = 8 * (64 + 8), 8 * 16
    starts_of_F = [span.start for span in pipe.trace.spans_of(0) if span.label.kind == "F"]
    held = dict(pipe.trace.memory(0))
    in_first_phase = starts_of_F[:alive[0]]
    assert [held[tick] for tick in in_first_phase] == [
        parameters + (i + 1) * activation + activation for i in range(alive[0])
    ]


def test_recomputation_keeps_only_the_inputs():
    """A stage of Linear and Tanh: its caches are input and output; with recomputation, only the input."""
    layers = [mp.Linear(8, 8), mp.Tanh()] * 2
    X = np.ones((8, 32))
    held = {}
    for recompute in (False, True):
        pipe = mp.Pipeline(layers, mp.MeanSquaredError(), 2, 8, "gpipe", recompute)
        pipe.start(X, X)
        for _ in range(8):
            pipe.tick()
        stage = pipe.stages[0]
        held[recompute] = len(stage.stash), len(stage.inputs), dict(pipe.trace.memory(0))[7]
        while pipe.tick():
            pass
        assert not stage.stash and not stage.inputs
    parameters, array = 8 * (64 + 8), 8 * 4 * 8
    assert held[False] == (8, 0, parameters + 8 * 2 * array)
    assert held[True] == (0, 8, parameters + 8 * array + array)  # the last output is on its way


def test_at_the_end_a_device_holds_its_parameters_and_gradients_and_nothing_else():
    """Two stages on the first device, one on the second; nothing is left in a cache, a stash or an inbox."""
    schedule = mp.Schedule.from_text(["0F0 1F0 0F1 1F1 1B0 0B0 1B1 0B1", "2F0 2B0 2F1 2B1"])
    pipe = pipeline(3, 2, schedule)
    pipe.forward_backward(*mini_batch())
    numbers = [4 * 6 + 6 + 6 * 5 + 5, 5 * 3 + 3]
    assert [pipe.trace.memory(device)[-1][1] for device in (0, 1)] == [8 * 2 * n for n in numbers]
    assert all(layer.cache is None for layer in pipe.layers) and pipe.loss.cache is None
    pipe.predict(mini_batch()[0])
    assert all(layer.cache is None for layer in pipe.layers)


def test_the_last_stage_stashes_its_own_labels_only():
    """Its caches of a micro-batch of 2: the input of Linear, the softmax, and its labels; not all of Y."""
    pipe = mp.Pipeline([mp.Linear(4, 3)], mp.SoftmaxCrossEntropy(), 1, 5)
    pipe.start(*mini_batch())
    pipe.tick()
    assert bytes_by_kind({"stash": pipe.stages[0].stash}) == {"stash": 8 * 2 * (4 + 3 + 3)}


def test_programs_let_go_of_what_they_have_received_and_sent():
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


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb-v"])
def test_except_last_equals_always_and_saves_one_recomputation_on_each_stage(schedule):
    """The bits, and the R that were done: none of the last micro-batch."""
    X, Y = mini_batch(11)
    runs = {}
    for mode in ("never", "always", "except_last", True, False):
        pipe = pipeline(4, 4, schedule, mode)
        J = pipe.forward_backward(X, Y)
        recomputed = [span.label for span in pipe.trace.spans if span.label.kind == "R"]
        runs[mode] = J, leaves(pipe.gradients), recomputed
    assert_all_same(run[:2] for run in runs.values())
    counts = {mode: len(recomputed) for mode, (_, _, recomputed) in runs.items()}
    assert counts == {"never": 0, False: 0, "always": 4 * 4, True: 4 * 4, "except_last": 4 * 3}
    assert {action.microbatch for action in runs["except_last"][2]} == {0, 1, 2}


def test_recomputation_runs_before_the_gradient_arrives():
    trace = mp.simulate(mp.schedules.with_recompute(build("gpipe", 3, 2)))
    first_R = next(span for span in trace.spans_of(0) if span.label.kind == "R")
    arrival = next(message for message in trace.messages if message.to == 0 and message.label.kind == "B")
    assert first_R.end <= arrival.arrived


@settings(max_examples=100)
@given(st.data())
def test_the_tree_sum_has_the_same_bits_in_any_order(data):
    n = data.draw(st.integers(1, 20))
    terms = [[np.float64(x)] for x in np.random.default_rng(n).standard_normal(n)]
    reference, shuffled = TreeSum(n), TreeSum(n)
    for i in range(n):
        reference.add(i, terms[i])
    for i in data.draw(st.permutations(range(n))):
        shuffled.add(i, terms[i])
    assert shuffled.value == reference.value


@pytest.mark.parametrize("order", [list, lambda terms: list(terms)[::-1]], ids=["upwards", "downwards"])
def test_the_tree_sum_keeps_few_pending_sums(order):
    for n in range(1, 130):
        total, most = TreeSum(n), 0
        for i in order(range(n)):
            total.add(i, [1])
            most = max(most, len(total.pending))
        assert total.value == [n] and most <= n.bit_length()


def test_an_incomplete_sum_is_refused():
    total = TreeSum(3)
    total.add(0, [1])
    with pytest.raises(RuntimeError, match="sum of 3 terms is not complete"):
        total.value  # noqa: B018


def test_equal_counts():
    assert [equal_counts(7, n) for n in (1, 2, 3, 7)] == [[7], [4, 3], [3, 2, 2], [1] * 7]


def test_unequal_costs_are_seen_in_the_trace():
    pipe = pipeline(schedule="1f1b", costs=mp.Costs(F=[1, 3, 1], B=2))
    pipe.forward_backward(*mini_batch())
    assert {span.end - span.start for span in pipe.trace.spans_of(1) if span.label.kind == "F"} == {3}


def test_a_function_can_make_the_schedule():
    """With n_stages and the number of micro-batches; without updates it is for one mini-batch."""
    X, Y = mini_batch()
    pipe = pipeline(schedule=mp.schedules.one_f_one_b)
    assert pipe.schedule == build("1f1b", 3, 4)
    assert pipe.forward_backward(X, Y) == pipeline().forward_backward(X, Y)


def test_numpy_integers_are_counts_like_any_other():
    X, Y = mini_batch()
    pipe = pipeline(np.int64(3), np.int64(4))
    assert pipe.forward_backward(X, Y) == pipeline().forward_backward(X, Y)


def test_a_layer_whose_weights_are_frozen_has_no_gradient():
    class Frozen(mp.Linear):
        def backward_weight(self, dZ):
            return None, None

    pipe = mp.Pipeline([Frozen(4, 4), mp.Linear(4, 3)], mp.SoftmaxCrossEntropy(), 1, 2)
    pipe.forward_backward(*mini_batch())
    assert pipe.gradients[0] == (None, None) and pipe.gradients[1][0].shape == (3, 4)


def test_the_data_may_change_while_a_run_is_stepped_through():
    X, Y = mini_batch()
    pipe = pipeline()
    pipe.start(X.copy(), Y)
    moving = X.copy()
    pipe.start(moving, Y)
    moving *= 0
    while pipe.tick():
        pass
    assert pipe.J == pipeline().forward_backward(X, Y)


def test_seed_and_dtype_decide_the_first_weights():
    assert not np.array_equal(pipeline(seed=1).layers[0].W, pipeline(seed=2).layers[0].W)
    assert pipeline(dtype=np.float32).layers[0].W.dtype == np.float32
    assert pipeline().layers[0].W.dtype == np.float64
    drawn = mp.he(np.random.default_rng([7, 2]), 6, 5)
    assert np.array_equal(pipeline(seed=7).layers[2].W, drawn)  # he is the default


def test_a_step_is_one_update():
    pipe = pipeline()
    pipe.forward_backward(*mini_batch())
    W, dW = pipe.layers[0].W.copy(), pipe.gradients[0][0]
    pipe.step(mp.SGD(learning_rate=0.5))
    assert np.array_equal(pipe.layers[0].W, W - 0.5 * dW)


def test_costs_belong_to_their_stage_and_a_recompute_costs_a_forward():
    schedule = mp.schedules.with_recompute(build("gpipe", 3, 2))
    trace = mp.simulate(schedule, mp.Costs(F=[1, 2, 3], B=[4, 5, 6]))
    ticks = {(span.label.kind, span.device): span.end - span.start for span in trace.spans}
    of_stages = {"F": [1, 2, 3], "B": [4, 5, 6], "R": [1, 2, 3]}
    assert ticks == {(kind, s): cost for kind, costs in of_stages.items() for s, cost in enumerate(costs)}


def test_nobody_computes_the_derivative_by_the_data(monkeypatch):
    """The first layer's dA_prev is not wanted: in no network is its backward_input called."""
    called = []
    backward_input = mp.Linear.backward_input

    def recorded(self, dZ):
        called.append(self)
        return backward_input(self, dZ)

    monkeypatch.setattr(mp.Linear, "backward_input", recorded)
    for net in (pipeline(), mp.Sequential(LAYERS, mp.SoftmaxCrossEntropy())):
        net.forward_backward(*mini_batch())
        assert net.layers[0] not in called and net.layers[2] in called


ONE_OUTPUT = mp.Sequential([mp.Linear(4, 1)], mp.MeanSquaredError())
WRONG = {
    "a class for a layer": (
        lambda: mp.Sequential([mp.ReLU], None),
        "pass a layer object, such as Linear(2, 3) or ReLU()",
    ),
    "a name for a loss": (
        lambda: mp.Sequential(LAYERS, "mse"),
        "pass a loss object, such as MeanSquaredError()",
    ),
    "a class for a loss": (lambda: mp.Sequential(LAYERS, mp.MeanSquaredError), "pass a loss object"),
    "no loss": (
        lambda: mp.Sequential(LAYERS, None).forward_backward(*mini_batch()),
        "this network has no loss",
    ),
    "a dtype of whole numbers": (lambda: pipeline(dtype=int), "must be one of floats"),
    "half a micro-batch": (lambda: pipeline(n_microbatches=2.5), "n_microbatches=2.5 must be a whole number"),
    "text for costs": (lambda: pipeline(costs="F=1"), "must be Costs(F=..., B=...)"),
    "a list for a schedule": (lambda: pipeline(schedule=["F0 B0"]), "or Schedule.from_text(...)"),
    "one row of labels": (
        lambda: ONE_OUTPUT.forward_backward(np.ones((4, 2)), np.ones(2)),
        "make them one row with Y.reshape(1, -1)",
    ),
    "more micro-batches than samples": (
        lambda: pipeline(n_microbatches=16).forward_backward(*mini_batch()),
        "n_microbatches=16 exceeds the batch of m=10 samples: use at most 10, or a larger batch",
    ),
    "no micro-batch": (lambda: pipeline(n_microbatches=0), "n_microbatches=0 must be at least 1"),
    "more stages than layers": (
        lambda: pipeline(n_stages=6),
        "n_stages=6 does not fit 5 layers: use 1 to 5 stages",
    ),
    "no stage": (lambda: pipeline(n_stages=0), "n_stages=0 does not fit 5 layers"),
    "no layer": (lambda: mp.Sequential([], mp.MeanSquaredError()), "layers is an empty list"),
    "a partition that does not add up": (
        lambda: pipeline(partition=[2, 2, 2]),
        "partition=[2, 2, 2] adds up to 6 for 5 layers",
    ),
    "an empty stage": (lambda: pipeline(partition=[5, 0, 0]), "give each stage at least 1 layer"),
    "a partition of other length": (lambda: pipeline(partition=[3, 2]), "makes 2 stages, but n_stages=3"),
    "a partition of floats": (
        lambda: pipeline(partition=[2.0, 2.0, 1.0]),
        "partition[0]=2.0 must be a whole number",
    ),
    "a partition that is a number": (
        lambda: pipeline(partition=2),
        "partition=2 must be a list of whole numbers",
    ),
    "a partition for sqrt that does not add up": (
        lambda: pipeline(partition=[4, 4, 4], recompute="sqrt"),
        "partition=[4, 4, 4] adds up to 12 for 5",
    ),
    "a partition for sqrt of other length": (
        lambda: pipeline(partition=[3, 2], recompute="sqrt"),
        "makes 2 stages, but n_stages=3",
    ),
    "a partition for sqrt with an empty stage": (
        lambda: pipeline(partition=[5, 0, 0], recompute="sqrt"),
        "give each stage at least 1 layer",
    ),
    "a partition for footprints of other length": (
        lambda: mp.footprints([mp.Linear(2, 2)] * 5, mp.MeanSquaredError(), 3, (2,), 4, [3, 2]),
        "makes 2 stages, but n_stages=3",
    ),
    "a misspelt schedule": (lambda: pipeline(schedule="1f1"), "unknown schedule '1f1': did you mean '1f1b'?"),
    "a schedule of other size": (
        lambda: pipeline(schedule=build("gpipe", 2, 4)),
        "is for 2 stages and 4 micro-batches, but n_stages=3",
    ),
    "a schedule with faults": (
        lambda: pipeline(1, 2, mp.Schedule.from_text("F0 F1 B1", 2)),
        "device 0 never does 0B0 (missing)",
    ),
    "an unknown mode of recomputation": (
        lambda: pipeline(recompute="sometimes"),
        "recompute='sometimes' must be one of 'never', 'always', 'except_last', 'sqrt', 'selective'",
    ),
    "recomputing twice": (
        lambda: pipeline(1, 1, mp.Schedule.from_text("F0 R0 B0"), True),
        "recomputes already",
    ),
    "a list for a mode of recomputation": (
        lambda: pipeline(recompute=["always"]),
        "recompute=['always'] must be one of",
    ),
    "text for a limit": (
        lambda: pipeline(memory_limit="8 GB"),
        "memory_limit='8 GB' must be a number, above 0 bytes, such as 8 * 2**30",
    ),
    "a limit that is not a number": (
        lambda: pipeline(memory_limit=float("nan")),
        "memory_limit=nan must be above 0 bytes",
    ),
    "a class for a schedule": (lambda: pipeline(schedule=mp.Schedule), "or Schedule.from_text(...)"),
    "a function that makes no schedule": (
        lambda: pipeline(schedule=lambda K, M: None),
        "returns None for 3 stages and 4 micro-batches: let it return a Schedule",
    ),
    "a function that makes another size": (
        lambda: pipeline(schedule=lambda K, M: build("gpipe", K, M + 1)),
        "is for 3 stages and 5 micro-batches, but n_stages=3 and n_microbatches=4",
    ),
    "an optimizer without an update": (
        lambda: pipeline(optimizer=mp.SGD(1)),
        "no U for an optimizer: hand it to step(optimizer), or put",
    ),
    "training without an update": (
        lambda: pipeline().train([mini_batch()]),
        "has no U: use forward_backward and step(optimizer) for each mini-batch, or put updates into",
    ),
    "no batches": (
        lambda: pipeline(schedule=with_updates(build("gpipe", 3, 4)), optimizer=mp.SGD(1)).train(None),
        "batches must be a list of pairs (X, Y)",
    ),
    "too many costs": (lambda: pipeline(costs=mp.Costs(F=[1, 2])), "F has 2 costs for 3 stages"),
    "a cost of nothing": (lambda: pipeline(costs=mp.Costs(B=0)), "stage 0: B=0 must be above 0 ticks"),
    "an empty batch": (
        lambda: pipeline().forward_backward(np.zeros((4, 0)), np.zeros((3, 0))),
        "a batch of 0 samples",
    ),
    "one axis": (lambda: pipeline().forward_backward(np.zeros(4), np.zeros(3)), "at least two axes"),
    "labels of the wrong length": (
        lambda: pipeline().forward_backward(np.zeros((4, 10)), np.ones((3, 9)) / 3),
        "10 samples but labels of shape (3, 9)",
    ),
    "class numbers for labels": (
        lambda: pipeline().forward_backward(np.zeros((4, 10)), np.zeros(10, int)),
        "one_hot(labels, n_classes=3)",
    ),
    "NaN in the data": (
        lambda: pipeline().forward_backward(np.full((4, 10), np.nan), mini_batch()[1]),
        "X holds NaN or infinity in 40 of 40 places",
    ),
    "NaN in the labels": (
        lambda: pipeline().forward_backward(np.zeros((4, 10)), np.full((3, 10), np.nan)),
        "Y holds NaN or infinity",
    ),
    "words for data": (
        lambda: pipeline().forward_backward(np.full((4, 10), "a"), mini_batch()[1]),
        "pass real numbers",
    ),
    "wrong inputs": (
        lambda: pipeline().forward_backward(np.zeros((5, 10)), mini_batch()[1]),
        "Linear(4, 6) needs A_prev of shape (4, m), got (5, 3)",
    ),
    "wrong outputs": (
        lambda: pipeline().forward_backward(np.zeros((4, 10)), np.ones((2, 10)) / 2),
        "the labels have shape (2, 3), but the predictions have (3, 3)",
    ),
}


@pytest.mark.parametrize("call, words", WRONG.values(), ids=WRONG)
def test_wrong_input_gets_both_numbers_and_the_remedy(call, words):
    with pytest.raises(ValueError) as error:
        call()
    assert words in str(error.value)


@pytest.mark.parametrize("call, words", [
    (lambda: pipeline().gradients, "nothing has run yet"),
    (lambda: pipeline().trace, "nothing has run yet"),
    (lambda: pipeline().tick(), "nothing has run yet"),
    (lambda: pipeline().step(mp.SGD(1)), "nothing has run yet"),
    (lambda: mp.Sequential(LAYERS, None).gradients, "no gradients yet"),
])
def test_asking_too_early_is_answered_with_what_to_call(call, words):
    with pytest.raises(RuntimeError, match=words):
        call()


def test_asking_in_the_middle_of_a_run():
    pipe = pipeline()
    pipe.start(*mini_batch())
    pipe.tick()
    for ask in (lambda: pipe.J, lambda: pipe.gradients):
        with pytest.raises(RuntimeError, match="call tick"):
            ask()


def test_a_run_that_fails_leaves_the_parameters_as_they_were_and_the_pipeline_usable():
    X, Y = mini_batch()
    pipe = pipeline(memory_limit=500)
    before = parameters([layer.copy() for layer in pipe.layers])
    with pytest.raises(mp.MemoryLimitError, match="above its limit of 500"):
        pipe.forward_backward(X, Y)
    with pytest.raises(ValueError):
        pipe.forward_backward(X[:3], Y)
    assert_same(parameters(pipe.layers), before)
    free = pipeline()
    with pytest.raises(ValueError):
        free.forward_backward(X[:3], Y)
    for ask in (lambda: free.J, free.tick):
        with pytest.raises(RuntimeError, match="stopped with an error"):
            ask()
    assert free.forward_backward(X, Y) == pipeline().forward_backward(X, Y)


@pytest.mark.parametrize("junk", ["adam", mp.Adam, None])
def test_what_is_no_optimizer_is_refused_before_anything_changes(junk):
    pipe = mp.Pipeline([mp.Linear(2, 1)], mp.MeanSquaredError(), 1, 1)
    pipe.forward_backward(np.ones((2, 1)), np.ones((1, 1)))
    words = r"optimizer is .*: pass an object, such as SGD\(learning_rate=0.1\)"
    with pytest.raises(ValueError, match=words):
        pipe.step(junk)
    assert pipe.n_steps == 0
    with pytest.raises(ValueError, match=words):
        mp.AsynchronousPipeline([mp.Linear(2, 1)], mp.MeanSquaredError(), 1, junk)
