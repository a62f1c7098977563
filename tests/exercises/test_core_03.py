"""What notebook 03 says to layers that are not written as its solutions are: right ones and wrong ones."""

import numpy as np
import pytest

from exercises import layers_pictures
from exercises.judging import judged, part_named

LINEAR, RELU = part_named("Linear"), part_named("ReLU")
START = """
class Linear:
    def __init__(self, n_prev, n, rng):
        self.W = rng.standard_normal((n, n_prev)) * np.sqrt(2 / n_prev)
        self.b = np.zeros((n, 1))

"""


def linear(forward="self.cache = A_prev; return np.dot(self.W, A_prev) + self.b",
           dA_prev="np.dot(self.W.T, dZ)", dW="np.dot(dZ, A.T)", db="np.sum(dZ, 1, keepdims=True)",
           end="return dA_prev, dW, db", A="self.cache"):
    """A layer with lines of its own, each written otherwise than in the solution."""
    return START + f"""
    def forward(self, A_prev):
        {forward}

    def backward(self, dZ):
        A = {A}
        db = {db}
        dA_prev = {dA_prev}
        dW = {dW}
        {end}
"""


def relu(forward="self.cache = Z > 0; return np.where(Z > 0, Z, 0)",
         backward="return np.where(self.cache, dA, 0), None, None"):
    return f"""
class ReLU:
    def forward(self, Z):
        {forward}

    def backward(self, dA):
        {backward}
"""


RIGHT_LINEAR = [
    linear(),
    linear(dW="np.tensordot(dZ, A, axes=(1, 1))", db="dZ @ np.ones((dZ.shape[1], 1), int)"),
    linear(db="np.array([[sum(row)] for row in dZ])", dA_prev="(dZ.T @ self.W).T", dW="(A @ dZ.T).T"),
    linear(db="dZ.sum(axis=1).reshape(-1, 1)",
           dW="sum(np.outer(dZ[:, k], A[:, k]) for k in range(dZ.shape[1]))"),
    linear("self.cache = (A_prev.copy(),); return np.add(self.W @ A_prev, self.b)", A="self.cache[0]"),
    linear(db="dZ.sum(axis=1)[:, None]", end="return [dA_prev, dW, db]"),
]

RIGHT_RELU = [
    relu(),
    relu("self.cache = Z > 0; return np.maximum(0, Z)", "return self.cache * dA, None, None"),
    relu("A = np.maximum(Z, 0); self.cache = A > 0; return A", "return (dA * self.cache, None, None)"),
    relu("A = Z.copy(); A[Z <= 0] = 0; self.cache = np.greater(Z, 0); return A",
         "dZ = dA.copy(); dZ[~self.cache] = 0; return dZ, None, None"),
]

