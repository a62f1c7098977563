"""What notebook 10 says to functions that are not written as its solutions are: right ones and wrong ones."""

import numpy as np
import pytest

from exercises import three_ways
from exercises.judging import judged, module_of, part_named

SENT, COPIES = part_named("sent"), part_named("copies")

IN_A_TABLE = """
def sent(split, sizes, N, m):
    hidden, last, others = sizes[1:-1], sizes[-1], N - 1
    activations = m * sum(hidden)
    parameters = 0
    for l in range(1, len(sizes)):
        parameters += sizes[l] * sizes[l - 1] + sizes[l]
    return {
        "network": 8 * 2 * activations,
        "layer": 8 * others * (2 * activations + m * last),
        "data": 8 * others * 2 * parameters,
    }[split]
"""

BY_COPY = """
def add(one, other):
    return one[0] + other[0], one[1] + other[1]


def copies(layers, X, Y, D, K, M, schedule):
    total, gradients = 0, {}
    shares, answers = micro_batches(X, D), micro_batches(Y, D)
    for d in range(D):
        J, stages, actions = run(layers, shares[d], answers[d], K, M, schedule, X.shape[1])
        total = total + J
        for k in range(K):
            for layer in stages[k].gradients:
                pair = stages[k].gradients[layer]
                gradients[layer] = add(gradients[layer], pair) if layer in gradients else pair
    return total, gradients
"""

RIGHT = {
    SENT: [IN_A_TABLE, IN_A_TABLE.replace("8 * others * 2", "8.0 * others * 2")],
    COPIES: [BY_COPY, BY_COPY.replace("return total, gradients", "return [total, gradients]"),
             BY_COPY.replace("X.shape[1]", "m=len(X[0])")],
}

WRONG = {
    SENT: [
        ("8 * 2 * activations", "8 * activations", "network split goes forward only"),
        ("8 * 2 * activations", "8 * 2 * m * sum(sizes[1:])", "counts a cut after the last layer"),
        ("8 * 2 * activations", "8 * 2 * m * sum(sizes[:-1])", "counts X"),
        ("8 * 2 * activations", "8 * 2 * others * activations", "network split sends to all others"),
        ("8 * 2 * activations", "8 * 2 * m * max(hidden)", "counts the largest cut only"),
        ("8 * 2 * activations", "8 * 2 * others * m * max(hidden)", "as large as the largest"),
        ("(2 * activations + m * last)", "2 * (activations + m * last)", "the last layer's gradient "
                                                                         "travels, too"),
        ("(2 * activations + m * last)", "(activations + m * last)", "layer split goes forward only"),
        ("(2 * activations + m * last)", "2 * activations", "forgets the last layer's A"),
        ("others * (2", "(2", "each number of A travels once"),
        (" + sizes[l]\n", "\n", "forgets db"),
        ("others * 2 * parameters", "others * parameters", "goes one way"),
        ("others * 2 * parameters", "others * 2 * parameters * m", "counts samples"),
        ("N - 1", "N", "a device sends to itself"),
        ("8 * ", "", "numbers, not bytes"),
        ("8 * ", "4 * ", "4 bytes"),
        ("[split]", "", "sent('network', (64, 128, 128, 64, 10), N=4, m=32): yours is {'network'"),
        ('"data"', '"copies"', "KeyError"),
        (" + m * last", " + last", "sent('layer', (64, 128, 128, 64, 10), N=4, m=32): yours is"),
        ("(2 * activations + m * last)", "(2 * sum(hidden) + last)", "layer split forgets the samples"),
    ],
    COPIES: [
        (", X.shape[1])", ")", "about D times too large"),
        (", X.shape[1])", ", shares[d].shape[1])", "about D times too large"),
        ("return total, gradients", "return total / D, {l: (dW / D, db / D) for l, (dW, db) in "
                                    "gradients.items()}",
         "are divided by D"),
        ("add(gradients[layer], pair) if layer in gradients else pair", "pair", "the last copy alone"),
        ("add(gradients[layer], pair)", "gradients[layer]", "the first copy alone"),
        ("total = total + J", "total = J", "J is that of the last copy alone"),
        ("range(K)", "range(K - 1, K)", "gradients of the last stage alone"),
        ("range(K)", "range(1)", "gradients of the first stage alone"),
        ("shares[d], answers[d]", "X, Y", "works on all samples"),
        (", K, M, schedule, X", ", 1, M, schedule, X", "list index out of range"),
        (", K, M, schedule, X", ", K, 1, schedule, X", "have one micro-batch"),
        (", K, M, schedule, X", ", K, max(1, M // D), schedule, X", "share the M micro-batches"),
        (", K, M, schedule, X", ", K, D * M, schedule, X", "cut their share into D M"),
        ("    total,", "    K = M = 1\n    total,", "one stage and one micro-batch"),
        (", K, M, schedule, X", ", K, M, one_f_one_b, X", "nobody asks `schedule`"),
        (", K, M, schedule, X", ", K, M, lambda *size: gpipe(*size), X", "nobody asks `schedule`"),
        ("    total,", "    D = 1\n    total,", "There is one copy only"),
        ("return total, gradients", "return total", "what copies returns: yours is a"),
        ("return total, gradients", "return gradients, total", "J: yours is"),
        ("return total, gradients", "pass", "returns nothing"),
        ("return total, gradients", "return total, [*gradients.values()]", "yours is [tuple, tuple, tuple], "
                                                                           "it must be [Linear, Linear, "
                                                                           "Linear]"),
    ],
}
WHOLE = {SENT: IN_A_TABLE, COPIES: BY_COPY}


