"""What notebook 05 says to cuts and loops that are not written as its solutions are, right and wrong ones."""

import numpy as np
import pytest

import minipipe as mp
from exercises import micro_batches_pictures
from exercises.judging import judged, module_of, part_named
from minipipe.exact import rational

MICRO_BATCHES, IN_PARTS = part_named("micro_batches"), part_named("in_parts")


def cut(body):
    return f"def micro_batches(X, M):\n    {body}\n"


def loop(parts="list(zip(micro_batches(X, M), micro_batches(Y, M)))", start="J, found, m = 0, {}, len(X[0])",
         m="m", add_J="J = J + J_part", back="dA, dW, db = layer.backward(dA)",
         add="if layer in found: dW, db = dW + found[layer][0], db + found[layer][1]", end="return J, found"):
    """A loop over parts, each line of which can be another."""
    return f"""
def in_parts(layers, X, Y, M):
    {start}
    for X_part, Y_part in {parts}:
        for layer in layers:
            X_part = layer.forward(X_part)
        J_part, dA = cost(X_part, Y_part, {m})
        {add_J}
        for layer in layers[::-1]:
            {back}
            if dW is None: continue
            {add}
            found[layer] = dW, db
    {end}
"""


RIGHT_CUTS = [
    cut("return [X.T[k].T for k in np.array_split(range(X.shape[1]), M)]"),
    cut("size, rest = divmod(X.shape[1], M)\n"
        "    cuts = [0]\n"
        "    for i in range(M):\n"
        "        cuts.append(cuts[-1] + size + (i < rest))\n"
        "    return [X[:, cuts[i]:cuts[i + 1]] for i in range(M)]"),
    cut("m = X.shape[1]; edges = [-(-m * i // M) for i in range(M + 1)]\n"
        "    sizes = sorted((b - a for a, b in zip(edges, edges[1:])), reverse=True)\n"
        "    return tuple(np.split(X, np.cumsum(sizes)[:-1], axis=1))"),
]

RIGHT_LOOPS = [
    loop(),
    loop(start="J, found, m = 0, {layer: (0, 0) for layer in layers if hasattr(layer, 'W')}, Y.shape[1]"),
    loop(start="J = 0; found = {}; m = X.shape[1]", parts="[(X[:, k], Y[:, k]) for k in "
         "micro_batches(np.arange(m)[None], M) for k in [k[0]]]"),
    loop(add="old = found.get(layer, (np.zeros_like(dW), np.zeros_like(db))); dW += old[0]; db += old[1]"),
]

WRONG_CUTS = {
    "You cut between rows": cut("return list(np.array_split(X, M, 0))"),
    "only if the parts are equal": cut("return list(np.hsplit(X, M))"),
    "Your cut loses samples": cut("s = len(X[0]) // M; return [X[:, s * i:s * i + s] for i in range(M)]"),
    "Your last part gets the whole rest": cut(
        "s = len(X[0]) // M; return [X[:, s * i:s * i + s] for i in range(M - 1)] + [X[:, s * (M - 1):]]"),
    "the last one gets what is left": cut(
        "s = int(np.ceil(len(X[0]) / M)); return np.split(X, range(s, len(X[0]), s), axis=1)"),
    "more than M parts": cut("s = len(X[0]) // M; return np.split(X, range(s, len(X[0]), s), axis=1)"),
    "M as the size": cut("return np.split(X, range(M, X.shape[1], M), axis=1)"),
    "the longer parts come first": cut(
        "edges = [int(X.shape[1] / M * i + 1e-9) for i in range(M + 1)]\n"
        "    return [X[:, a:b] for a, b in zip(edges, edges[1:])]"),
    "every M-th sample": cut("return [X[:, k::M] for k in range(M)]"),
    "in the wrong order": cut("parts = np.array_split(X, M, axis=1); parts.reverse(); return parts"),
    "drops an axis": cut("return [column for column, _ in zip(X.T, range(M))]"),
    "The number of axes of each part of 4 samples and M = 2: yours is [1, 1], it must be [2, 2]":
        cut("return np.split(X.ravel(), M)"),
    "Return a list": cut("return (part for part in np.array_split(X, M, axis=1))"),
    "The number of parts of 4 samples and M = 2: yours is 1": cut("return [X]"),
    "The sizes of the parts of 4 samples and M = 2: yours is [1, 3]": cut("return [X[:, :1], X[:, 1:]]"),
    "`micro_batches` returns nothing: it ends without a `return`": cut("np.array_split(X, M, axis=1)"),
    "Not solved yet": cut("pass"),
}

