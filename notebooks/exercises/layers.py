"""Checkers for notebook 03, layers and shapes."""

import numpy as np

from minipipe import Layer

from . import called, nothing_in, numbers, same, shape_of, short, stopped

SIZES = {"n0": 64, "n1": 32, "n2": 10, "m": 20}
SHAPES = {
    "W1": (32, 64), "b1": (32, 1), "Z1": (32, 20), "A1": (32, 20),
    "W2": (10, 32), "b2": (10, 1), "Z2": (10, 20),
    "dZ2": (10, 20), "dW2": (10, 32), "db2": (10, 1), "dA1": (32, 20), "dW1": (32, 64),
}
LEAK = 0.125


def check_shapes(shapes):
    """Judge `shapes`, a dict of matrix name -> (rows, columns) for a network 64 -> 32 -> 10 and m = 20
    samples.

    >>> check_shapes({"W1": None})
    'Not solved yet: W1 is still None.'
    >>> check_shapes({"W1": (64, 32)})
    'W1 is (64, 32), which is turned round: W is (n, n_prev), one row for each unit of its own layer.'
    """
    if shapes is None:
        return "Not solved yet: the answer is None."
    if not isinstance(shapes, dict):
        return f"Pass a dict from names to (rows, columns): this is {short(shapes)}."
    for name in shapes:
        if name not in SHAPES:
            return f"There is no matrix {short(name)} in this exercise: the names are {', '.join(SHAPES)}."
    for name, right in SHAPES.items():
        if shapes.get(name) is None:
            return f"Not solved yet: {name} is {'still None' if name in shapes else 'missing'}."
        got = shapes[name]
        got = tuple(np.ravel(got).tolist()) if isinstance(got, (list, np.ndarray)) else got
        if got != right:
            return _wrong_shape(name, short(got), got, right)
    return ("Right: all 12. A derivative has the shape of its own matrix; only values and their "
            "derivatives have m columns.")


def _wrong_shape(name, text, got, right):
    letter = name.removeprefix("d")[0]
    if got == right[::-1]:
        reason = {
            "W": "W is (n, n_prev), one row for each unit of its own layer",
            "b": "b is a column, one row for each unit",
        }.get(letter, "samples are columns")
        return f"{name} is {text}, which is turned round: {reason}."
    if name.startswith("d") and letter in "Wb":
        return (f"{name} is {text}: the derivative by {name[1:]} has the shape of {name[1:]}; "
                "the samples are summed.")
    if letter == "b" and got == (right[0], SIZES["m"]):
        return f"{name} is {text}: b has one column, which NumPy adds to every column of W A_prev."
    if letter == "b" and got == right[:1]:
        return (f"{name} is {text}: b is a matrix with one column, (n, 1), so that it is added to "
                "columns and not to rows.")
    if letter == "b":
        return (f"{name} is {text}: b has one row for each unit and one column, so its "
                "shape is a pair, (n, 1).")
    if name == "dA1":
        return f"{name} is {text}: the derivative by A1 has the shape of A1, (n1, m)."
    if letter in "ZA":
        return f"{name} is {text}: it has one row for each unit of its layer and one column for each sample."
    return f"{name} is {text}: W maps n_prev numbers to n numbers, so it is (n, n_prev)."


def check_linear_backward(backward):
    """Judge `backward(dZ, W, A_prev) -> (dA_prev, dW, db)` of a Linear layer."""
    rng = np.random.default_rng(2)
    n, n_prev, m = 2, 3, 4
    dZ, W, A_prev = (rng.integers(-4, 5, shape) / 2 for shape in ((n, m), (n, n_prev), (n_prev, m)))
    value, sentence = called(backward, dZ, W, A_prev)
    if sentence is not None:
        shapes = f" The shapes are dZ {dZ.shape}, W {W.shape}, A_prev {A_prev.shape}."
        return sentence + shapes if sentence.startswith("Your function stopped") else sentence
    if not isinstance(value, (tuple, list)) or len(value) != 3:
        return "Return three things: dA_prev, dW, db."
    names = ("dA_prev", "dW", "db")
    rights = (W.T @ dZ, dZ @ A_prev.T, dZ.sum(axis=1, keepdims=True))
    rules = ("W^T dZ", "dZ A_prev^T", "the row sums of dZ")
    for name, got, right, rule in zip(names, value, rights, rules):
        if shape_of(got) == right.T.shape != right.shape:
            return f"{name} has shape {np.shape(got)}, turned round: it is {rule}, of shape {right.shape}."
        if name == "db" and shape_of(got) == (n,):
            return f"db has shape ({n},): keep the column with keepdims=True, or b + db turns into a matrix."
        if name == "db" and shape_of(got) == (1, m):
            return f"db has shape (1, {m}): you summed over the units. Sum over the samples, axis=1."
        array, sentence = numbers(name, got, right.shape)
        if sentence is not None:
            return sentence
        if same(array, right / m):
            return (f"{name} is {m} times too small: did you divide by m = {m}? A layer never does: "
                    "the loss has divided by m already.")
        if same(array, -right):
            return f"{name} has the wrong sign: it is {rule}."
        if not same(array, right):
            return (f"{name} should be {right.tolist()} for the test data, yours is "
                    f"{array.tolist()}: it is {rule}.")
    return ("Right: dA_prev = W^T dZ, dW = dZ A_prev^T, db = row sums of dZ. No m in sight: the loss "
            "has divided already.")


