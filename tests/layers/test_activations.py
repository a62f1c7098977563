"""Activation functions against other formulas for them, at 0, and far out."""

import math

import numpy as np
import pytest

import minipipe as mp


def gelu(z):
    """By (1 + tanh x)/2 = sigmoid(2x)."""
    return z / (1 + math.exp(-2 * math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))


def exact_gelu(z):
    """By erf instead of erfc."""
    return z * (1 + math.erf(z / math.sqrt(2))) / 2


@pytest.mark.parametrize("layer, g", [
    (mp.ReLU(), lambda z: max(z, 0.0)),
    (mp.Sigmoid(), lambda z: 1 / (1 + math.exp(-z))),
    (mp.Tanh(), math.tanh),
    (mp.LeakyReLU(0.125), lambda z: max(z, z / 8)),
    (mp.GELU(), gelu),
    (mp.GELU(approximate="none"), exact_gelu),
    (mp.SiLU(), lambda z: z / (1 + math.exp(-z))),
    (mp.Softplus(), lambda z: math.log(1 + math.exp(z))),
], ids=lambda value: repr(value) if isinstance(value, mp.Layer) else "")
def test_activations_equal_other_formulas_number_by_number(layer, g):
    """Different but equal formulas: each of at most ten operations is right to 4 units in the last place,
    u = eps/2 times 8. GELU's count twice, since its tanh is multiplied by up to z/2 * c * (1 + 3 k z^2) < 3.
    Their slopes are those of the contract of every layer.
    """
    Z = np.linspace(-3, 3, 12).reshape(3, 4)
    bound = (20 if isinstance(layer, mp.GELU) else 10) * 8 * np.finfo(float).eps / 2
    assert np.all(abs(layer.forward(Z) - np.vectorize(g)(Z)) <= bound)


def test_sigmoid_of_huge_numbers_neither_overflows_nor_loses_its_small_values():
    A = mp.Sigmoid().forward(np.array([[-700.0, -1e6, 1e6]]))
    assert A[0, 0] == math.exp(-700) and A[0, 1] == 0 and A[0, 2] == 1


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_gelu_without_tanh_is_right_to_the_last_digits_even_where_it_is_small(dtype):
    """Z Phi(Z) and its derivative from the rational erf; below -6 from erfc's asymptotic series instead,
    Phi(-x) = phi(x)/x (1 - 1/x^2 + 3/x^4 - ...), whose error is below its first term left out.

    A: Z^2 + 4 roundings of float64, those of the two steps to dtype, and the smallest number that it has.
    """
    Z = np.concatenate([np.linspace(-6, 6, 97), [-12, -9, 40]]).astype(dtype)
    layer = mp.GELU(approximate="none")
    A, slope = layer.forward(Z), layer.backward_input(np.ones_like(Z))
    assert A.dtype == slope.dtype == dtype
    u, u64, least = (float(x) for x in (
        np.finfo(dtype).eps / 2, np.finfo(float).eps / 2, np.finfo(dtype).smallest_subnormal,
    ))
    for z, a, s in zip(Z.tolist(), A.tolist(), slope.tolist()):
        density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
        if z < -6:
            terms = [(-1) ** k * math.prod(range(1, 2 * k, 2)) / z ** (2 * k) for k in range(15)]
            share, error = -density / z * math.fsum(terms), abs(density / z * terms[-1])
        else:
            exact = mp.exact.Rational(z) * mp.exact.Rational(math.sqrt(0.5))
            share, error = float((1 + exact.erf()) / 2), 2**-64
        assert abs(a - z * share) <= abs(z) * (((z * z + 5) * 2 * u64 + 2 * u) * share + error + least)
        of_slope = (2 + 2 * z * z) * 4 * u * (share + abs(z) * density)
        assert abs(s - share - z * density) <= of_slope + error + (2 + abs(z)) * least


def test_softmax_equals_loops_over_single_numbers():
    """Three operations of error 8u, sums of 3 numbers: 40u covers both sides."""
    Z = np.random.default_rng(0).standard_normal((3, 4))
    A = mp.Softmax().forward(Z)
    for j, k in np.ndindex(3, 4):
        expected = math.exp(Z[j, k]) / sum(math.exp(z) for z in Z[:, k])
        assert abs(A[j, k] - expected) <= 20 * np.finfo(float).eps


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("layer, at_zero, low, high", [
    (mp.ReLU(), 0, 0, 1), (mp.LeakyReLU(0.25), 0.25, 0.25, 1), (mp.GELU(), 0.5, 0, 1),
    (mp.GELU("none"), 0.5, 0, 1), (mp.SiLU(), 0.5, 0, 1), (mp.Softplus(), 0.5, 0, 1),
], ids=repr)
def test_slopes_at_zero_and_far_out_are_those_of_the_docstrings(layer, at_zero, low, high, dtype):
    """Far out each of these is a straight line through 0, with slope `low` on the left and `high` on
    the right, and nothing overflows.
    """
    layer.forward(np.zeros((1, 1), dtype))
    assert layer.backward_input(np.ones((1, 1), dtype)).item() == at_zero
    for huge in (dtype(100), np.sqrt(np.finfo(dtype).max) * 2, np.finfo(dtype).max / 4):
        Z, slopes = np.array([[-huge, huge]], dtype), np.array([[low, high]], dtype)
        tiny = 1e-40  # e^-100 is not yet 0
        assert np.all(abs(layer.forward(Z) - Z * slopes) <= tiny)
        assert np.all(abs(layer.backward_input(np.ones_like(Z)) - slopes) <= tiny)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_softmax_of_huge_numbers_does_not_overflow(dtype):
    huge = np.finfo(dtype).max / 4
    assert np.array_equal(mp.Softmax().forward(np.array([[huge], [-huge], [0]], dtype)), [[1], [0], [0]])
