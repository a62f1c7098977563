"""Exercises about convolutions and pooling, in notebooks 13 to 18: other solutions than the notebooks', and
what the checkers say to typical wrong answers.
"""

from math import prod

import numpy as np
from notebooks.checkers import are_named, are_not_solved_yet, are_right
from notebooks.template import solutions

import minipipe as mp
from exercises.cnn import (
    check_average_pool_backward, check_backward_by_forward, check_max_pool_backward, check_parameters,
)
from exercises.convolution import check_backward, check_matrix

backward, matrix = solutions("13").conv_backward, solutions("15").matrix
max_pool_backward = solutions("16").max_pool_backward
average_pool_backward = solutions("16").average_pool_backward
backward_by_forward, n_parameters = solutions("17").backward_by_forward, solutions("18").n_parameters


def backward_with_slices(dZ, w, A_prev, stride):
    """Loops over the kernel only; lists instead of arrays; db as an array without axes."""
    places = [slice(i, i + (len(dZ) - 1) * stride + 1, stride) for i in range(len(w))]
    dA_prev = np.zeros_like(A_prev)
    for i, here in enumerate(places):
        dA_prev[here] += w[i] * dZ
    return [dA_prev.tolist(), [(dZ * A_prev[here]).sum() for here in places], np.array(dZ.sum())]


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


test_solutions = are_right({
    check_backward: [backward_with_slices],
    check_matrix: [lambda w, n, stride: matrix(w, n, 1)[::stride].tolist()],
    check_max_pool_backward: [max_pool_backward_by_hand],
    check_average_pool_backward: [lambda *given: average_pool_backward(*given).tolist()],
    check_backward_by_forward: [backward_by_windows],
})
test_stubs = are_not_solved_yet({
    check_backward: [
        lambda *given: (backward(*given)[0], None, None),
        lambda *given: (*backward(*given)[:2], None),
    ],
})


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


def mean_over_overlaps(dA_prev, dZ, w, A_prev, stride):
    return dA_prev / np.maximum(backward(np.ones_like(dZ), np.ones_like(w), A_prev, stride)[0], 1)


def of_each_sample(dw, dZ, w, A_prev, stride):
    return np.stack([backward(dZ[:, [j]], w, A_prev[:, [j]], stride)[1] for j in range(dZ.shape[1])], axis=1)


def convolved_with_stride_1(dw, dZ, w, A_prev, stride):
    return sum(np.convolve(a, z, "valid") for a, z in zip(A_prev.T, dZ.T)) if stride == 1 else dw


def without_stride(place):
    """Window p begins at place p: dZ has fewer windows than that, so only the first places are met."""
    return with_part(place, lambda part, dZ, w, A_prev, stride: backward(dZ, w, A_prev, 1)[place])


def hard_coded(dZ, w, A_prev, stride):
    return backward(dZ, w, A_prev, min(stride, 2))


def convolved(padding):
    """dZ convolved with the right kernels, and so many zeros around it."""
    def wrong(dZ, W):
        kernels = W[:, :, ::-1, ::-1].swapaxes(0, 1)
        conv = mp.Conv2d(kernels.shape[1], kernels.shape[0], kernels.shape[2:], padding=padding, bias=False)
        conv.W = kernels
        return conv.forward(dZ)
    return wrong


