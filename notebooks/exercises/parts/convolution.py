"""What notebooks 13 to 15 ask for: convolutions and max pooling backward, windows, and a width."""

import numpy as np

import minipipe as mp

from ..judging import Part, calls
from .layers import how_many


def of_conv_backward(my):
    """Yield the derivatives of three convolutions, with steps of one, two and three places."""
    rng = np.random.default_rng(13)
    for n, k, stride, m in ((8, 5, 1, 1), (8, 3, 2, 2), (7, 2, 3, 3)):
        A_prev, w, dZ = (rng.integers(1, 20, shape) / 2 for shape in ((n, m), k, ((n - k) // stride + 1, m)))
        handed = my.conv_backward(dZ, w, A_prev, stride)
        yield "The number of values that conv_backward returns", how_many(handed)
        for name, value in zip(("dA_prev", "dw", "db"), handed):
            yield f"{name}, with n = {n}, k = {k} and stride {stride}", as_array(value)


def of_unfold(my):
    """Yield the columns of three arrays, all numbers of which differ."""
    for C, L, m, k in ((1, 5, 1, 3), (2, 5, 1, 3), (3, 6, 2, 2)):
        A = np.arange(100.0, 100 + C * L * m).reshape(C, L, m)
        yield f"unfold(A, {k}) for A of shape {A.shape}", as_array(my.unfold(A, k))


def as_array(value):
    """Return lists as an array, and all else as it is."""
    return np.array(value) if isinstance(value, (list, tuple)) else value


TERM, SUM = "dA_prev[place] += w[i] * dZ[p]", "dw[i] += dZ[p] @ A_prev[place]"
PLACE, END = "place = p * stride + i", "return dA_prev, dw, dZ.sum()"
WIDTH = "width += (kernel_size - 1) * dilation * apart"
STACK = "np.stack([A[:, i:i + n_windows] for i in range(k)], axis=1).reshape(len(A) * k, -1)"

CONV_BACKWARD_MISTAKES = [
    (TERM, TERM.replace("+=", "="), "Your dA_prev keeps one window's term only. Windows overlap: use +=."),
    (TERM, "dA_prev[place] = dA_prev[place] if dA_prev[place].any() else w[i] * dZ[p]",
     "Your dA_prev keeps one window's term only. Windows overlap: use +=."),
    (SUM, SUM.replace("+=", "="), "Your dw keeps one window's term only. All windows use it: add with +=."),
    (TERM, "dA_prev[place] += w[len(w) - 1 - i] * dZ[p]",
     "Your dA_prev turns the kernel round once too often. Entry i of window p is the weight w[i]."),
    (PLACE, "place = p + i", "Your windows begin at p. With a stride, window p begins at place p * stride."),
    (END, "return dA_prev, dw, dZ.sum(axis=0)", "Your db has a number for each sample, but there is one b."),
    (END, "m = len(A_prev[0])\n    return dA_prev, dw / m, dZ.sum() / m",
     "Your dw and db are divided by m. dZ has been already."),
    (END, "return dA_prev, dw, dZ.sum() * len(w)", "Your db is added k times. Each window has b once."),
    (END, "return dw, dA_prev, dZ.sum()", "The order is dA_prev, dw, db."),
]
UNFOLD_MISTAKES = [
    (STACK, STACK.replace("axis=1", "axis=0"),
     "Your rows go entry by entry. Row c k + i is entry i of channel c: stack along axis 1."),
    (STACK, STACK.replace("reshape(len(A) * k, -1)", "reshape(-1, len(A) * k).T"),
     "Your numbers are filled in column by column. A row is one entry of all windows."),
    (STACK, STACK + ".T", "Your matrix is turned round: a window is a column."),
    (STACK, STACK.replace("i:i + n_windows", "i:i + n_windows - 1"),
     "Your last window is missing: there are L - k + 1."),
    (STACK, STACK.replace("axis=1)", "axis=1).swapaxes(2, 3)"),
     "Your columns go sample by sample. Those of window 0 come first, one for each sample."),
]
RECEPTIVE_FIELD_MISTAKES = [
    (WIDTH, "width += (kernel_size - 1) * dilation",
     "Your strides count nowhere. After a stride of 2, neighbours are two inputs apart."),
    (WIDTH, "width += (kernel_size - 1) * apart",
     "Your dilations count nowhere: the entries of a kernel are that many places apart."),
    (WIDTH, "width += kernel_size * dilation * apart",
     "Each of your layers adds too much: a kernel of k has k - 1 steps between its entries."),
    (WIDTH, "width += (kernel_size * dilation - 1) * apart",
     "Your kernel covers too much: it has k - 1 steps of d places each, d (k - 1)."),
    ("width, apart = 1, 1", "width, apart = 0, 1", "You count steps, not inputs: a kernel of 1 sees one."),
    (WIDTH + "\n        apart *= stride", "apart *= stride\n        " + WIDTH,
     "A layer's own stride does not widen what it sees: count it for the layers after it."),
]


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
    (ADD, ADD.replace("+=", "="), "Your dA_prev is overwritten where windows share a maximum: add with +=."),
    (ADD, f"{HERE} += dA[p, q] * (window == window.max())",
     "Each of the equal numbers gets all of your dA, so it counts several times. The first gets it."),
    (ADD, f"{HERE} += dA[p, q] * (window == window.max()) / (window == window.max()).sum()",
     "You share dA among equal numbers. That can be defended, but here the first one gets it."),
    (FIRST, "i, j = np.argwhere(window == window.max())[-1]",
     "Of equal numbers, your last one gets dA. Is there a >= that should be a >?"),
    (CORNER, "top, left = p, q", "Your stride is forgotten: window (p, q) is at (p * stride, q * stride)."),
    (CORNER, "top, left = p * size, q * size", "Your windows begin `size` places apart: it is `stride`."),
    (ADD, f"{HERE} += dA[p, q] / size ** 2", "That is average pooling. Here the maximum gets all of dA."),
    (ADD, "dA_prev[top + i, left + j] += dA[p, q] * (window[i, j] > 0)",
     "Where all numbers of a window are negative, nobody gets your dA. Did the search begin at 0?"),
    (ADD, "dA_prev[i, j] += dA[p, q]", "Your i and j count from the window's corner: add `top` and `left`."),
]
BACKWARD_BY_FORWARD_MISTAKES = [
    (TURN, "W.swapaxes(0, 1)", "Your kernels are not turned. Entry (i, j) is at (-i, -j) on the way back."),
    (TURN, "W[:, :, ::-1].swapaxes(0, 1)", "Your kernels are flipped along the rows only: both axes."),
    (TURN, "W.transpose(1, 0, 3, 2)", "Your kernels are transposed: turn them by 180 degrees: [::-1, ::-1]."),
    (TURN, "W[:, :, ::-1, ::-1]", "Input and output channels are not exchanged: dZ has O, dA_prev C."),
    (TURN, "W[::-1, ::-1, ::-1, ::-1].swapaxes(0, 1)", "Channels are turned, too: only the last two axes."),
    (PADDING, "padding=0", "Put kernel size - 1 zeros around dZ, so that the kernel also is on its corners."),
]

PARTS = [
    Part("conv_backward", 13, of_conv_backward, CONV_BACKWARD_MISTAKES,
         "each pair of a window and a weight adds one term to dA_prev and one to dw."),
    Part("unfold", 13, of_unfold, UNFOLD_MISTAKES,
         "each column is a window, and a convolution is a Linear layer on the columns."),
    Part("receptive_field", 14, calls("receptive_field", "layers", [
        ([(3, 1, 1)],), ([(3, 1, 1), (3, 1, 1)],), ([(3, 2, 1), (3, 1, 2)],), ([(1, 1, 1)],), ([(5, 1, 4)],),
        ([(2, 3, 2), (4, 2, 1), (3, 1, 1)],)]), RECEPTIVE_FIELD_MISTAKES,
         "each layer adds d (k - 1) steps, as long as the product of the strides before it."),
    Part("max_pool_backward", 15, of_max_pool_backward, MAX_POOL_BACKWARD_MISTAKES,
         "each dA goes to the first of the largest numbers of its window."),
    Part("backward_by_forward", 15, of_backward_by_forward, BACKWARD_BY_FORWARD_MISTAKES,
         "a convolution of dZ in zeros, with kernels turned and channels exchanged.", given=(("mp", mp),)),
]
