"""What notebook 04 asks for: the cost, and one pass of the whole mini-batch forward and backward."""

import numpy as np

from minipipe.exact import rational

from ..judging import Part, is_numbers, same
from .layers import how_many


def of_cost(my):
    """Yield J and dA of a mini-batch, of a part of one, and, if these are right, of fractions."""
    rng, right = np.random.default_rng(4), []
    for n, columns, m in ((3, 4, 4), (2, 3, 8)):
        A, Y = rng.integers(-4, 5, (n, columns)) / 2, rng.integers(-4, 5, (n, columns)) / 2
        copies = [A.copy(), Y.copy()]
        expected = [((A - Y) ** 2).sum() / (2 * m), (A - Y) / m]
        handed = my.cost(A, Y, m)
        yield "The number of values that cost returns", how_many(handed)
        where = f"of {columns} samples, with {n} outputs each and m = {m}"
        yield f"J {where}", handed[0]
        yield f"dA {where}", handed[1]
        yield "Whether A and Y are as they were", list(map(np.array_equal, [A, Y], copies))
        right.append(same(list(handed), expected))
    if all(right):
        yield "J and dA in exact fractions", list(my.cost(rational(A) / 3, rational(Y) / 7, 8))


def of_full_batch(my):
    """Yield J and the gradients of two networks; the first has square layers, so that none stops."""
    rng = np.random.default_rng(5)
    for sizes, m in (((3, 3, 3), 2), ((4, 3, 5, 2), 6)):
        layers = network(my, sizes, rng)
        X, Y = rng.integers(-4, 5, (sizes[0], m)) / 2, rng.integers(-4, 5, (sizes[-1], m)) / 2
        before = [(layer.W.copy(), layer.b.copy()) for layer in layers[::2]]
        handed = my.full_batch(layers, X, Y)
        yield "The number of values that full_batch returns", how_many(handed)
        J, gradients = handed
        where = f"of {m} samples and layers of {' - '.join(map(str, sizes))} units"
        yield f"J {where}", J if is_numbers(J) else f"a {type(J).__name__}"
        yield from gradients_of(layers, gradients, where)
        unchanged = [np.array_equal(layer.W, W) and np.array_equal(layer.b, b)
                     for layer, (W, b) in zip(layers[::2], before)]
        yield "Whether W and b are as they were, layer by layer", unchanged


def gradients_of(layers, gradients, where):
    """Yield which layers are keys of `gradients`, and their dW and db, the last layer's first."""
    yield "The type of the gradients", type(gradients).__name__
    found = [place for place, layer in enumerate(layers) if layer in gradients]
    yield "The places of the layers that are keys of the gradients", found
    for place in found[::-1]:
        pair = gradients[layers[place]]
        yield f"The number of gradients of layers[{place}] {where}", how_many(pair)
        for name, derivative in zip(("dW", "db"), pair if isinstance(pair, (tuple, list)) else ()):
            yield f"{name} of layers[{place}] {where}", derivative


def adding_none(call):
    """Return what `call()` returns; if it stops since it adds None to something, yield that first."""
    try:
        return call()
    except TypeError as error:
        if "NoneType" in str(error) and "operand" in str(error):
            yield "What your code adds up", "None"
        raise


def network(my, sizes, rng):
    """Return linear layers of these sizes, with a ReLU between two; their numbers are multiples of a half."""
    layers = []
    for n_prev, n in zip(sizes, sizes[1:]):
        linear = my.Linear(n_prev, n, rng)
        linear.W, linear.b = rng.integers(-2, 3, (n, n_prev)) / 2, rng.integers(-2, 3, (n, 1)) / 2
        layers += [linear, my.ReLU()]
    return layers[:-1]


RETURN = "return ((A - Y) ** 2).sum() / (2 * m), (A - Y) / m"
TAIL = """        if dW is not None:
            gradients[layer] = dW, db
"""
LOOP = """    gradients = {}
    for layer in reversed(layers):
        dA, dW, db = layer.backward(dA)
"""
SKIP_RELU = """        if not hasattr(layer, "W"):
            continue
"""
AS_LIST = LOOP.replace("{}", "[]") + TAIL.replace("gradients[layer] = dW, db", "gradients += [(dW, db)]")