@pytest.mark.parametrize("part", RIGHT, ids=lambda part: part.title)
def test_other_right_functions_are_right(part):
    for code in RIGHT[part]:
        assert judged(part, code).startswith("Right: "), (code, judged(part, code))


@pytest.mark.parametrize("part", WRONG, ids=lambda part: part.title)
def test_wrong_functions_get_the_sentence_of_their_mistake(part):
    for old, new, words in WRONG[part]:
        assert old in WHOLE[part]
        sentence = judged(part, WHOLE[part].replace(old, new))
        assert words in sentence and not sentence.startswith("Right:"), (new, sentence)


def test_samples_that_are_left_over_are_named():
    by_hand = BY_COPY.replace("micro_batches(X, D), micro_batches(Y, D)", """[
        [A[:, d * n:(d + 1) * n] for d in range(D)] for A in (X, Y) for n in [X.shape[1] // D]]""")
    for code in (by_hand, by_hand.replace(", X.shape[1])", ")")):
        assert judged(COPIES, code).startswith("Your copies leave samples out")
    rounded_up = by_hand.replace("X.shape[1] // D", "-(-X.shape[1] // D)")
    assert judged(COPIES, rounded_up).startswith("Right: ")


def test_a_mean_of_means_is_named():
    own_m = BY_COPY.replace(", X.shape[1])", ")")
    code = own_m.replace("return total, gradients",
                         "return total / D, {l: (dW / D, db / D) for l, (dW, db) in gradients.items()}")
    assert judged(COPIES, code).startswith("That is a mean of means")


def test_three_runs_agree_and_send_what_the_solution_counts():
    my, rng = module_of(COPIES, COPIES.solution), np.random.default_rng(10)
    for sizes, m in (((6, 8, 8, 4, 5), 8), ((5, 9, 6, 7, 4), 16)):
        layers = []
        for n_prev, n in zip(sizes, sizes[1:]):
            layers += [my.Linear(n_prev, n, rng), my.ReLU()]
            layers[-2].W = rng.integers(-1, 2, (n, n_prev)) * 1.0
            layers[-2].b = rng.integers(-3, 4, (n, 1)) * 1.0
        layers = layers[:-1]
        X, Y = rng.integers(-2, 3, (sizes[0], m)) * 1.0, rng.integers(-9, 10, (sizes[-1], m)) * 1.0
        J, [whole], _ = my.run(layers, X, Y, 1, 1, my.gpipe)
        for name, found in three_ways.runs(layers, X, Y).items():
            assert found.J == J
            for layer, pair in zip(layers[::2], found.gradients, strict=True):
                assert all(np.array_equal(a, b) for a, b in zip(pair, whole.gradients[layer], strict=True))
            assert found.n_bytes == my.sent(name, sizes, 4, m)
