"""Transposed convolution over one, two or three axes."""

import math

import numpy as np

from .banded_products import convolve, convolve_transposed, correlate
from .convolution import Kernel
from .layer import LAYERS, as_dtype_of
from .windows import Windows, per_axis, shortest


class TransposedConvolution(Kernel):
    """Each number of A_prev paints a kernel into Z, `stride` positions further on than its neighbour.

        Z[o, q, k] = b[o] + sum of W[c, o, i] A_prev[c, p, k]
                     over c and all p, i with p * stride + i * dilation - padding = q

    A_prev (C, *lengths, m), W (C, O / groups, *kernel_size), b (O, 1, ..., 1), Z (O, *lengths of Z, m).

    in_channels, out_channels: C and O.
    kernel_size: a whole number, or a tuple of one per spatial axis; so are stride, padding, output_padding
        and dilation.
    stride: positions of Z from one kernel to the next.
    padding: positions that are cut off on both sides of an axis of Z.
    output_padding: positions added behind. A convolution with stride s makes s different lengths equal;
        this tells which of them to return to.
    groups: output channel o sees only the C / groups input channels of its own group.
    bias: whether b is added.
    dilation: positions from one entry of the kernel to the next.

    An axis of length n becomes (n - 1) stride + dilation (kernel_size - 1) + 1 - 2 padding + output_padding
    long. Defaults are PyTorch's. W is drawn by `he`; of the C / groups * prod(kernel_size) weights of an
    output channel, one in prod(stride) meets at each position. Options that cannot be raise `ValueError`.

    It is a convolution's backward_input with the same W. In matrices, with the columns of the windows of dZ:

        Z = fold(W^T A_prev) + b      dA_prev = W columns      dW = A_prev columns^T      db = row sums of dZ

    So <convolve(X), Y> = <X, convolve_transposed(Y)> for all X and Y: forward and backward have
    changed sides.

    Source: Dumoulin and Visin 2016, arXiv 1603.07285, chapter 4.
    """

    def __init__(
        self, in_channels, out_channels, kernel_size,
        stride=1, padding=0, output_padding=0, groups=1, bias=True, dilation=1,
    ):
        if isinstance(padding, str) and padding == "same":
            raise ValueError('padding="same" is for convolutions: give a transposed one whole numbers')
        windows = Windows.of(self.n_axes, kernel_size, stride, padding, dilation)
        self.output_padding = per_axis("output_padding", output_padding, self.n_axes, 0)
        for extra, s, d in zip(self.output_padding, windows.stride, windows.dilation):
            if extra >= max(s, d):
                raise ValueError(
                    f"output_padding={extra} must be below the larger of stride={s} and dilation={d}"
                )
        super().__init__(in_channels, out_channels, windows, groups, bias)

    def argument(self, name):
        return shortest(self.output_padding) if name == "output_padding" else super().argument(name)

    def shape_of_W(self):
        return self.in_channels, self.out_channels // self.groups, *self.windows.kernel_size

    def draw(self, rng):
        return super().draw(rng) * np.sqrt(math.prod(self.windows.stride))

    def output_lengths(self, lengths):
        w = self.windows
        axes = zip(lengths, w.stride, w.span, w.padding, self.output_padding)
        painted = tuple((n - 1) * s + span - sum(pad) + extra for n, s, span, pad, extra in axes)
        if min(painted) < 1:
            raise ValueError(
                f"{self!r}: spatial axes of lengths {lengths} would become {painted}, "
                f"but each must be at least 1: use less padding than {w.padding}"
            )
        return painted

    def macs(self, shape):
        return math.prod(shape) * math.prod(self.shape_of_W()[1:])

    def product(self, W, A_prev, shape):
        return convolve_transposed(W, A_prev, self.windows, self.groups, shape)

    def backward_input(self, dZ):
        A_prev = self.cached(dZ)
        return convolve(as_dtype_of(dZ, self.W), dZ, self.windows, self.groups, A_prev.shape)

    def product_for_W(self, dZ, A_prev):
        return correlate(A_prev, dZ, self.windows, self.groups)


@LAYERS(
    examples=lambda: [(ConvTranspose1d(2, 3, 3, stride=2, padding=1, output_padding=1), (2, 5))],
    source="arXiv 1603.07285",
)
class ConvTranspose1d(TransposedConvolution):
    """Transposed convolution over one axis: A_prev (C, L, m), W (C, O / groups, kernel), Z (O, L', m).

    >>> layer = ConvTranspose1d(1, 1, kernel_size=3, stride=2)
    >>> layer.W, layer.b = np.array([[[1.0, 2.0, 3.0]]]), np.zeros((1, 1, 1))
    >>> layer.forward(np.array([1.0, 10.0]).reshape(1, 2, 1)).ravel()
    array([ 1.,  2., 13., 20., 30.])
    """

    n_axes = 1


@LAYERS(source="arXiv 1603.07285", examples=lambda: [
    (ConvTranspose2d(4, 2, (3, 2), padding=(1, 0), groups=2, dilation=2), (4, 3, 5)),
    (ConvTranspose2d(2, 2, 1, stride=3, output_padding=2, bias=False), (2, 3, 2)),
])
class ConvTranspose2d(TransposedConvolution):
    """Transposed convolution over images.

    A_prev (C, H, W, m), W (C, O / groups, *kernel_size), Z (O, H', W', m).

    >>> layer = ConvTranspose2d(8, 3, kernel_size=4, stride=2, padding=1)
    >>> layer.initialize(np.random.default_rng(0))
    >>> layer.forward(np.zeros((8, 5, 7, 2))).shape
    (3, 10, 14, 2)
    """

    n_axes = 2


@LAYERS(
    examples=lambda: [(ConvTranspose3d(1, 2, 2, stride=(1, 2, 3)), (1, 2, 3, 1))],
    source="arXiv 1603.07285",
)
class ConvTranspose3d(TransposedConvolution):
    """Transposed convolution over volumes.

    A_prev (C, D, H, W, m), W (C, O / groups, *kernel_size), Z (O, D', H', W', m).
    """

    n_axes = 3
