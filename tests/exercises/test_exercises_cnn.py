"""Solutions of the exercises in notebooks 12, 13 and 14, what their checkers say to typical wrong answers,
and their pictures.
"""

from math import prod

import numpy as np
import pytest
from notebooks.checkers import are_named, are_refused, are_right, of_each
from notebooks.template import solutions
from matplotlib.figure import Figure

import minipipe as mp
from exercises import cnn_pictures as pictures
from exercises.cnn import (
    check_average_pool_backward, check_backward_by_forward, check_max_pool_backward, check_parameters,
)

CHECKERS = [check_max_pool_backward, check_average_pool_backward, check_backward_by_forward, check_parameters]

# ---------------------------------------------------------------- solutions

notebook, pooling, in_a_pipeline = solutions("13"), solutions("12"), solutions("14")
max_pool_backward = pooling.max_pool_backward
average_pool_backward = pooling.average_pool_backward
backward_by_forward = notebook.backward_by_forward
n_parameters = in_a_pipeline.n_parameters


def windows(shape, size, stride):
    """(index in dA, the window as an index) for each window on an image of (H, W)."""
    for p, q in np.ndindex(*((n - size) // stride + 1 for n in shape)):
        yield (p, q), np.s_[p * stride:p * stride + size, q * stride:q * stride + size]


def max_pool_backward_by_hand(dA, A_prev, size, stride):
    """Without NumPy's argmax; lists instead of an array."""
    dA_prev = [[0.0] * A_prev.shape[1] for _ in A_prev]
    for (p, q), da in np.ndenumerate(dA):
        best = p * stride, q * stride
        for i in range(size):
            for j in range(size):
                here = p * stride + i, q * stride + j
                if A_prev[here] > A_prev[best]:
                    best = here
        dA_prev[best[0]][best[1]] += da
    return dA_prev


def backward_by_windows(dZ, W):
    """The loops of the notebook."""
    (n_out, height, width, m), (_, n_in, rows, columns) = dZ.shape, W.shape
    dA_prev = np.zeros((n_in, height + rows - 1, width + columns - 1, m))
    for o, p, q in np.ndindex(n_out, height, width):
        dA_prev[:, p:p + rows, q:q + columns] += W[o][..., None] * dZ[o, p, q]
    return dA_prev


def n_parameters_of_real_layers(shape, layers):
    """Drawn and counted."""
    shape, total = (*shape, 1), 0
    for kind, n, *further in layers:
        if kind == "linear":
            stack = [mp.Flatten(), mp.Linear(prod(shape[:-1]), n)]
        else:
            stack = [mp.Conv2d(shape[0], n, further[0], padding=further[1]) if kind == "conv"
                     else mp.MaxPool2d(n)]
        for layer in stack:
            layer.initialize(np.random.default_rng(0))
            total += sum(array.size for array in (layer.W, layer.b) if array is not None)
            shape = layer.output_shape(shape)
    return total


SOLUTIONS = [
    (check_max_pool_backward, max_pool_backward),
    (check_max_pool_backward, max_pool_backward_by_hand),
    (check_average_pool_backward, average_pool_backward),
    (check_average_pool_backward, lambda *given: average_pool_backward(*given).tolist()),
    (check_backward_by_forward, backward_by_forward),
    (check_backward_by_forward, backward_by_windows),
    (check_parameters, n_parameters),
    (check_parameters, n_parameters_of_real_layers),
]
test_solutions = are_right(SOLUTIONS)


def test_the_last_solution_is_told_the_number_of_lenet():
    assert check_parameters(n_parameters).endswith("LeNet-5 has 61,706.")
    shapes = [shape for layer in mp.models.lenet5() for shape in layer.parameter_shapes()
              if shape is not None]
    assert sum(map(prod, shapes)) == 61_706


# ---------------------------------------------------------------- typical wrong answers


def max_pool(choose, start=None, by_dA=True, overwrite=False):
    """A max pool's backward that gives window w the derivative dA times choose(w)."""
    def wrong(dA, A_prev, size, stride):
        dA_prev = np.zeros_like(A_prev)
        stride = stride if start is None else start(size, stride)
        for (p, q), da in np.ndenumerate(dA):
            window = dA_prev[p * stride:p * stride + size, q * stride:q * stride + size]
            part = choose(A_prev[p * stride:p * stride + size,
                                 q * stride:q * stride + size]) * (da if by_dA else 1)
            window[...] = np.where(part != 0, part, window) if overwrite else window + part
        return dA_prev
    return wrong


def first(w, largest=np.argmax):
    return (np.arange(w.size) == largest(w)).reshape(w.shape)


def beginning_at_zero(dA, A_prev, size, stride):
    dA_prev = np.zeros_like(A_prev)
    for place, window in windows(A_prev.shape, size, stride):
        best, best_place = 0, None
        for here in np.ndindex(size, size):
            if A_prev[window][here] > best:
                best, best_place = A_prev[window][here], here
        if best_place:
            dA_prev[window][best_place] += dA[place]
    return dA_prev


MAX_POOL = [
    (max_pool(lambda w: w == w.max()),
     "With equal numbers: every one of the equal numbers gets the whole dA"),
    (max_pool(lambda w: (w == w.max()) / (w == w.max()).sum()),
     "With equal numbers: you share dA among the equal numbers"),
    (max_pool(lambda w: first(w[::-1, ::-1])[::-1, ::-1]),
     "With equal numbers: of equal numbers, the last one gets dA"),
    (max_pool(lambda w: first(w.T).T),
     "With equal numbers: of equal numbers, you take the first column by column"),
    (max_pool(first, overwrite=True), "With windows that overlap: dA_prev is overwritten"),
    (max_pool(first, start=lambda size, stride: 1), "the stride is forgotten"),
    (max_pool(first, start=lambda size, stride: size), "windows begin `stride` places apart"),
    (max_pool(np.ones_like), "every number of a window gets dA"),
    (max_pool(lambda w: np.full_like(w, 1 / w.size)), "that is average pooling"),
    (max_pool(lambda w: first(w, np.argmin)), "dA goes to the smallest number"),
    (beginning_at_zero, "With negative numbers: where all numbers of a window are negative, nobody gets dA"),
    (max_pool(lambda w: first(w) * w), "dA is multiplied by the largest number"),
    (max_pool(lambda w: first(w) * w, by_dA=False), "the largest numbers themselves stand in dA_prev"),
    (max_pool(first, by_dA=False), "you put 1 at the place of the largest number"),
    (lambda *given: -max_pool_backward(*given), "dA_prev has the wrong sign: dA goes to the place"),
    (lambda dA, *_: dA,
     "dA_prev has the shape of the derivative that came in, (2, 3): it must have that of A_prev, (4, 6)."),
    (lambda *given: max_pool_backward(*given).T, "dA_prev has shape (6, 4), but it must have shape (4, 6)"),
    (lambda *given: max_pool_backward(*given) + 1, "dA_prev at (0, 0) should be"),
    (lambda dA, A_prev, size, stride: A_prev @ dA,
     "You were given dA (2, 3), A_prev (4, 6), size 2, stride 2."),
    (np.eye(4), "Pass the function itself"),
]


def average_pool(places=np.s_[:, :], start=None, overwrite=False, divisor=lambda size: 1):
    """An average pool's backward that gives these places of each window dA / divisor."""
    def wrong(dA, shape, size, stride):
        dA_prev = np.zeros(shape)
        stride = stride if start is None else start
        for (p, q), da in np.ndenumerate(dA):
            part = dA_prev[p * stride:p * stride + size, q * stride:q * stride + size][places]
            part[...] = (0 if overwrite else part) + da / divisor(size)
        return dA_prev
    return wrong


def square(size):
    return size ** 2


def mean_over_windows(dA, shape, size, stride):
    covers = average_pool()(np.ones_like(dA), shape, size, stride)
    return average_pool_backward(dA, shape, size, stride) / np.maximum(covers, 1)


AVERAGE_POOL = [
    (average_pool(), "you forgot to divide: A is a sum of 4 numbers / 4, so each gets dA / 4."),
    (average_pool(divisor=lambda size: size), "you divided by 2, but a window has 2 * 2 = 4 places"),
    (average_pool(divisor=lambda size: 4), "With windows that overlap: dA_prev at (0, 0) should be"),
    (average_pool(overwrite=True, divisor=square), "With windows that overlap: dA_prev is overwritten"),
    (mean_over_windows, "With windows that overlap: dA_prev is a mean over the windows"),
    (average_pool(start=1, divisor=square), "the stride is forgotten"),
    (average_pool(np.s_[:1, :1]), "only the first place of each window gets something"),
    (average_pool(np.s_[:1, :1], divisor=square), "only the first place of each window gets its share"),
    (lambda dA, *rest: average_pool_backward(dA, *rest) / dA.size,
     "you also divided by the number of windows, 6: each window has its own A."),
    (lambda dA, shape, size, stride: np.kron(dA, np.ones((size, size))) / size ** 2,
     "With numbers behind the last window: dA_prev has shape (4, 4), but it must have shape (5, 5)"),
    (lambda *given: -average_pool_backward(*given),
     "dA_prev has the wrong sign: each of the 4 places of a window gets dA / 4."),
    (lambda dA, *_: dA, "dA_prev has the shape of the derivative that came in, (2, 3)"),
    (lambda dA, shape, size, stride: np.zeros(3) @ dA,
     "You were given dA (2, 3), shape (4, 6), size 2, stride 2."),
    (1 / 4, "Pass the function itself"),
]


def convolved(turn, padding=lambda k: k - 1):
    """dZ convolved with turn(W) instead of the right kernels."""
    def wrong(dZ, W):
        kernels = turn(W)
        conv = mp.Conv2d(kernels.shape[1], kernels.shape[0], kernels.shape[2:],
                         padding=tuple(map(padding, kernels.shape[2:])), bias=False)
        conv.W = kernels
        return conv.forward(dZ)
    return wrong


def turned(W):
    return W[:, :, ::-1, ::-1].swapaxes(0, 1)


BY_FORWARD = [
    (convolved(lambda W: W.swapaxes(0, 1)), "the kernels are not flipped"),
    (convolved(lambda W: W[:, :, ::-1].swapaxes(0, 1)), "the kernels are flipped along the rows only"),
    (convolved(lambda W: W[:, :, :, ::-1].swapaxes(0, 1)), "the kernels are flipped along the columns only"),
    (convolved(lambda W: W.transpose(1, 0, 3, 2)), "rows and columns of the kernels are exchanged"),
    (convolved(lambda W: W[:, :, ::-1, ::-1]), "input and output channels are not exchanged"),
    (convolved(lambda W: turned(W)[::-1, ::-1]), "the channels are in reverse order, too"),
    (convolved(lambda W: W), "the kernels are neither flipped nor"),
    (convolved(turned, padding=lambda k: 0),
     "dA_prev has shape (2, 1, 2, 1), but it must have shape (2, 5, 6, 1): put kernel size"),
    (convolved(turned, padding=lambda k: 1),
     "dA_prev has shape (2, 3, 4, 1), but it must have shape (2, 5, 6, 1): put kernel size"),
    (convolved(turned, padding=lambda k: 2),
     "dA_prev has shape (2, 7, 6, 2), but it must have shape (2, 5, 6, 2)"),
    (lambda dZ, W: dZ, "put kernel size - 1 zeros around dZ"),
    (lambda dZ, W: -backward_by_forward(dZ, W), "dA_prev has the wrong sign: it is dZ with zeros around it"),
    (lambda dZ, W: 2 * backward_by_forward(dZ, W), "dA_prev at (0, 0, 0, 0) should be"),
    (lambda dZ, W: W @ dZ,
     "You were given dZ (2, 3, 4, 1), W (2, 2, 3, 3); dA_prev should become (2, 5, 6, 1)"),
    (np.eye(3), "Pass the function itself"),
]


def counted(weights=lambda n, C, k: n * C * k * k, length=lambda n, k, padding: n + 2 * padding - k + 1,
            pooled=lambda n, size: n // size, biases=lambda n, H, W: n, inputs=prod, of_pooling=0):
    def wrong(shape, layers):
        total = 0
        for kind, n, *further in layers:
            if kind == "conv":
                (C, H, W), (k, padding) = shape, further
                shape = n, length(H, k, padding), length(W, k, padding)
                total += weights(n, C, k) + biases(*shape)
            elif kind == "pool":
                shape = shape[0], pooled(shape[1], n), pooled(shape[2], n)
                total += of_pooling * shape[0]
            else:
                total, shape = total + n * inputs(shape) + biases(n, 1, 1), (n,)
        return total
    return wrong


PARAMETERS = [
    (lambda shape, layers: 61706, "That is LeNet-5 alone"),
    (counted(biases=lambda n, H, W: 0), "The biases are missing"),
    (counted(weights=lambda n, C, k: n * k * k), "Each kernel looks at all channels"),
    (counted(biases=lambda n, H, W: n * H * W), "A bias at every place is too many"),
    (counted(inputs=lambda shape: shape[0]), "The first Linear layer sees every number"),
    (counted(pooled=lambda n, size: n), "Pooling makes H and W smaller"),
    (counted(pooled=lambda n, size: -(-n // size)), "You rounded up behind a pooling"),
    (counted(length=lambda n, k, padding: n), "A convolution keeps H and W only with enough padding"),
    (counted(length=lambda n, k, padding: n - k + 1), "The padding is missing"),
    (counted(length=lambda n, k, padding: n + padding - k + 1), "The zeros stand on both sides"),
    (counted(length=lambda n, k, padding: n + 2 * padding - k), "Off by one"),
    (counted(of_pooling=2), "Pooling has no parameters here"),
    (lambda shape, layers: 20,
     "Right for some numbers, but not for all. With shape = (3, 8, 8), layers = [('conv', 4, 3, 1), ('conv', "
     "5, 3, 0)] the count is 297, yours is 20."),
    (lambda shape, layers: shape, "the result has shape (3,)"),
    (lambda shape: 1, "Your function stopped with TypeError"),
    (61706, "Pass the function itself"),
]
test_mistakes = are_named(of_each(CHECKERS, (MAX_POOL, AVERAGE_POOL, BY_FORWARD, PARAMETERS)))
test_junk = are_refused(CHECKERS, [
    lambda *a: np.full((4, 6), np.nan), lambda *a: np.full((2, 5, 6, 1), np.inf),
])


# ---------------------------------------------------------------- pictures


@pytest.fixture
def ax():
    return Figure().add_subplot()


def test_maps_stand_side_by_side_in_rows_with_a_gap_between(ax):
    A = np.arange(1.0, 13).reshape(3, 2, 2)
    pictures.maps(ax, A, n_columns=2, title="three")
    sheet = ax.images[0].get_array()
    assert sheet.shape == (2 + 1 + 2, 2 + 1 + 2) and ax.get_title(loc="left") == "three"
    for channel, (top, left) in zip(A, ((0, 0), (0, 3), (3, 0))):
        assert np.array_equal(sheet[top:top + 2, left:left + 2], channel)
    assert np.ma.count(sheet) == A.size


def test_signed_maps_have_white_at_0_whatever_their_numbers(ax):
    pictures.maps(ax, np.array([[[-3.0, 1.0]]]), signed=True)
    assert ax.images[0].get_clim() == (-3, 3)
    pictures.maps(ax, np.zeros((1, 2, 2)), signed=True)
    assert ax.images[1].get_clim() == (-1, 1)


def test_bars_have_their_numbers_behind_them(ax):
    pictures.bars(ax, ["a", "b"], [1200, 0], "numbers")
    assert [bar.get_width() for bar in ax.patches] == [1200, 0] and ax.yaxis_inverted()
    assert [(text.get_text().strip(), text.get_position())
            for text in ax.texts] == [("1,200", (1200, 0)), ("0", (0, 1))]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]