def check_leaky_relu(layer_class):
    """Judge a class with the interface of `minipipe.Layer`: A = Z where Z > 0, else Z/8.

    The layer is tried as a pipeline uses it: two micro-batches in flight, the cache taken out and put back.
    """
    if layer_class is None:
        return "Not solved yet: the answer is None."
    layer, sentence = called(layer_class) if isinstance(layer_class, type) else (layer_class, None)
    if sentence is not None:
        return sentence.replace("Your function", "Your class", 1)
    for name in ("forward", "backward_input"):
        if getattr(type(layer), name, None) in (None, getattr(Layer, name)):
            return (f"The layer has no method {name}: derive it from mp.Layer and define forward(Z) "
                    "and backward_input(dA).")
    first, second = np.array([[2.0, -8.0], [-1.0, 4.0]]), np.array([[-16.0], [0.5]])
    given = first.copy()
    sentence = _judge_forward(layer, given, first)
    if sentence is not None:
        return sentence
    cache = getattr(layer, "cache", None)
    if cache is None:
        return "forward leaves no cache: backward needs to know where Z was above 0. Keep that in self.cache."
    layer.cache = None
    _, sentence = called(layer.forward, second)
    if sentence is not None:
        return sentence
    layer.cache = cache
    return _judge_backward(layer, given, first)


def _judge_forward(layer, given, Z):
    """A sentence about forward, or None if there is nothing to say. `given` is the array that the layer
    keeps.
    """
    try:
        A = layer.forward(given)
    except Exception as error:
        return stopped("forward", error)
    if nothing_in(A):
        return "Not solved yet: forward returns None."
    A, sentence = numbers("A", A, Z.shape)
    if sentence is not None:
        return sentence
    if not same(given, Z):
        return "forward wrote into Z, which belongs to the layer before: compute a new array."
    for wrong, sentence in (
        (np.maximum(Z, 0), "forward is the plain ReLU: where Z is below 0, A is Z/8 and not 0."),
        (np.minimum(Z, Z * LEAK), "forward has the two sides exchanged: A = Z where Z > 0, and Z/8 below."),
        (np.where(Z > 0, Z, -Z * LEAK),
         "forward has the wrong sign below 0: A = Z/8 there, which is negative."),
        (np.where(Z > 0, Z, LEAK), "forward gives the constant 1/8 below 0: A = Z/8 there."),
    ):
        if same(A, wrong):
            return sentence
    if not same(A, np.where(Z > 0, Z, Z * LEAK)):
        return (f"forward of {Z.tolist()} should be {np.where(Z > 0, Z, Z * LEAK).tolist()}, "
                f"yours is {A.tolist()}.")
    return None


def _judge_backward(layer, given, Z):
    dA = np.array([[8.0, 16.0], [-8.0, 24.0]])
    dA_given = dA.copy()
    try:
        dZ = layer.backward_input(dA_given)
    except Exception as error:
        return stopped("backward_input", error)
    if nothing_in(dZ):
        return "Not solved yet: backward_input returns None."
    dZ, sentence = numbers("dZ", dZ, Z.shape)
    if sentence is not None:
        return sentence
    if not (same(dA_given, dA) and same(given, Z)):
        return ("backward_input wrote into an array that it was handed: another layer may still need "
                "it. Compute a new one.")
    slope = np.where(Z > 0, 1.0, LEAK)
    for wrong, sentence in (
        (dA * (Z > 0), "backward_input is the plain ReLU's: where Z was below 0 the slope is 1/8, not 0."),
        (slope, "backward_input returns the slope alone: multiply it by dA."),
        (dA * np.where(Z > 0, Z, Z * LEAK), "backward_input multiplies by A: it needs the slope, 1 or 1/8."),
        (np.where(dA > 0, dA, dA * LEAK),
         "backward_input looks at the sign of dA: the sign of Z decides. Keep it in the cache."),
    ):
        if same(dZ, wrong):
            return sentence
    if not same(dZ, dA * slope):
        right = (dA * slope).tolist()
        return (f"backward_input should be {right} for the first of two micro-batches, yours is "
                f"{dZ.tolist()}: is all that it needs in self.cache, and nothing in another attribute?")
    return _judge_dtype(layer, Z)


def _judge_dtype(layer, Z):
    """The last test: float32 in, float32 out."""
    for name, argument, function in (("forward", "Z", layer.forward),
                                     ("backward_input", "dA", layer.backward_input)):
        result, sentence = called(function, Z.astype(np.float32))
        if sentence is not None:
            return sentence
        dtype = np.asarray(result).dtype
        if dtype == np.float64:
            return (f"{name} turns float32 into float64: `np.where(mask, 1, 0.125)` makes float64: "
                    f"write `np.where(mask, {argument}, {argument} / 8)`.")
        if dtype != np.float32:
            return (f"{name} turns float32 into {dtype}: multiply by Python numbers, or by arrays of "
                    "the dtype of the input.")
    return "Right: the slope is 1 or 1/8, nothing is overwritten, and two micro-batches can be in flight."
