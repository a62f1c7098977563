"""Convolution over one, two or three axes."""

import math
from dataclasses import replace

import numpy as np

from ..arguments import argument

from .banded_products import convolve, convolve_transposed, correlate
from .initialization import he
from .layer import LAYERS, Layer, as_dtype_of
from .through import in_one_piece
from .windows import ARGUMENTS, Windows


class Kernel(Layer):
    """What convolution and its transpose share: parameters, checks, bias.

    `n_axes` is the number of spatial axes.

    in_channels, out_channels: of A_prev and of Z.
    windows: the `Windows` of the kernel.
    groups: into how many parts the channels are divided, each with a product of its own.
    bias: whether b is added.
    """

    n_axes = None
    joins_samples = True

    def __init__(self, in_channels, out_channels, windows, groups, bias):
        in_channels = argument("in_channels", in_channels)
        out_channels = argument("out_channels", out_channels)
        groups = argument("groups", groups)
        if in_channels % groups or out_channels % groups:
            raise ValueError(
                f"groups={groups} does not divide both in_channels={in_channels} "
                f"and out_channels={out_channels}: use a divisor of {math.gcd(in_channels, out_channels)}"
            )
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.windows, self.bias = windows, argument("bias", bias)

    def draw(self, rng):
        n_prev = self.in_channels // self.groups * math.prod(self.windows.kernel_size)
        return he(rng, n_prev, self.out_channels)

    def forward(self, A_prev):
        shape = self.checked_input(A_prev)
        Z = self.product(as_dtype_of(A_prev, self.W), A_prev, shape)
        if self.b is not None:
            Z += as_dtype_of(A_prev, self.b)
        self.cache = A_prev
        return Z

    def backward_weight(self, dZ):
        A_prev = self.cached(dZ)
        dW = in_one_piece(self.product_for_W(dZ, A_prev).reshape(self.shape_of_W()))
        if self.b is None:
            return dW, None
        rows = dZ.reshape(len(dZ), -1)
        ones = np.full((rows.shape[1], 1), 1, dZ.dtype, like=dZ)  # row sums as a matrix product, as in Linear
        return dW, (rows @ ones).reshape(self.b.shape)

    def output_shape(self, shape):
        if len(shape) != self.n_axes + 2 or shape[0] != self.in_channels:
            lengths = ", ".join("DHW"[-self.n_axes:])
            raise ValueError(
                f"{self!r} needs A_prev of shape ({self.in_channels}, {lengths}, m), got {shape}: "
                "channels are the first axis, samples the last"
            )
        return self.out_channels, *self.output_lengths(shape[1:-1]), shape[-1]

    def argument(self, name):
        return self.windows.argument(name) if name in ARGUMENTS else super().argument(name)

    def parameter_shapes(self):
        shape_of_b = self.out_channels, *(1,) * (self.n_axes + 1)
        return self.shape_of_W(), shape_of_b if self.bias else None


