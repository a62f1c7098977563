"""Convolution and transposed convolution over one, two or three axes."""

from __future__ import annotations  # so that help() shows names, not what they stand for

import math
from collections.abc import Callable

import numpy as np

from ..arrays import Gradients, Shape, row_sums
from ..checks import truth, whole_number
from .layer import LAYERS, Layer, as_dtype_of, he
from .through import in_one_piece
from .windows import PerAxis, Windows, convolve, convolve_transposed, correlate


class Kernel(Layer):
    """The base of convolution and its transpose: arguments, parameters and bias.

    Args:
        in_channels, out_channels: channels of A_prev and of Z.
        kernel_size: a whole number, or a tuple of one per spatial axis; so are stride,
            padding and dilation.
        stride: positions from one window to the next.
        padding: zeros on both sides of an axis; "same" keeps the length at stride 1; if
            the number of zeros is odd, the end gets one more.
        dilation: positions from one entry of the kernel to the next.
        groups: output channel o sees only the in_channels / groups input channels of
            its own group.
        bias: whether b is added.

    Defaults are PyTorch's. `ValueError` is raised for options out of range, and for a
    kernel that does not fit into A_prev.
    """

    n_axes: int  # the number of spatial axes
    product: Callable[..., np.ndarray]  # (W, A_prev, shape of Z) -> Z without b
    product_for_W: Callable[..., np.ndarray]  # (dZ, A_prev) -> dW
    shape_of_W: Callable[[], Shape]
    output_lengths: Callable[[Shape], Shape]  # lengths of the spatial axes: of A_prev -> of Z

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: PerAxis, stride: PerAxis = 1,
        padding: PerAxis | str = 0, dilation: PerAxis = 1, groups: int = 1, bias: bool = True,
    ):
        in_channels = whole_number("in_channels", in_channels, 1)
        out_channels = whole_number("out_channels", out_channels, 1)
        groups = whole_number("groups", groups, 1)
        if in_channels % groups or out_channels % groups:
            raise ValueError(
                f"groups={groups} does not divide both in_channels={in_channels} "
                f"and out_channels={out_channels}: use a divisor of {math.gcd(in_channels, out_channels)}"
            )
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.windows = Windows.of(self.n_axes, kernel_size, stride, padding, dilation)
        vars(self).update(self.windows.arguments())
        self.bias = truth("bias", bias)

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        n_prev = self.in_channels // self.groups * math.prod(self.windows.kernel_size)
        return he(rng, n_prev, self.out_channels)

    def forward(self, A_prev: np.ndarray) -> np.ndarray:
        shape = self.checked_input(A_prev)
        Z = self.product(as_dtype_of(A_prev, self.W), A_prev, shape)
        if self.b is not None:
            Z += as_dtype_of(A_prev, self.b)
        self.cache = A_prev
        return Z

    def backward_weight(self, dZ: np.ndarray) -> Gradients:
        A_prev = self.cached(dZ)
        dW = in_one_piece(self.product_for_W(dZ, A_prev).reshape(self.shape_of_W()))
        return dW, None if self.b is None else row_sums(dZ.reshape(len(dZ), -1)).reshape(self.b.shape)

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) != self.n_axes + 2 or shape[0] != self.in_channels:
            lengths = ", ".join("DHW"[-self.n_axes:])
            raise self.misfit(f"({self.in_channels}, {lengths}, m)", shape)
        return self.out_channels, *self.output_lengths(shape[1:-1]), shape[-1]

    def parameter_shapes(self) -> tuple:
        shape_of_b = self.out_channels, *(1,) * (self.n_axes + 1)
        return self.shape_of_W(), shape_of_b if self.bias else None


