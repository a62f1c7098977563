"""What notebook 05 asks for: the cut of a mini-batch, and a pass of it in parts, forward and backward."""

import numpy as np

from minipipe.exact import rational

from ..judging import Part, is_numbers, same
from .layers import how_many
from .whole import adding_none, gradients_of, network


def of_micro_batches(my):
    """Yield the parts of some mini-batches, with and without a rest."""
    for m, M in ((4, 2), (10, 4), (6, 1), (7, 3), (5, 5)):
        X = np.arange(3.0 * m).reshape(3, m)
        parts = my.micro_batches(X, M)
        words = f"of {m} samples and M = {M}"
        is_list = isinstance(parts, (list, tuple, np.ndarray))
        yield "What micro_batches returns", "a list" if is_list else parts and f"a {type(parts).__name__}"
        yield f"The number of parts {words}", len(parts)
        yield f"The number of axes of each part {words}", [np.ndim(part) for part in parts]
        yield f"The sizes of the parts {words}", [np.shape(part)[-1] for part in parts]
        yield f"The parts {words}", list(parts)


def of_in_parts(my):
    """Yield J and the gradients of two networks; the first has square layers, so that nothing stops.

    What is wrong in floats is not tried with fractions: these stop at the first float, whatever is wrong.
    """
    rng, right = np.random.default_rng(6), []
    cases = (((3, 3, 3), 2, 1), ((3, 3, 3), 4, 2), ((4, 3, 2), 10, 1), ((4, 3, 2), 10, 4), ((2, 4, 3), 10, 3))
    for sizes, m, M in cases:
        layers = network(my, sizes, rng)
        X, Y = rng.integers(-4, 5, (sizes[0], m)) / 2, rng.integers(-4, 5, (sizes[-1], m)) / 2
        before = [(layer.W, layer.b, layer.W.copy(), layer.b.copy()) for layer in layers[::2]]
        whole = _at_once(my, layers, X, Y)
        handed = yield from adding_none(lambda: my.in_parts(layers, X, Y, M))
        yield "The number of values that in_parts returns", how_many(handed)
        unchanged = [layer.W is W and layer.b is b and np.array_equal(W, old_W) and np.array_equal(b, old_b)
                     for layer, (W, b, old_W, old_b) in zip(layers[::2], before)]
        yield "Whether W and b stay as they are while the parts go through", all(unchanged)
        if not all(unchanged):
            return
        J, gradients = handed
        where = f"of {m} samples in M = {M} parts"
        yield f"J {where}", J if is_numbers(J) else f"a {type(J).__name__}"
        found = [*gradients_of(layers, gradients, where)]
        yield from found
        derivatives = [value for words, value in found if words.startswith(("dW", "db"))]
        right.append(same([J, *derivatives], whole))
    if all(right):
        for layer in layers[::2]:
            layer.W, layer.b = rational(layer.W), rational(layer.b)
        J, gradients = my.in_parts(layers, rational(X) / 3, rational(Y) / 7, M)
        yield "J in exact fractions", J
        yield from gradients_of(layers, gradients, "in exact fractions")


def _at_once(my, layers, X, Y):
    """Return [J, dW and db of the last layer, of the one before, ...] of the whole mini-batch."""
    A = X
    for layer in layers:
        A = layer.forward(A)
    J, dA = my.cost(A, Y, X.shape[1])
    found = [J]
    for layer in reversed(layers):
        dA, *derivatives = layer.backward(dA)
        found += [derivative for derivative in derivatives if derivative is not None]
    return found


CUT = "return np.array_split(X, M, axis=1)"
BODY = """    for X_i, Y_i in zip(micro_batches(X, M), micro_batches(Y, M)):
        A = X_i
        for layer in layers:
            A = layer.forward(A)
        J_i, dA = cost(A, Y_i, m)
"""
FORWARDS_FIRST = """    outputs = []
    for X_i in micro_batches(X, M):
        A = X_i
        for layer in layers:
            A = layer.forward(A)
        outputs.append(A)
    for A, Y_i in zip(outputs, micro_batches(Y, M)):
        J_i, dA = cost(A, Y_i, m)
"""
ADD = """                sum_dW, sum_db = gradients.get(layer, (0, 0))
                gradients[layer] = sum_dW + dW, sum_db + db
"""
LAST = "                gradients[layer] = dW, db\n"
IF = "            if dW is not None:\n"
ALL = """            if layer in gradients:
                dW, db = gradients[layer][0] + dW, gradients[layer][1] + db
            gradients[layer] = dW, db
"""
WITH_NONE = ("Your sums take in what a ReLU returns: its dW and db are None, which cannot be added. Leave "
             "ReLU out.")

