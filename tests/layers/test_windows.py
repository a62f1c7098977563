"""Convolution, its transpose, pooling and reshaping against loops over single numbers, with ==.

The numbers are whole or rational, so nothing is rounded. The convolutions' memory is bounded, too.
"""

import tracemalloc
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
from compared import assert_same
from hypothesis import example, given, settings
from hypothesis import strategies as st

import minipipe as mp
from minipipe.exact import Rational, rational
from minipipe.layers import windows

OF_AXES = {1: mp.Conv1d, 2: mp.Conv2d, 3: mp.Conv3d}
TRANSPOSED = {1: mp.ConvTranspose1d, 2: mp.ConvTranspose2d, 3: mp.ConvTranspose3d}


# --- convolutions

class Geometry(NamedTuple):
    """A layer's options, and the lengths of the longer side: a convolution's input, a transposed
    one's output.
    """

    transposed: bool
    n_in: int
    n_out: int
    groups: int
    bias: bool
    lengths: tuple
    kernel: tuple
    stride: tuple
    padding: tuple
    dilation: tuple
    m: int

    def windows(self):
        return tuple(
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, k, s, p, d in zip(self.lengths, self.kernel, self.stride, self.padding, self.dilation)
        )

    def layer(self):
        options = dict(
            stride=self.stride, padding=self.padding, dilation=self.dilation, groups=self.groups,
            bias=self.bias,
        )
        if self.transposed:
            return TRANSPOSED[len(self.lengths)](self.n_out, self.n_in, self.kernel, **options)
        return OF_AXES[len(self.lengths)](self.n_in, self.n_out, self.kernel, **options)


@st.composite
def geometries(draw):
    n_axes, groups = draw(st.sampled_from([1, 2, 2, 2, 3])), draw(st.integers(1, 3))
    most = {1: 9, 2: 5, 3: 3}[n_axes]

    def per_axis(low, high):
        return tuple(draw(st.lists(st.integers(low, high), min_size=n_axes, max_size=n_axes)))

    kernel, stride, padding, dilation = per_axis(1, 3), per_axis(1, 3), per_axis(0, 3), per_axis(1, 3)
    lengths = tuple(
        max(n, d * (k - 1) + 1 - 2 * p) for n, k, p, d in zip(per_axis(1, most), kernel, padding, dilation)
    )
    transposed = draw(st.booleans())
    if transposed:  # its output ends with the last kernel
        axes = zip(lengths, kernel, stride, padding, dilation)
        lengths = tuple(n + -(n + 2 * p - d * (k - 1) - 1) % s for n, k, s, p, d in axes)
    return Geometry(
        transposed, groups * draw(st.integers(1, 2)), groups * draw(st.integers(1, 2)), groups,
        draw(st.booleans()), lengths, kernel, stride, padding, dilation, draw(st.integers(1, 3)),
    )