class Convolution(Kernel):
    """Z[o, p, k] = b[o] + sum_{c, i} W[o, c, i] A_prev[c, q, k]

    with q = p * stride + i * dilation - padding. A_prev (C, *lengths, m), W (O, C /
    groups, *kernel_size), b (O, 1, ..., 1), Z (O, *windows, m). The position p and the
    entry i of the kernel have one index per spatial axis; a position q outside A_prev
    counts as 0.

    The arguments are those of `Kernel`, with C = in_channels and O = out_channels.
    There are (n + 2 padding - dilation (kernel_size - 1) - 1) // stride + 1 windows on
    an axis of length n. W is drawn by `he`, with n_prev = C / groups *
    prod(kernel_size), the inputs of one output.

    Unfold A_prev: let column (p, k) of a matrix list all entries that window p of
    sample k covers, columns[(c, i), (p, k)] = A_prev[c, q, k]. Then this is the Linear
    layer:

        Z = W columns + b     dcolumns = W^T dZ     dW = dZ columns^T     db = row sums

    A_prev[c, q, k] occurs in `columns` once for each window that covers position q, so
    dA_prev is the sum of dcolumns over these windows (`fold`). The sums over k run over
    samples, and nothing divides by m, so the gradients of micro-batches add up. The
    matrix is prod(kernel_size) times as large as A_prev. Only a band of it exists at a
    time, and backward unfolds A_prev again instead of caching the matrix.

    Sources: LeCun et al. 1989, Neural Computation 1(4); the matrix product:
    Chellapilla, Puri, Simard 2006.
    """

    splits = property(
        lambda self: {"outputs": {"W": 0, "b": 0}, "inputs": {"W": 1}} if self.groups == 1 else {}
    )

    def part(self, how: str, rank: int, size: int) -> Convolution:
        part = super().part(how, rank, size)
        (part.out_channels, part.in_channels), part.bias = part.W.shape[:2], part.b is not None
        return part

    def shape_of_W(self) -> tuple[int, ...]:
        return self.out_channels, self.in_channels // self.groups, *self.windows.kernel_size

    def output_lengths(self, lengths: Shape) -> Shape:
        return self.windows.count(lengths)

    def macs(self, shape: Shape) -> int:
        return math.prod(self.output_shape(shape)) * math.prod(self.shape_of_W()[1:])

    def product(self, W: np.ndarray, A_prev: np.ndarray, shape: Shape) -> np.ndarray:
        return convolve(W, A_prev, self.windows, self.groups, shape)

    def backward_input(self, dZ: np.ndarray) -> np.ndarray:
        A_prev = self.cached(dZ)
        return convolve_transposed(as_dtype_of(dZ, self.W), dZ, self.windows, self.groups, A_prev.shape)

    def product_for_W(self, dZ: np.ndarray, A_prev: np.ndarray) -> np.ndarray:
        return correlate(dZ, A_prev, self.windows, self.groups)


@LAYERS(examples=lambda: [
    (Conv1d(2, 3, 5), (2, 8)),
    (Conv1d(1, 2, 3, stride=2, padding=3, dilation=4), (1, 9)),
])
class Conv1d(Convolution):
    """Convolution of sequences: A_prev (C, L, m), Z (O, L', m), see `Convolution`.

    A kernel of length 5 has 8 - 5 + 1 = 4 positions on an axis of length 8:

    >>> layer = Conv1d(1, 1, kernel_size=5)
    >>> layer.W, layer.b = np.array([[[1.0, 0.0, 0.0, 0.0, -1.0]]]), np.zeros((1, 1, 1))
    >>> A_prev = np.array([0.0, 1.0, 4.0, 9.0, 16.0, 25.0, 36.0, 49.0]).reshape(1, 8, 1)
    >>> layer.forward(A_prev).ravel()
    array([-16., -24., -32., -40.])
    >>> dA_prev, dW, db = layer.backward(np.ones((1, 4, 1)))
    >>> dA_prev.ravel()
    array([ 1.,  1.,  1.,  1., -1., -1., -1., -1.])
    >>> dW.ravel(), db.ravel()
    (array([ 14.,  30.,  54.,  86., 126.]), array([4.]))
    """

    n_axes = 1


@LAYERS(examples=lambda: [
    (Conv2d(2, 3, (3, 2)), (2, 5, 7)),
    (Conv2d(1, 2, (4, 3), padding="same", dilation=(1, 2)), (1, 3, 5)),
    (Conv2d(4, 6, (2, 3), stride=(2, 3), padding=(1, 2), dilation=(3, 1), groups=2), (4, 7, 9)),
    (Conv2d(4, 6, (2, 3), padding=1, groups=2), (4, 3, 4)),
    (Conv2d(3, 6, 3, padding=1, groups=3, bias=False), (3, 5, 3)),  # depthwise
    (Conv2d(3, 2, 1), (3, 3, 4)),
    (Conv2d(1, 1, 1, stride=3), (1, 7, 5)),  # gaps between windows
])
class Conv2d(Convolution):
    """Convolution of images: A_prev (C, H, W, m), Z (O, H', W', m), see `Convolution`.

    >>> layer = Conv2d(3, 8, kernel_size=3, padding="same")
    >>> layer.initialize(np.random.default_rng(0))
    >>> layer.forward(np.zeros((3, 5, 7, 2))).shape
    (8, 5, 7, 2)
    """

    n_axes = 2


@LAYERS(examples=lambda: [(Conv3d(2, 2, (2, 3, 1), stride=(1, 2, 1), padding=1, groups=2), (2, 3, 5, 2))])
class Conv3d(Convolution):
    """Convolution of volumes, A_prev (C, D, H, W, m), see `Convolution`."""

    n_axes = 3


