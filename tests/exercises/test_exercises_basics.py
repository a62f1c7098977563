"""Solutions of the exercises in notebooks 01 to 03, 05 and 06, and what their checkers say to typical wrong
answers.
"""

from fractions import Fraction

import numpy as np
from notebooks.checkers import are_named, are_not_solved_yet, are_refused, are_right
from notebooks.template import solutions

import minipipe as mp
from exercises.layers import check_leaky_relu, check_linear_backward, check_shapes
from exercises.micro_batches import check_gradient_part, check_tree_sum, check_weights
from exercises.neuron import check_central_difference, check_gradient, check_tanh_neuron

# ---------------------------------------------------------------- solutions


NOTEBOOK_1, NOTEBOOK_2, NOTEBOOK_3 = map(solutions, ("01", "03", "05"))
gradient, LeakyReLU = solutions("02").gradient, NOTEBOOK_2.LeakyReLU
weights, tree_sum = NOTEBOOK_3.weights, solutions("06").my_tree_sum

SOLUTIONS = [
    (check_tanh_neuron, NOTEBOOK_1.dz_of),
    (check_gradient, gradient),
    (check_central_difference, NOTEBOOK_1.difference),
    (check_shapes, NOTEBOOK_2.shapes),
    (check_linear_backward, NOTEBOOK_2.linear_backward),
    (check_leaky_relu, LeakyReLU),
    (check_leaky_relu, LeakyReLU()),
    (check_gradient_part, NOTEBOOK_3.gradient_part),
    (check_weights, weights),
    (check_weights, lambda sizes: [Fraction(size, sum(sizes)) for size in sizes]),
    (check_weights, lambda sizes: np.array(sizes) / sum(sizes)),
    (check_tree_sum, tree_sum),
]
CHECKERS = sorted({check for check, _ in SOLUTIONS}, key=lambda check: check.__name__)


test_solutions = are_right(SOLUTIONS)


# ---------------------------------------------------------------- half solved

class HalfSolvedLayer(mp.Layer):
    forward = LeakyReLU.forward

    def backward_input(self, dA):
        return None


test_stubs = are_not_solved_yet([
    (check_gradient, lambda X, Y, A: (gradient(X, Y, A)[0], None)),
    (check_shapes, NOTEBOOK_2.shapes | {"db2": None}),
    (check_shapes, {}),
    (check_linear_backward, lambda dZ, W, A_prev: (W.T @ dZ, None, None)),
    (check_leaky_relu, HalfSolvedLayer),
    (check_weights, lambda sizes: [None for _ in sizes]),
])


# ---------------------------------------------------------------- typical wrong answers


def with_db(db):
    """The right dW with another db, of `dZ`, the derivative that carries 1/m."""
    return lambda X, Y, A: (gradient(X, Y, A)[0], db((A - Y) / X.shape[1]))


def with_dZ(dZ_of):
    """A gradient from a wrong dZ, of Y, A and m."""
    def wrong(X, Y, A):
        dZ = dZ_of(Y, A, X.shape[1])
        return dZ @ X.T, dZ.sum(axis=1, keepdims=True)
    return wrong


