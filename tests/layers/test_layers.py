"""What every layer has to keep, whatever its formula is; and Linear against loops over single numbers."""

import math
from itertools import product

import numpy as np
import pytest
from cases import eighths
from compared import assert_same, assert_within
from layers.duals import dual, slopes
from layers.every_layer import (
    CONTRACT, TOKENS, arrays_in, own_parameters, ready, tree, unread_between_the_halves,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import minipipe as mp
from minipipe.arrays import even_slices, leaves, shape_of
from minipipe.exact import rational
from minipipe.layers import every_layer as parts_of
from minipipe.layers.convolution import Kernel
from minipipe.layers.through import put_aside

every_layer = pytest.mark.parametrize("name", CONTRACT)


@pytest.mark.parametrize("name, m", [
    (name, m) for name, (layer, _) in CONTRACT.items() for m in (1 if layer.alone_per_sample else 2, 5)
])
def test_backward_equals_central_differences(name, m):
    """The slope of J = sum(R * A), where A_prev and all parameters move at once along a random direction D,
    by (J(+h) - J(-h)) / 2h, in float64.
    """
    layer, A_prev, R = ready(name, m)
    layer.forward(A_prev)
    derivatives = leaves(layer.backward(R))  # tokens have none
    rng, h = np.random.default_rng(1), 3e-6
    directions = [rng.standard_normal(d.shape) for d in derivatives]

    def J(step):
        twin, moves = layer.copy(), iter([step * D for D in directions])
        inputs = A_prev if name in TOKENS else tree(lambda A: A + next(moves), A_prev)
        for part, which in own_parameters(twin):
            setattr(part, which, getattr(part, which) + next(moves))
        assert next(moves, None) is None
        return sum((r * A).sum() for r, A in zip(leaves(R), leaves(twin.forward(inputs)), strict=True))

    slope = (J(h) - J(-h)) / (2 * h)
    expected = sum((d * D).sum() for d, D in zip(derivatives, directions))
    because = "h^2/6 times the third derivative along D, and rounding u J / h, of numbers up to about 100"
    assert_within(slope, expected, bound=1e-7, because=because)


@every_layer
def test_backward_equals_dual_numbers_exactly(name):
    """The slope of sum(R * A), where A_prev and all parameters move at once along a random direction,
    in rational numbers.
    """
    layer, A_prev, R = ready(name, m=2)
    layer = layer.copy(mp.exact.rational)
    A_prev, R = tree(mp.exact.rational, A_prev), tree(mp.exact.rational, R)
    A = layer.forward(A_prev)
    dA_prev, dW, db = layer.backward(R)
    twin, rng = layer.copy(), np.random.default_rng(2)

    def direction(array):
        return mp.exact.rational(rng.integers(-4, 5, array.shape))

    moved = []
    for part, which in own_parameters(twin):
        moved.append(direction(getattr(part, which)))
        setattr(part, which, dual(getattr(part, which), moved[-1]))
    expected = sum((d * D).sum() for d, D in zip(leaves((dW, db)), moved, strict=True))
    inputs = A_prev
    if dA_prev is not None:
        D = tree(direction, A_prev)
        inputs = tree(dual, A_prev, D)
        expected += sum((d * D).sum() for d, D in zip(leaves(dA_prev), leaves(D), strict=True))
    found = twin.forward(inputs)
    assert all(np.array_equal(mine, true) for mine, true in zip(leaves(found), leaves(A), strict=True))
    assert sum((r * slopes(A)).sum() for r, A in zip(leaves(R), leaves(found))) == expected


@every_layer
def test_rational_numbers_stay_rational_and_close_to_the_floats(name):
    """No float is among them.

    The float result is off by at most 2000 units in the last place of the largest of all results:
    generous for a few dozen operations, and far below what a wrong constant would change.
    """
    layer, A_prev, dZ = ready(name, m=2)
    if not layer.layers and name not in TOKENS:
        A_prev = tree(lambda A: 8 * A, A_prev)  # up to where GELU is straight
    twin, exact = layer.copy(mp.exact.rational), mp.exact.rational
    results = leaves((layer.forward(A_prev), layer.backward(dZ)))
    truth = leaves((twin.forward(tree(exact, A_prev)), twin.backward(tree(exact, dZ))))
    bound = mp.exact.Rational(max(abs(mine).max() for mine in results) * 2000 * np.finfo(float).eps)
    for mine, true in zip(results, truth, strict=True):
        assert all(type(value) is mp.exact.Rational for value in true.flat)
        assert np.all(abs(exact(mine) - true) <= bound)


@every_layer
def test_the_dtype_of_the_data_is_the_dtype_of_the_result(name):
    """Tokens are not such data: after them, A has the dtype of W."""
    for dtype, of_parameters in product((np.float32, np.float64), repeat=2):
        layer, _, _ = ready(name, dtype=of_parameters)
        _, A_prev, dZ = ready(name, dtype=dtype)
        expected = of_parameters if name in TOKENS else dtype
        dZ = tree(lambda d: d.astype(expected), dZ)
        for part in leaves((layer.forward(A_prev), layer.backward(dZ))):
            assert part.dtype == expected


@every_layer
def test_shapes_are_known_before_anything_is_computed(name):
    layer, A_prev, dZ = ready(name)
    assert shape_of(layer.forward(A_prev)) == CONTRACT[name][0].output_shape(shape_of(A_prev))
    assert (shapes_of(layer.W), shapes_of(layer.b)) == CONTRACT[name][0].parameter_shapes()
    assert [d.shape for d in leaves(layer.backward(dZ)[1:])] == [
        parameter.shape for parameter in leaves((layer.W, layer.b))
    ]


def shapes_of(parameter):
    """The shape of an array, also in nested tuples; None stays None."""
    if isinstance(parameter, tuple):
        return tuple(map(shapes_of, parameter))
    return None if parameter is None else parameter.shape


@every_layer
def test_backward_is_its_two_halves_and_each_half_stands_alone(name):
    layer, A_prev, dZ = ready(name)
    layer.forward(A_prev)
    dA_prev, dW, db = layer.backward(dZ)
    assert_same(layer.backward(dZ), (dA_prev, dW, db))  # another dZ may follow
    layer.forward(A_prev)
    assert_same((layer.backward_input(dZ), *layer.backward_weight(dZ)), (dA_prev, dW, db))
    layer.forward(A_prev)
    assert_same(layer.backward_weight(dZ), (dW, db))
    _, other, _ = ready(name, seed=1)
    layer.forward(other)
    layer.backward(dZ)
    layer.forward(A_prev)
    assert_same(layer.backward_weight(dZ), (dW, db))  # nothing is left of the forward before


@every_layer
def test_writes_into_no_array_that_it_was_handed(name):
    layer, A_prev, dZ = ready(name)
    for array in leaves((A_prev, dZ, layer.W, layer.b)):
        array.flags.writeable = False
    layer.forward(A_prev)
    layer.backward(dZ)


def spread(array):
    """The same numbers in every second place of a larger array, along each axis."""
    every_second = (slice(None, None, 2),) * array.ndim
    wide = np.zeros([2 * n for n in array.shape], array.dtype)
    wide[every_second] = array
    return wide[every_second]


@every_layer
def test_takes_arrays_that_are_not_contiguous(name):
    """In rational numbers, because floats may be added up in another order there: with gaps, or the first
    axis closest.
    """
    layer, A_prev, dZ = ready(name, m=2)
    layer, A_prev, dZ = layer.copy(eighths), tree(eighths, A_prev), tree(eighths, dZ)
    expected = layer.forward(A_prev), layer.backward(dZ)
    for spoilt in (spread, np.asfortranarray):
        assert_same((layer.forward(tree(spoilt, A_prev)), layer.backward(tree(spoilt, dZ))), expected)


@every_layer
def test_many_micro_batches_pass_through_one_layer(name):
    """The cache is one value that can be taken out, before and after the first half of backward,
    and put back.
    """
    layer, A_prev, dZ = ready(name)
    _, other, other_dZ = ready(name, seed=1, m=3)
    layer.forward(A_prev)
    expected = layer.backward(dZ)
    for begun in (False, True):
        layer.forward(A_prev)
        if begun:
            layer.backward_input(dZ)
        cache, layer.cache = layer.cache, None
        layer.forward(other)
        layer.backward(other_dZ)
        layer.cache = cache
        if not begun:
            assert_same(layer.backward_input(dZ), expected[0])
        assert_same(layer.backward_weight(dZ), expected[1:])


@pytest.mark.parametrize(
    "name", [name for name, (layer, _) in CONTRACT.items() if isinstance(layer, (mp.Linear, Kernel))]
)
def test_a_product_caches_its_input_and_no_copy_of_it(name):
    layer, A_prev, _ = ready(name)
    layer.forward(A_prev)
    assert layer.cache is A_prev


@every_layer
def test_between_the_halves_only_what_the_second_reads_is_kept(name):
    """Each array that is left, spoilt, would spoil dW or db; and none is a part of a larger one.

    A layer by itself has none left that no parameter needs.
    """
    layer, A_prev, dZ = ready(name)
    assert not unread_between_the_halves(layer, A_prev, dZ)
    layer.forward(A_prev)
    layer.backward_input(dZ)
    if not own_parameters(layer):
        assert not arrays_in(layer.cache) and put_aside(layer, dZ) is None


@every_layer
def test_a_copy_shares_nothing_that_changes(name):
    layer, A_prev, dZ = ready(name)
    layer.forward(A_prev)
    before = layer.backward(dZ)
    twin = layer.copy()
    assert all(part.cache is None and part.statistics is None for part in parts_of([twin]))
    assert not {id(part) for part in parts_of([layer])} & {id(part) for part in parts_of([twin])}
    for parameter in leaves((twin.W, twin.b)):
        parameter += 1
    _, other, other_dZ = ready(name, seed=1)
    twin.forward(other)
    twin.backward(other_dZ)
    assert_same(layer.backward(dZ), before)


@every_layer
def test_wrong_calls_say_what_is_wrong(name):
    layer, A_prev, dZ = ready(name)
    layer.forward(A_prev)
    with pytest.raises(ValueError, match=r"dZ has shape \(?\(7, 5\).* but the output had shape"):
        layer.backward(tree(lambda d: np.zeros((7, 5)), dZ))
    layer = layer.copy()
    for half in (layer.backward, layer.backward_input, *([layer.backward_weight] if leaves(layer.W) else [])):
        with pytest.raises(RuntimeError, match="backward needs the cache of a forward: call forward"):
            half(dZ)
    if leaves(layer.W):
        with pytest.raises(
            RuntimeError, match=r"has no parameters yet: call initialize\(rng\), or put it into a Sequential"
        ):
            CONTRACT[name][0].copy().forward(A_prev)


def test_linear_equals_loops_over_single_numbers():
    """On whole numbers, where no operation rounds, so that == is right."""
    rng = np.random.default_rng(0)
    W, b, A, dZ = (rng.integers(-4, 5, shape).astype(float) for shape in [(2, 3), (2, 1), (3, 4), (2, 4)])
    layer = mp.Linear(3, 2, W=W, b=b)
    Z = [[sum(W[i, j] * A[j, k] for j in range(3)) + b[i, 0] for k in range(4)] for i in range(2)]
    assert np.array_equal(layer.forward(A), Z)
    dA, dW, db = layer.backward(dZ)
    assert np.array_equal(
        dA, [[sum(W[i, j] * dZ[i, k] for i in range(2)) for k in range(4)] for j in range(3)]
    )
    assert np.array_equal(
        dW, [[sum(dZ[i, k] * A[j, k] for k in range(4)) for j in range(3)] for i in range(2)]
    )
    assert np.array_equal(db, [[sum(dZ[i, k] for k in range(4))] for i in range(2)])


@pytest.mark.parametrize("layer, variance", [
    (mp.Linear(300, 200), 2 / 300), (mp.Linear(300, 200, initialization=mp.xavier), 2 / 500),
    (mp.Conv2d(32, 32, 5, groups=2), 2 / (16 * 25)),
    (mp.ConvTranspose2d(32, 32, 4, stride=2, groups=2), 2 / (16 * 16 / 4)),
    (mp.Embedding(300, 50), 1 / 50), (mp.PositionalEmbedding(50, 300), 1 / 50),
], ids=repr)
def test_initialisation_has_the_variance_of_the_papers(layer, variance):
    """He's 2 / fan-in, where the fan-in of a transposed convolution is its share of the kernel; Xavier's.

    The variance of n normal numbers scatters by sqrt(2/n) of itself: five times that is allowed.
    """
    layer.initialize(np.random.default_rng(0), np.float32)
    assert layer.W.dtype == np.float32 and layer.W.shape == layer.parameter_shapes()[0]
    assert abs(layer.W.var() / variance - 1) < 5 * math.sqrt(2 / layer.W.size)
    assert layer.b is None or (layer.b.dtype == np.float32 and not layer.b.any())


@every_layer
def test_whole_numbers_as_data_round_nothing(name):
    layer, A_prev, _ = ready(name)
    found, expected = (
        layer.forward(tree(lambda A: np.round(A).astype(dtype), A_prev)) for dtype in (int, float)
    )
    assert_same(tree(lambda A: A.astype(float), found), expected)


@settings(max_examples=50)
@given(st.integers(1, 40), st.integers(1, 40))
def test_even_slices_cover_everything_once(length, n_parts):
    parts = even_slices(length, n_parts)
    assert [i for part in parts for i in range(length)[part]] == list(range(length))
    sizes = [part.stop - part.start for part in parts]
    assert len(sizes) == n_parts and max(sizes) - min(sizes) <= 1 and sizes == sorted(sizes, reverse=True)


class OldFloat(np.float64):
    """As `np.float64` was before NumPy 2.4: called with an array of one entry, it makes a number of it."""

    def __new__(cls, array):
        return np.float64(array.item()) if array.size == 1 else array.astype(np.float64)


def test_a_copy_in_another_dtype_keeps_the_shape_of_an_array_with_one_entry():
    layer = mp.Linear(3, 1, W=np.float32([[1, 2, 3]]), b=np.float32([[4]]))
    for convert in (OldFloat, np.float64, np.float16, rational):
        twin = layer.copy(convert)
        assert (twin.W.shape, twin.b.shape, twin.b[0, 0]) == ((1, 3), (1, 1), 4)
        assert twin.b.dtype == twin.W.dtype == (object if convert is rational else np.dtype(convert))


def test_a_layer_of_one_unit_with_one_input_keeps_all_promises():
    assert mp.check(mp.Linear(1, 1), shape=(1,))
