"""What notebooks 13 and 14 ask for: the backward pass of a convolution, its windows as columns, and how far a
stack of convolutions sees.
"""

import numpy as np

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
    (TERM, TERM.replace("+=", "="),
     "Your dA_prev keeps one window's term only. A place is in several windows: add with +=."),
    (TERM, "dA_prev[place] = dA_prev[place] if dA_prev[place].any() else w[i] * dZ[p]",
     "Your dA_prev keeps one window's term only. A place is in several windows: add with +=."),
    (SUM, SUM.replace("+=", "="),
     "Your dw keeps one window's term only. Each weight is used in every window: add with +=."),
    (TERM, "dA_prev[place] += w[len(w) - 1 - i] * dZ[p]",
     "Your dA_prev turns the kernel round once too often. Entry i of window p is the weight w[i]."),
    (PLACE, "place = p + i", "Your windows begin at p. With a stride, window p begins at place p * stride."),
    (END, "return dA_prev, dw, dZ.sum(axis=0)",
     "Your db has a number for each sample. There is one b, so add over the samples, too."),
    (END, "return dA_prev, dw / len(A_prev[0]), dZ.sum()",
     "Your dw is divided by m. The 1/m is in dZ already: add up."),
    (END, "return dA_prev, dw, dZ.sum() * len(w)",
     "Your db is added in the loop over the kernel, k times. Each window has b once."),
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
    ("width, apart = 1, 1", "width, apart = 0, 1",
     "You count steps, not inputs: one layer with a kernel of 1 sees 1 input."),
    ("apart *= stride", "apart += stride - 1", "You add strides: they multiply each other."),
    (WIDTH + "\n        apart *= stride", "apart *= stride\n        " + WIDTH,
     "A layer's own stride does not widen what it sees: count it for the layers after it."),
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
]
