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
WITH_NONE = "Your sums take in what a ReLU returns: its dW and db are None. Leave ReLU out."

MICRO_BATCHES_MISTAKES = [
    (CUT, "return np.array_split(X, M)", "You cut between rows. Samples are columns: take the other axis."),
    (CUT, "return np.split(X, M, axis=1)",
     "Your cut works only if the parts are equal. 10 samples in 4 parts must do as well: 3, 3, 2, 2."),
    (CUT, "return [X[:, i * (X.shape[1] // M): (i + 1) * (X.shape[1] // M)] for i in range(M)]",
     "Your cut loses samples if M does not divide m: of 10 samples in 4 parts, two are in none."),
    (CUT, "cuts = [i * (X.shape[1] // M) for i in range(M)] + [None]\n"
          "    return [X[:, i:j] for i, j in zip(cuts, cuts[1:])]",
     "Your last part gets the whole rest: 2, 2, 2, 4 of 10 samples. Share it out: 3, 3, 2, 2."),
    (CUT, "size = -(-X.shape[1] // M)\n"
          "    return [X[:, k: k + size] for k in range(0, X.shape[1], size)]",
     "Your last part gets what is left: 3, 3, 3, 1 of 10 samples. Sizes differ by 1 at most: 3, 3, 2, 2."),
    (CUT, "size = X.shape[1] // M\n"
          "    return [X[:, k: k + size] for k in range(0, X.shape[1], size)]",
     "If M does not divide m, your rest has a part of its own, one too many. Share it out: 3, 3, 2, 2."),
    (CUT, "return [X[:, k: k + M] for k in range(0, X.shape[1], M)]",
     "You take M as the size of a part, not as their number."),
    (CUT, "m = X.shape[1]\n    return [X[:, m * i // M: m * (i + 1) // M] for i in range(M)]",
     "Your sizes are even, but in another order: longer parts come first, 3, 3, 2, 2, in all of this "
     "course."),
    (CUT, "return [X[:, i::M] for i in range(M)]",
     "Your parts take every M-th sample. Leave neighbours together: part 0 is the first samples."),
]
IN_PARTS_MISTAKES = [
    ("cost(A, Y_i, m)", "cost(A, Y_i, X_i.shape[1])",
     "Your parts divide by their own number of samples: all is about M times too large. Use the whole's m."),
    ("cost(A, Y_i, m)", "cost(A, Y_i, m * M)",
     "Your J and gradients are M times too small. The cost has divided by m: add, and divide no more."),
    ("return J, gradients", "return J / M, gradients", "Your J is divided by M. Each J_i had its m: add up."),
    ("cost(A, Y_i, m)", "cost(A, Y_i, X_i.shape[1] * M)",
     "You take the mean of the parts' means: in a short part a sample counts more. Divide by the whole's m."),
    ("cost(A, Y_i, m)", "cost(A, Y_i, M)",
     "Your cost divides by M, the number of parts. It is m, the number of samples in all of them."),
    (ADD, ADD + "                layer.W = layer.W - dW\n",
     "You change W or b between two parts: the next one meets other weights. The update comes at the end."),
    ("X.shape[1]", "X.shape[0]", "Your m is the number of rows of X. Samples are columns."),
    (ADD, LAST, "Your gradients are those of the last part alone, which overwrites the others: add up."),
    ("J += J_i", "J = J_i", "Your J is that of the last part alone. It is the sum over all parts."),
    (ADD, ADD.replace("gradients.get(layer, (0, 0))", "gradients[layer]"),
     "Your first part finds no entry of its layer, a KeyError. Begin with two zeros."),
    (ADD, "                gradients[layer] = gradients.get(layer, ()) + (dW, db)\n",
     "Your gradients get longer: + puts tuples one after the other. Add dW to dW, and db to db."),
    (ADD, ADD.replace("(layer,", "(layers.index(layer),").replace("[layer]", "[layers.index(layer)]"),
     "No layer is a key of your gradients. Take the layer itself, not its place, as `full_batch` does."),
    (IF + ADD, ALL, WITH_NONE),
    (IF, "            if True:\n", WITH_NONE),
    ("zip(micro_batches(X, M), micro_batches(Y, M))", "zip([X] * M, [Y] * M)",
     "Your J and gradients are M times too large, as if the whole mini-batch went through M times."),
    (BODY, FORWARDS_FIRST, "You run all forwards first: only the last part has its caches still."),
    ("sum_db + db", "db", "Your db is that of the last part alone. Add it up, as dW."),
]

PARTS = [
    Part("micro_batches", 5, of_micro_batches, MICRO_BATCHES_MISTAKES,
         "each sample is in one part, and no two sizes differ by more than 1.", kept=True),
    Part("in_parts", 5, of_in_parts, IN_PARTS_MISTAKES,
         "the sum was cut, and nothing else: what comes out is that of the whole."),
]