NEURON = [
    (check_tanh_neuron, lambda a, y: 1 - a ** 2, "only the slope of tanh"),
    (check_tanh_neuron, lambda a, y: a - y, "dz misses a factor: a - y is only da"),
    (check_tanh_neuron, lambda a, y: (y - a) * (1 - a ** 2), "wrong sign"),
    (check_tanh_neuron, lambda a, y: 2 * (a - y) * (1 - a ** 2), "2 times too large"),
    (check_tanh_neuron, lambda a, y: (a - y) * a * (1 - a), "the slope of the sigmoid"),
    (check_tanh_neuron, lambda a, y: (a - y) * (1 - np.tanh(a) ** 2), "a is tanh(z) already"),
    (check_tanh_neuron, lambda a, y: (a - y) / (1 - a ** 2), "You divided by the slope"),
    (check_tanh_neuron, lambda a, y: (a - y) * (1 - a), "you wrote 1 - a."),
    (check_tanh_neuron, lambda a, y: (a - y) * (1 - a) ** 2, "you wrote (1 - a)^2"),
    (check_tanh_neuron, lambda a, y: (a - y) ** 2 / 2 * (1 - a ** 2), "by the loss itself"),
    (check_tanh_neuron, lambda a, y: a + y, "At a = -0.5, y = 1.0 the answer is dz = -1.125, yours is 0.5"),
    (check_gradient, with_dZ(lambda Y, A, m: A - Y), "dW is 4 times too large"),
    (check_gradient, with_dZ(lambda Y, A, m: (A - Y) / m ** 2),
     "dW is 4 times too small: you divided by m = 4 twice"),
    (check_gradient, with_dZ(lambda Y, A, m: (A - Y) / 2),
     "dW is 2 times too large: did you divide by the 2 rows of X"),
    (check_gradient, with_dZ(lambda Y, A, m: (Y - A) / m), "dW is of the wrong sign"),
    (check_gradient, with_dZ(lambda Y, A, m: Y - A), "wrong sign and not divided by m"),
    (check_gradient, with_dZ(lambda Y, A, m: (A - Y) * A * (1 - A) / m), "multiplied by A (1 - A) once more"),
    (check_gradient, with_dZ(lambda Y, A, m: (-Y / A + (1 - Y) / (1 - A)) / m), "that is dA"),
    (check_gradient, with_dZ(lambda Y, A, m: A / m), "the labels Y do not appear"),
    (check_gradient, with_dZ(lambda Y, A, m: Y / m), "dW should be"),
    (check_gradient, lambda X, Y, A: (X @ (A - Y).T / 4, None), "dW has shape (2, 1), the transpose of W"),
    (check_gradient, lambda X, Y, A: ((A - Y) * X / 4, None),
     "dW has shape (2, 4), one column for each sample"),
    (check_gradient, with_db(lambda dZ: dZ), "db has shape (1, 4), one entry for each sample"),
    (check_gradient, with_db(np.sum), "db has shape (), but b has shape (1, 1)"),
    (check_gradient, with_db(lambda dZ: dZ.sum(axis=1)), "db has shape (1,), but b has shape (1, 1)"),
    (check_gradient, with_db(lambda dZ: 4 * dZ.sum(axis=1, keepdims=True)), "db is 4 times too large"),
    (check_gradient, with_db(lambda dZ: dZ.mean(axis=1, keepdims=True)), "db is 4 times too small"),
    (check_gradient, lambda X, Y, A: gradient(X, Y, A)[0], "Return two things"),
    (check_central_difference, lambda J, t, h: (J(t + h) - J(t)) / h, "the forward difference"),
    (check_central_difference, lambda J, t, h: (J(t) - J(t - h)) / h, "the backward difference"),
    (check_central_difference, lambda J, t, h: (J(t + h) - J(t - h)) / h, "2 times too large"),
    (check_central_difference, lambda J, t, h: (J(t + h) - J(t - h)) / 2 * h, "Python reads / 2 * h"),
    (check_central_difference, lambda J, t, h: (J(t + h) - J(t - h)) / 2, "you divided by 2 only"),
    (check_central_difference, lambda J, t, h: J(t + h) - J(t - h), "divide it by 2h"),
    (check_central_difference, lambda J, t, h: (J(t - h) - J(t + h)) / (2 * h), "The sign is wrong"),
    (check_central_difference, lambda J, t, h: (J(t + h / 2) - J(t - h / 2)) / h, "half the step"),
    (check_central_difference, lambda J, t, h: 3 * t ** 2, "the exact derivative"),
    (check_central_difference, lambda J, t, h: J(t), "yours is 8.0"),
]

