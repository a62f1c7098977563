"""What notebook 04 says to costs and loops in other words than its solutions': right ones and wrong ones."""

import numpy as np
import pytest

from exercises import whole_pictures
from exercises.judging import judged, part_named

COST, FULL_BATCH = part_named("cost"), part_named("full_batch")


def cost(body):
    return f"def cost(A, Y, m):\n    {body}\n"


def loops(forward="A = layers[k].forward(A)", m="len(X[0])", order="range(len(layers) - 1, -1, -1)",
          back="dA, *pair = layers[k].backward(dA)", end="return J, found",
          store="if pair[0] is not None: found[layers[k]] = tuple(pair)"):
    """Two loops over places, each line of which can be another."""
    return f"""
def full_batch(layers, X, Y):
    A, found = X.copy(), {{}}
    for k in range(len(layers)):
        {forward}
    m = {m}
    J, dA = cost(A, Y, m)
    for k in {order}:
        {back}
        {store}
    {end}
"""


RIGHT_COST = [
    cost("D = A - Y; return (D * D).sum() / (2 * m), D / m"),
    cost("return np.sum(np.square(A - Y)) / m / 2, (A - Y) / m"),
    cost("D = A - Y; return sum(d * d for row in D for d in row) / (2 * m), D / m"),
    "def half(x):\n    return x / 2\n\n\n" + cost("return half(((Y - A) ** 2 / m).sum()), -(Y - A) / m"),
    cost("return np.trace((A - Y) @ (A - Y).T) / (2 * m), np.subtract(A, Y) / m"),
]

RIGHT_FULL_BATCH = [
    loops(),
    loops(forward="X = layers[k].forward(X)").replace("m = len(X[0])", "A, m = X, X.shape[1]"),
    loops(order="list(range(len(layers)))[::-1]"),
    loops(store="if hasattr(layers[k], 'W'): found[layers[k]] = pair"),
    """
def through(layers, A):
    if not layers:
        return A
    return through(layers[1:], layers[0].forward(A))


def back(layers, dA):
    if not layers:
        return {}
    dA_prev, dW, db = layers[-1].backward(dA)
    return back(layers[:-1], dA_prev) | ({} if dW is None else {layers[-1]: (dW, db)})


def full_batch(layers, X, Y):
    J, dA = cost(through(layers, X), Y, Y.shape[1])
    return J, back(layers, dA)
""",
]

WRONG_COST = {
    "your J is twice too large": cost("D = A - Y; return np.sum(D * D) / m, D / m"),
    "your dA is twice too large": cost("D = A - Y; return np.sum(D * D) / m / 2, 2 / m * D"),
    "to a cost without the 1/2": cost("D = A - Y; return np.sum(D * D) / m, 2 * D / m"),
    "Your dA divides by its own": cost("D = A - Y; return np.sum(D * D) / m / 2, D / len(A[0])"),
    "Your J divides by its own": cost("D = A - Y; return np.sum(D * D) / Y.shape[1] / 2, D / m"),
    "Your J and dA divide by the number of samples":
        cost("m = A.shape[1]; return np.sum((A - Y) ** 2) / (2 * m), (A - Y) / m"),
    "Your dA is not divided by m": cost("D = A - Y; return np.sum(D * D) / m / 2, D"),
    "Your J is not divided by m": cost("D = A - Y; return np.sum(D * D) / 2, D / m"),
    "wrong sign": cost("D = Y - A; return np.sum(D * D) / m / 2, D / m"),
    "Your J is a mean over all entries": cost("D = A - Y; return np.mean(D * D) / 2, D / m"),
    "Your J and dA are means over all entries": cost("D = A - Y; return np.mean(D * D) / 2, D / D.size"),
    "adds up first and squares then": cost("D = A - Y; return D.sum() ** 2 / (2 * m), D / m"),
    "absolute values": cost("D = A - Y; return abs(D).sum() / m / 2, D / m"),
    "returns dA first": cost("D = A - Y; return D / m, np.sum(D * D) / m / 2"),
    "J of 4 samples, with 3 outputs each and m = 4: yours has shape (4,), it must be ()":
        cost("D = A - Y; return sum(D * D) / m / 2, D / m"),
    "The number of values that cost returns: yours is": cost("D = A - Y; return np.sum(D * D) / m / 2"),
    "Whether A and Y are as they were: yours is [False, True]":
        cost("A -= Y; return np.sum(A * A) / m / 2, A / m"),
    "Not solved yet": cost("return None"),
}

