"""Checkers for notebooks 14 and 15, convolution."""

import math

import numpy as np

from minipipe import Conv1d
from . import called, judged, numbers, same, shape_of


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