SHAPE_DICTS = [
    (check_shapes, NOTEBOOK_2.shapes | {"W1": (64, 32)}, "one row for each unit of its own layer"),
    (check_shapes, NOTEBOOK_2.shapes | {"W2": (10, 64)}, "W maps n_prev numbers to n numbers"),
    (check_shapes, NOTEBOOK_2.shapes | {"A1": (20, 32)}, "turned round: samples are columns"),
    (check_shapes, NOTEBOOK_2.shapes | {"Z1": (64, 20)},
     "one row for each unit of its layer and one column for each sample"),
    (check_shapes, NOTEBOOK_2.shapes | {"b1": (1, 32)}, "b is a column"),
    (check_shapes, NOTEBOOK_2.shapes | {"b1": (32, 20)}, "b has one column, which NumPy adds to every"),
    (check_shapes, NOTEBOOK_2.shapes | {"b1": (32,)}, "a matrix with one column"),
    (check_shapes, NOTEBOOK_2.shapes | {"b2": 10}, "b2 is 10: b has one row for each unit and one column"),
    (check_shapes, NOTEBOOK_2.shapes | {"dW2": (10, 20)}, "the derivative by W2 has the shape of W2"),
    (check_shapes, NOTEBOOK_2.shapes | {"db2": (10, 20)}, "the derivative by b2 has the shape of b2"),
    (check_shapes, NOTEBOOK_2.shapes | {"dA1": (10, 20)}, "the derivative by A1 has the shape of A1"),
    (check_shapes, NOTEBOOK_2.shapes | {"X": (64, 20)}, "There is no matrix X"),
    (check_shapes, NOTEBOOK_2.shapes | {"W1": 2048}, "W1 is 2048"),
    (check_shapes, [(32, 64)], "Pass a dict"),
]


def with_part(place, change):
    """The right answer of Linear's backward, with one of its three parts changed."""
    def wrong(dZ, W, A_prev):
        parts = list(NOTEBOOK_2.linear_backward(dZ, W, A_prev))
        parts[place] = change(parts[place])
        return parts
    return wrong


class PlainReLU(LeakyReLU):
    def forward(self, Z):
        self.cache = Z > 0
        return Z * self.cache


class PlainReLUBackward(LeakyReLU):
    def backward_input(self, dA):
        return dA * self.cache


class Exchanged(LeakyReLU):
    def forward(self, Z):
        self.cache = Z > 0
        return np.where(Z > 0, Z / 8, Z)


class Absolute(LeakyReLU):
    def forward(self, Z):
        self.cache = Z > 0
        return np.where(Z > 0, Z, -Z / 8)


class Constant(LeakyReLU):
    def forward(self, Z):
        self.cache = Z > 0
        return np.where(Z > 0, Z, 1 / 8)


class Doubled(LeakyReLU):
    def forward(self, Z):
        return 2 * Z


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


class SlopeAlone(LeakyReLU):
    def backward_input(self, dA):
        return np.where(self.cache, 1.0, 1 / 8)


class TimesA(LeakyReLU):
    def forward(self, Z):
        self.cache = np.where(Z > 0, Z, Z / 8)
        return self.cache

    def backward_input(self, dA):
        return dA * self.cache


class SignOfdA(LeakyReLU):
    def backward_input(self, dA):
        return np.where(dA > 0, dA, dA / 8)


class Promoting(LeakyReLU):
    def forward(self, Z):
        self.cache = Z > 0
        return Z * np.where(self.cache, 1.0, 1 / 8)


class PromotingBackward(LeakyReLU):
    def backward_input(self, dA):
        return dA * np.where(self.cache, 1.0, 1 / 8)


class Halving(LeakyReLU):
    def forward(self, Z):
        return super().forward(Z).astype(np.float16)


class Raising(LeakyReLU):
    def forward(self, Z):
        return Z[7]