class TransposedConvolution(Kernel):
    """Add a copy of the kernel to Z for each entry of A_prev, `stride` positions apart.

        Z[o, q, k] = b[o] + sum of W[c, o, i] A_prev[c, p, k]
                     over c and all p, i with p * stride + i * dilation - padding = q

    A_prev (C, *lengths, m), W (C, O / groups, *kernel_size), b (O, 1, ..., 1), Z (O,
    *lengths of Z, m).

    The arguments are those of `Kernel`, with C = in_channels and O = out_channels;
    `padding` positions are cut off on both sides of an axis of Z. An axis of length n
    becomes (n - 1) stride + dilation (kernel_size - 1) + 1 - 2 padding long. W is drawn
    by `he`; of the C / groups * prod(kernel_size) weights of an output channel, one in
    prod(stride) acts on each position, so W is multiplied by sqrt(prod(stride)).

    It is a convolution's backward_input with the same W. In matrices, with the columns
    of the windows of dZ:

        Z = fold(W^T A_prev) + b                                    db = row sums of dZ
        dA_prev = W columns          dW = A_prev columns^T

    So <convolve(X), Y> = <X, convolve_transposed(Y)> for all X and Y: compared with
    convolution, forward and backward are swapped.

    Source: Dumoulin and Visin 2016, arXiv 1603.07285, chapter 4.
    """

    def shape_of_W(self) -> tuple[int, ...]:
        return self.in_channels, self.out_channels // self.groups, *self.windows.kernel_size

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        return super().draw(rng) * np.sqrt(math.prod(self.windows.stride))

    def output_lengths(self, lengths: Shape) -> Shape:
        w = self.windows
        axes = zip(lengths, w.stride, w.span, w.padding)
        painted = tuple((n - 1) * s + span - sum(pad) for n, s, span, pad in axes)
        if min(painted) < 1:
            raise ValueError(
                f"{self!r}: spatial axes of lengths {lengths} would become {painted}, "
                f"but each must be at least 1: use less padding than {w.padding}"
            )
        return painted

    def macs(self, shape: Shape) -> int:
        return math.prod(shape) * math.prod(self.shape_of_W()[1:])

    def product(self, W: np.ndarray, A_prev: np.ndarray, shape: Shape) -> np.ndarray:
        return convolve_transposed(W, A_prev, self.windows, self.groups, shape)

    def backward_input(self, dZ: np.ndarray) -> np.ndarray:
        A_prev = self.cached(dZ)
        return convolve(as_dtype_of(dZ, self.W), dZ, self.windows, self.groups, A_prev.shape)

    def product_for_W(self, dZ: np.ndarray, A_prev: np.ndarray) -> np.ndarray:
        return correlate(A_prev, dZ, self.windows, self.groups)


@LAYERS(examples=lambda: [(ConvTranspose1d(2, 3, 3, stride=2, padding=1), (2, 5))])
class ConvTranspose1d(TransposedConvolution):
    """The `TransposedConvolution` of sequences: A_prev (C, L, m), Z (O, L', m).

    >>> layer = ConvTranspose1d(1, 1, kernel_size=3, stride=2)
    >>> layer.W, layer.b = np.array([[[1.0, 2.0, 3.0]]]), np.zeros((1, 1, 1))
    >>> layer.forward(np.array([1.0, 10.0]).reshape(1, 2, 1)).ravel()
    array([ 1.,  2., 13., 20., 30.])
    """

    n_axes = 1


@LAYERS(examples=lambda: [
    (ConvTranspose2d(4, 2, (3, 2), padding=(1, 0), groups=2, dilation=2), (4, 3, 5)),
    (ConvTranspose2d(2, 2, 1, stride=3, bias=False), (2, 3, 2)),
])
class ConvTranspose2d(TransposedConvolution):
    """The `TransposedConvolution` of images: A_prev (C, H, W, m), Z (O, H', W', m).

    >>> layer = ConvTranspose2d(8, 3, kernel_size=4, stride=2, padding=1)
    >>> layer.initialize(np.random.default_rng(0))
    >>> layer.forward(np.zeros((8, 5, 7, 2))).shape
    (3, 10, 14, 2)
    """

    n_axes = 2


@LAYERS(examples=lambda: [(ConvTranspose3d(1, 2, 2, stride=(1, 2, 3)), (1, 2, 3, 1))])
class ConvTranspose3d(TransposedConvolution):
    """The `TransposedConvolution` of volumes, A_prev (C, D, H, W, m)."""

    n_axes = 3