WRONG_LINEAR = {
    "Your dW and db are means over the samples":
        linear(A="self.cache; m = len(A.T)", dW="1 / m * dZ.dot(A.T)", db="1 / m * dZ.sum(1).reshape(-1, 1)"),
    "Your dW is divided by": linear(dW="(dZ / dZ.shape[1]).dot(A.T)"),
    "Your db is a mean": linear(db="np.average(dZ, axis=1).reshape(-1, 1)"),
    "is not a column any more": linear(db="np.add.reduce(dZ, 1)"),
    "one number for the whole layer": linear(db="np.sum(dZ)"),
    "Your db adds up over the units": linear(db="np.ones((1, len(dZ)), int) @ dZ"),
    "a column for each sample": linear(db="dZ.copy()"),
    "the transpose of what it must be": linear(dW="np.dot(dZ, A.T).T"),
    "the inner sides do not match": linear(dW="np.dot(dZ, A)"),
    "Your dA_prev is W dZ": linear(dA_prev="np.dot(self.W, dZ)"),
    "samples as rows": linear(dA_prev="dZ.T.dot(self.W)"),
    "in another order": linear(end="return dW, db, dA_prev"),
    "hands back the dZ that it was given": linear(dA_prev="dZ"),
    "Your backward changes W and b": linear(end="self.W -= dW; self.b -= db; return dA_prev, dW, db"),
    "changes W and b. It only says how":
        linear(dA_prev="0", end="self.W -= 0.1 * dW; self.b -= 0.1 * db; return self.W.T @ dZ, dW, db"),
    "Your cache holds Z": linear("Z = self.W.dot(A_prev) + self.b; self.cache = Z; return Z"),
    "under another name than `self.cache`":
        linear("self.A_prev = A_prev; return self.W.dot(A_prev) + self.b", A="self.A_prev"),
    "does not read `self.cache`":
        linear("self.cache = self.A = A_prev; return self.W.dot(A_prev) + self.b", A="self.A"),
    "Your forward forgets b": linear("self.cache = A_prev; return self.W.dot(A_prev)"),
    "Your forward multiplies W and A_prev entry by entry":
        linear("self.cache = A_prev; return np.multiply(self.W, A_prev) + self.b"),
    "Your dA_prev multiplies entry by entry": linear(dA_prev="dZ * self.W.T"),
    "Your dW multiplies entry by entry": linear(dW="A.T * dZ"),
    "Your forward multiplies by W transposed":
        linear("self.cache = A_prev; return self.W.T.dot(A_prev) + self.b"),
    "Your backward returns dA_prev alone": linear(end="return dA_prev"),
    "Your backward returns dW and db": linear(end="return dW, db"),
    "Your backward returns dA_prev and dW": linear(end="return dA_prev, dW"),
    "The number of values that backward returns: yours is one, it must be 3": linear(end="return dZ * 3"),
    "asks for `A_prev`, which it is not given": linear(dW="np.dot(dZ, A_prev.T)"),
    "Your dA_prev and dW multiply entry by entry": linear(dA_prev="self.W.T * dZ", dW="A.T * dZ"),
    "forward and backward": linear("self.cache = A_prev; return self.W * A_prev + self.b",
                                   dA_prev="self.W.T * dZ", dW="A.T * dZ"),
    "Whether forward leaves A_prev as it was: yours is False":
        linear("self.cache = A_prev.copy(); A_prev *= 0; return self.W @ self.cache + self.b"),
    "Whether backward leaves A_prev and dZ as they were: yours is [True, False]":
        linear(end="dZ /= 2; return dA_prev, dW, db"),
    "The W that Linear(3, 2, rng) draws": linear().replace("np.sqrt(2 / n_prev)", "0.01"),
    "Linear uses `helper`": linear(dW="helper(dZ, A)"),
    "stopped with AttributeError": linear(dW="dZ.dott(A.T)"),
    "Not solved yet: the body of `backward` is empty":
        START + "    def forward(self, A_prev):\n        return 1\n\n    def backward(self, dZ): pass\n",
    "`forward` returns nothing":
        linear("self.cache = A_prev; self.W @ A_prev + self.b"),
}

WRONG_RELU = {
    "lets everything pass": relu(backward="return dA.copy(), None, None"),
    "the sign of dA": relu(backward="return np.maximum(dA, 0), None, None"),
    "returns the slope alone": relu(backward="return self.cache.astype(float), None, None"),
    "turns negative numbers round": relu("self.cache = Z > 0; return abs(Z)"),
    "the wrong way round": relu("self.cache = Z < 0; return np.where(Z < 0, Z, 0)"),
    "the slope at exactly 0": relu("self.cache = Z >= 0; return np.maximum(Z, 0)"),
    "return three things": relu(backward="return np.where(self.cache, dA, 0)"),
    "Your dW and db are 0": relu(backward="return np.where(self.cache, dA, 0), 0, 0"),
    "your forward writes into the Z": relu("self.cache = Z > 0; Z[Z < 0] = 0; return Z"),
    "your backward writes into the dA": relu(backward="dA[~self.cache] = 0; return dA, None, None"),
    "8 bytes for each number": relu("self.cache = np.maximum(Z, 0); return self.cache",
                                    "return np.where(self.cache > 0, dA, 0), None, None"),
    "asks for `Z`, which it is not given": relu(backward="return np.where(Z > 0, dA, 0), None, None"),
    "your mask is made of numbers": relu("self.cache = np.where(Z > 0, 1.0, 0.0); return self.cache * Z",
                                        "return dA * self.cache, None, None"),
    "under another name": relu("self.positive = Z > 0; return Z * self.positive",
                               "return dA * self.positive, None, None"),
    "does not read `self.cache`": relu("self.Z = Z; self.cache = Z > 0; return np.maximum(Z, 0)",
                                       "return dA * (self.Z > 0), None, None"),
    "`backward` returns nothing":
        relu(backward="dA * self.cache, None, None"),
    "A with Z = [[-1, 0, 2], [3, -0.5, 0.25]]: yours is":
        relu("self.cache = Z > 0; return np.maximum(Z, 1)"),
    "Not solved yet": relu(backward="pass"),
}