class RaisingBackward(LeakyReLU):
    def backward_input(self, dA):
        return dA @ dA.T @ np.ones(7)


class NeedsArguments(LeakyReLU):
    def __init__(self, slope):
        self.slope = slope


LAYERS = [
    (check_linear_backward, with_part(1, lambda dW: dW / 4),
     "dW is 4 times too small: did you divide by m = 4?"),
    (check_linear_backward, with_part(2, lambda db: db / 4), "db is 4 times too small"),
    (check_linear_backward, with_part(0, lambda dA_prev: dA_prev / 4), "dA_prev is 4 times too small"),
    (check_linear_backward, with_part(1, lambda dW: dW.T), "dW has shape (3, 2), turned round"),
    (check_linear_backward, with_part(0, lambda dA_prev: dA_prev.T),
     "dA_prev has shape (4, 3), turned round"),
    (check_linear_backward, with_part(2, lambda db: db[:, 0]), "db has shape (2,): keep the column"),
    (check_linear_backward, lambda dZ, W, A_prev: (W.T @ dZ, dZ @ A_prev.T, dZ.sum(axis=0, keepdims=True)),
     "you summed over the units"),
    (check_linear_backward, with_part(2, lambda db: db.T), "db has shape (1, 2), turned round"),
    (check_linear_backward, with_part(0, lambda dA_prev: -dA_prev), "dA_prev has the wrong sign"),
    (check_linear_backward, with_part(1, lambda dW: dW + 1), "dW should be"),
    (check_linear_backward, lambda dZ, W, A_prev: (W @ dZ, None, None),
     "Your function stopped with ValueError"),
    (check_linear_backward, lambda dZ, W, A_prev: (W @ dZ, None, None),
     "The shapes are dZ (2, 4), W (2, 3), A_prev (3, 4)."),
    (check_linear_backward, lambda dZ, W, A_prev: W.T @ dZ, "Return three things"),
    (check_linear_backward, with_part(1, lambda dW: "dZ A^T"), "not an array of real numbers"),
    (check_leaky_relu, PlainReLU, "forward is the plain ReLU"),
    (check_leaky_relu, Exchanged, "the two sides exchanged"),
    (check_leaky_relu, Absolute, "the wrong sign below 0"),
    (check_leaky_relu, Constant, "the constant 1/8"),
    (check_leaky_relu, Doubled, "should be [[2.0, -1.0], [-0.125, 4.0]]"),
    (check_leaky_relu, InPlaceForward, "forward wrote into Z"),
    (check_leaky_relu, WithoutCache, "forward leaves no cache"),
    (check_leaky_relu, PlainReLUBackward, "the slope is 1/8, not 0"),
    (check_leaky_relu, InPlaceBackward, "backward_input wrote into an array"),
    (check_leaky_relu, OtherAttribute, "nothing in another attribute"),
    (check_leaky_relu, OtherAttributeOfOtherShape, "dZ has shape (2, 1)"),
    (check_leaky_relu, SlopeAlone, "the slope alone"),
    (check_leaky_relu, TimesA, "multiplies by A"),
    (check_leaky_relu, SignOfdA, "the sign of dA"),
    (check_leaky_relu, Promoting, "forward turns float32 into float64"),
    (check_leaky_relu, Promoting, "write `np.where(mask, Z, Z / 8)`"),
    (check_leaky_relu, PromotingBackward, "backward_input turns float32 into float64"),
    (check_leaky_relu, PromotingBackward, "write `np.where(mask, dA, dA / 8)`"),
    (check_leaky_relu, Halving, "forward turns float32 into float16: multiply by Python numbers"),
    (check_leaky_relu, Raising, "forward stopped with IndexError"),
    (check_leaky_relu, RaisingBackward, "backward_input stopped with ValueError"),
    (check_leaky_relu, NeedsArguments, "Your class stopped with TypeError"),
    (check_leaky_relu, 3, "no method forward"),
    (check_leaky_relu, mp.Layer, "no method forward"),
]


