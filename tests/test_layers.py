"""Every layer against central differences, against loops over single numbers, and against its contract."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minipipe as mp

LAYERS = {
    "Linear": mp.Linear(4, 3), "Linear of one unit": mp.Linear(1, 1), "ReLU": mp.ReLU(), "Sigmoid": mp.Sigmoid(), "Tanh": mp.Tanh(),
    "LeakyReLU": mp.LeakyReLU(), "GELU": mp.GELU(), "SiLU": mp.SiLU(), "Softplus": mp.Softplus(), "Softmax": mp.Softmax(),
    "Flatten": mp.Flatten(), "Reshape": mp.Reshape((7, 2, 5)), "Pad": mp.Pad([(0, 1), 2]),
    "MaxPool1d": mp.MaxPool1d(3), "MaxPool2d": mp.MaxPool2d(2), "MaxPool2d, overlapping": mp.MaxPool2d(3, stride=2, padding=1),
    "MaxPool3d": mp.MaxPool3d((2, 1, 3), stride=1), "AvgPool1d": mp.AvgPool1d(3), "AvgPool2d": mp.AvgPool2d(2),
    "AvgPool2d, overlapping": mp.AvgPool2d(3, stride=2, padding=1), "AvgPool3d": mp.AvgPool3d((2, 1, 3), stride=1),
    "GlobalAvgPool": mp.GlobalAvgPool(),
}
SHAPES = {  # of a sample, where it is not one axis of features
    mp.Flatten: (2, 5, 7), mp.Reshape: (2, 5, 7), mp.Pad: (2, 5, 7), mp.GlobalAvgPool: (2, 5, 7),
    mp.MaxPool1d: (2, 7), mp.MaxPool2d: (2, 5, 7), mp.MaxPool3d: (2, 3, 4, 5),
    mp.AvgPool1d: (2, 7), mp.AvgPool2d: (2, 5, 7), mp.AvgPool3d: (2, 3, 4, 5),
}
every_layer = pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)


def ready(layer, m=5, dtype=np.float64, seed=0):
    """(a copy of `layer` with parameters, A_prev, dZ)"""
    rng = np.random.default_rng(seed)
    layer = layer.copy()
    layer.initialize(rng, dtype)
    if layer.b is not None:
        layer.b = rng.standard_normal(layer.b.shape).astype(dtype)
    shape = SHAPES.get(type(layer), (getattr(layer, "n_prev", 4),))
    A_prev = rng.standard_normal((*shape, m)).astype(dtype)
    return layer, A_prev, rng.standard_normal(layer.forward(A_prev).shape).astype(dtype)


@every_layer
@pytest.mark.parametrize("m", [1, 5])
def test_backward_equals_central_differences(layer, m):
    """The slope of J = sum(R * A) along a random direction D, by (J(+h) - J(-h)) / 2h, in float64.

    The difference quotient is off by h^2/6 times the third derivative along D, plus rounding u J / h. With
    h = 1e-5 and numbers of size up to about 30 both stay below 1e-7.
    """
    layer, A_prev, R = ready(layer, m)
    dA_prev, dW, db = layer.backward(R)
    rng, h = np.random.default_rng(1), 1e-5
    for name, derivative in [("A_prev", dA_prev), ("W", dW), ("b", db)]:
        if derivative is None:
            continue
        D = rng.standard_normal(derivative.shape)

        def J(step):
            twin, inputs = layer.copy(), A_prev
            if name == "A_prev":
                inputs = A_prev + step * D
            else:
                setattr(twin, name, getattr(layer, name) + step * D)
            return (R * twin.forward(inputs)).sum()

        assert abs((J(h) - J(-h)) / (2 * h) - (derivative * D).sum()) < 1e-7


def test_linear_equals_loops_over_single_numbers():
    """On whole numbers, where no operation rounds, so that == is right."""
    rng = np.random.default_rng(0)
    W, b, A, dZ = (rng.integers(-4, 5, shape).astype(float) for shape in [(2, 3), (2, 1), (3, 4), (2, 4)])
    layer = mp.Linear(3, 2, W=W, b=b)
    Z = [[sum(W[i, j] * A[j, k] for j in range(3)) + b[i, 0] for k in range(4)] for i in range(2)]
    assert np.array_equal(layer.forward(A), Z)
    dA, dW, db = layer.backward(dZ)
    assert np.array_equal(dA, [[sum(W[i, j] * dZ[i, k] for i in range(2)) for k in range(4)] for j in range(3)])
    assert np.array_equal(dW, [[sum(dZ[i, k] * A[j, k] for k in range(4)) for j in range(3)] for i in range(2)])
    assert np.array_equal(db, [[sum(dZ[i, k] for k in range(4))] for i in range(2)])


def gelu(z):
    """By (1 + tanh x)/2 = sigmoid(2x)."""
    return z / (1 + math.exp(-2 * math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))


def slope_of_gelu(z):
    e = math.exp(-2 * math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))
    return (1 + e + z * e * 2 * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * z**2)) / (1 + e) ** 2


@pytest.mark.parametrize("layer, g, slope", [
    (mp.ReLU(), lambda z: max(z, 0.0), lambda z: float(z > 0)),
    (mp.Sigmoid(), lambda z: 1 / (1 + math.exp(-z)), lambda z: math.exp(-z) / (1 + math.exp(-z)) ** 2),
    (mp.Tanh(), math.tanh, lambda z: 1 / math.cosh(z) ** 2),
    (mp.LeakyReLU(0.125), lambda z: max(z, z / 8), lambda z: 1.0 if z > 0 else 0.125),
    (mp.GELU(), gelu, slope_of_gelu),
    (mp.SiLU(), lambda z: z / (1 + math.exp(-z)), lambda z: (1 + math.exp(-z) * (1 + z)) / (1 + math.exp(-z)) ** 2),
    (mp.Softplus(), lambda z: math.log(1 + math.exp(z)), lambda z: 1 / (1 + math.exp(-z))),
], ids=lambda value: value if isinstance(value, mp.Layer) else "")
def test_activations_equal_other_formulas_number_by_number(layer, g, slope):
    """Different but equal formulas: each of at most ten operations is right to 4 units in the last place, u = eps/2
    times 8. GELU's count twice, since its tanh is multiplied by up to z/2 * c * (1 + 3 k z^2) < 3."""
    Z = np.linspace(-3, 3, 12).reshape(3, 4)
    bound = (20 if isinstance(layer, mp.GELU) else 10) * 8 * np.finfo(float).eps / 2
    assert np.all(abs(layer.forward(Z) - np.vectorize(g)(Z)) <= bound)
    dZ = layer.backward_input(np.ones_like(Z))
    assert np.all(abs(dZ - np.vectorize(slope)(Z)) <= bound)


