"""The heart of minipipe: micro-batch gradients add up to the full batch's, and `==` decides.

Each test draws a network, m, a cut, M (ragged micro-batches included), copies, an order and what else
`cases.pipelines` may choose, and compares J and every dW and db, entry by entry. The strengths are those of
the README.
"""

import numpy as np
import pytest
from cases import (
    cases, cases_with_skips, eighths, neighbours_of, networks_with, normalised_images, pipelines,
    sequences,
)
from compared import (
    assert_equals_full_batch, assert_equals_same_groups, assert_same_bits,
)
from layers.every_layer import ALONE
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import a_quarter_of_the_examples, one_in


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
