"""Checkers for notebook 04, first weights."""

from math import sqrt

from . import judged


def check_left_of_signal(left_of):
    """Judge `left_of(sigma, n, l)`: the rms of the activations of layer l, in that of the input, for ReLU
    layers of n units whose weights have the standard deviation sigma.

    >>> check_left_of_signal(lambda sigma, n, l: sqrt(n * sigma**2) ** l)
    'The half is missing: ReLU sets the negative half to 0, so the mean square is n sigma^2 / 2 times that
    before.'
    """
    cases = [(0.01, 256, 10), (0.125, 128, 3), (0.5, 50, 4), (0.25, 16, 1)]
    right = [sqrt(n * sigma**2 / 2) ** l for sigma, n, l in cases]
    return judged(left_of, ("sigma", "n", "l"), cases, right, MISTAKES) or (
        "Right: with He's sigma, sqrt(2 / n), it is 1 for any n and l.")


MISTAKES = [
    (lambda sigma, n, l: sqrt(n * sigma**2) ** l,
     "The half is missing: ReLU sets the negative half to 0, so the mean square is n sigma^2 / 2 times that "
     "before."),
    (lambda sigma, n, l: (n * sigma**2 / 2) ** l,
     "Those are mean squares: the rms is the root of them."),
    (lambda sigma, n, l: (n * sigma**2) ** l,
     "Those are mean squares without ReLU's half: the rms is the root, and the half is missing."),
    (lambda sigma, n, l: sqrt(n * sigma**2 / 2), "That is one layer: each of the l layers multiplies by it."),
    (lambda sigma, n, l: sqrt(n * sigma**2 / 2) * l,
     "Layers multiply: the factor to the power of l, not times l."),
    (lambda sigma, n, l: sqrt(n * sigma / 2) ** l,
     "sigma is the standard deviation: the variance is sigma^2."),
    (lambda sigma, n, l: (sqrt(n) * sigma / 2) ** l,
     "The half belongs to the mean square: under the root it is sqrt(1/2), not 1/2."),
]