def test_relu_has_slope_zero_at_zero():
    layer = mp.ReLU()
    layer.forward(np.array([[-1.0, 0.0, 1.0]]))
    assert np.array_equal(layer.backward_input(np.ones((1, 3))), [[0, 0, 1]])


def test_sigmoid_of_huge_numbers_neither_overflows_nor_loses_its_small_values():
    A = mp.Sigmoid().forward(np.array([[-700.0, -1e6, 1e6]]))
    assert A[0, 0] == math.exp(-700) and A[0, 1] == 0 and A[0, 2] == 1


@pytest.mark.parametrize("layer, slope", [(mp.ReLU(), 0), (mp.LeakyReLU(0.25), 0.25), (mp.GELU(), 0.5), (mp.SiLU(), 0.5), (mp.Softplus(), 0.5)])
def test_slopes_at_zero_are_those_of_the_docstrings(layer, slope):
    layer.forward(np.zeros((1, 1)))
    assert layer.backward_input(np.ones((1, 1))).item() == slope


def test_gelu_is_close_to_the_normal_distribution_that_it_stands_for():
    """The paper's exact form is z Phi(z); the tanh form differs by less than 0.0005."""
    Z = np.linspace(-6, 6, 1201).reshape(1, -1)
    exact = np.array([[z * (1 + math.erf(z / math.sqrt(2))) / 2 for z in Z[0]]])
    assert 1e-4 < abs(mp.GELU().forward(Z) - exact).max() < 5e-4