WRONG_LOOPS = {
    "M times too large": loop(m="len(Y_part[0])"),
    "the mean of the parts' means": loop(m="len(Y_part[0])", end="return J / M, {layer: (dW / M, db / M) "
                                         "for layer, (dW, db) in found.items()}"),
    "the number of rows of X": loop(start="J, found, m = 0, {}, len(X)"),
    "the number of rows of Y": loop(start="J, found, m = 0, {}, len(Y)"),
    "Your J and gradients are M times too small": loop(end="return J / M, {layer: (dW / M, db / M) "
                                                       "for layer, (dW, db) in found.items()}"),
    "Your J is divided by M": loop(end="return J / M, found"),
    "which is a KeyError": loop(add="dW, db = dW + found[layer][0], db + found[layer][1]"),
    "Your gradients get longer": loop(add="old = found.get(layer, ())").replace(
        "found[layer] = dW, db", "found[layer] = (*old, dW, db)"),
    "No layer is a key": loop(add="layer = id(layer); old = found.get(layer, [0, 0]); dW, db = dW + old[0], "
                                  "db + old[1]"),
    "what a ReLU returns": loop().replace("            if dW is None: continue\n", ""),
    "Your sums take in what a ReLU returns": loop(
        add="old = found.get(layer, [0, 0]); dW, db = dW + old[0], db + old[1]"
    ).replace("            if dW is None: continue\n", ""),
    "`in_parts` stopped with TypeError": loop(back="dA, dW, db = layer.backward()"),
    "those of the last part alone": loop(add="pass"),
    "Your J is that of the last part alone": loop(add_J="J = J_part"),
    "Your J stays 0": loop(add_J="pass"),
    "ends one part too early": loop(parts="[*zip(micro_batches(X, M), micro_batches(Y, M))][:M - 1]"),
    "the whole mini-batch through M times": loop(parts="[(X, Y) for _ in range(M)]"),
    "You run all forwards first": """
def in_parts(layers, X, Y, M):
    J, found, handed = 0, {}, []
    for A in micro_batches(X, M):
        for layer in layers:
            A = layer.forward(A)
        handed.append(A)
    for i, Y_i in enumerate(micro_batches(Y, M)):
        J_i, dA = cost(handed[i], Y_i, X.shape[1])
        J = J + J_i
        for layer in layers[::-1]:
            dA, *pair = layer.backward(dA)
            if hasattr(layer, "W"):
                found[layer] = [a + b for a, b in zip(pair, found.get(layer, [0, 0]))]
    return J, found
""",
    "You hand the dA of the cost to each layer": loop(back="_, dW, db = layer.backward(dA)"),
    "begins at the first layer": loop().replace("layers[::-1]", "layers"),
    "your J starts at 0.0": loop(start="J, found, m = 0.0, {}, len(X[0])"),
    "returns the gradients first": loop(end="return found, J"),
    "Whether W and b stay as they are while the parts go through: yours is [False, False]":
        loop(add="layer.W = layer.W - 0.1 * dW; layer.b = layer.b - 0.1 * db"),
    "`in_parts` returns nothing: it ends without a `return`": loop(end="J"),
    "in_parts uses `full_batch`": loop(add_J="full_batch(layers, X, Y)"),
    "Not solved yet": "def in_parts(layers, X, Y, M):\n    return None\n",
}


@pytest.mark.parametrize(("part", "code"), [*((MICRO_BATCHES, code) for code in RIGHT_CUTS),
                                            *((IN_PARTS, code) for code in RIGHT_LOOPS)])
def test_other_right_ways(part, code):
    assert judged(part, code) == f"Right: {part.right}"


@pytest.mark.parametrize("words", WRONG_CUTS)
def test_a_wrong_cut_is_named(words):
    assert words in judged(MICRO_BATCHES, WRONG_CUTS[words])


@pytest.mark.parametrize("words", WRONG_LOOPS)
def test_a_wrong_loop_is_named(words):
    assert words in judged(IN_PARTS, WRONG_LOOPS[words])


@pytest.mark.parametrize("M", [1, 2, 3, 4, 10])
def test_in_parts_equals_the_package_in_fractions(M):
    my, rng = module_of(IN_PARTS, IN_PARTS.solution), np.random.default_rng(M)
    layers = [my.Linear(3, 4, rng), my.ReLU(), my.Linear(4, 2, rng)]
    theirs = [mp.Linear(3, 4), mp.ReLU(), mp.Linear(4, 2)]
    for own, other in ((layers[0], theirs[0]), (layers[2], theirs[2])):
        own.W = other.W = rational(own.W.round(2))
        own.b = other.b = rational(rng.integers(-3, 4, own.b.shape)) / 5
    X, Y = rational(rng.integers(-9, 10, (3, 10))) / 7, rational(rng.integers(-9, 10, (2, 10))) / 3
    package = mp.Sequential(theirs, mp.MeanSquaredError())
    J, gradients = my.in_parts(layers, X, Y, M)
    assert J == package.forward_backward(X, Y)
    for k in (0, 2):
        for own, other in zip(gradients[layers[k]], package.gradients[k], strict=True):
            assert (own == other).all()


def test_the_weights_in_the_picture_add_up_to_one():
    [ax] = micro_batches_pictures.weights([3, 3, 2, 2]).axes
    by_m, of_means = ([bar.get_height() for bar in bars] for bars in ax.containers)
    assert by_m == [1 / 10] * 10 and of_means == [1 / 12] * 6 + [1 / 8] * 4
    assert abs(sum(of_means) - 1) <= 10 * 2**-53  # ten additions of numbers up to 1, each rounded once


def test_the_product_is_drawn_whole_and_in_two_parts():
    [ax] = micro_batches_pictures.product_in_parts().axes
    texts = [text.get_text() for text in ax.texts]
    assert all(texts.count(f"${letter}_{k}$") == 2 for letter in "abcd" for k in range(4))
