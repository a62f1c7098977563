"""Pooling and reshaping against loops over single numbers, with ==, on whole numbers and on rational ones."""

from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import minipipe as mp
from minipipe.exact import Rational, rational
from minipipe.layers import pooling

MAX = {1: mp.MaxPool1d, 2: mp.MaxPool2d, 3: mp.MaxPool3d}
AVERAGE = {1: mp.AvgPool1d, 2: mp.AvgPool2d, 3: mp.AvgPool3d}


def windows_of(shape, kernel, stride, padding):
    """[(index of the window, [indices of its numbers, in the order of reading])], one place at a time."""
    found = []
    for window in product(
        *(range((n + 2 * p - k) // s + 1) for n, k, s, p in zip(shape, kernel, stride, padding))
    ):
        places = product(
            *(range(w * s - p, w * s - p + k) for w, k, s, p in zip(window, kernel, stride, padding))
        )
        found.append((window, [place for place in places if all(0 <= i < n for i, n in zip(place, shape))]))
    return found


def pooled_by_loops(kind, A_prev, dA, *geometry):
    """(A, dA_prev) in numbers of Python."""
    channels, *spatial, m = A_prev.shape
    A, dA_prev = np.zeros(dA.shape, object), np.zeros(A_prev.shape, object)
    for c, k, (window, places) in product(range(channels), range(m), windows_of(spatial, *geometry)):
        numbers = [A_prev[(c, *place, k)] for place in places]
        if kind is MAX:
            A[(c, *window, k)] = max(numbers)
            first = places[numbers.index(max(numbers))]  # of equal numbers the first, as in PyTorch
            dA_prev[(c, *first, k)] += dA[(c, *window, k)]
        else:
            size = int(np.prod(geometry[0]))
            A[(c, *window, k)] = sum(numbers) / size
            for place in places:
                dA_prev[(c, *place, k)] += dA[(c, *window, k)] / size
    return A, dA_prev


@st.composite
def geometries(draw):
    """(shape of an image, kernel_size, stride, padding), odd sizes and strides beyond the kernel included."""
    n_axes = draw(st.integers(1, 3))
    axes = []
    for _ in range(n_axes):
        kernel = draw(st.integers(1, 4))
        padding = draw(st.integers(0, kernel // 2))
        length = draw(st.integers(max(1, kernel - 2 * padding), 6 - n_axes + 1))
        axes.append((length, kernel, draw(st.integers(1, 5)), padding))
    return tuple(zip(*axes))


@settings(max_examples=150)
# one window, of padding and two of the three numbers
@pytest.mark.slow
@example(((3,), (3,), (3,), (1,)), 1, 1, False, pooling.CACHE_BYTES, 0)
@given(
    geometries(), st.integers(1, 3), st.integers(1, 3), st.booleans(),
    st.sampled_from([1, pooling.CACHE_BYTES]), st.integers(0, 99),
)
def test_pooling_equals_loops_over_single_numbers(geometry, channels, m, largest, cache_bytes, seed):
    """Whole numbers from -3 to 3, so that many are equal, times 12^3, which every product of three kernel
    sizes up to 4 divides: all averages are whole, and float32 holds them and sums of 64 of them.
    """
    spatial, kernel, stride, padding = geometry
    kind = MAX if largest else AVERAGE
    layer = kind[len(spatial)](kernel, stride, padding)
    rng = np.random.default_rng(seed)
    A_prev = rng.integers(-3, 4, (channels, *spatial, m)) * 12**3
    dA = rng.integers(-3, 4, layer.output_shape(A_prev.shape)) * 12**3
    A, dA_prev = pooled_by_loops(kind, rational(A_prev), rational(dA), kernel, stride, padding)
    for number in (rational, np.float64, np.float32):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pooling, "CACHE_BYTES", cache_bytes)
            got, got_back = layer.forward(number(A_prev)), layer.backward_input(number(dA))
        assert got.dtype == got_back.dtype == number(A_prev).dtype
        assert np.array_equal(got, A) and np.array_equal(got_back, dA_prev)
        assert number is not rational or all(
            type(value) is Rational for part in (got, got_back) for value in part.flat
        )


def test_of_equal_numbers_the_first_of_the_window_has_the_derivative():
    """In the order of reading: of this window's three ones, that of the first row."""
    layer = mp.MaxPool2d(2)
    layer.forward(np.array([[0.0, 1.0], [1.0, 1.0]]).reshape(1, 2, 2, 1))
    assert np.array_equal(layer.backward_input(np.ones((1, 1, 1, 1)))[0, :, :, 0], [[0, 1], [0, 0]])


def test_padding_of_max_pooling_is_below_every_number():
    A_prev = np.array([-5.0, -3.0]).reshape(1, 2, 1)
    for number in (np.array, rational):
        assert np.array_equal(mp.MaxPool1d(2, 1, padding=1).forward(number(A_prev)).ravel(), [-5, -3, -3])
    # padding counts as 0
    assert np.array_equal(mp.AvgPool1d(2, 1, padding=1).forward(A_prev).ravel(), [-2.5, -4, -1.5])


def test_more_offsets_than_one_byte_can_count():
    A_prev = np.zeros((1, 300, 1))
    A_prev[0, 290] = 1
    layer = mp.MaxPool1d(300)
    assert layer.forward(A_prev).item() == 1
    assert np.array_equal(layer.backward_input(np.ones((1, 1, 1))), A_prev)


@pytest.mark.parametrize("shape", [(2, 5, 3), (2, 3, 4, 5), (1, 2, 3, 2, 1)])
def test_global_average_is_the_mean_of_each_channel(shape):
    rng = np.random.default_rng(0)
    A_prev, dA = rational(rng.integers(-9, 9, shape)), rational(rng.integers(-9, 9, (shape[0], shape[-1])))
    layer = mp.GlobalAvgPool()
    A, dA_prev = layer.forward(A_prev), layer.backward_input(dA)
    assert A.shape == dA.shape and dA_prev.shape == shape
    for c, k in product(range(shape[0]), range(shape[-1])):
        numbers = A_prev[c, ..., k].ravel()
        assert A[c, k] == Rational(sum(numbers)) / len(numbers)
        assert np.all(dA_prev[c, ..., k] == dA[c, k] / len(numbers))


def test_reshaping_moves_each_number_to_its_place():
    A_prev = np.arange(24.0).reshape(2, 3, 4)  # two axes of features, 4 samples
    flat, shaped = mp.Flatten().forward(A_prev), mp.Reshape((3, 1, 2)).forward(A_prev)
    for k in range(4):
        assert np.array_equal(flat[:, k], A_prev[..., k].ravel())
        assert np.array_equal(shaped[..., k], A_prev[..., k].reshape(3, 1, 2))


@pytest.mark.parametrize("number", [np.float32, np.float64, rational])
def test_pad_puts_zeros_around_and_takes_them_off_again(number):
    A_prev = number(np.arange(1, 13).reshape(1, 2, 3, 2))
    layer = mp.Pad([1, (0, 2)])
    A = layer.forward(A_prev)
    expected = np.zeros((1, 4, 5, 2))
    for i, j, k in product(range(2), range(3), range(2)):
        expected[0, i + 1, j, k] = A_prev[0, i, j, k]
    assert A.dtype == A_prev.dtype and np.array_equal(A, expected)
    assert number is not rational or all(type(value) is Rational for value in A.flat)
    assert np.array_equal(layer.backward_input(A + A), A_prev + A_prev)