def halving(terms):
    half = len(terms) // 2
    return terms[0] if half == 0 else halving(terms[:half]) + halving(terms[half:])


MICRO_BATCHES = [
    (check_gradient_part, lambda dL, A_prev, m: dL @ A_prev.T / dL.shape[1],
     "dW is 2 times too large: did you divide by the micro-batch's 2 samples instead of "
     "the mini-batch's m = 4?"),
    (check_gradient_part, lambda dL, A_prev, m: dL @ A_prev.T,
     "dW is 4 times too large: it is not divided at all"),
    (check_gradient_part, lambda dL, A_prev, m: dL @ A_prev.T / 4,
     "did you write the number 4 instead of m?"),
    (check_gradient_part, lambda dL, A_prev, m: dL @ A_prev.T / dL.shape[1] / m,
     "divided twice, by 2 and by m = 4"),
    (check_gradient_part, lambda dL, A_prev, m: -dL @ A_prev.T / m, "wrong sign"),
    (check_gradient_part, lambda dL, A_prev, m: A_prev @ dL.T / m, "dW has shape (3, 2), the transpose of W"),
    (check_gradient_part, lambda dL, A_prev, m: dL @ A_prev.T / m + 1, "dW should be"),
    (check_gradient_part, lambda dL, A_prev, m: dL * A_prev, "Your function stopped with ValueError"),
    (check_gradient_part, lambda dL, A_prev, m: [[1], [1, 2]], "not an array of numbers"),
    (check_weights, lambda sizes: [1 / len(sizes)] * len(sizes),
     "Right for equal sizes only: with (3, 3, 2, 2)"),
    (check_weights, lambda sizes: [1] * len(sizes), "the sum of 4 means is too large"),
    (check_weights, lambda sizes: [1 / sum(sizes)] * len(sizes), "its mean is divided by the size already"),
    (check_weights, lambda sizes: sizes, "The sizes are not divided yet"),
    (check_weights, lambda sizes: [1 / size for size in sizes], "Turned round"),
    (check_weights, lambda sizes: [sum(sizes) / size for size in sizes], "Turned round"),
    (check_weights, lambda sizes: [size / max(sizes) / 2 for size in sizes], "add up to 1.66667: "),
    (check_weights, lambda sizes: weights(sizes)[::-1], "the weights are ['3/10', '3/10', '1/5', '1/5']"),
    (check_weights, lambda sizes: 1 / len(sizes), "has shape (), but it must have shape (4,)"),
    (check_tree_sum, sum, "the running sum, from left to right"),
    (check_tree_sum, lambda terms: sum(terms[::-1]), "the running sum from the right"),
    (check_tree_sum, halving, "You cut the list into halves"),
    (check_tree_sum, np.sum, "np.sum"),
    (check_tree_sum, lambda terms: tree_sum(sorted(terms)), "The sum is right but not its bits"),
    (check_tree_sum, lambda terms: tree_sum(terms[:len(terms) // 2 * 2] or terms), "is a term left out"),
    (check_tree_sum, lambda terms: terms[0] + terms[1], "With 1 term: Your function stopped with IndexError"),
    (check_tree_sum, lambda terms: [sum(terms)], "must have shape ()"),
]
test_mistakes = are_named(NEURON + SHAPE_DICTS + LAYERS + MICRO_BATCHES)
test_junk = are_refused(CHECKERS, [lambda *a: ([1, [2]],) * 3, lambda *a: ([1, [2]],) * 2])


def test_shapes_written_as_arrays_are_judged_like_tuples():
    from exercises.layers import SHAPES, check_shapes

    assert check_shapes({name: np.array(shape) for name, shape in SHAPES.items()}).startswith("Right")
    assert "Right" not in check_shapes({name: np.array(shape[::-1]) for name, shape in SHAPES.items()})
