"""Exercises about layers and micro-batches, in notebooks 01 to 06: other solutions than the notebooks', and
what the checkers say to typical wrong answers.
"""

import sys
from fractions import Fraction
from itertools import accumulate
from math import sqrt

import numpy as np
from notebooks.checkers import are_named, are_not_solved_yet, are_right
from notebooks.template import solutions

import minipipe as mp
from exercises.first_weights import check_left_of_signal
from exercises.layers import SHAPES, check_leaky_relu, check_linear_backward, check_shapes
from exercises.micro_batches import check_gradient_part, check_tree_sum, check_weights
from exercises.neuron import check_central_difference, check_gradient, check_tanh_neuron

gradient, weights, tree_sum = solutions("02").gradient, solutions("05").weights, solutions("06").my_tree_sum
LeakyReLU, linear_backward = solutions("03").LeakyReLU, solutions("03").linear_backward

test_solutions = are_right({
    check_leaky_relu: [LeakyReLU()],
    check_shapes: [{name: np.array(shape) for name, shape in SHAPES.items()}],
    check_left_of_signal: [lambda sigma, n, l: (sigma * sqrt(n) / sqrt(2)) ** l],
    check_weights: [
        lambda sizes: [Fraction(size, sum(sizes)) for size in sizes],
        lambda sizes: np.array(sizes) / sum(sizes),
    ],
})


class HalfSolvedLayer(mp.Layer):
    forward = LeakyReLU.forward

    def backward_input(self, dA):
        return None


test_stubs = are_not_solved_yet({
    check_gradient: [lambda X, Y, A: (gradient(X, Y, A)[0], None)],
    check_shapes: [{}, SHAPES | {"db2": None}],
    check_linear_backward: [lambda dZ, W, A_prev: (W.T @ dZ, None, None)],
    check_leaky_relu: [HalfSolvedLayer],
    check_weights: [lambda sizes: [None for _ in sizes]],
})


def with_db(db):
    """The right dW with another db, of `dZ`, the derivative that carries 1/m."""
    return lambda X, Y, A: (gradient(X, Y, A)[0], db((A - Y) / X.shape[1]))


def with_dZ(dZ_of):
    """A gradient from a wrong dZ, of Y, A and m."""
    def wrong(X, Y, A):
        dZ = dZ_of(Y, A, X.shape[1])
        return dZ @ X.T, dZ.sum(axis=1, keepdims=True)
    return wrong


def with_part(place, change):
    """The right answer of Linear's backward, with one of its three parts changed."""
    def wrong(dZ, W, A_prev):
        parts = list(linear_backward(dZ, W, A_prev))
        parts[place] = change(parts[place])
        return parts
    return wrong


def leaky(A=None, dZ=None):
    """The layer with another output A of Z, or with another dZ of dA and of the mask Z > 0."""
    class Changed(LeakyReLU):
        def forward(self, Z):
            right = super().forward(Z)
            return right if A is None else A(Z)

        def backward_input(self, dA):
            return super().backward_input(dA) if dZ is None else dZ(dA, self.cache)

    return Changed


class InPlaceForward(LeakyReLU):
    def forward(self, Z):
        self.cache = Z > 0
        Z[Z < 0] /= 8
        return Z


class InPlaceBackward(LeakyReLU):
    def backward_input(self, dA):
        dA[~self.cache] /= 8
        return dA


class WithoutCache(LeakyReLU):
    def forward(self, Z):
        return np.where(Z > 0, Z, Z / 8)


class OtherAttribute(LeakyReLU):
    """Remembers Z beside the cache, so the second micro-batch overwrites what the first one needs."""

    def forward(self, Z):
        self.cache = "in self.Z"
        self.Z = Z
        return np.where(Z > 0, Z, Z / 8)

    def backward_input(self, dA):
        return np.where(np.broadcast_to(self.Z[:, :1] > 0, dA.shape), dA, dA / 8)


class OtherAttributeOfOtherShape(OtherAttribute):
    def backward_input(self, dA):
        return dA[:, :self.Z.shape[1]] * np.where(self.Z > 0, 1, 1 / 8)


class TimesA(LeakyReLU):
    def forward(self, Z):
        self.cache = np.where(Z > 0, Z, Z / 8)
        return self.cache

    def backward_input(self, dA):
        return dA * self.cache