WRONG_FULL_BATCH = {
    "begins at the first layer": loops(order="range(len(layers))"),
    "You hand the dA of the cost to each layer": loops(back="_, *pair = layers[k].backward(dA)"),
    "leaves ReLU out":
        loops(back="if not hasattr(layers[k], 'b'): continue\n        dA, *pair = layers[k].backward(dA)"),
    "You hand X to each layer": loops(forward="A = layers[k].forward(X)"),
    "an entry (None, None) for each ReLU": loops(store="found[layers[k]] = tuple(pair)"),
    "Only one layer is left": loops(store="if pair[0] is not None: found = {layers[k]: tuple(pair)}"),
    "the layer itself as the key, not its place":
        loops(store="if pair[0] is not None: found[k] = tuple(pair)"),
    "belong to the wrong layers": loops(
        store="if pair[0] is not None: found[len(found)] = pair",
        end="own = [layer for layer in layers if hasattr(layer, 'W')]\n"
            "    return J, {layer: found[k] for k, layer in enumerate(own)}"),
    "Your gradients are a list": loops(store="if pair[0] is not None: found = [*found, pair]"),
    "the number of rows of X": loops(m="len(X)"),
    "the number of rows of Y": loops(m="len(Y)"),
    "divides by 1": loops(m="1"),
    "The gradients of layers[2] of 2 samples and layers of 3 - 3 - 3 units: yours is one array":
        loops(store="if pair[0] is not None: found[layers[k]] = pair[0]"),
    "returns the gradients first": loops(end="return found, J"),
    "changes W and b on its way": loops(store="if pair[0] is not None:\n            found[layers[k]] = pair\n"
                                              "            layers[k].W -= pair[0]; layers[k].b -= pair[1]"),
    "`full_batch` returns nothing: it ends without a `return`": loops(end="print(J)"),
    "No layer is a key of your gradients": loops(store="found[id(layers[k])] = pair"),
    "`full_batch` stopped with ValueError": loops(m="len(X[0]); A = A.T"),
    "Not solved yet: the body of `full_batch`": "def full_batch(layers, X, Y):\n    '''Later.'''\n",
}


@pytest.mark.parametrize(("part", "code"), [*((COST, code) for code in RIGHT_COST),
                                            *((FULL_BATCH, code) for code in RIGHT_FULL_BATCH)])
def test_other_right_ways(part, code):
    assert judged(part, code) == f"Right: {part.right}"


@pytest.mark.parametrize("words", WRONG_COST)
def test_a_wrong_cost_is_named(words):
    assert words in judged(COST, WRONG_COST[words])


@pytest.mark.parametrize("words", WRONG_FULL_BATCH)
def test_a_wrong_loop_is_named(words):
    assert words in judged(FULL_BATCH, WRONG_FULL_BATCH[words])


def test_the_needle_draws_the_distances_that_it_is_given():
    [ax] = whole_pictures.needle(lambda factor, h: factor * h, 1, 100).axes
    right, wrong = ax.lines
    assert np.array_equal(right.get_xdata(), right.get_ydata())
    assert np.array_equal(wrong.get_ydata(), 100 * right.get_xdata())
    assert [f"{h:.0e}" for h in right.get_xdata()] == [f"1e-{k:02d}" for k in range(1, 13)]


def test_misread_images_are_those_that_differ():
    images, truth, read = np.zeros((64, 4)), np.array([1, 2, 3, 4]), np.array([1, 7, 3, 9])
    figure = whole_pictures.misread(images, truth, read, n=2)
    assert [ax.get_title() for ax in figure.axes] == ["read 7\nis 2", "read 9\nis 4"]