test_mistakes = are_named({
    check_backward: [
        (with_part(0, lambda dA, dZ, w, A, s: backward(dZ, w[::-1], A, s)[0]),
         "dA_prev is made with the kernel flipped"),
        (without_stride(0), "With stride 2: the stride is forgotten in dA_prev"),
        (hard_coded, "With stride 3: dA_prev should be"),
        (with_part(0, overwriting), "dA_prev is overwritten where windows overlap"),
        (with_part(0, mean_over_overlaps), "dA_prev is a mean over the windows"),
        (with_part(0, lambda dA, dZ, *_: dA / dZ.shape[1]),
         "dA_prev is 3 times too small: did you divide by m = 3?"),
        (with_part(0, lambda dA, *_: -dA),
         "dA_prev has the wrong sign: it adds w[i] dZ[p] at place p * stride + i"),
        (with_part(0, lambda dA, dZ, *_: dZ), "dA_prev has the shape of dZ, (4, 3)"),
        (with_part(0, lambda dA, dZ, w, A, s: dA[:(len(dZ) - 1) * s + len(w)]),
         "With stride 2: dA_prev has shape (9, 3), but"),
        (with_part(0, lambda dA, *_: dA.T), "dA_prev has shape (3, 8), but it must have shape (8, 3)"),
        (with_part(1, lambda dw, *_: dw[::-1]), "dw comes out in reverse order"),
        (with_part(1, lambda dw, dZ, w, A, s: backward(dZ[::-1], w, A, s)[1]), "as np.convolve does"),
        (with_part(1, convolved_with_stride_1), "as np.convolve does"),
        (without_stride(1), "With stride 2: the stride is forgotten in dw"),
        (with_part(1, lambda dw, dZ, w, A, s: backward(np.vstack([0 * dZ[:-1], dZ[-1:]]), w, A, s)[1]),
         "dw is that of the last window only"),
        (with_part(1, lambda dw, dZ, w, A, s: backward(dZ[:, :1], w, A[:, :1], s)[1]),
         "dw is that of the first sample only"),
        (with_part(1, of_each_sample), "dw has shape (5, 3), one column for each sample"),
        (with_part(1, lambda dw, dZ, *_: dw / dZ.shape[1]), "dw is 3 times too small: did you divide by m ="),
        (with_part(1, lambda dw, dZ, *_: dw / len(dZ)),
         "dw is too small: did you take a mean over the 4 windows?"),
        (with_part(1, lambda dw, *_: dw * 2),
         "dw[i] adds dZ[p] times the number at place p * stride + i, over windows and samples."),
        (with_part(1, lambda dw, *_: dw[None, None]), "dw has shape (1, 1, 5), but it must have shape (5,)"),
        (with_part(2, lambda db, dZ, *_: dZ.sum(axis=0)), "db has shape (3,), one number for each sample"),
        (with_part(2, lambda db, dZ, *_: dZ.sum(axis=1)), "db has shape (4,), one number for each window"),
        (with_part(2, lambda db, dZ, *_: dZ.mean()), "db is too small: did you take a mean over the 4"),
        (with_part(2, lambda db, dZ, *_: dZ.sum(keepdims=True)),
         "db has shape (1, 1), but it must have shape ()"),
        (lambda *given: backward(*given)[0], "Return three things"),
        (lambda dZ, w, A_prev, stride: (w @ dZ, None, None),
         "The shapes are dZ (4, 3), w (5,), A_prev (8, 3), with stride 1."),
    ],
    check_matrix: [
        (lambda w, n, stride: matrix(w, n, stride).T, "C has shape (8, 4), turned round"),
        (lambda w, n, stride: matrix(w, n, 1),
         "With stride 2: C has 7 rows, one for each window of stride 1: there are only 4"),
        (lambda w, n, stride: np.stack([np.roll(np.append(w, np.zeros(n - len(w))), q) for q in range(n)]),
         "C has 8 rows, one for each place"),
        (lambda w, n, stride: matrix(w[::-1], n, stride), "The kernel is flipped"),
        (lambda w, n, stride: matrix(w, n, 1)[:(n - len(w)) // stride + 1],
         "With stride 2: The stride is forgotten"),
        (lambda w, n, stride: matrix(np.ones_like(w), n, stride), "The places are right, the numbers are"),
        (lambda w, n, stride: matrix(w, n, stride)[::-1], "The rows are in reverse order"),
        (lambda w, n, stride: matrix(w, n, stride) + np.eye((n - len(w)) // stride + 1, n),
         "Row 0 should be [2.0, 1.0, 0.5, -1.0, 3.0, 0.0, 0.0, 0.0], yours is [3.0, 1.0, 0.5, "
         "-1.0, 3.0, 0.0, 0.0, 0.0]"),
        (lambda w, n, stride: w, "C has shape (5,), but it must have shape (4, 8)"),
    ],
    check_max_pool_backward: [
        (lambda *given: -max_pool_backward(*given), "dA_prev has the wrong sign: dA goes to the place"),
        (lambda dA, *_: dA,
         "dA_prev has the shape of the derivative that came in, (2, 3): it must have that of A_prev, (4,"),
        (lambda *given: max_pool_backward(*given).T, "dA_prev has shape (6, 4), but it must have shape (4,"),
        (lambda *given: max_pool_backward(*given) + 1, "dA_prev at (0, 0) should be"),
        (lambda dA, A_prev, size, stride: A_prev @ dA,
         "You were given dA (2, 3), A_prev (4, 6), size 2, stride 2."),
    ],
    check_average_pool_backward: [
        (lambda dA, shape, size, stride: average_pool_backward(dA, shape, size, stride) * size**2 / 4,
         "With windows that overlap: dA_prev at (0, 0) should be"),
        (lambda dA, shape, size, stride: np.kron(dA, np.ones((size, size))) / size ** 2,
         "With numbers behind the last window: dA_prev has shape (4, 4), but it must have shape (5, 5)"),
        (lambda dA, shape, size, stride: np.zeros(3) @ dA,
         "You were given dA (2, 3), shape (4, 6), size 2, stride 2."),
    ],
    check_backward_by_forward: [
        (convolved(0),
         "dA_prev has shape (2, 1, 2, 1), but it must have shape (2, 5, 6, 1): put kernel size"),
        (convolved(1),
         "dA_prev has shape (2, 3, 4, 1), but it must have shape (2, 5, 6, 1): put kernel size"),
        (convolved(2),
         "dA_prev has shape (2, 7, 6, 2), but it must have shape (2, 5, 6, 2)"),
        (lambda dZ, W: dZ, "put kernel size - 1 zeros around dZ"),
        (lambda dZ, W: W @ dZ,
         "You were given dZ (2, 3, 4, 1), W (2, 2, 3, 3); dA_prev should become (2, 5, 6, 1)"),
    ],
})


def test_the_last_solution_is_told_the_number_of_lenet():
    assert check_parameters(n_parameters).endswith("LeNet-5 has 61,706.")
    shapes = [shape for layer in mp.models.lenet5() for shape in layer.parameter_shapes()
              if shape is not None]
    assert sum(map(prod, shapes)) == 61_706
