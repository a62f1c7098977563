"""The heart of minipipe: micro-batch gradients add up to the full batch's, and `==` decides.

Each test draws networks, m, partitions, M (ragged micro-batches included), schedules and recomputation, and
compares J and every dW and db, entry by entry. The strengths are those of the README; the one with a grain is
in `test_grain.py`.
"""


import numpy as np
import pytest
from cases import (
    BOUNDED,
    BOUNDED_LOSSES,
    cases,
    cases_with_skips,
    cuts,
    eighths,
    every_setting,
    neighbours_of,
    networks_with,
    valid_schedules,
)
from compared import (
    assert_all_same, assert_equals_full_batch, assert_equals_same_groups, assert_same, assert_same_bits,
)
from layers.every_layer import ALONE, LAYERS, TOKENS, ready, tree
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import one_in

import minipipe as mp
from minipipe.functions import leaves
from minipipe.layers.layer import Layer
from minipipe.layers.recomputing import can_recompute
from minipipe.layers.through import alone, backward_input_program, forward_through
from minipipe.schedules import RECOMPUTE
from minipipe.verification import equals_full_batch, equals_same_groups, share_of_bound


@settings(max_examples=80)
@given(cases())
def test_theorem_equal_to_the_full_batch_in_rational_arithmetic(case):
    """Every layer, loss, split, schedule, recomputed or not: no number is off by anything."""
    layers, X, Y = case.exact()
    assert_equals_full_batch(case.pipeline(layers), X, Y)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@settings(max_examples=80)
@given(case=cases(representable=True))
def test_equal_bits_to_one_full_width_batch_where_floats_need_no_rounding(case, dtype):
    layers, X, Y = case.whole(dtype)
    assert_equals_full_batch(case.pipeline(layers), X, Y)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@settings(max_examples=100)
@given(case=cases())
def test_equal_bits_in_all_schedules_partitions_and_recompute_modes_on_any_floats(case, dtype):
    layers, X, Y = case.random(dtype)
    assert_same_bits(case.pipeline(layers), X, Y)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@settings(max_examples=80)
@given(case=cases(activations=BOUNDED, losses=BOUNDED_LOSSES))
def test_within_the_derived_rounding_bound_of_the_full_batch_on_any_floats(case, dtype):
    layers, X, Y = case.random(dtype)
    assert share_of_bound(case.pipeline(layers), X, Y) <= 1


@settings(max_examples=60)
@given(st.data(), cases())
def test_any_schedule_that_can_run_gives_the_same_bits(data, case):
    """Not only those with a name: whatever valid order a learner writes."""
    layers, X, Y = case.random(np.float64)
    schedule = data.draw(valid_schedules(len(case.partition), case.n_microbatches))
    assert schedule.faults() == []
    assert_same_bits(case._replace(schedule=schedule).pipeline(layers), X, Y)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_bits_on_real_digits_of_real_size(dtype):
    """Matrix products long enough for every path of BLAS; m = 50 in 8 ragged micro-batches."""
    X, Y = (part[:, :50].astype(dtype) for part in mp.datasets.digits().train)
    layers = [mp.Linear(64, 96), mp.ReLU(), mp.Linear(96, 64), mp.Tanh(), mp.Linear(64, 10)]
    results = []
    for partition, schedule, recompute in every_setting(len(layers), 8):
        pipe = mp.Pipeline(
            layers, mp.SoftmaxCrossEntropy(), len(partition), 8, schedule, recompute, dtype=dtype,
            partition=partition,
        )
        results.append(J_and_gradients(pipe, X, Y))
    assert_all_same(results)


def J_and_gradients(model, X, Y):
    """[J, dW, db, dW, db, ...] of a mini-batch."""
    return [np.asarray(model.forward_backward(X, Y)), *leaves(model.gradients)]


@pytest.mark.parametrize("name", ALONE)
@settings(max_examples=3)
@given(data=st.data())
def test_theorem_every_layer_between_others_in_any_cut(name, data):
    """In rational numbers, equal to the full batch; with BatchNorm, to the sum over the micro-batches."""
    drawn = data.draw(networks_with(name))
    layers, X, Y = drawn.converted(eighths)
    pipe = drawn_pipeline(data, layers, mp.MeanSquaredError(), drawn.n_microbatches)
    equal_to = equals_same_groups if drawn.has_batch_norm else equals_full_batch
    assert equal_to(pipe, X, Y)


