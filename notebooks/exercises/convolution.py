"""Checkers for notebooks 13, 14 and 15, convolution."""

import math

import numpy as np

from minipipe import Conv1d
from . import called, judged, numbers, same, shape_of


def check_length(length):
    """Judge `length(n, kernel_size, stride, padding, dilation)`: how many windows a convolution has on n
    numbers.

    padding counts the zeros on each side. The truth is counted in forwards.

    >>> check_length(lambda n, kernel_size, stride, padding, dilation: n - kernel_size + 1)[:38]
    'That is the first example only: n - ke'
    """
    cases = [(8, 5, 1, 0, 1), (8, 5, 2, 0, 1), (8, 5, 1, 2, 1), (9, 3, 1, 0, 2), (28, 5, 3, 2, 2),
             (7, 2, 2, 1, 3),
             (10, 1, 4, 0, 5)]
    mistakes = [
        (lambda n, k, s, p, d: (n + 2 * p - d * (k - 1) - 1) // s,
         "Off by one: that counts the steps, and the first window stands before the first step. Add 1."),
        (lambda n, k, s, p, d: (n + 2 * p - d * (k - 1)) // s + 1,
         "Off by one: a window spans dilation * (kernel_size - 1) + 1 places; that last + 1 is missing."),
        (lambda n, k, s, p, d: (n + 2 * p - d * (k - 1)) // s,
         "Right for stride 1: with a larger one the + 1 for the first window stands behind the "
         "division, not before it."),
        (lambda n, k, s, p, d: (n + 2 * p - d * (k - 1) - 1) / s + 1,
         "There are no halves of windows: what is left over at the end is dropped. Divide with //."),
        (lambda n, k, s, p, d: -(-(n + 2 * p - d * (k - 1) - 1) // s) + 1,
         "You rounded up: a window that would stick out at the end does not count. Round down, with //."),
        (lambda n, k, s, p, d: (n + p - d * (k - 1) - 1) // s + 1,
         "The zeros stand on both sides: it is 2 * padding."),
        (lambda n, k, s, p, d: (n - d * (k - 1) - 1) // s + 1,
         "The padding is missing: there are n + 2 * padding numbers to stand on."),
        (lambda n, k, s, p, d: (n + 2 * p - k) // s + 1,
         "The dilation is missing: a window spans dilation * (kernel_size - 1) + 1 places."),
        (lambda n, k, s, p, d: (n + 2 * p - d * k) // s + 1,
         "dilation * kernel_size is too wide: between kernel_size entries there are kernel_size - 1 gaps."),
        (lambda n, k, s, p, d: n + 2 * p - d * (k - 1),
         "The stride is missing: only every stride-th of these windows is there."),
        (lambda n, k, s, p, d: n - k + 1,
         "That is the first example only: n - kernel_size + 1. Padding, stride and dilation are missing."),
        (lambda n, k, s, p, d: n - k, "Off by one already in the first example: 8 - 5 + 1 = 4."),
        (lambda n, k, s, p, d: (n - 1) * s + d * (k - 1) + 1 - 2 * p,
         "That is the way back: the length after the transposed convolution."),
    ]
    right = [_forward(np.ones(k), np.ones((n, 1)), s, p, d).shape[0] for n, k, s, p, d in cases]
    names = ("n", "kernel_size", "stride", "padding", "dilation")
    return judged(length, names, cases, right, mistakes) or (
        "Right: (n + 2 padding - dilation (kernel_size - 1) - 1) // stride + 1. One window, "
        "and one for each step.")


def check_backward(backward):
    """Judge `backward(dZ, w, A_prev, stride) -> (dA_prev, dw, db)`: one channel, no padding.

    A_prev (n, m), w (kernel_size,), dZ (number of windows, m); dA_prev (n, m), dw (kernel_size,), db one
    number. Stride 1 is tried first, then larger ones.
    """
    rng = np.random.default_rng(5)
    for n, k, stride, m in ((8, 5, 1, 3), (10, 3, 2, 3), (11, 4, 3, 2)):
        w, A_prev = rng.integers(1, 9, k) / 2, rng.integers(1, 9, (n, m)) / 2
        dZ = rng.integers(1, 9, ((n - k) // stride + 1, m)) / 2
        value, sentence = called(backward, dZ, w, A_prev, stride)
        if sentence is not None:
            shapes = (f" The shapes are dZ {dZ.shape}, w {w.shape}, A_prev {A_prev.shape}, "
                      f"with stride {stride}.")
            return sentence + shapes if sentence.startswith("Your function stopped") else sentence
        if not isinstance(value, (tuple, list)) or len(value) != 3:
            return "Return three things: dA_prev, dw, db."
        right = _backward(dZ, w, A_prev, stride)
        sentence = (_judge_dA(value[0], right[0], dZ, w, A_prev, stride)
                    or _judge_dw(value[1], right[1], dZ, w, A_prev, stride)
                    or _judge_db(value[2], right[2], dZ))
        if sentence is not None:
            return sentence if stride == 1 else f"With stride {stride}: {sentence}"
    return ("Right: dA_prev adds w[i] dZ[p] at place p * stride + i, dw[i] adds dZ[p] times the number at "
            "that place, db adds all of dZ. No m in sight, so micro-batches add up.")


def _judge_dA(got, right, dZ, w, A_prev, stride):
    if shape_of(got) == dZ.shape:
        return (f"dA_prev has the shape of dZ, {dZ.shape}, but a derivative has the shape of its own "
                f"array: {right.shape}.")
    if shape_of(got) == ((len(dZ) - 1) * stride + len(w), dZ.shape[1]) != right.shape:
        return (f"dA_prev has shape {np.shape(got)}, but it must have shape {right.shape}: the numbers "
                "behind the last window belong to it, too. Their derivative is 0.")
    got, sentence = numbers("dA_prev", got, right.shape)
    if sentence is not None:
        return sentence
    covers = _backward(np.ones_like(dZ), np.ones_like(w), A_prev, stride)[0]
    overwritten = np.zeros_like(right)
    for p, dz in enumerate(dZ):
        overwritten[p * stride:p * stride + len(w)] = np.outer(w, dz)
    return _told("dA_prev", got, right, dZ, [
        (_backward(dZ, w[::-1], A_prev, stride)[0],
         "dA_prev is made with the kernel flipped: entry i of window p stands at place p * stride + i, so "
         "w[i] dZ[p] belongs there."),
        (_backward(dZ, w, A_prev, 1)[0],
         "the stride is forgotten in dA_prev: window p begins at place p * stride, not at p."),
        (overwritten,
         "dA_prev is overwritten where windows overlap: add with +=, since each window has its say."),
        (right / np.maximum(covers, 1),
         "dA_prev is a mean over the windows that cover a place: it has to be their sum."),
    ], "it adds w[i] dZ[p] at place p * stride + i")


def _judge_dw(got, right, dZ, w, A_prev, stride):
    if shape_of(got) == (len(w), dZ.shape[1]):
        return (f"dw has shape {np.shape(got)}, one column for each sample: w touches every sample, "
                "so sum over them, too.")
    got, sentence = numbers("dw", got, right.shape)
    if sentence is not None:
        return sentence
    last = (len(dZ) - 1) * stride
    return _told("dw", got, right, dZ, [
        (right[::-1],
         "dw comes out in reverse order, the kernel flipped: dw[i] belongs to entry i of every window."),
        (_backward(dZ[::-1], w, A_prev, stride)[1],
         "dw pairs the windows with dZ in reverse order, as np.convolve does: dZ[p] belongs to window p. "
         "np.correlate does not flip."),
        (_backward(dZ, w, A_prev, 1)[1],
         "the stride is forgotten in dw: dZ[p] meets the number at place p * stride + i, not at p + i."),
        (A_prev[last:last + len(w)] @ dZ[-1],
         "dw is that of the last window only: add with +=, over all windows."),
        (_backward(dZ[:, :1], w, A_prev[:, :1], stride)[1],
         "dw is that of the first sample only: sum over all samples."),
    ], "dw[i] adds dZ[p] times the number at place p * stride + i, over windows and samples")


def _judge_db(got, right, dZ):
    if shape_of(got) == dZ.shape[1:]:
        return (f"db has shape {np.shape(got)}, one number for each sample: b touches every sample, "
                "so sum over them, too.")
    if shape_of(got) == dZ.shape[:1]:
        return (f"db has shape {np.shape(got)}, one number for each window: the windows share b, "
                "so sum over them, too.")
    got, sentence = numbers("db", got, ())
    if sentence is not None:
        return sentence
    return _told("db", got, right, dZ, [], "it adds all of dZ")


def _told(name, got, right, dZ, mistakes, rule):
    """A sentence about one array of the right shape, or None if it is right."""
    if same(got, right):
        return None
    n_windows, m = dZ.shape
    for wrong, sentence in mistakes:
        if same(got, wrong):
            return sentence
    if same(got, right / m):
        return (f"{name} is {m} times too small: did you divide by m = {m}? A layer never does: "
                "the loss has divided by m already.")
    if same(got, right / n_windows) or same(got, right / n_windows / m):
        return (f"{name} is too small: did you take a mean over the {n_windows} windows? They share w and b, "
                "so their parts add up.")
    if same(got, -right):
        return f"{name} has the wrong sign: {rule}."
    return f"{name} should be {right.tolist()} for the test data, yours is {got.tolist()}: {rule}."


def check_matrix(matrix):
    """Judge `matrix(w, n, stride) -> C`, with which Z = C A_prev is the convolution of n numbers with the
    kernel w.

    >>> check_matrix(lambda w, n, stride: np.zeros((n, n - len(w) + 1)))
    'C has shape (8, 4), turned round: one row for each window and one column for each of
    the 8 numbers, (4, 8).'
    """
    for n, w, stride in ((8, [2.0, 1.0, 0.5, -1.0, 3.0], 1), (9, [1.0, 2.0, -3.0], 2),
                         (12, [4.0, -1.0, 2.0], 4)):
        w = np.array(w)
        value, sentence = called(matrix, w, n, stride)
        if sentence is not None:
            return sentence
        right = _forward(w, np.eye(n), stride)
        sentence = _wrong_matrix(value, right, w, n, stride)
        if sentence is not None:
            return sentence if stride == 1 else f"With stride {stride}: {sentence}"
    return "Right: row p holds the kernel from column p * stride on. Its transpose takes dZ to dA_prev."


def _wrong_matrix(value, right, w, n, stride):
    shape = shape_of(value)
    if shape == right.T.shape != right.shape:
        return (f"C has shape {shape}, turned round: one row for each window and one column for each of the "
                f"{n} numbers, {right.shape}.")
    if shape == (n - len(w) + 1, n) != right.shape:
        return f"C has {shape[0]} rows, one for each window of stride 1: there are only {len(right)} windows."
    if shape == (n, n):
        return (f"C has {n} rows, one for each place: where the kernel would stick out there is no window. "
                f"There are {len(right)} windows.")
    C, sentence = numbers("C", value, right.shape)
    if sentence is not None or same(C, right):
        return sentence
    for wrong, sentence in (
        (_forward(w[::-1], np.eye(n), stride),
         "The kernel is flipped: row p reads w[0], w[1], ... from left to right."),
        (_forward(w, np.eye(n), 1)[:len(right)],
         "The stride is forgotten: row p begins at column p * stride, not at p."),
        (right != 0, "The places are right, the numbers are not: write the entries of w, not ones."),
        (right[::-1], "The rows are in reverse order: window 0 stands at the left."),
    ):
        if same(C, wrong):
            return sentence
    p = next(p for p in range(len(right)) if not same(C[p], right[p]))
    return (f"Row {p} should be {right[p].tolist()}, yours is {C[p].tolist()}: the kernel from column "
            f"{p * stride} on, and 0 elsewhere.")


def check_receptive_field(receptive_field):
    """Judge `receptive_field(layers)`: how many numbers wide the input is that one output depends on.

    layers: (kernel_size, stride, dilation) of each Conv1d, the first one first. The truth is counted.

    >>> check_receptive_field(lambda layers: sum((k - 1) * d for k, s, d in layers))
    'Off by one: a stack without layers sees 1 number, itself. Add 1.'
    """
    def jumps(layers):
        """How many inputs apart two neighbours in front of each layer are."""
        return [math.prod(s for _, s, _ in layers[:place]) for place in range(len(layers))]

    def weighted(layers, distances):
        return 1 + sum((k - 1) * d * distance for (k, _, d), distance in zip(layers, distances))

    cases = [([(3, 1, 1)] * 4,), ([(3, 1, 1), (3, 1, 2), (3, 1, 4), (3, 1, 8)],), ([(5, 2, 1), (3, 1, 1)],),
             ([(3, 2, 1), (3, 2, 1), (3, 1, 1)],), ([(2, 2, 1), (5, 3, 2), (3, 1, 1)],)]
    off_by_one = "Off by one: a stack without layers sees 1 number, itself. Add 1."
    spans = ("You added up the spans: neighbouring windows overlap, so each layer adds only span - 1, "
             "and 1 is added once.")
    mistakes = [
        (lambda layers: weighted(layers, [1] * len(layers)),
         "The strides are forgotten: behind a stride of 2, neighbours are 2 inputs apart, so a kernel "
         "reaches twice as far."),
        (lambda layers: sum((k - 1) * d for k, _, d in layers), off_by_one),
        (lambda layers: weighted(layers, jumps(layers)) - 1, off_by_one),
        (lambda layers: weighted(layers, [s * jump for (_, s, _), jump in zip(layers, jumps(layers))]),
         "A layer's own stride is counted too early: it moves the windows apart, so only the layers "
         "behind it reach further."),
        (lambda layers: weighted(layers, [1] + [s for _, s, _ in layers[:-1]]),
         "You took the stride of the one layer before: strides multiply, over all layers before."),
        (lambda layers: weighted(
            layers, [1 + sum(s - 1 for _, s, _ in layers[:place]) for place in range(len(layers))]),
         "You added up the strides: they multiply, over all layers before."),
        (lambda layers: weighted([(k, s, 1) for k, s, _ in layers], jumps(layers)),
         "The dilation is missing: a kernel reaches dilation * (kernel_size - 1) "
         "further, not kernel_size - 1."),
        (lambda layers: weighted(layers, jumps(layers[::-1])[::-1]),
         "You multiplied by the strides of the layers behind: those of the layers before count."),
        (lambda layers: sum((d * (k - 1) + 1) * x for (k, _, d), x in zip(layers, jumps(layers))), spans),
        (lambda layers: sum(d * (k - 1) + 1 for k, _, d in layers), spans),
        (lambda layers: math.prod(k for k, _, _ in layers),
         "You multiplied the kernel sizes: reaches add up, since windows overlap."),
        (lambda layers: max(d * (k - 1) + 1 for k, _, d in layers),
         "That is the widest layer alone: each layer adds to the reach."),
    ]
    right = [_reach(*case) for case in cases]
    return judged(receptive_field, ("layers",), cases, right, mistakes) or (
        "Right: 1 + the sum of dilation (kernel_size - 1) times the product of all strides before it.")


def _layer(w, stride=1, padding=0, dilation=1):
    """A Conv1d with one channel, the kernel w (kernel_size,) and no bias."""
    layer = Conv1d(1, 1, len(w), stride, padding, dilation, bias=False)
    layer.W = w.reshape(1, 1, -1)
    return layer


def _forward(w, A_prev, stride, padding=0, dilation=1):
    """Z (number of windows, m) of A_prev (n, m)."""
    return _layer(w, stride, padding, dilation).forward(A_prev[None])[0]


def _backward(dZ, w, A_prev, stride):
    """(dA_prev, dw, db). A dZ with fewer windows than there are belongs to the first of them."""
    layer = _layer(w, stride)
    n_windows = len(layer.forward(A_prev[None])[0])
    dZ = np.concatenate([dZ, np.zeros((n_windows - len(dZ), dZ.shape[1]))])
    dA_prev, dW, _ = layer.backward(dZ[None])
    return dA_prev[0], dW[0, 0], dZ.sum()


def _reach(layers):
    """How many inputs there are from the first to the last that output 0 of a stack of layers depends on."""
    stack = [_layer(np.ones(k), s, 0, d) for k, s, d in layers]
    A = np.ones((1, 100, 1))
    for layer in stack:
        A = layer.forward(A)
    dA = np.zeros_like(A)
    dA[0, 0] = 1
    for layer in reversed(stack):
        dA, _, _ = layer.backward(dA)
    touched = np.flatnonzero(dA[0, :, 0])
    return touched[-1] - touched[0] + 1