class NeedsArguments(LeakyReLU):
    def __init__(self, slope):
        self.slope = slope


def halving(terms):
    half = len(terms) // 2
    return terms[0] if half == 0 else halving(terms[:half]) + halving(terms[half:])


test_mistakes = are_named({
    check_tanh_neuron: [
        (lambda a, y: 1 - a ** 2, "only the slope of tanh"),
        (lambda a, y: a - y, "dz misses a factor: a - y is only da"),
        (lambda a, y: (y - a) * (1 - a ** 2), "wrong sign"),
        (lambda a, y: 2 * (a - y) * (1 - a ** 2), "2 times too large"),
        (lambda a, y: (a - y) * a * (1 - a), "the slope of the sigmoid"),
        (lambda a, y: (a - y) * (1 - np.tanh(a) ** 2), "a is tanh(z) already"),
        (lambda a, y: (a - y) / (1 - a ** 2), "You divided by the slope"),
        (lambda a, y: (a - y) * (1 - a), "you wrote 1 - a."),
        (lambda a, y: (a - y) * (1 - a) ** 2, "you wrote (1 - a)^2"),
        (lambda a, y: (a - y) ** 2 / 2 * (1 - a ** 2), "by the loss itself"),
        (lambda a, y: a + y, "At a = -0.5, y = 1.0 the answer is dz = -1.125, yours is 0.5"),
    ],
    check_gradient: [
        (with_dZ(lambda Y, A, m: A - Y), "dW is 4 times too large"),
        (with_dZ(lambda Y, A, m: (A - Y) / m ** 2),
         "dW is 4 times too small: you divided by m = 4 twice"),
        (with_dZ(lambda Y, A, m: (A - Y) / 2),
         "dW is 2 times too large: did you divide by the 2 rows of X"),
        (with_dZ(lambda Y, A, m: (Y - A) / m), "dW is of the wrong sign"),
        (with_dZ(lambda Y, A, m: Y - A), "wrong sign and not divided by m"),
        (with_dZ(lambda Y, A, m: (A - Y) * A * (1 - A) / m), "multiplied by A (1 - A) once more"),
        (with_dZ(lambda Y, A, m: (-Y / A + (1 - Y) / (1 - A)) / m), "that is dA"),
        (with_dZ(lambda Y, A, m: A / m), "the labels Y do not appear"),
        (with_dZ(lambda Y, A, m: Y / m), "dW should be"),
        (lambda X, Y, A: (X @ (A - Y).T / 4, None), "dW has shape (2, 1), the transpose of W"),
        (lambda X, Y, A: ((A - Y) * X / 4, None),
         "dW has shape (2, 4), one column for each sample"),
        (with_db(lambda dZ: dZ), "db has shape (1, 4), one entry for each sample"),
        (with_db(np.sum), "db has shape (), but b has shape (1, 1)"),
        (with_db(lambda dZ: dZ.sum(axis=1)), "db has shape (1,), but b has shape (1, 1)"),
        (with_db(lambda dZ: 4 * dZ.sum(axis=1, keepdims=True)), "db is 4 times too large"),
        (with_db(lambda dZ: dZ.mean(axis=1, keepdims=True)), "db is 4 times too small"),
        (lambda X, Y, A: gradient(X, Y, A)[0], "Return two things"),
    ],
    check_central_difference: [
        (lambda J, t, h: (J(t + h) - J(t)) / h, "the forward difference"),
        (lambda J, t, h: (J(t) - J(t - h)) / h, "the backward difference"),
        (lambda J, t, h: (J(t + h) - J(t - h)) / h, "2 times too large"),
        (lambda J, t, h: (J(t + h) - J(t - h)) / 2 * h, "Python reads / 2 * h"),
        (lambda J, t, h: (J(t + h) - J(t - h)) / 2, "you divided by 2 only"),
        (lambda J, t, h: J(t + h) - J(t - h), "divide it by 2h"),
        (lambda J, t, h: (J(t - h) - J(t + h)) / (2 * h), "The sign is wrong"),
        (lambda J, t, h: (J(t + h / 2) - J(t - h / 2)) / h, "half the step"),
        (lambda J, t, h: 3 * t ** 2, "the exact derivative"),
        (lambda J, t, h: J(t), "yours is 8.0"),
    ],
    check_shapes: [
        (SHAPES | {"W1": (64, 32)}, "one row for each unit of its own layer"),
        (SHAPES | {"W2": (10, 64)}, "W maps n_prev numbers to n numbers"),
        (SHAPES | {"A1": (20, 32)}, "turned round: samples are columns"),
        (SHAPES | {"Z1": (64, 20)},
         "one row for each unit of its layer and one column for each sample"),
        (SHAPES | {"b1": (1, 32)}, "b is a column"),
        (SHAPES | {"b1": (32, 20)}, "b has one column, which NumPy adds to every"),
        (SHAPES | {"b1": (32,)}, "a matrix with one column"),
        (SHAPES | {"b2": 10}, "b2 is 10: b has one row for each unit and one column"),
        (SHAPES | {"dW2": (10, 20)}, "the derivative by W2 has the shape of W2"),
        (SHAPES | {"db2": (10, 20)}, "the derivative by b2 has the shape of b2"),
        (SHAPES | {"dA1": (10, 20)}, "the derivative by A1 has the shape of A1"),
        (SHAPES | {"X": (64, 20)}, "There is no matrix X"),
        (SHAPES | {"W1": 2048}, "W1 is 2048"),
        ({name: np.array(shape[::-1]) for name, shape in SHAPES.items()}, "turned round"),
        ([(32, 64)], "Pass a dict"),
    ],
    check_linear_backward: [
        (with_part(1, lambda dW: dW / 4),
         "dW is 4 times too small: did you divide by m = 4?"),
        (with_part(2, lambda db: db / 4), "db is 4 times too small"),
        (with_part(0, lambda dA_prev: dA_prev / 4), "dA_prev is 4 times too small"),
        (with_part(1, lambda dW: dW.T), "dW has shape (3, 2), turned round"),
        (with_part(0, lambda dA_prev: dA_prev.T),
         "dA_prev has shape (4, 3), turned round"),
        (with_part(2, lambda db: db[:, 0]), "db has shape (2,): keep the column"),
        (lambda dZ, W, A_prev: (W.T @ dZ, dZ @ A_prev.T, dZ.sum(axis=0, keepdims=True)),
         "you summed over the units"),
        (with_part(2, lambda db: db.T), "db has shape (1, 2), turned round"),
        (with_part(0, lambda dA_prev: -dA_prev), "dA_prev has the wrong sign"),
        (with_part(1, lambda dW: dW + 1), "dW should be"),
        (lambda dZ, W, A_prev: (W @ dZ, None, None),
         "The shapes are dZ (2, 4), W (2, 3), A_prev (3, 4)."),
        (lambda dZ, W, A_prev: W.T @ dZ, "Return three things"),
    ],
    check_leaky_relu: [
        (leaky(A=lambda Z: Z * (Z > 0)), "forward is the plain ReLU"),
        (leaky(A=lambda Z: np.where(Z > 0, Z / 8, Z)), "the two sides exchanged"),
        (leaky(A=lambda Z: np.where(Z > 0, Z, -Z / 8)), "the wrong sign below 0"),
        (leaky(A=lambda Z: np.where(Z > 0, Z, 1 / 8)), "the constant 1/8"),
        (leaky(A=lambda Z: 2 * Z), "should be [[2.0, -1.0], [-0.125, 4.0]]"),
        (InPlaceForward, "forward wrote into Z"),
        (WithoutCache, "forward leaves no cache"),
        (leaky(dZ=lambda dA, mask: dA * mask), "the slope is 1/8, not 0"),
        (InPlaceBackward, "backward_input wrote into an array"),
        (OtherAttribute, "nothing in another attribute"),
        (OtherAttributeOfOtherShape, "dZ has shape (2, 1)"),
        (leaky(dZ=lambda dA, mask: np.where(mask, 1.0, 1 / 8)), "the slope alone"),
        (TimesA, "multiplies by A"),
        (leaky(dZ=lambda dA, mask: np.where(dA > 0, dA, dA / 8)), "the sign of dA"),
        (leaky(A=lambda Z: Z * np.where(Z > 0, 1.0, 1 / 8)), "forward turns float32 into float64"),
        (leaky(A=lambda Z: Z * np.where(Z > 0, 1.0, 1 / 8)), "write `np.where(mask, Z, Z / 8)`"),
        (leaky(dZ=lambda dA, mask: dA * np.where(mask, 1.0, 1 / 8)), "backward_input turns float32 into"),
        (leaky(dZ=lambda dA, mask: dA * np.where(mask, 1.0, 1 / 8)), "write `np.where(mask, dA, dA / 8)`"),
        (leaky(A=lambda Z: LeakyReLU().forward(Z).astype(np.float16)), "forward turns float32 into float16:"),
        (leaky(A=lambda Z: Z[7]), "forward stopped with IndexError"),
        (leaky(dZ=lambda dA, mask: dA @ np.ones(7)), "backward_input stopped with ValueError"),
        (NeedsArguments, "Your class stopped with TypeError"),
        (3, "no method forward"),
        (mp.Layer, "no method forward"),
    ],
    check_left_of_signal: [
        (lambda sigma, n, l: (sigma * sqrt(n)) ** l, "The half is missing"),
        (lambda sigma, n, l: (n * sigma * sigma / 2) ** l, "the rms is the root of them"),
        (lambda sigma, n, l: (n * sigma * sigma) ** l, "mean squares without ReLU's half"),
        (lambda sigma, n, l: sqrt(n / 2) * sigma, "That is one layer"),
        (lambda sigma, n, l: l * sqrt(n / 2) * sigma, "not times l"),
        (lambda sigma, n, l: sqrt(n / 2 * sigma) ** l, "the variance is sigma^2"),
        (lambda sigma, n, l: (sqrt(n) * sigma / 2) ** l, "under the root it is sqrt(1/2)"),
    ],
    check_gradient_part: [
        (lambda dL, A_prev, m: dL @ A_prev.T / dL.shape[1],
         "dW is 2 times too large: did you divide by the micro-batch's 2 samples instead of "
         "the mini-batch's m = 4?"),
        (lambda dL, A_prev, m: dL @ A_prev.T,
         "dW is 4 times too large: it is not divided at all"),
        (lambda dL, A_prev, m: dL @ A_prev.T / 4,
         "did you write the number 4 instead of m?"),
        (lambda dL, A_prev, m: dL @ A_prev.T / dL.shape[1] / m,
         "divided twice, by 2 and by m = 4"),
        (lambda dL, A_prev, m: -dL @ A_prev.T / m, "wrong sign"),
        (lambda dL, A_prev, m: A_prev @ dL.T / m, "dW has shape (3, 2), the transpose of W"),
        (lambda dL, A_prev, m: dL @ A_prev.T / m + 1, "dW should be"),
        (lambda dL, A_prev, m: [[1], [1, 2]], "not an array of numbers"),
    ],
    check_weights: [
        (lambda sizes: [1 / len(sizes)] * len(sizes),
         "Right for equal sizes only: with (3, 3, 2, 2)"),
        (lambda sizes: [1] * len(sizes), "the sum of 4 means is too large"),
        (lambda sizes: [1 / sum(sizes)] * len(sizes), "its mean is divided by the size already"),
        (lambda sizes: sizes, "The sizes are not divided yet"),
        (lambda sizes: [1 / size for size in sizes], "Turned round"),
        (lambda sizes: [sum(sizes) / size for size in sizes], "Turned round"),
        (lambda sizes: [size / max(sizes) / 2 for size in sizes], "add up to 1.66667: "),
        (lambda sizes: weights(sizes)[::-1], "the weights are ['3/10', '3/10', '1/5', '1/5']"),
        (lambda sizes: 1 / len(sizes), "has shape (), but it must have shape (4,)"),
    ],
    check_tree_sum: [
        (lambda terms: list(accumulate(terms))[-1], "the running sum, from left to right"),
        (lambda terms: list(accumulate(terms[::-1]))[-1], "the running sum from the right"),
        (sum, "the running sum, from left to right" if sys.version_info < (3, 12) else "Python's sum, which"),
        (halving, "You cut the list into halves"),
        (np.sum, "np.sum"),
        (lambda terms: tree_sum(sorted(terms)), "The sum is right but not its bits"),
        (lambda terms: tree_sum(terms[:len(terms) // 2 * 2] or terms), "is a term left out"),
        (lambda terms: terms[0] + terms[1], "With 1 term: Your function stopped with IndexError"),
        (lambda terms: [sum(terms)], "must have shape ()"),
    ],
})