MICRO_BATCHES_MISTAKES = [
    (CUT, "return np.array_split(X, M)",
     "You cut between rows. Samples are columns: cut along the other axis."),
    (CUT, "return np.split(X, M, axis=1)",
     "Your cut works only if the parts are equal. 10 samples in 4 parts must do as well: 3, 3, 2, 2."),
    (CUT, "return [X[:, i * (X.shape[1] // M): (i + 1) * (X.shape[1] // M)] for i in range(M)]",
     "Your cut loses samples if M does not divide m: of 10 samples in 4 parts, two are in none."),
    (CUT, "cuts = [i * (X.shape[1] // M) for i in range(M)] + [None]\n"
          "    return [X[:, i:j] for i, j in zip(cuts, cuts[1:])]",
     "Your last part gets the whole rest: of 10 samples in 4 parts, that is 2, 2, 2, 4. Share the rest out, "
     "one each to the first parts: 3, 3, 2, 2."),
    (CUT, "size = -(-X.shape[1] // M)\n"
          "    return [X[:, k: k + size] for k in range(0, X.shape[1], size)]",
     "Your first parts are full and the last one gets what is left: of 10 samples in 4 parts, that is 3, 3, "
     "3, 1. Sizes may differ by 1 at most: 3, 3, 2, 2."),
    (CUT, "size = X.shape[1] // M\n"
          "    return [X[:, k: k + size] for k in range(0, X.shape[1], size)]",
     "Your cut gives more than M parts if M does not divide m: the rest has a part of its own. Share it out, "
     "one each to the first parts: 10 samples in 4 parts are 3, 3, 2, 2."),
    (CUT, "return [X[:, k: k + M] for k in range(0, X.shape[1], M)]",
     "You take M as the size of a part. It is the number of parts."),
    (CUT, "m = X.shape[1]\n    return [X[:, m * i // M: m * (i + 1) // M] for i in range(M)]",
     "Your sizes are as even as can be, but in another order: the longer parts come first, as in 3, 3, 2, 2, "
     "so that all runs of this course cut alike."),
    (CUT, "return [X[:, i::M] for i in range(M)]",
     "Your parts take every M-th sample. Leave neighbours together: part 0 is the first samples, and so on."),
    (CUT, "return [X[:, i] for i in range(M)]",
     "Each of your parts is a single sample, and no longer a matrix: `X[:, i]` drops an axis. All samples "
     "must be in one of the M parts, and a part with one sample is a matrix of one column."),
    (CUT, "yield from np.array_split(X, M, axis=1)",
     "Your function yields its parts one by one, and each can be had only once. Return a list."),
]
IN_PARTS_MISTAKES = [
    ("cost(A, Y_i, m)", "cost(A, Y_i, X_i.shape[1])",
     "Each of your parts divides by its own number of samples. If the parts are equal, all is M times too "
     "large, as if the rate were M times as high; if not, short parts count more, too. Hand the m of the "
     "whole mini-batch to the cost."),
    ("cost(A, Y_i, m)", "cost(A, Y_i, m * M)",
     "Your J and gradients are M times too small. The cost has divided by m: add the parts up, and divide no "
     "more."),
    ("return J, gradients", "return J / M, gradients",
     "Your J is divided by M. Each J_i was divided by m before: J is their sum."),
    ("cost(A, Y_i, m)", "cost(A, Y_i, X_i.shape[1] * M)",
     "You take the mean of the parts' means. That is right if they are equal, but of 3, 3, 2, 2 samples, "
     "each counts 1/12 or 1/8 in place of 1/10. Divide by the m of the whole at once."),
    ("cost(A, Y_i, m)", "cost(A, Y_i, M)",
     "Your cost divides by M, the number of parts. It is m, the number of samples in all of them."),
    (ADD, ADD + "                layer.W = layer.W - dW\n",
     "You change W or b between two parts, so the next one meets other weights. Add up first: the update "
     "comes after the last part."),
    ("X.shape[1]", "X.shape[0]", "Your m is the number of rows of X. Samples are columns."),
    ("X.shape[1]", "Y.shape[0]", "Your m is the number of rows of Y. Samples are columns."),
    (ADD, LAST,
     "Your gradients are those of the last part alone: each part overwrites the one before. Add them up."),
    ("sum_db + db", "db", "Your db is that of the last part alone. Add it up, as dW."),
    ("sum_dW + dW", "dW", "Your dW is that of the last part alone. Add it up, as db."),
    ("J += J_i", "J = J_i",
     "Your J is that of the last part alone. The J of the whole is the sum over its parts."),
    (ADD, ADD.replace("gradients.get(layer, (0, 0))", "gradients[layer]"),
     "Your first part finds no entry of its layer to add to, which is a KeyError. Begin with two zeros, or "
     "store the first part's pair as it is."),
    (ADD, "                gradients[layer] = gradients.get(layer, ()) + (dW, db)\n",
     "Your gradients get longer with each part: + puts two tuples one after the other. Add dW to dW, and db "
     "to db."),
    (ADD, ADD.replace("(layer,", "(layers.index(layer),").replace("[layer]", "[layers.index(layer)]"),
     "No layer is a key of your gradients. Take the layer itself as the key, not its place, as `full_batch` "
     "does."),
    (IF + ADD, ALL, WITH_NONE),
    (IF, "            if True:\n", WITH_NONE),
    ("        J += J_i\n", "", "Your J stays 0: each part has a J_i to be added."),
    ("zip(micro_batches(X, M), ", "zip(micro_batches(X, M)[:-1], ",
     "Your loop ends one part too early: the samples of the last part count nowhere."),
    ("zip(micro_batches(X, M), micro_batches(Y, M))", "zip([X] * M, [Y] * M)",
     "Your J and gradients are M times too large, as if the whole mini-batch went through M times. Cut X and "
     "Y first, and divide by the m of the whole."),
    (BODY, FORWARDS_FIRST,
     "You run all forwards first. Each overwrites the caches of the one before, and only the last part still "
     "has its own. For now, run each part back before the next one starts; notebook 06 finds a place for the "
     "caches."),
    ("dA, dW, db = layer.backward(dA)", "_, dW, db = layer.backward(dA)",
     "You hand the dA of the cost to each layer. A layer needs what the layer after it has sent back."),
    ("in reversed(layers)", "in layers",
     "Your way back begins at the first layer. dA comes out of the cost, so the last layer has it first."),
    ("return J, gradients", "return gradients, J",
     "Your function returns the gradients first. The order is (J, gradients)."),
]

PARTS = [
    Part("micro_batches", 5, of_micro_batches, MICRO_BATCHES_MISTAKES,
         "each sample is in one part, and no two sizes differ by more than 1.", kept=True),
    Part("in_parts", 5, of_in_parts, IN_PARTS_MISTAKES,
         "the sum was cut, and nothing else: what comes out is that of the whole."),
]
