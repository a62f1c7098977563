"""Checkers for notebooks 01 and 02, one neuron and how it learns."""

import numpy as np

from . import called, numbers, same, shape_of


def check_tanh_neuron(dz_of):
    """Judge `dz_of(a, y)`, the derivative of L = (a - y)^2 / 2 by z for a neuron with a = tanh(z).

    >>> check_tanh_neuron(lambda a, y: a - y)
    'dz misses a factor: a - y is only da. Multiply it by the slope of tanh, 1 - a^2.'
    """
    a, y = np.array([-0.5, 0.25, 0.75, 0.5]), np.array([1.0, -1.0, 1.0, 0.25])
    value, sentence = called(dz_of, a, y)
    if sentence is None:
        dz, sentence = numbers("dz", value, a.shape)
    if sentence is not None:
        return sentence
    if same(dz, (a - y) * (1 - a * a)):
        return ("Right: dz = da * (1 - a^2) with da = a - y. Away from a = 0 the slope is below 1, "
                "so dz is smaller in size than da.")
    mistakes = [
        (a - y, "dz misses a factor: a - y is only da. Multiply it by the slope of tanh, 1 - a^2."),
        (1 - a * a, "dz misses a factor: 1 - a^2 is only the slope of tanh. Multiply it by da."),
        ((y - a) * (1 - a * a),
         "dz has the wrong sign: the derivative of (a - y)^2 / 2 by a is a - y, not y - a."),
        (2 * (a - y) * (1 - a * a),
         "dz is 2 times too large: the 1/2 of the loss cancels the 2 of the square."),
        ((a - y) * a * (1 - a),
         "You used the slope of the sigmoid, a (1 - a): the slope of tanh is 1 - a^2."),
        ((a - y) * (1 - np.tanh(a) ** 2),
         "You took tanh of a: a is tanh(z) already, so the slope is 1 - a^2."),
        ((a - y) / (1 - a * a), "You divided by the slope: the chain rule multiplies, dz = da * (1 - a^2)."),
        ((a - y) * (1 - a), "The slope of tanh is 1 - a^2: you wrote 1 - a."),
        ((a - y) * (1 - a) ** 2, "The slope of tanh is 1 - a^2: you wrote (1 - a)^2."),
        ((a - y) ** 2 / 2 * (1 - a * a),
         "You multiplied the slope by the loss itself: take its derivative, a - y."),
    ]
    for wrong, sentence in mistakes:
        if same(dz, wrong):
            return sentence
    right = (a[0] - y[0]) * (1 - a[0] ** 2)
    return (f"At a = {a[0]}, y = {y[0]} the answer is dz = {right}, yours is {dz[0]:.6g}: "
            "find da, then the slope.")