@pytest.mark.parametrize("name", one_in(3, ALONE))
@settings(max_examples=4)
@given(data=st.data(), dtype=st.sampled_from([np.float32, np.float64]))
def test_every_layer_between_others_has_the_same_bits_in_any_cut(name, data, dtype):
    drawn = data.draw(networks_with(name))
    layers, X, Y = drawn.converted(dtype)
    assert_same_bits(drawn_pipeline(data, layers, mp.MeanSquaredError(), drawn.n_microbatches), X, Y)


@pytest.mark.parametrize("name", one_in(3, ALONE))
@settings(max_examples=5)
@given(data=st.data(), dtype=st.sampled_from([np.float32, np.float64]))
def test_every_layer_next_to_every_cut_has_the_same_bits(name, data, dtype):
    """Between two products, which round a view with gaps in another way than a copy of it."""
    drawn = data.draw(neighbours_of(name))
    layers, X, Y = drawn.converted(dtype)
    assert_same_bits(drawn_pipeline(data, layers, mp.MeanSquaredError(), drawn.n_microbatches), X, Y)


class WithGaps(Layer):
    """Hands on what it gets, as a view of an array of twice the size; `met` has what it got."""

    def __init__(self):
        self.met = []

    def forward(self, A_prev):
        self.met.append(A_prev)
        return tree(lambda A: A.repeat(2, axis=-1)[..., ::2], A_prev)

    backward_input = forward


@pytest.mark.parametrize("name", LAYERS)
def test_what_a_layer_hands_on_lies_in_one_piece_forward_and_backward(name):
    """A user's layer, too: as it would arrive behind a cut."""
    layer, A_prev, dZ = ready(name)
    below = [WithGaps() for _ in range(0 if name in TOKENS else 2)]
    above = [WithGaps() for _ in range(2)]
    layers, skips = [*below, layer, *above], {}
    if layer.join:
        A_prev, skips["skip"] = A_prev
    forward_through(layers, A_prev, skips)
    if layer.fork:
        dZ, skips["skip"] = dZ
    gradients = tree(lambda dZ: dZ.repeat(2, axis=-1)[..., ::2], dZ)
    alone(backward_input_program(layers, gradients, skips, True, lambda index, half: None))
    met = [array for spy in below + above for array in leaves(spy.met)]
    assert len(met) == 2 * len(below + above)
    assert all(array.flags.c_contiguous for array in met)


def drawn_pipeline(data, layers, loss, most):
    """A pipeline with a cut, M up to `most`, a schedule and recomputation drawn."""
    modes = RECOMPUTE if not can_recompute(layers) else (*RECOMPUTE, "selective")
    partition, n_microbatches, schedule, recompute = data.draw(cuts(len(layers), most, tuple(modes)))
    return mp.Pipeline(layers, loss, len(partition), n_microbatches, schedule, recompute, partition=partition)


IMAGES = {
    "max": [
        mp.Linear(2, 30), mp.Reshape((2, 3, 5)), mp.MaxPool2d(2, stride=1, padding=1), mp.LeakyReLU(),
        mp.Flatten(), mp.Linear(48, 2),
    ],
    "average": [
        mp.Linear(2, 12), mp.Reshape((1, 4, 3)), mp.Pad([1, (0, 2)]), mp.AvgPool2d((3, 2)), mp.SiLU(),
        mp.MaxPool2d((1, 2)), mp.GlobalAvgPool(), mp.Linear(1, 2),
    ],
    "sequence": [
        mp.Linear(2, 10), mp.Reshape((2, 5)), mp.Softmax(), mp.AvgPool1d(2), mp.Flatten(), mp.Linear(4, 2),
    ],
    "volume": [
        mp.Linear(2, 16), mp.Reshape((1, 4, 2, 2)), mp.MaxPool3d(2), mp.GELU(), mp.AvgPool3d((2, 1, 1)),
        mp.Flatten(),
    ],
}