COST_MISTAKES = [
    ("/ (2 * m)", "/ m", "Your dA is right, but your J is twice too large: its 1/2 is missing."),
    ("(A - Y) / m", "2 * (A - Y) / m",
     "Your J is right, but your dA is twice too large: the 2 of the square cancels the 1/2 in front."),
    (RETURN, "return ((A - Y) ** 2).sum() / m, 2 * (A - Y) / m", "Both belong to a cost without the 1/2."),
    ("(A - Y) / m", "(A - Y) / A.shape[1]", "Your dA divides by its own number of samples. Use m."),
    ("/ (2 * m)", "/ 2 * m", "Your J is divided by 2 and multiplied by m: write brackets, (2 * m)."),
    (RETURN, RETURN.replace("2 * m", "2 * A.shape[1]").replace("/ m", "/ A.shape[1]"),
     "Your J and dA divide by the number of samples that they see, which is not always m. Use m."),
    ("(A - Y) / m", "(A - Y)", "Your dA is not divided by m. J is, so its slopes are, too."),
    ("/ (2 * m)", "/ 2", "Your J is not divided by m: it is a sum over the samples, it must be their mean."),
    ("(A - Y) / m", "(Y - A) / m", "Your dA has the wrong sign: raising a large A makes J larger."),
    (".sum() / (2 * m)", ".mean() / 2",
     "Your J is a mean over outputs and samples. Only samples are averaged: add up all, divide by 2m."),
    ("(A - Y) ** 2", "abs(A - Y)", "Your J adds up distances. It is half the mean squared error."),
    (RETURN, "return (A - Y).sum() ** 2 / (2 * m), (A - Y) / m",
     "Your J adds up first and squares then, so errors of opposite sign cancel. Square each, then add up."),
]
FULL_BATCH_MISTAKES = [
    ("in reversed(layers)", "in layers",
     "Your way back begins at the first layer. dA comes out of the cost: the last layer has it first."),
    ("        dA, dW, db = layer.backward(dA)", "        _, dW, db = layer.backward(dA)",
     "You hand the dA of the cost to each layer. A layer needs what the layer after it has sent back."),
    (LOOP, LOOP.replace("        dA", SKIP_RELU + "        dA"),
     "Your way back leaves ReLU out. It has no gradients, but the derivative must pass it, too."),
    ("A = layer.forward(A)", "A = layer.forward(X)",
     "You hand X to each layer. On the way forward, a layer needs what the layer before it gave."),
    (TAIL, "        gradients[layer] = dW, db\n",
     "Your gradients have (None, None) for each ReLU. Leave these out: an update would stumble over them."),
    (TAIL, TAIL.replace("[layer]", "[layers.index(layer)]"),
     "No layer is a key of your gradients. Take the layer itself: its place on a device is another."),
    (LOOP + TAIL, AS_LIST + "    found = [layer for layer in layers if hasattr(layer, 'W')]\n"
     "    gradients = dict(zip(found, gradients))\n",
     "Your gradients belong to the wrong layers: the way back finds the last layer's first."),
    ("X.shape[1])", "X.shape[0])", "Your m is the number of rows of X. Samples are columns."),
    (TAIL, TAIL + "            layer.W, layer.b = layer.W - dW, layer.b - db\n",
     "Your loop changes W or b on its way. Here only the gradients are asked for; the update comes later."),
    ("    for layer in reversed(layers):", "    layers.reverse()\n    for layer in layers:",
     "You turn the given list round, and it stays so. `reversed(layers)` does not."),
]

PARTS = [
    Part("cost", 4, of_cost, COST_MISTAKES,
         "one number for all samples, and for each entry of A the slope of that number.", kept=True),
    Part("full_batch", 4, of_full_batch, FULL_BATCH_MISTAKES, "a loop, a cost, and the same loop back."),
]
