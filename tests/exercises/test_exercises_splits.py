"""Solutions of the exercises in notebook 36, and what their checkers say to typical wrong answers."""

from notebooks.checkers import are_named, are_not_solved_yet, are_right, of_each
from notebooks.template import solutions

import minipipe as mp
from exercises.splits import LENET, check_bytes_of_layer_split, check_split_of_each_layer
from minipipe.description import parameters_of_layers

CHECKERS = [check_bytes_of_layer_split, check_split_of_each_layer]
BYTES, CHOICE = solutions("36").bytes_of_layer_split, solutions("36").choice

test_solutions = are_right([
    (check_bytes_of_layer_split, BYTES),
    (check_bytes_of_layer_split,
     lambda sizes, N, m, w: sum((N - 1) * m * w * n for n in (*sizes[1:], *sizes[1:-1]))),
    (check_split_of_each_layer, CHOICE),
])
test_stubs = are_not_solved_yet([
    (check_split_of_each_layer, dict.fromkeys(LENET)),
    (check_split_of_each_layer, CHOICE | {"dense 2": None}),
])
test_mistakes = are_named(of_each(CHECKERS, [
    [
        (lambda sizes, N, m, w: 2 * (N - 1) * m * w * sum(sizes[1:]), "the last layer has no dA"),
        (lambda sizes, N, m, w: (N - 1) * m * w * sum(sizes[1:]), "That is the forward alone"),
        (lambda sizes, N, m, w: N * m * w * (2 * sum(sizes[1:]) - sizes[-1]), "there are N - 1 others"),
        (lambda sizes, N, m, w: m * w * (2 * sum(sizes[1:]) - sizes[-1]), "travels to N - 1 other devices"),
        (lambda sizes, N, m, w: (N - 1) * m * w * (2 * sum(sizes) - sizes[-1]), "The input does not travel"),
        (lambda sizes, N, m, w: (N - 1) * m * (2 * sum(sizes[1:]) - sizes[-1]), "numbers, not bytes"),
        (lambda sizes, N, m, w: 0, "the count is 499200, yours is 0"),
        (lambda sizes: 1, "stopped with TypeError"),
    ],
    [
        (dict.fromkeys(LENET, "layer"), "conv 1 sends 2 x 156 numbers split by data, and 2 x 4704 x 128"),
        (CHOICE | {"dense 1": "data"}, "dense 1 sends 2 x 48120 numbers"),
        (CHOICE | {"dense 2": "layer"}, "dense 2 sends 2 x 10164 numbers"),
        (CHOICE | {"dense 2": "units"}, "Write \"data\" or \"layer\""),
        (CHOICE | {"dense 2": ["data"]}, "Write \"data\" or \"layer\""),
        ({"conv 1": "data"}, "Write a dict with the four layers"),
    ],
]))


def test_the_parameters_of_lenet_are_those_of_its_layers():
    layers = [mp.Conv2d(1, 6, 5), mp.Conv2d(6, 16, 5), mp.Linear(400, 120), mp.Linear(120, 84)]
    assert list(parameters_of_layers(mp.Sequential(layers, None).layers)) == [n for n, _ in LENET.values()]