@pytest.mark.parametrize("number, name", one_in(5, [eighths, np.float32], IMAGES))
def test_images_pass_through_every_partition_schedule_and_recomputation(number, name):
    """Equal to the full batch in rational numbers, equal bits in floats; 5 samples in 3 ragged micro-batches.
    """
    rng = np.random.default_rng(0)
    layers = mp.Sequential(IMAGES[name], None).layers
    n_last = layers[-1].n if layers[-1].W is not None else 1
    X, Y = rng.standard_normal((2, 5)), rng.integers(0, 2, (n_last, 5))
    twins, loss = [layer.copy(number) for layer in layers], mp.MeanSquaredError()
    one_device = mp.Sequential(twins, loss) if number is eighths else mp.Pipeline(twins, loss, 1, 3)
    reference = J_and_gradients(one_device, number(X), number(Y))
    for partition, schedule, recompute in every_setting(len(layers), 3):
        pipe = mp.Pipeline(twins, loss, len(partition), 3, schedule, recompute, partition=partition)
        assert_same(J_and_gradients(pipe, number(X), number(Y)), reference)


@settings(max_examples=60)
@given(cases_with_skips())
def test_theorem_skip_connections_and_ties_may_cross_any_cut(case):
    """In rational numbers; several of both kinds, nested and overlapping, with dropout and layers made
    of layers between.
    """
    layers, X, Y = case.exact()
    assert_equals_full_batch(case.pipeline(layers), X, Y)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@settings(max_examples=60)
@given(case=cases_with_skips())
def test_equal_bits_wherever_skip_connections_and_ties_are_cut(case, dtype):
    layers, X, Y = case.random(dtype)
    assert_same_bits(case.pipeline(layers), X, Y)


SEQUENCES = {  # tokens in, a column of five logits for each place out
    "transformer": [
        mp.Embedding(5, 4, tie="words"), mp.PositionalEmbedding(4, 3), mp.Dropout(0.25),
        mp.TransformerBlock(4, 2, 3, causal=True, dropout=0.5), mp.LayerNorm(4), mp.Linear(4, 5, tie="words"),
    ],
    "attention": [
        mp.Embedding(5, 2), mp.Fork("past"), mp.MultiHeadAttention(2, 1), mp.Join("past"), mp.Fork("far"),
        mp.Linear(2, 2), mp.Tanh(), mp.Join("far", "concat"), mp.GroupNorm(2, 4), mp.Linear(4, 5),
    ],
}


def tokens(m):
    rng = np.random.default_rng(m)
    return rng.integers(0, 5, (2, m)), mp.one_hot(rng.integers(0, 5, 2 * m), 5).reshape(5, 2, m)


