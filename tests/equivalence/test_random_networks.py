"""The heart of minipipe: micro-batch gradients add up to the full batch's, and `==` decides.

Each test draws a network, m, a cut, M (ragged micro-batches included), copies, an order and what else
`cases.pipelines` may choose, and compares J and every dW and db, entry by entry. The strengths are those of
the README.
"""

import numpy as np
import pytest
from cases import (
    BOUNDED, BOUNDED_LOSSES, SEQUENCES, case, cases, cases_with_skips, eighths, neighbours_of, networks_with,
    normalised_images, pipelines, sequences,
)
from compared import (
    assert_equals_full_batch, assert_equals_same_groups, assert_same, assert_same_bits, parameters,
)
from layers.every_layer import ALONE, LAYERS, TOKENS, ready, tree
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import one_in

import minipipe as mp
from minipipe.arrays import leaves
from minipipe.layers.layer import Layer
from minipipe.layers.through import backward_input_through, forward_through
from minipipe.verification import share_of_bound

DTYPES = st.sampled_from([np.float32, np.float64])
NETWORKS = {  # what is drawn in rational numbers and in floats, and how often
    "layers in a row": (cases(), 120, cases(), 120),
    "skips and ties": (cases_with_skips(), 80, cases_with_skips(), 80),
    "attention": (sequences(), 12, sequences(9), 30),
    "batch norm": (normalised_images(), 8, normalised_images(9), 40),
}


def equals_its_reference(data, case):
    """In rational numbers: the full batch, or with batch norm the sum over the micro-batches."""
    pipe, X, Y = data.draw(pipelines(case, eighths, nothing_rounds=True))
    (assert_equals_full_batch if case.least == 1 else assert_equals_same_groups)(pipe, X, Y)


def has_the_bits_of_one_device(data, case):
    """On any floats: those of the same micro-batches, or with a grain of `Sequential`."""
    assert_same_bits(*data.draw(pipelines(case, data.draw(DTYPES), nothing_rounds=False)))


@pytest.mark.parametrize("kind", NETWORKS)
def test_theorem_equal_to_the_full_batch_in_rational_arithmetic(kind):
    """Every network, split, order and option: no number is off by anything."""
    networks, n, _, _ = NETWORKS[kind]
    settings(max_examples=n)(given(st.data(), networks)(equals_its_reference))()


@pytest.mark.parametrize("kind", NETWORKS)
def test_equal_bits_in_all_orders_cuts_and_copies_on_any_floats(kind):
    _, _, networks, n = NETWORKS[kind]
    settings(max_examples=n)(given(st.data(), networks)(has_the_bits_of_one_device))()


@settings(max_examples=80)
@given(data=st.data(), case=cases(representable=True), dtype=DTYPES)
def test_equal_bits_to_one_full_width_batch_where_floats_need_no_rounding(data, case, dtype):
    assert_equals_full_batch(*data.draw(pipelines(case, dtype, nothing_rounds=True)))


@settings(max_examples=80)
@given(data=st.data(), case=cases(activations=BOUNDED, losses=BOUNDED_LOSSES), dtype=DTYPES)
def test_within_the_derived_rounding_bound_of_the_full_batch_on_any_floats(data, case, dtype):
    assert share_of_bound(*data.draw(pipelines(case, dtype, nothing_rounds=True))) <= 1


STRENGTHS = {"rational": equals_its_reference, "floats": has_the_bits_of_one_device}


@pytest.mark.parametrize("name, strength", one_in(2, ALONE, STRENGTHS))
@settings(max_examples=3)
@given(data=st.data())
def test_every_layer_between_others(name, strength, data):
    """Or between two products, which round a view with gaps in another way than a copy of it."""
    STRENGTHS[strength](data, data.draw(data.draw(st.sampled_from([networks_with, neighbours_of]))(name)))


@pytest.mark.slow
@settings(max_examples=60)
@given(data=st.data())
def test_equal_bits_on_real_digits_of_real_size(data):
    """Matrix products long enough for every path of BLAS."""
    X, Y = (part[:, :50] for part in mp.datasets.digits().train)
    layers = [mp.Linear(64, 96), mp.ReLU(), mp.Linear(96, 64), mp.Tanh(), mp.Linear(64, 10)]
    has_the_bits_of_one_device(data, case(layers, mp.SoftmaxCrossEntropy(), X, Y))


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
    backward_input_through(layers, gradients, skips, True, lambda index, half: None)
    met = [array for spy in below + above for array in leaves(spy.met)]
    assert len(met) == 2 * len(below + above)
    assert all(array.flags.c_contiguous for array in met)


def test_shares_that_attention_makes_again_are_not_kept():
    tokens, Y = np.zeros((2, 4), int), mp.one_hot(np.zeros((2, 4), int), 5)
    for layers in SEQUENCES:
        pipe = mp.Pipeline(layers, mp.SoftmaxCrossEntropy(), 2, 2, recompute="selective")
        assert any(part.recomputes for stage in pipe.stages for part in stage.parts)
        assert_same_bits(pipe, tokens, Y)


def test_shares_that_attention_makes_again_have_the_same_bits_in_a_stream():
    """PipeDream, where the weights of Q and K have changed since their forward."""
    layers = [mp.Embedding(5, 4), mp.TransformerBlock(4, 2, 3, causal=True), mp.Linear(4, 5)]
    rng, found = np.random.default_rng(0), []
    batches = [
        (rng.integers(0, 5, (2, m)), mp.one_hot(rng.integers(0, 5, (2, m)), 5)) for m in (3, 2, 4, 3)
    ]
    for mode in ("never", "selective"):
        pipe = mp.Pipeline(layers, mp.SoftmaxCrossEntropy(), 3, 1, "pipedream", mode)
        found.append((pipe.train(batches, mp.SGD(0.1)), list(parameters(pipe.layers).values())))
    assert_same(*found)