def test_softmax_equals_loops_with_the_whole_jacobian():
    """Three operations of error 8u, sums of 3 numbers: 40u of each term covers both sides."""
    rng = np.random.default_rng(0)
    Z, dA = rng.standard_normal((2, 3, 4))
    layer = mp.Softmax()
    A, dZ = layer.forward(Z), layer.backward_input(dA)
    for k in range(4):
        e = [math.exp(z) for z in Z[:, k]]
        a = [part / sum(e) for part in e]
        for j in range(3):
            terms = [a[i] * ((i == j) - a[j]) * dA[i, k] for i in range(3)]
            assert abs(A[j, k] - a[j]) <= 20 * np.finfo(float).eps
            assert abs(dZ[j, k] - sum(terms)) <= 20 * np.finfo(float).eps * abs(dA[:, k]).sum()


def test_shares_of_a_rational_softmax_add_up_to_exactly_one():
    rng = np.random.default_rng(0)
    Z, dA = (mp.exact.rational(rng.integers(-20, 20, (3, 2, 4))) / 8 for _ in range(2))
    layer = mp.Softmax()
    assert np.all(layer.forward(Z).sum(axis=0) == 1) and np.all(layer.backward_input(dA).sum(axis=0) == 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("layer, low, high", [
    (mp.ReLU(), 0, 1), (mp.LeakyReLU(0.25), 0.25, 1), (mp.GELU(), 0, 1), (mp.SiLU(), 0, 1), (mp.Softplus(), 0, 1),
], ids=lambda value: value if isinstance(value, mp.Layer) else "")
def test_huge_numbers_neither_overflow_nor_lose_the_asymptotes(layer, low, high, dtype):
    """Far out each of these is a straight line through 0, with slope `low` on the left and `high` on the right."""
    for huge in (dtype(100), np.sqrt(np.finfo(dtype).max) * 2, np.finfo(dtype).max / 4):
        Z = np.array([[-huge, huge]], dtype)
        tiny = 1e-40  # e^-100 is not yet 0
        assert np.all(abs(layer.forward(Z) - np.array([[-huge * dtype(low), huge * dtype(high)]], dtype)) <= tiny)
        assert np.all(abs(layer.backward_input(np.ones_like(Z)) - np.array([[low, high]], dtype)) <= tiny)
    A = mp.Softmax().forward(np.array([[np.finfo(dtype).max / 4], [-np.finfo(dtype).max / 4], [0]], dtype))
    assert np.array_equal(A, [[1], [0], [0]])


@pytest.mark.parametrize("layer", [layer for layer in LAYERS.values() if layer.b is None and not isinstance(layer, mp.Linear)], ids=repr)
def test_rational_numbers_stay_rational_and_close_to_the_floats(layer):
    """No float is among them. The float result is off by at most 2000 units in the last place of the largest number:
    generous for a dozen operations, and far below what a wrong constant would change."""
    layer, A_prev, dZ = ready(layer)
    A_prev = 8 * A_prev  # up to where GELU is straight
    twin, exact = layer.copy(), mp.exact.rational
    for mine, true in [
        (layer.forward(A_prev), twin.forward(exact(A_prev))), (layer.backward_input(dZ), twin.backward_input(exact(dZ))),
    ]:
        assert all(type(value) is mp.exact.Rational for value in true.flat)
        assert np.all(abs(exact(mine) - true) <= mp.exact.Rational(abs(mine).max() * 2000 * np.finfo(float).eps))


@pytest.mark.parametrize("slope", [-0.1, 1.5, float("nan")])
def test_impossible_slopes_are_refused(slope):
    with pytest.raises(ValueError, match=f"negative_slope={slope} must lie in 0 <= negative_slope <= 1"):
        mp.LeakyReLU(slope)


@every_layer
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_dtype_of_the_data_is_the_dtype_of_the_result(layer, dtype):
    for parameters in (np.float32, np.float64):
        twin, _, _ = ready(layer, dtype=parameters)
        _, A_prev, dZ = ready(layer, dtype=dtype)
        assert twin.forward(A_prev).dtype == dtype
        assert all(part is None or part.dtype == dtype for part in twin.backward(dZ))


@every_layer
def test_backward_is_its_two_halves(layer):
    layer, A_prev, dZ = ready(layer)
    layer.forward(A_prev)
    whole = layer.backward(dZ)
    halves = layer.backward_input(dZ), *layer.backward_weight(dZ)
    assert all((a is b is None) or np.array_equal(a, b) for a, b in zip(whole, halves, strict=True))


@every_layer
def test_writes_into_no_array_that_it_was_handed(layer):
    layer, A_prev, dZ = ready(layer)
    A_prev.flags.writeable = dZ.flags.writeable = False
    layer.forward(A_prev)
    layer.backward(dZ)


def spread(array):
    """The same numbers in every second place of a larger array, along each axis."""
    every_second = (slice(None, None, 2),) * array.ndim
    wide = np.zeros([2 * n for n in array.shape])
    wide[every_second] = array
    return wide[every_second]


@every_layer
def test_takes_arrays_that_are_not_contiguous(layer):
    layer, A_prev, dZ = ready(layer, m=6)
    spread_A, spread_dZ = spread(A_prev), spread(dZ)
    A = layer.forward(A_prev)
    expected = layer.backward(dZ)
    assert np.array_equal(A, layer.forward(spread_A))
    got = layer.backward(spread_dZ)
    gamma = 10 * np.finfo(float).eps  # sums of at most 6 products may be grouped in another way
    for a, b, scale in zip(expected, got, (abs(dZ).sum() * 9, abs(dZ).sum() * 9, abs(dZ).sum())):
        assert a is b is None or np.all(abs(a - b) <= gamma * scale)


@every_layer
def test_many_micro_batches_pass_through_one_layer(layer):
    """The cache is one value that can be taken out and put back."""
    layer, A_prev, dZ = ready(layer)
    _, other, other_dZ = ready(layer, seed=1)
    layer.forward(A_prev)
    expected = layer.backward(dZ)
    layer.forward(A_prev)
    cache = layer.cache
    layer.forward(other)
    layer.backward(other_dZ)
    layer.cache = cache
    assert all((a is b is None) or np.array_equal(a, b) for a, b in zip(expected, layer.backward(dZ)))


@every_layer
def test_wrong_calls_say_what_is_wrong(layer):
    layer, A_prev, dZ = ready(layer)
    layer.forward(A_prev)
    with pytest.raises(ValueError, match=r"dZ has shape \(7, 5\), but the output had shape"):
        layer.backward(np.zeros((7, 5)))
    with pytest.raises(RuntimeError, match="call forward"):
        layer.copy().backward(dZ)


def test_linear_refuses_wrong_shapes_with_both_numbers():
    with pytest.raises(ValueError, match=r"Linear\(3, 2\) needs A_prev of shape \(3, m\), got \(4, 5\)"):
        mp.Linear(3, 2, W=np.zeros((2, 3)), b=np.zeros((2, 1))).forward(np.zeros((4, 5)))
    with pytest.raises(ValueError, match=r"W has shape \(3, 2\), but Linear\(3, 2\) needs \(2, 3\)"):
        mp.Linear(3, 2, W=np.zeros((3, 2)))
    with pytest.raises(ValueError, match=r"Linear\(0, 2\)"):
        mp.Linear(0, 2)
    with pytest.raises(RuntimeError, match="has no parameters yet"):
        mp.Linear(3, 2).forward(np.zeros((3, 1)))


@pytest.mark.parametrize("draw, variance", [(mp.he, 2 / 300), (mp.xavier, 2 / 500)])
def test_initialisation_has_the_variance_of_the_papers(draw, variance):
    """The variance of n normal numbers scatters by sqrt(2/n) of itself: here 0.6 %, five times that is allowed."""
    W = draw(np.random.default_rng(0), 300, 200)
    assert W.shape == (200, 300)
    assert abs(W.var() / variance - 1) < 5 * math.sqrt(2 / W.size)


def test_whole_numbers_as_data_do_not_round_the_weights():
    layer = mp.Linear(1, 1, W=[[0.5]], b=[[0.25]])
    assert np.array_equal(layer.forward(np.array([[1, 2]])), [[0.75, 1.25]])


@settings(max_examples=50)
@given(st.integers(1, 40), st.integers(1, 40))
def test_even_slices_cover_everything_once(length, n_parts):
    from minipipe.functions import even_slices

    parts = even_slices(length, n_parts)
    assert [i for part in parts for i in range(length)[part]] == list(range(length))
    sizes = [part.stop - part.start for part in parts]
    assert len(sizes) == n_parts and max(sizes) - min(sizes) <= 1 and sizes == sorted(sizes, reverse=True)
