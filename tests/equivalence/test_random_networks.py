"""The heart of minipipe: micro-batch gradients add up to the full batch's, and `==` decides.

Each test draws a network, m, a cut, M (ragged micro-batches included), copies, an order and what else
`cases.pipelines` may choose, and compares J and every dW and db, entry by entry. The strengths are those of
the README.
"""

import numpy as np
import pytest
from cases import (
    case, cases, cases_with_skips, eighths, neighbours_of, networks_with, normalised_images, pipelines,
    sequences,
)
from compared import (
    assert_equals_full_batch, assert_equals_same_groups, assert_same, assert_same_bits, parameters,
)
from layers.every_layer import ALONE, LAYERS, TOKENS, ready, tree
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import a_quarter_of_the_examples, one_in

import minipipe as mp
from minipipe.arrays import leaves
from minipipe.layers.layer import Layer
from minipipe.layers.through import backward_input_through, forward_through

DTYPES = st.sampled_from([np.float32, np.float64])


def equals_its_reference(data, case):
    """In rational numbers: the full batch, or with batch norm the sum over the micro-batches."""
    pipe, X, Y = data.draw(pipelines(case, eighths, nothing_rounds=True))
    (assert_equals_full_batch if case.least == 1 else assert_equals_same_groups)(pipe, X, Y)


def has_the_bits_of_one_device(data, case):
    """On any floats: those of the same micro-batches, or with a grain of `Sequential`."""
    assert_same_bits(*data.draw(pipelines(case, data.draw(DTYPES), nothing_rounds=False)))


def equals_the_full_batch_in_floats(data, case):
    assert_equals_full_batch(*data.draw(pipelines(case, data.draw(DTYPES), nothing_rounds=True)))


STRENGTHS = {"rational": equals_its_reference, "floats": has_the_bits_of_one_device}
CLAIMS = {  # networks, the strength in which a pipeline equals its reference, how many are drawn in CI
    "rational, layers in a row": (cases(), equals_its_reference, 120),
    "rational, skips and ties": (cases_with_skips(), equals_its_reference, 80),
    "rational, attention": (sequences(), equals_its_reference, 12),
    "rational, batch norm": (normalised_images(), equals_its_reference, 8),
    "bits of one device, layers in a row": (cases(), has_the_bits_of_one_device, 120),
    "bits of one device, skips and ties": (cases_with_skips(), has_the_bits_of_one_device, 80),
    "bits of one device, attention": (sequences(9), has_the_bits_of_one_device, 30),
    "bits of one device, batch norm": (normalised_images(9), has_the_bits_of_one_device, 40),
    "no rounding": (cases(representable=True), equals_the_full_batch_in_floats, 80),
}


@a_quarter_of_the_examples
@pytest.mark.parametrize("claim", CLAIMS)
def test_any_network_in_any_pipeline_equals_its_reference(claim, share):
    """Every network, split, order and option; in fractions, no number is off by anything."""
    networks, strength, n = CLAIMS[claim]
    settings(max_examples=max(n // share, 4))(given(st.data(), networks)(strength))()


@pytest.mark.parametrize("name, strength", one_in(6, ALONE, STRENGTHS))
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


def arrays_met_by_neighbours(name):
    """Return the arrays that a layer hands on forward and backward, as its neighbours get them."""
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
    assert len(met) == 2 * len(below + above), name
    return met


def test_what_a_layer_hands_on_lies_in_one_piece():
    """A user's layer, too: as it would arrive behind a cut."""
    with_gaps = [
        name for name in LAYERS
        if not all(array.flags.c_contiguous for array in arrays_met_by_neighbours(name))
    ]
    assert with_gaps == []


def test_selective_recomputation_has_the_same_bits_in_a_stream():
    """PipeDream, where the weights of Q and K have changed since their forward."""
    layers = [mp.Embedding(5, 4), mp.TransformerBlock(4, 2, 3, causal=True), mp.Linear(4, 5)]
    rng, found = np.random.default_rng(0), []
    batches = [
        (rng.integers(0, 5, (2, m)), mp.one_hot(rng.integers(0, 5, (2, m)), 5)) for m in (3, 2, 4, 3)
    ]
    for mode in ("never", "selective"):
        pipe = mp.Pipeline(layers, mp.SoftmaxCrossEntropy(), 3, 1, schedule="pipedream", recompute=mode)
        assert any(part.recomputes for stage in pipe.stages for part in stage.parts) == (mode == "selective")
        found.append((pipe.train(batches, mp.SGD(0.1)), list(parameters(pipe.layers).values())))
    assert_same(*found)
