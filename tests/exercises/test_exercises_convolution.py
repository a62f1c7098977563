"""Solutions of the exercises in notebooks 09, 10 and 11, what their checkers say to typical wrong answers,
and their pictures.
"""

from fractions import Fraction
from math import prod

import numpy as np
import pytest
from notebooks.checkers import are_named, are_not_solved_yet, are_refused, are_right, of_each
from notebooks.template import solutions
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from exercises import convolution_pictures as pictures
from exercises.convolution import check_backward, check_length, check_matrix, check_receptive_field

CHECKERS = [check_length, check_backward, check_matrix, check_receptive_field]

# ---------------------------------------------------------------- solutions

notebook, in_two_dimensions, channels = map(solutions, ("09", "11", "10"))
length = notebook.length
backward = notebook.conv_backward
matrix = in_two_dimensions.matrix
receptive_field = channels.receptive_field


def backward_with_slices(dZ, w, A_prev, stride):
    """Loops over the kernel only; lists instead of arrays; db as an array without axes."""
    places = [slice(i, i + (len(dZ) - 1) * stride + 1, stride) for i in range(len(w))]
    dA_prev = np.zeros_like(A_prev)
    for i, here in enumerate(places):
        dA_prev[here] += w[i] * dZ
    return [dA_prev.tolist(), [(dZ * A_prev[here]).sum() for here in places], np.array(dZ.sum())]


def receptive_field_from_the_end(layers):
    width = 1
    for k, s, d in reversed(layers):
        width = (width - 1) * s + d * (k - 1) + 1
    return width


