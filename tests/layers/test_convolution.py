"""Convolution and its transpose against loops over single numbers and against each other; their memory."""

import tracemalloc
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

# --- against another implementation

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

    def remainder(self):
        axes = zip(self.lengths, self.kernel, self.stride, self.padding, self.dilation)
        return tuple((n + 2 * p - d * (k - 1) - 1) % s for n, k, s, p, d in axes)

    def layer(self, transposed):
        options = dict(
            stride=self.stride, padding=self.padding, dilation=self.dilation, groups=self.groups,
            bias=self.bias,
        )
        if transposed:
            return TRANSPOSED[len(self.lengths)](
                self.n_out, self.n_in, self.kernel, output_padding=self.remainder(), **options
            )
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
    return Geometry(
        draw(st.booleans()), groups * draw(st.integers(1, 2)), groups * draw(st.integers(1, 2)), groups,
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
    """(Z, dA_prev, dW, db), one product of numbers at a time."""
    Z, dA_prev, dW = map(np.zeros_like, (dZ, A_prev, W))
    for short, long, weight in meetings(g):
        into, out_of = (long, short) if g.transposed else (short, long)
        for k in range(g.m):
            Z[(*into, k)] += W[weight] * A_prev[(*out_of, k)]
            dA_prev[(*out_of, k)] += W[weight] * dZ[(*into, k)]
            dW[weight] += dZ[(*into, k)] * A_prev[(*out_of, k)]
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


@pytest.mark.parametrize(
    "convert", [np.float32, lambda array: rational(array) / 7], ids=["float32", "exact"]
)
@settings(max_examples=60)
@example(g=ROWS_OF_PADDING, buffer_bytes=1, way={"LEAST_COLUMNS": 1, "COST_OF_ADDING": 0}, seed=0)
@given(
    g=geometries(),
    buffer_bytes=st.sampled_from([1, 300, 2000, windows.BUFFER_BYTES]),
    way=ways(),
    seed=st.integers(0, 99),
)
def test_equals_loops_over_single_numbers(convert, g, buffer_bytes, way, seed):
    """On whole numbers, or exact ones, no operation rounds, so == is right: for any band, down to one number
    wide, and for each way of computing, the choice among which depends on sizes alone.
    """
    rng = np.random.default_rng(seed)
    layer = g.layer(g.transposed)
    shape_of_W, shape_of_b = layer.parameter_shapes()
    shapes = (g.n_in, *g.lengths, g.m), (g.n_out, *g.windows(), g.m)
    W, A_prev, dZ = (
        convert(rng.integers(-4, 5, shape))
        for shape in (shape_of_W, *(reversed(shapes) if g.transposed else shapes))
    )
    layer.W, layer.b = W, convert(rng.integers(-4, 5, shape_of_b)) if g.bias else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "BUFFER_BYTES", buffer_bytes)
        for name, value in way.items():
            patch.setattr(windows, name, value)
        results = layer.forward(A_prev), *layer.backward(dZ)
    assert_same(results, by_loops(g, layer.W, layer.b, A_prev, dZ))
    assert all(result is None or result.dtype == A_prev.dtype for result in results)
    if A_prev.dtype == object:
        assert all(isinstance(number, Rational) for result in results[:3] for number in result.flat)


@settings(max_examples=150)
@given(geometries(), st.integers(0, 99))
def test_the_transposed_convolution_is_the_adjoint(g, seed):
    """<conv(X), Y> == <X, conv_transpose(Y)>, exactly, for multiples of 1/16."""
    rng = np.random.default_rng(seed)
    convolution, transposed = g._replace(bias=False).layer(False), g._replace(bias=False).layer(True)
    convolution.W = transposed.W = rng.integers(-64, 65, convolution.shape_of_W()) / 16
    X = rng.integers(-64, 65, (g.n_in, *g.lengths, g.m)) / 16
    Y = rng.integers(-64, 65, (g.n_out, *g.windows(), g.m)) / 16
    assert (convolution.forward(X) * Y).sum() == (X * transposed.forward(Y)).sum()


@pytest.mark.parametrize(
    "kernel, dilation, expected",
    [(3, 1, [3, 6, 9, 12, 9]), (4, 1, [6, 10, 14, 12, 9]), (2, 3, [3, 5, 7, 3, 4])],
)
def test_same_keeps_the_length_and_puts_the_odd_zero_behind(kernel, dilation, expected):
    """Sums of `kernel` neighbours of 1 2 3 4 5, which is the rule of PyTorch for even spans."""
    layer = mp.Conv1d(1, 1, kernel, padding="same", dilation=dilation, bias=False)
    layer.W = np.ones((1, 1, kernel))
    assert layer.forward(np.arange(1.0, 6.0).reshape(1, 5, 1)).ravel().tolist() == expected


# --- memory

@pytest.mark.parametrize("layer, lengths, m, buffer_bytes", [
    (mp.Conv2d(32, 32, 3, padding=1), (32, 32), 32, windows.BUFFER_BYTES),
    (mp.Conv2d(16, 16, 7, padding=3, stride=2), (32, 32), 16, 2**18),
    (mp.Conv2d(64, 64, (3, 7), padding="same", groups=64), (1, 256), 4, 2**17),
    (mp.Conv3d(8, 8, 3, padding=1), (4, 16, 16), 16, 2**18),
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
