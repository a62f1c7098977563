"""Solutions of the exercise in notebook 04, what its checker says to typical wrong answers, and the picture
of a layer.
"""

from math import sqrt

import numpy as np
from notebooks.checkers import are_named, are_right
from matplotlib.figure import Figure
from notebooks.template import solutions

import minipipe as mp
from exercises import layers_pictures as pictures
from exercises.first_weights import check_left_of_signal

CHECKERS = [check_left_of_signal]

test_solutions = are_right([
    (check_left_of_signal, solutions("04").left_of),
    (check_left_of_signal, lambda sigma, n, l: (sigma * sqrt(n) / sqrt(2)) ** l),
])
test_mistakes = are_named([(check_left_of_signal, *pair) for pair in [
    (lambda sigma, n, l: (sigma * sqrt(n)) ** l, "The half is missing"),
    (lambda sigma, n, l: (n * sigma * sigma / 2) ** l, "the rms is the root of them"),
    (lambda sigma, n, l: (n * sigma * sigma) ** l, "mean squares without ReLU's half"),
    (lambda sigma, n, l: sqrt(n / 2) * sigma, "That is one layer"),
    (lambda sigma, n, l: l * sqrt(n / 2) * sigma, "not times l"),
    (lambda sigma, n, l: sqrt(n / 2 * sigma) ** l, "the variance is sigma^2"),
    (lambda sigma, n, l: (sqrt(n) * sigma / 2) ** l, "under the root it is sqrt(1/2)"),
    (lambda sigma, n, l: 1, "With sigma = 0.01, n = 256, l = 10 the count is"),
]])


def test_the_shapes_in_the_picture_are_those_of_the_arrays():
    ax = Figure().add_subplot()
    layer = mp.Linear(3, 2, W=np.ones((2, 3)), b=np.ones((2, 1)))
    pictures.ports(ax, layer, np.ones((3, 4)), np.ones((2, 4)))
    texts = " ".join(text.get_text() for text in ax.texts)
    for name, shape in [("$A_{prev}$", (3, 4)), ("$Z$", (2, 4)), ("$dZ$", (2, 4)), ("$dA_{prev}$", (3, 4)),
                        ("$dW$", (2, 3)), ("$db$", (2, 1)), ("$W$", (2, 3)), ("$b$", (2, 1))]:
        assert f"{name} {shape}" in texts