def meetings(g):
    """(o, c, c within its group, p, i, q) for every weight and place: window p of output o sees place q of c
    through W[o, c, i].
    """
    for o in range(g.n_out):
        for c_in_group in range(g.n_in // g.groups):
            c = o // (g.n_out // g.groups) * (g.n_in // g.groups) + c_in_group
            for p in np.ndindex(*g.windows()):
                for i in np.ndindex(*g.kernel):
                    q = tuple(
                        a * s + b * d - pad for a, b, s, d, pad in zip(p, i, g.stride, g.dilation, g.padding)
                    )
                    if all(0 <= place < n for place, n in zip(q, g.lengths)):
                        yield (o, *p), (c, *q), (o, c_in_group, *i)


def by_loops(g, W, b, A_prev, dZ):
    """(Z, dA_prev, dW, db), one weight at one place at a time."""
    Z, dA_prev, dW = map(np.zeros_like, (dZ, A_prev, W))
    for short, long, weight in meetings(g):
        into, out_of = (long, short) if g.transposed else (short, long)
        Z[into] += W[weight] * A_prev[out_of]  # for all samples
        dA_prev[out_of] += W[weight] * dZ[into]
        dW[weight] += sum(dZ[into] * A_prev[out_of])
    if b is None:
        return Z, dA_prev, dW, None
    return Z + b, dA_prev, dW, np.array([sum(channel.flat) for channel in dZ]).reshape(b.shape)


ROWS_OF_PADDING = Geometry(  # the first band lies above the array, and the last below
    transposed=False, n_in=1, n_out=1, groups=1, bias=False, lengths=(4, 1), kernel=(1, 1), stride=(1, 1),
    padding=(3, 0), dilation=(1, 1), m=1,
)


def ways():
    """Rows of windows by themselves or all in one; in parts or whole; a fold, or a convolution with the
    reversed kernel.
    """
    return st.fixed_dictionaries({
        "LEAST_COLUMNS": st.sampled_from([1, 10**9]),
        "SMALL_PRODUCT": st.sampled_from([1, 30, 10**9]),
        "LEAST_PART": st.just(1),
        "COST_OF_ADDING": st.sampled_from([0, 10**9]),
    })


@settings(max_examples=60)
@example(g=ROWS_OF_PADDING, buffer_bytes=1, way={"LEAST_COLUMNS": 1, "COST_OF_ADDING": 0}, seed=0)
@given(
    g=geometries(),
    buffer_bytes=st.sampled_from([1, 300, 2000, windows.BUFFER_BYTES]),
    way=ways(),
    seed=st.integers(0, 99),
)
def test_convolutions_equal_loops_over_single_numbers(g, buffer_bytes, way, seed):
    """And transposed ones. On whole numbers, no operation rounds, so == is right: for any band, down to one
    number wide, and for each way of computing, the choice among which depends on sizes alone.
    """
    rng = np.random.default_rng(seed)
    layer = g.layer()
    shape_of_W, shape_of_b = layer.parameter_shapes()
    shapes = (g.n_in, *g.lengths, g.m), (g.n_out, *g.windows(), g.m)
    W, A_prev, dZ = (
        rng.integers(-4, 5, shape)
        for shape in (shape_of_W, *(reversed(shapes) if g.transposed else shapes))
    )
    b = rng.integers(-4, 5, shape_of_b) if g.bias else None
    expected = by_loops(g, W, b, A_prev, dZ)
    for number in (np.float32, rational):
        layer.W, layer.b = number(W), None if b is None else number(b)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(windows, "BUFFER_BYTES", buffer_bytes)
            for name, value in way.items():
                patch.setattr(windows, name, value)
            found = layer.forward(number(A_prev)), *layer.backward(number(dZ))
        assert_same(found, [None if part is None else number(part) for part in expected])
        if number is rational:
            assert all(isinstance(entry, Rational) for part in found[:3] for entry in part.flat)


def test_same_padding_keeps_the_length_with_the_odd_zero_last():
    """Sums of `kernel` neighbours of 1 2 3 4 5, which is the rule of PyTorch for even spans."""
    for kernel, dilation, expected in (
        (3, 1, [3, 6, 9, 12, 9]), (4, 1, [6, 10, 14, 12, 9]), (2, 3, [3, 5, 7, 3, 4]),
    ):
        layer = mp.Conv1d(1, 1, kernel, padding="same", dilation=dilation, bias=False)
        layer.W = np.ones((1, 1, kernel))
        assert layer.forward(np.arange(1.0, 6.0).reshape(1, 5, 1)).ravel().tolist() == expected


@pytest.mark.parametrize("layer, lengths, m, buffer_bytes", [
    (mp.Conv2d(16, 16, 3, padding=1), (32, 32), 64, windows.BUFFER_BYTES),
    (mp.Conv2d(16, 16, 7, padding=3, stride=2), (32, 32), 8, 2**17),
    (mp.Conv2d(64, 64, (3, 7), padding="same", groups=64), (1, 256), 4, 2**17),
    (mp.Conv3d(8, 8, 3, padding=1), (4, 16, 16), 8, 2**17),
    (mp.ConvTranspose2d(32, 16, 4, stride=2, padding=1), (16, 16), 8, 2**18),
], ids=repr)
def test_the_column_matrix_never_exists_as_a_whole(layer, lengths, m, buffer_bytes, monkeypatch):
    """The peak of forward and backward beyond their arguments is at most 2.2 times input plus output,
    results included.

    The smaller arrays come with a buffer that is smaller in proportion.
    """
    monkeypatch.setattr(windows, "BUFFER_BYTES", buffer_bytes)
    rng, layer = np.random.default_rng(0), layer.copy()
    layer.initialize(rng, np.float32)
    shape = layer.in_channels, *lengths, m
    A_prev, dZ = (
        rng.standard_normal(size).astype(np.float32) for size in (shape, layer.output_shape(shape))
    )
    tracemalloc.start()
    try:
        Z = layer.forward(A_prev)
        gradients = layer.backward(dZ)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert Z.nbytes + gradients[0].nbytes <= peak <= 2.2 * (A_prev.nbytes + Z.nbytes)


# --- pooling

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
def pooling_geometries(draw):
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
@example(((3,), (3,), (3,), (1,)), 1, 1, False, 0)
@given(pooling_geometries(), st.integers(1, 3), st.integers(1, 3), st.booleans(), st.integers(0, 99))
def test_pooling_equals_loops_over_single_numbers(geometry, channels, m, largest, seed):
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
        got, got_back = layer.forward(number(A_prev)), layer.backward_input(number(dA))
        assert got.dtype == got_back.dtype == number(A_prev).dtype
        assert np.array_equal(got, A) and np.array_equal(got_back, dA_prev)
        assert number is not rational or all(
            type(value) is Rational for part in (got, got_back) for value in part.flat
        )


def test_the_first_of_equal_numbers_has_the_derivative():
    """In the order of reading: of this window's three ones, that of the first row."""
    layer = mp.MaxPool2d(2)
    layer.forward(np.array([[0.0, 1.0], [1.0, 1.0]]).reshape(1, 2, 2, 1))
    assert np.array_equal(layer.backward_input(np.ones((1, 1, 1, 1)))[0, :, :, 0], [[0, 1], [0, 0]])


def test_padding_of_max_pooling_is_below_every_number():
    A_prev = np.array([-5.0, -3.0]).reshape(1, 2, 1)
    for number in (np.array, rational, np.int64):
        assert np.array_equal(mp.MaxPool1d(2, 1, padding=1).forward(number(A_prev)).ravel(), [-5, -3, -3])
    for kind in (np.uint8, bool):  # 0 is the least number there, and the maximum of zeros
        A = mp.MaxPool1d(2, 1, padding=1).forward(np.array([0, 0, 1], kind).reshape(1, 3, 1))
        assert A.dtype == kind and np.array_equal(A.ravel(), [0, 0, 1, 1])
    # padding counts as 0
    assert np.array_equal(mp.AvgPool1d(2, 1, padding=1).forward(A_prev).ravel(), [-2.5, -4, -1.5])


def test_max_pooling_takes_windows_of_more_than_256_places():
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