class Convolution(Kernel):
    """Z[o, p, k] = sum_{c, i} W[o, c, i] A_prev[c, p * stride + i * dilation - padding, k] + b[o]

    A_prev (C, *lengths, m), W (O, C / groups, *kernel_size), b (O, 1, ..., 1), Z (O, *windows, m).
    The position p and the entry i of the kernel have one index per spatial axis; a position outside A_prev
    counts as 0.

    in_channels, out_channels: C and O.
    kernel_size: a whole number, or a tuple of one per spatial axis; so are stride, padding and dilation.
    stride: positions from one window to the next.
    padding: zeros on both sides of an axis; "same" keeps the length, the odd zero going behind.
    dilation: positions from one entry of the kernel to the next.
    groups: output channel o sees only the C / groups input channels of its own group.
    bias: whether b is added.

    There are (n + 2 padding - dilation (kernel_size - 1) - 1) // stride + 1 windows on an axis of length n.
    Defaults are PyTorch's. W is drawn by `he` with the C / groups * prod(kernel_size) inputs of an output.
    Options that cannot be, and a kernel that does not fit into A_prev, raise `ValueError`.

    Unfold A_prev: let column (p, k) of a matrix list all numbers that window p of sample k covers,
    columns[(c, i), (p, k)] = A_prev[c, p * stride + i * dilation - padding, k]. Then this is the
    Linear layer:

        Z = W columns + b      dcolumns = W^T dZ      dW = dZ columns^T      db = row sums of dZ

    A_prev[c, q, k] stands in `columns` once for each window that covers position q, so dA_prev sums
    dcolumns over these (`fold`). No product divides by m and each sum over k runs over samples,
    so the gradients of micro-batches add up. The matrix is prod(kernel_size) times as large as A_prev;
    only a band of it exists at a time, and backward unfolds again instead of caching.

    Sources: LeCun et al. 1989, Neural Computation 1(4); the matrix product: Chellapilla, Puri, Simard 2006.
    """

    def __init__(
        self, in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True
    ):
        windows = Windows.of(self.n_axes, kernel_size, stride, padding, dilation)
        super().__init__(in_channels, out_channels, windows, groups, bias)

    @property
    def halo(self) -> int | None:
        """How far the windows around a row reach up and down; None if a row of Z has not a row of A_prev."""
        stride, span, padding = self.windows.stride[0], self.windows.span[0], self.windows.padding[0]
        reach = span // 2
        return reach if stride == 1 and span % 2 == 1 and padding == (reach, reach) else None

    @property
    def splits(self) -> dict:
        by_channels = {"outputs": {"W": 0, "b": 0}, "inputs": {"W": 1}} if self.groups == 1 else {}
        return by_channels if self.halo is None else by_channels | {"rows": {"W": None, "b": None}}

    def part(self, how: str, rank: int, size: int) -> "Convolution":
        part = super().part(how, rank, size)
        if how == "rows":  # what would be padding lies in the neighbours' rows
            part.windows = replace(part.windows, padding=((0, 0), *part.windows.padding[1:]))
        else:
            (part.out_channels, part.in_channels), part.bias = part.W.shape[:2], part.b is not None
        return part

    def shape_of_W(self):
        return self.out_channels, self.in_channels // self.groups, *self.windows.kernel_size

    def output_lengths(self, lengths):
        return self.windows.count(lengths)

    def macs(self, shape):
        return math.prod(self.output_shape(shape)) * math.prod(self.shape_of_W()[1:])

    def product(self, W, A_prev, shape):
        return convolve(W, A_prev, self.windows, self.groups, shape)

    def backward_input(self, dZ):
        A_prev = self.cached(dZ)
        return convolve_transposed(as_dtype_of(dZ, self.W), dZ, self.windows, self.groups, A_prev.shape)

    def product_for_W(self, dZ, A_prev):
        return correlate(dZ, A_prev, self.windows, self.groups)


@LAYERS(source="LeCun et al. 1989, Neural Computation 1(4)", examples=lambda: [
    (Conv1d(2, 3, 5), (2, 8)),
    (Conv1d(1, 2, 3, stride=2, padding=3, dilation=4), (1, 9)),
])
class Conv1d(Convolution):
    """Convolution over one axis: A_prev (C, L, m), W (O, C / groups, kernel), Z (O, L', m).

    A kernel of 5 on 8 numbers has 8 - 5 + 1 = 4 positions to be:

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


@LAYERS(source="LeCun et al. 1989, Neural Computation 1(4)", examples=lambda: [
    (Conv2d(2, 3, (3, 2)), (2, 5, 7)),
    (Conv2d(1, 2, (4, 3), padding="same", dilation=(1, 2)), (1, 3, 5)),
    (Conv2d(4, 6, (2, 3), stride=(2, 3), padding=(1, 2), dilation=(3, 1), groups=2), (4, 7, 9)),
    (Conv2d(4, 6, (2, 3), padding=1, groups=2), (4, 3, 4)),
    (Conv2d(3, 6, 3, padding=1, groups=3, bias=False), (3, 5, 3)),  # depthwise
    (Conv2d(3, 2, 1), (3, 3, 4)),
    (Conv2d(1, 1, 1, stride=3), (1, 7, 5)),  # gaps between windows
])
class Conv2d(Convolution):
    """Convolution over images: A_prev (C, H, W, m), W (O, C / groups, *kernel_size), Z (O, H', W', m).

    >>> layer = Conv2d(3, 8, kernel_size=3, padding="same")
    >>> layer.initialize(np.random.default_rng(0))
    >>> layer.forward(np.zeros((3, 5, 7, 2))).shape
    (8, 5, 7, 2)
    """

    n_axes = 2


@LAYERS(
    examples=lambda: [(Conv3d(2, 2, (2, 3, 1), stride=(1, 2, 1), padding=1, groups=2), (2, 3, 5, 2))],
    source="LeCun et al. 1989, Neural Computation 1(4)",
)
class Conv3d(Convolution):
    """Convolution over volumes.

    A_prev (C, D, H, W, m), W (O, C / groups, *kernel_size), Z (O, D', H', W', m).
    """

    n_axes = 3