@pytest.mark.parametrize("name", SEQUENCES)
@settings(max_examples=6)
@given(data=st.data(), m=st.integers(2, 3))
def test_theorem_attention_in_any_cut_is_equal_to_the_full_batch(name, data, m):
    """In rational numbers, dropout, tied words and skip connections included; sequences of 2 places."""
    X, Y = tokens(m)
    layers = [layer.copy(eighths) for layer in mp.Sequential(SEQUENCES[name], None).layers]
    assert_equals_full_batch(
        drawn_pipeline(data, layers, mp.SoftmaxCrossEntropy(), m), mp.exact.rational(X), mp.exact.rational(Y)
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", SEQUENCES)
@settings(max_examples=15)
@given(data=st.data(), m=st.integers(1, 9))
def test_attention_has_the_same_bits_in_any_cut(name, dtype, data, m):
    X, Y = tokens(m)
    layers = mp.Sequential(SEQUENCES[name], None, dtype=dtype).layers
    assert_same_bits(drawn_pipeline(data, layers, mp.SoftmaxCrossEntropy(), m), X, Y.astype(dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", SEQUENCES)
def test_shares_that_attention_makes_again_have_the_same_bits_in_every_schedule(name, dtype):
    """Selective recomputation, against runs that keep all; 5 samples in 3 ragged micro-batches."""
    X, Y = tokens(5)
    loss, layers = mp.SoftmaxCrossEntropy(), mp.Sequential(SEQUENCES[name], None, dtype=dtype).layers
    reference = J_and_gradients(mp.Pipeline(layers, loss, 1, 3), X, Y.astype(dtype))
    for partition, schedule, _ in list(every_setting(len(layers), 3))[::2]:
        pipe = mp.Pipeline(layers, loss, len(partition), 3, schedule, "selective", partition=partition)
        assert any(part.recomputes for stage in pipe.stages for part in stage.parts)
        assert_same(J_and_gradients(pipe, X, Y.astype(dtype)), reference)


def test_shares_that_attention_makes_again_have_the_same_bits_in_a_stream():
    """PipeDream, where the weights of Q and K have changed since their forward."""
    layers = [mp.Embedding(5, 4), mp.TransformerBlock(4, 2, 3, causal=True), mp.Linear(4, 5)]
    weights = []
    for mode in ("never", "selective"):
        pipe = mp.Pipeline(layers, mp.SoftmaxCrossEntropy(), 3, 1, "pipedream", mode, optimizer=mp.SGD(0.1))
        costs = pipe.train([tokens(m) for m in (3, 2, 4, 3)])
        weights.append([np.asarray(costs), *leaves([(layer.W, layer.b) for layer in pipe.layers])])
    assert_same(*weights)


NORMALISED = [
    mp.Conv2d(1, 2, 2),
    mp.BatchNorm(2),
    mp.ReLU(),
    mp.Fork("skip"),
    mp.Dropout(0.25),
    mp.Residual(mp.Pad([1, 0]), mp.Conv2d(2, 2, (3, 1)), mp.BatchNorm(2)),
    mp.Join("skip", "concat"),
    mp.GroupNorm(2, 4),
    mp.GlobalAvgPool(),
    mp.Concat([mp.Linear(4, 2), mp.BatchNorm(2)], []),
    mp.Linear(6, 2),
]


def images(m):
    rng = np.random.default_rng(m)
    return rng.standard_normal((1, 3, 3, m)), rng.standard_normal((2, m))


@settings(max_examples=8)
@given(st.data(), st.integers(2, 5))
def test_theorem_with_batch_norm_equal_to_the_sum_over_the_micro_batches(data, m):
    """Each micro-batch by itself in a plain loop: in rational numbers, for any cut; at least 2 samples
    in each.
    """
    X, Y = images(m)
    layers = [layer.copy(eighths) for layer in mp.Sequential(NORMALISED, None).layers]
    assert_equals_same_groups(
        drawn_pipeline(data, layers, mp.MeanSquaredError(), m // 2), eighths(X), eighths(Y)
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@settings(max_examples=40)
@given(data=st.data(), m=st.integers(2, 9))
def test_batch_norm_has_the_same_bits_in_any_cut(dtype, data, m):
    X, Y = images(m)
    layers = mp.Sequential(NORMALISED, None, dtype=dtype).layers
    assert_same_bits(
        drawn_pipeline(data, layers, mp.MeanSquaredError(), m // 2), X.astype(dtype), Y.astype(dtype)
    )


def test_training_stays_equal_step_after_step():
    """In rational arithmetic, four steps of two networks that were cut differently end in the same weights.
    """
    rng = np.random.default_rng(0)
    exact = mp.exact.rational
    layers = [layer.copy(lambda p: exact(np.round(4 * p) / 4)) for layer in
              mp.Sequential([mp.Linear(2, 2), mp.ReLU(), mp.Linear(2, 1)], None).layers]
    whole = mp.Sequential(layers, mp.MeanSquaredError())
    pipe = mp.Pipeline(layers, mp.MeanSquaredError(), 3, 2, "1f1b", recompute=True)
    for _ in range(4):
        X, Y = exact(rng.integers(-2, 3, (2, 5))), exact(rng.integers(-2, 3, (1, 5)))
        for model in (whole, pipe):
            model.forward_backward(X, Y)
            model.step(mp.SGD(learning_rate=mp.exact.Rational(1, 8)))
    for left, right in zip(whole.layers, pipe.layers):
        assert left.W is None or (np.array_equal(left.W, right.W) and np.array_equal(left.b, right.b))