SOLUTIONS = [
    (check_length, length),
    (check_length, lambda n, k, s, p, d: Fraction((n + 2 * p - d * (k - 1) - 1) // s + 1)),
    (check_length, lambda n, k, s, p, d: len(range(0, n + 2 * p - d * (k - 1), s))),
    (check_backward, backward),
    (check_backward, backward_with_slices),
    (check_matrix, matrix),
    (check_matrix, lambda w, n, stride: matrix(w, n, 1)[::stride].tolist()),
    (check_receptive_field, receptive_field),
    (check_receptive_field, receptive_field_from_the_end),
]
test_solutions = are_right(SOLUTIONS)


# ---------------------------------------------------------------- half solved

test_stubs = are_not_solved_yet([
    (check_backward, lambda *given: (backward(*given)[0], None, None)),
    (check_backward, lambda *given: (*backward(*given)[:2], None)),
])


# ---------------------------------------------------------------- typical wrong answers

LENGTH = [
    (lambda n, k, s, p, d: (n + 2 * p - d * (k - 1) - 1) // s, "Off by one: that counts the steps"),
    (lambda n, k, s, p, d: (n + 2 * p - d * (k - 1)) // s + 1, "Off by one: a window spans"),
    (lambda n, k, s, p, d: (n + 2 * p - d * (k - 1)) // s, "stands behind the division"),
    (lambda n, k, s, p, d: (n + 2 * p - d * (k - 1) - 1) / s + 1, "no halves of windows"),
    (lambda n, k, s, p, d: int(np.ceil((n + 2 * p - d * (k - 1) - 1) / s)) + 1, "You rounded up"),
    (lambda n, k, s, p, d: (n + p - d * (k - 1) - 1) // s + 1, "on both sides: it is 2 * padding"),
    (lambda n, k, s, p, d: (n - d * (k - 1) - 1) // s + 1, "The padding is missing"),
    (lambda n, k, s, p, d: (n + 2 * p - k) // s + 1, "The dilation is missing"),
    (lambda n, k, s, p, d: (n + 2 * p - d * k) // s + 1, "dilation * kernel_size is too wide"),
    (lambda n, k, s, p, d: n + 2 * p - d * (k - 1), "The stride is missing"),
    (lambda n, k, s, p, d: n - k + 1, "the first example only"),
    (lambda n, k, s, p, d: n - k, "Off by one already in the first example: 8 - 5 + 1 = 4"),
    (lambda n, k, s, p, d: (n - 1) * s - 2 * p + d * (k - 1) + 1, "the transposed convolution"),
    (lambda n, k, s, p, d: 4,
     "Right for some numbers, but not for all. With n = 8, kernel_size = 5, stride = 2, padding = 0"),
    (lambda n, k, s, p, d: n,
     "With n = 8, kernel_size = 5, stride = 1, padding = 0, dilation = 1 the count is 4, yours is 8."),
    (lambda n, k: n - k + 1, "Your function stopped with TypeError"),
    (lambda n, k, s, p, d: "4", "not an array of real numbers"),
    (4, "Pass the function itself"),
]


def with_part(place, change):
    """The right answer of the backward pass, with one of its three parts changed."""
    def wrong(dZ, w, A_prev, stride):
        parts = list(backward(dZ, w, A_prev, stride))
        parts[place] = change(parts[place], dZ, w, A_prev, stride)
        return parts
    return wrong


def overwriting(dA_prev, dZ, w, A_prev, stride):
    wrong = np.zeros_like(A_prev)
    for p, dz in enumerate(dZ):
        wrong[p * stride:p * stride + len(w)] = w[:, None] * dz
    return wrong


def without_stride(place):
    """Window p begins at place p: dZ has fewer windows than that, so only the first places are met."""
    return with_part(place, lambda part, dZ, w, A_prev, stride: backward(dZ, w, A_prev, 1)[place])


def hard_coded(dZ, w, A_prev, stride):
    return backward(dZ, w, A_prev, min(stride, 2))


BACKWARD = [
    (with_part(0, lambda dA, dZ, w, A, s: backward(dZ, w[::-1], A, s)[0]),
     "dA_prev is made with the kernel flipped"),
    (without_stride(0), "With stride 2: the stride is forgotten in dA_prev"),
    (hard_coded, "With stride 3: dA_prev should be"),
    (with_part(0, overwriting), "dA_prev is overwritten where windows overlap"),
    (with_part(0,
               lambda dA, dZ, w, A, s: dA / np.maximum(backward(np.ones_like(dZ), np.ones_like(w), A, s)[0],
                                                       1)),
     "dA_prev is a mean over the windows"),
    (with_part(0, lambda dA, dZ, *_: dA / dZ.shape[1]),
     "dA_prev is 3 times too small: did you divide by m = 3?"),
    (with_part(0, lambda dA, *_: -dA),
     "dA_prev has the wrong sign: it adds w[i] dZ[p] at place p * stride + i"),
    (with_part(0, lambda dA, dZ, *_: dZ), "dA_prev has the shape of dZ, (4, 3)"),
    (with_part(0, lambda dA, dZ, w, A, s: dA[:(len(dZ) - 1) * s + len(w)]),
     "With stride 2: dA_prev has shape (9, 3), but"),
    (with_part(0, lambda dA, *_: dA.T), "dA_prev has shape (3, 8), but it must have shape (8, 3)"),
    (with_part(0, lambda dA, *_: dA + 1), "dA_prev should be"),
    (with_part(1, lambda dw, *_: dw[::-1]), "dw comes out in reverse order"),
    (with_part(1, lambda dw, dZ, w, A, s: backward(dZ[::-1], w, A, s)[1]), "as np.convolve does"),
    (with_part(1,
               lambda dw, dZ, w, A, s: sum(np.convolve(a, z, "valid") for a, z in zip(A.T, dZ.T)) if s == 1
               else dw),
     "as np.convolve does"),
    (without_stride(1), "With stride 2: the stride is forgotten in dw"),
    (with_part(1,
               lambda dw, dZ, w, A, s: backward(dZ * (np.arange(len(dZ)) == len(dZ) - 1)[:, None], w, A,
                                                s)[1]),
     "dw is that of the last window only"),
    (with_part(1, lambda dw, dZ, w, A, s: backward(dZ[:, :1], w, A[:, :1], s)[1]),
     "dw is that of the first sample only"),
    (with_part(1,
               lambda dw, dZ, w, A, s: np.stack([backward(dZ[:, [j]], w, A[:, [j]], s)[1]
                                                 for j in range(A.shape[1])], 1)),
     "dw has shape (5, 3), one column for each sample"),
    (with_part(1, lambda dw, dZ, *_: dw / dZ.shape[1]), "dw is 3 times too small: did you divide by m = 3?"),
    (with_part(1, lambda dw, dZ, *_: dw / len(dZ)),
     "dw is too small: did you take a mean over the 4 windows?"),
    (with_part(1, lambda dw, dZ, *_: dw / dZ.size),
     "dw is too small: did you take a mean over the 4 windows?"),
    (with_part(1, lambda dw, *_: -dw), "dw has the wrong sign"),
    (with_part(1, lambda dw, *_: dw * 2), "dw should be"),
    (with_part(1, lambda dw, *_: dw * 2),
     "dw[i] adds dZ[p] times the number at place p * stride + i, over windows and samples."),
    (with_part(1, lambda dw, *_: dw[None, None]), "dw has shape (1, 1, 5), but it must have shape (5,)"),
    (with_part(2, lambda db, dZ, *_: dZ.sum(axis=0)), "db has shape (3,), one number for each sample"),
    (with_part(2, lambda db, dZ, *_: dZ.sum(axis=1)), "db has shape (4,), one number for each window"),
    (with_part(2, lambda db, dZ, *_: dZ.mean()), "db is too small: did you take a mean over the 4 windows?"),
    (with_part(2, lambda db, dZ, *_: db / dZ.shape[1]), "db is 3 times too small"),
    (with_part(2, lambda db, *_: -db), "db has the wrong sign: it adds all of dZ."),
    (with_part(2, lambda db, dZ, *_: dZ.sum(keepdims=True)),
     "db has shape (1, 1), but it must have shape ()"),
    (with_part(2, lambda db, *_: db + 1), "db should be"),
    (lambda *given: backward(*given)[0], "Return three things"),
    (lambda dZ, w, A_prev, stride: (w @ dZ, None, None), "Your function stopped with ValueError"),
    (lambda dZ, w, A_prev, stride: (w @ dZ, None, None),
     "The shapes are dZ (4, 3), w (5,), A_prev (8, 3), with stride 1."),
]

MATRIX = [
    (lambda w, n, stride: matrix(w, n, stride).T, "C has shape (8, 4), turned round"),
    (lambda w, n, stride: matrix(w, n, 1),
     "With stride 2: C has 7 rows, one for each window of stride 1: there are only 4"),
    (lambda w, n, stride: np.stack([np.roll(np.append(w, np.zeros(n - len(w))), q) for q in range(n)]),
     "C has 8 rows, one for each place"),
    (lambda w, n, stride: matrix(w[::-1], n, stride), "The kernel is flipped"),
    (lambda w, n, stride: matrix(w, n, 1)[:(n - len(w)) // stride + 1],
     "With stride 2: The stride is forgotten"),
    (lambda w, n, stride: matrix(np.ones_like(w), n, stride), "The places are right, the numbers are not"),
    (lambda w, n, stride: matrix(w, n, stride)[::-1], "The rows are in reverse order"),
    (lambda w, n, stride: matrix(w, n, stride) + np.eye((n - len(w)) // stride + 1, n),
     "Row 0 should be [2.0, 1.0, 0.5, -1.0, 3.0, 0.0, 0.0, 0.0], yours is [3.0, 1.0, 0.5, "
     "-1.0, 3.0, 0.0, 0.0, 0.0]"),
    (lambda w, n, stride: w, "C has shape (5,), but it must have shape (4, 8)"),
    (lambda w, n, stride: np.zeros((4, 8)) @ w, "Your function stopped with ValueError"),
    (np.eye(4, 8), "Pass the function itself"),
]


def weighted(distances):
    """A receptive field with another rule for the distance of two neighbours in front of layer number
    `place`.
    """
    return lambda layers: 1 + sum((k - 1) * d * distances(layers, place)
                                  for place, (k, _, d) in enumerate(layers))


def reach(layers):
    return sum(d * (k - 1) for k, _, d in layers)


FIELD = [
    (lambda layers: 1 + reach(layers), "The strides are forgotten"),
    (reach, "Off by one: a stack without layers sees 1 number"),
    (lambda layers: receptive_field(layers) - 1, "Off by one: a stack without layers sees 1 number"),
    (weighted(lambda layers, place: prod(s for _, s, _ in layers[:place + 1])),
     "A layer's own stride is counted too early"),
    (weighted(lambda layers, place: layers[place - 1][1] if place else 1),
     "the stride of the one layer before"),
    (weighted(lambda layers, place: 1 + sum(s - 1 for _, s, _ in layers[:place])),
     "You added up the strides"),
    (lambda layers: receptive_field([(k, s, 1) for k, s, _ in layers]), "The dilation is missing"),
    (weighted(lambda layers, place: prod(s for _, s, _ in layers[place + 1:])),
     "by the strides of the layers behind"),
    (lambda layers: reach(layers) + len(layers), "You added up the spans"),
    (lambda layers: sum((d * (k - 1) + 1) * prod(s for _, s, _ in layers[:i])
                        for i, (k, s, d) in enumerate(layers)),
     "You added up the spans"),
    (lambda layers: prod(k for k, _, _ in layers), "You multiplied the kernel sizes"),
    (lambda layers: max(d * (k - 1) + 1 for k, _, d in layers), "the widest layer alone"),
    (lambda layers: 9,
     "Right for some numbers, but not for all. With layers = [(3, 1, 1), (3, 1, 2), (3, 1, 4), (3, "
     "1, 8)] the count is 31"),
    (lambda layers: 1,
     "With layers = [(3, 1, 1), (3, 1, 1), (3, 1, 1), (3, 1, 1)] the count is 9, yours is 1."),
    (lambda layers: layers[0], "the result has shape (3,)"),
    (31, "Pass the function itself"),
]
test_mistakes = are_named(of_each(CHECKERS, (LENGTH, BACKWARD, MATRIX, FIELD)))
test_junk = are_refused(CHECKERS, [
    lambda *a: ([1, [2]],) * 3, lambda *a: (np.nan,) * 3, lambda *a: (object(),) * 3,
])


# ---------------------------------------------------------------- pictures


@pytest.fixture
def ax():
    return Figure().add_subplot()


def cells(ax):
    """(column, row) -> colour, and (column, row) -> text, of all cells that were drawn."""
    colours = {(patch.get_x() + 0.5, patch.get_y() + 0.5): to_hex(patch.get_facecolor())
               for patch in ax.patches}
    return colours, {text.get_position(): text.get_text() for text in ax.texts}


def test_the_windows_stand_where_the_stride_and_the_padding_put_them(ax):
    pictures.windows(ax, w=[1, 2, 3], A_prev=[5, 6, 7, 8], Z=[10, 20], stride=2, padding=1)
    colours, texts = cells(ax)
    assert [texts[q, 0] for q in range(-1, 5)] == ["0", "5", "6", "7", "8", "0"]
    assert [texts[q, 1.4] for q in (-1, 0, 1)] == [texts[q, 2.4] for q in (1, 2, 3)] == ["1", "2", "3"]
    assert [colours[q, 1.4] for q in (-1, 0, 1)] == [colours[q, 2.4] for q in (1, 2, 3)]
    assert len({colours[q, 1.4] for q in (-1, 0, 1)}) == 3 and len(colours) == 6 + 3 + 3
    assert [text for text in texts.values() if "=" in text] == ["$Z_0 = 10$", "$Z_1 = 20$"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["$A_{prev}$", "window 0", "window 1"]


def test_a_matrix_shows_equal_kinds_in_equal_colours_and_leaves_the_others_empty(ax):
    kinds = np.array([[0, 1, -1], [-1, 0, 1]])
    first_row = np.array([[True] * 3, [False] * 3])
    pictures.matrix(ax, np.array([[4, 5, 0], [0, 4, 5]]), kinds, bright=first_row, xlabel="x", ylabel="y")
    colours, texts = cells(ax)
    assert [[texts[column, row] for column in range(3)]
            for row in range(2)] == [["4", "5", ""], ["", "4", "5"]]
    assert (colours[0, 0], colours[1, 0]) == tuple(to_hex(colour) for colour in pictures.COLOURS[:2])
    assert colours[1, 1] == colours[2, 1] == to_hex(pictures.PALE)
    assert colours[2, 0] == colours[0, 1] == to_hex("white")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x", "y") and ax.yaxis_inverted()


def test_a_cone_has_a_full_dot_for_each_derivative_and_a_line_for_each_weight(ax):
    derivatives = [np.array([1.0, 0, 2, 0, 1]), np.array([0.0, 0, 3, 0, 0])]
    pictures.cone(ax, derivatives, kernel_size=3, dilations=(2,))
    assert sorted(tuple(line.get_xdata()) for line in ax.lines) == [(0, 2), (2, 2), (4, 2)]
    dots = {(x, y): to_hex(dots.get_facecolor()[0]) for dots in ax.collections for x, y in dots.get_offsets()}
    full = {place for place, colour in dots.items() if colour == to_hex(pictures.SEEN)}
    assert full == {(0, 0), (2, 0), (4, 0), (2, 1)} and len(dots) == 10
    assert [label.get_text() for label in ax.get_yticklabels()] == ["input", "layer 1, dilation 2"]
