"""What notebook 15 asks for: max pooling, backward; and the backward pass of a convolution as a forward."""

import numpy as np

import minipipe as mp

from ..judging import Part
from .convolution import as_array


def of_max_pool_backward(my):
    """Yield dA_prev of four images: all numbers differ, none is positive, some are equal, windows overlap."""
    rng = np.random.default_rng(6)
    cases = (
        ("with all numbers different", rng.permutation(24).reshape(4, 6), 2, 2),
        ("with negative numbers", -1 - rng.permutation(16).reshape(4, 4), 2, 2),
        ("with equal numbers", np.array([[3, 3, 0, 0], [3, 1, 0, 0], [1, 2, 2, 5], [2, 2, 5, 5]]), 2, 2),
        ("with windows that overlap", rng.permutation(35).reshape(5, 7), 3, 2),
    )
    for words, A_prev, size, stride in cases:
        n_windows = [(n - size) // stride + 1 for n in A_prev.shape]
        dA = rng.integers(1, 40, n_windows) / 4
        yield f"dA_prev {words}", as_array(my.max_pool_backward(dA, A_prev.astype(float), size, stride))


def of_backward_by_forward(my):
    """Yield dA_prev of two convolutions, the second with another number of channels and no square kernel."""
    rng = np.random.default_rng(8)
    for n_out, n_in, kernel, m in ((2, 2, (3, 3), 1), (3, 2, (2, 3), 2)):
        W = rng.integers(1, 20, (n_out, n_in, *kernel)) / 2
        dZ = rng.integers(1, 20, (n_out, 6 - kernel[0], 7 - kernel[1], m)) / 2
        yield f"dA_prev, with W {W.shape} and dZ {dZ.shape}", as_array(my.backward_by_forward(dZ, W))


ADD = "dA_prev[top + i, left + j] += dA[p, q]"
FIRST = "i, j = np.unravel_index(window.argmax(), window.shape)"
CORNER = "top, left = p * stride, q * stride"
HERE = "dA_prev[top:top + size, left:left + size]"
TURN, PADDING = "W[:, :, ::-1, ::-1].swapaxes(0, 1)", "padding=(height - 1, width - 1)"

MAX_POOL_BACKWARD_MISTAKES = [
    (ADD, ADD.replace("+=", "="),
     "Your dA_prev is overwritten where windows share their largest number: add with +=."),
    (ADD, f"{HERE} += dA[p, q] * (window == window.max())",
     "Each of the equal numbers gets all of your dA, so it counts several times. The first gets it."),
    (ADD, f"{HERE} += dA[p, q] * (window == window.max()) / (window == window.max()).sum()",
     "You share dA among equal numbers. That can be defended, but here the first one gets it."),
    (FIRST, "i, j = np.argwhere(window == window.max())[-1]",
     "Of equal numbers, your last one gets dA. Is there a >= that should be a >?"),
    (CORNER, "top, left = p, q",
     "Your stride is forgotten: window (p, q) begins at (p * stride, q * stride)."),
    (CORNER, "top, left = p * size, q * size", "Your windows begin `size` places apart: it is `stride`."),
    (ADD, f"{HERE} += dA[p, q] / size ** 2",
     "That is average pooling. Here the largest number alone moves A, and gets all of dA."),
    (ADD, "dA_prev[top + i, left + j] += dA[p, q] * (window[i, j] > 0)",
     "Where all numbers of a window are negative, nobody gets your dA. Did the search begin at 0?"),
    (ADD, "dA_prev[i, j] += dA[p, q]",
     "Your i and j count from the corner of the window: add `top` and `left`."),
]
BACKWARD_BY_FORWARD_MISTAKES = [
    (TURN, "W.swapaxes(0, 1)",
     "Your kernels are not turned. Entry (i, j) took A_prev at (p + i, q + j): back is (-i, -j)."),
    (TURN, "W[:, :, ::-1].swapaxes(0, 1)", "Your kernels are flipped along the rows only: both axes."),
    (TURN, "W[:, :, :, ::-1].swapaxes(0, 1)", "Your kernels are flipped along the columns only: both axes."),
    (TURN, "W.transpose(1, 0, 3, 2)",
     "Your kernels are transposed: turn them by 180 degrees, with [::-1, ::-1]."),
    (TURN, "W[:, :, ::-1, ::-1]",
     "Input and output channels are not exchanged: dZ has O channels, dA_prev has C."),
    (TURN, "W[::-1, ::-1, ::-1, ::-1].swapaxes(0, 1)",
     "Your channels are in reverse order, too: flip only the last two axes."),
    (PADDING, "padding=0", "Put kernel size - 1 zeros around dZ, so that the kernel also is on its corners."),
    (PADDING, "padding=(height, width)", "Your kernel hangs out too far: kernel size - 1 zeros are enough."),
    (PADDING, "padding=(width - 1, height - 1)",
     "Your zeros along the two axes are exchanged: height - 1 of rows, width - 1 of columns."),
]

PARTS = [
    Part("max_pool_backward", 15, of_max_pool_backward, MAX_POOL_BACKWARD_MISTAKES,
         "each dA goes to the first of the largest numbers of its window."),
    Part("backward_by_forward", 15, of_backward_by_forward, BACKWARD_BY_FORWARD_MISTAKES,
         "a convolution of dZ with zeros around it, turned kernels, and channels "
         "exchanged.", given=(("mp", mp),)),
]