@pytest.mark.parametrize(("part", "code"), [*((LINEAR, code) for code in RIGHT_LINEAR),
                                            *((RELU, code) for code in RIGHT_RELU)])
def test_other_right_ways(part, code):
    assert judged(part, code) == f"Right: {part.right}"


MASKS = ["(Z > 0) * 1.0", "(Z > 0).astype(float)", "np.where(Z > 0, 1, 0)", "(Z > 0).astype(Z.dtype)"]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("A", ["Z * self.cache", "np.maximum(Z, 0)"])
@pytest.mark.parametrize("dZ", ["dA * self.cache", "np.where(self.cache > 0, dA, 0)"])
def test_a_mask_that_takes_eight_bytes_is_named_however_it_is_used(mask, A, dZ):
    code = relu(f"self.cache = {mask}; return {A}", f"return {dZ}, None, None")
    assert "your mask is made of numbers, with 8 bytes for each" in judged(RELU, code)


@pytest.mark.parametrize("words", WRONG_LINEAR)
def test_a_wrong_linear_layer_is_named(words):
    assert words in judged(LINEAR, WRONG_LINEAR[words])


@pytest.mark.parametrize("words", WRONG_RELU)
def test_a_wrong_relu_is_named(words):
    assert words in judged(RELU, WRONG_RELU[words])


def test_the_products_in_the_picture_have_the_shapes_of_the_arrays():
    shapes = dict(X=(6, 2), W1=(4, 6), b1=(4, 1), Z1=(4, 2), A1=(4, 2), W2=(3, 4), b2=(3, 1), Z2=(3, 2))
    shapes |= {f"d{name}": shape for name, shape in shapes.items()}
    figure = layers_pictures.products({name: np.ones(shape) for name, shape in shapes.items()})
    forward, backward = figure.axes
    texts = [text.get_text() for text in backward.texts[:7]]
    assert texts == ["$dW^{[2]}$", "(3, 4)", "=", "$dZ^{[2]}$", "(3, 2)", "$A^{[1]T}$", "(2, 4)"]
    drawn = [(patch.get_height(), patch.get_width()) for patch in forward.patches[:4]]
    assert drawn == [shapes["Z1"], shapes["W1"], shapes["X"], shapes["b1"]]


def test_what_moves_is_written_into_the_stamps():
    moves = {"b[1]": np.array([[0, 0, 0], [1, -2, 1]]), "W[0, 0]": np.array([[3, 0, 1], [0, 0, 0]])}
    left, right = layers_pictures.stamps(moves).axes
    assert [text.get_text() for text in left.texts] == ["0", "0", "0", "+1", "-2", "+1"]
    assert right.get_title().startswith("raise W[0, 0] by 1")


class Doubles:
    """A layer with a slope of 2."""

    def forward(self, Z):
        return 2 * Z

    def backward(self, dA):
        return 2 * dA, None, None


def test_the_curve_of_relu_is_the_learners():
    Z = np.array([[-1.0, 0.0, 1.0]])
    left, right = layers_pictures.curves(Z, Z, Z, Doubles()).axes
    assert left.lines[1].get_ydata().tolist() == [-2, 0, 2]
    assert right.lines[1].get_ydata().tolist() == [2, 2, 2]