def check_gradient(gradient):
    """Judge `gradient(X, Y, A) -> (dW, db)` of logistic regression over a mini-batch.

    X (2, m) holds the samples, Y (1, m) the labels, A (1, m) the neuron's outputs; the answer is the
    derivative of J = 1/m sum L, dW (1, 2) and db (1, 1).
    """
    X = np.array([[1.0, 2.0, -1.0, 0.5], [0.0, 3.0, 1.0, -2.0]])
    Y, A = np.array([[1.0, 0.0, 1.0, 0.0]]), np.array([[0.5, 0.75, 0.25, 0.375]])
    m = X.shape[1]
    dZ = (A - Y) / m
    value, sentence = called(gradient, X, Y, A)
    if sentence is not None:
        return sentence
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        return "Return two things: dW, db."
    shape = shape_of(value[0])
    if shape == (2, 1):
        return ("dW has shape (2, 1), the transpose of W: compute dZ X^T, not X dZ^T, so that dW has "
                "the shape of W, (1, 2).")
    if shape in ((2, m), (1, m)):
        return (f"dW has shape {shape}, one column for each sample: multiply by X^T, which "
                "sums over the samples.")
    dW, sentence = numbers("dW", value[0], (1, 2))
    if sentence is not None:
        return sentence
    slope = A * (1 - A)
    mistakes = [
        (m * dZ, f"{m} times too large: J is a mean over m = {m} samples, so divide by m."),
        (dZ / m, f"{m} times too small: you divided by m = {m} twice."),
        (m * dZ / 2,
         f"{m // 2} times too large: did you divide by the 2 rows of X instead of its m = {m} columns?"),
        (-dZ, "of the wrong sign: dZ = (A - Y) / m, not (Y - A) / m."),
        (-m * dZ, "of the wrong sign and not divided by m: dZ = (A - Y) / m."),
        (dZ * slope, "not right: you multiplied by A (1 - A) once more, but A - Y is dZ already."),
        (dZ / slope, "not right: that is dA, the derivative by A. Multiply it by the slope A (1 - A)."),
        (A / m, "not right: the labels Y do not appear in it. dZ = (A - Y) / m."),
    ]
    for name, got, factor in (("dW", dW, X.T), ("db", value[1], np.ones((m, 1)))):
        right = dZ @ factor
        if name == "db":
            got, sentence = _db(got, dZ)
            if sentence is not None:
                return sentence
        if not same(got, right):
            for wrong, sentence in mistakes:
                if same(got, wrong @ factor):
                    return f"{name} is {sentence}"
            return f"{name} should be {right.tolist()}, yours is {got.tolist()}: start from dZ = (A - Y) / m."
    return f"Right: dZ = (A - Y) / m, dW = dZ X^T of shape {dW.shape}, db = the sum of dZ. 1/m came in once."


def check_central_difference(difference):
    """Judge `difference(J, theta, h)`, the central difference of a function J of one number.

    >>> check_central_difference(lambda J, theta, h: (J(theta + h) - J(theta - h)) / 2 * h)[:36]
    'Python reads / 2 * h as (... / 2) * '
    """
    def J(theta):
        return theta ** 3

    theta, h = 2.0, 0.25  # powers of two, so every candidate below is exact
    value, sentence = called(difference, J, theta, h)
    if sentence is None:
        slope, sentence = numbers("The difference", value, ())
    if sentence is not None:
        return sentence
    up, here, down = J(theta + h), J(theta), J(theta - h)
    if slope == (up - down) / (2 * h):
        return ("Right: for J = theta^3 it is 3 theta^2 + h^2. The error h^2 shrinks 100-fold "
                "when h shrinks 10-fold.")
    mistakes = [
        ((up - here) / h,
         "That is the forward difference, whose error only shrinks like h: step to both sides."),
        ((here - down) / h,
         "That is the backward difference, whose error only shrinks like h: step to both sides."),
        ((up - down) / h, "2 times too large: theta - h and theta + h are 2h apart, so divide by 2h."),
        ((up - down) / 2 * h, "Python reads / 2 * h as (... / 2) * h: write / (2 * h)."),
        ((up - down) / 2, "Divide by 2h, the distance of the two points: you divided by 2 only."),
        (up - down, "That is how much J changes: divide it by 2h, the distance of the two points."),
        ((down - up) / (2 * h), "The sign is wrong: J(theta + h) comes first, J(theta - h) is subtracted."),
        ((J(theta + h / 2) - J(theta - h / 2)) / h,
         "A central difference, but with half the step: take theta + h and theta - h, which are 2h apart."),
        (3 * theta ** 2,
         "That is the exact derivative: the difference shall only call J, so that it works for any J."),
    ]
    for wrong, sentence in mistakes:
        if slope == wrong:
            return sentence
    right = (up - down) / (2 * h)
    return (f"For J = theta^3 at theta = 2 with h = 1/4 it is {right}, yours is {slope}: compare J at "
            "theta + h and theta - h.")


def _db(value, dZ):
    """(db, None) or (None, sentence), with a sentence of its own for each shape that b does not have."""
    shape = shape_of(value)
    if shape in ((), (1,)):
        return None, f"db has shape {shape}, but b has shape (1, 1): sum with axis=1, keepdims=True."
    if shape == dZ.shape:
        return None, (f"db has shape {shape}, one entry for each sample: b touches every sample, "
                      "so sum over them.")
    return numbers("db", value, (1, 1))
