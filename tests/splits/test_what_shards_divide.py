"""What shards divide, and what stays whole: one function decides, for pairs, ties, positions and rows."""

import numpy as np
import pytest
from cases import eighths, exact
from compared import assert_equals_full_batch

import minipipe as mp
from minipipe.layers import Chain

LOSS, CLASSES = mp.MeanSquaredError(), mp.SoftmaxCrossEntropy()


class MyLinear(mp.Linear):
    """A layer of one's own, even if it computes what its base does."""


class MyDropout(mp.Dropout):
    """Also."""


class MyAttention(mp.MultiHeadAttention):
    """Also."""


class Twice:
    """Twice what the block does that it is mixed into."""

    def through(self, A_prev):
        return 2 * super().through(A_prev)

    def derivatives(self, dZ):
        return super().derivatives(2 * dZ)


class TwiceResidual(Twice, mp.Residual):
    pass


class TwiceChain(Twice, Chain):
    pass


def attends(*more, attention=mp.MultiHeadAttention):
    return mp.Residual(mp.LayerNorm(2), attention(2, 2), *more)


SEQUENCES = {
    "fewer hidden units than shards": [attends(), mp.TransformerBlock(2, 2, n_hidden=1)],
    "a pair, half of one's own": [
        attends(), mp.Residual(mp.LayerNorm(2), mp.Linear(2, 2), mp.ReLU(), MyLinear(2, 2))
    ],
    "dropout of one's own": [attends(), attends(MyDropout(0.5)), MyDropout(0.5)],
    "attention of one's own": [attends(attention=MyAttention), attends(), attends(attention=MyAttention)],
    "a residual of one's own": [
        attends(), TwiceResidual(mp.LayerNorm(2), mp.Linear(2, 2), mp.ReLU(), mp.Linear(2, 2))
    ],
    "a chain of one's own": [attends(), TwiceChain(mp.Linear(2, 2), mp.ReLU(), mp.Linear(2, 2))],
    "a pair of convolutions": [
        attends(), mp.Residual(mp.Conv1d(2, 2, 3, padding=1), mp.ReLU(), mp.Conv1d(2, 2, 3, padding=1))
    ],
}


def test_positions_go_through_both_parts_of_a_block():
    net = mp.TensorParallel([mp.TransformerBlock(2, 2, n_hidden=2), mp.Linear(2, 1)], LOSS, 2, sequence=True)
    words = "((by positions, by heads), (by positions, by outputs, unit by unit, by inputs))"
    assert net.split == [words, "whole"]


@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("name", SEQUENCES)
def test_a_sequence_has_the_full_batchs_gradients(name, sequence):
    rng = np.random.default_rng(0)
    X, Y = eighths(rng.standard_normal((2, 2, 2))), eighths(rng.standard_normal((1, 2, 2)))
    net = mp.TensorParallel(exact([*SEQUENCES[name], mp.Linear(2, 1)]), LOSS, 2, sequence=sequence)
    assert_equals_full_batch(net, X, Y)


IMAGES = {
    "rows behind a convolution that has none": [
        mp.Conv2d(1, 2, 2, stride=2), mp.ReLU(), mp.Conv2d(2, 2, 3, padding=1)
    ],
    "dropout of one's own": [
        mp.Conv2d(1, 1, 3, padding=1), MyDropout(0.5), mp.Conv2d(1, 2, 3, padding=1), mp.MaxPool2d(2)
    ],
}


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("name", IMAGES)
def test_an_image_has_the_full_batchs_gradients(name, rows):
    rng = np.random.default_rng(0)
    X, Y = eighths(rng.standard_normal((1, 4, 4, 2))), eighths(rng.standard_normal((2, 2)))
    net = mp.TensorParallel(exact([*IMAGES[name], mp.AvgPool2d(2), mp.Flatten()]), LOSS, 2, rows=rows)
    assert_equals_full_batch(net, X, Y)


@pytest.mark.parametrize("loss", [LOSS, CLASSES])
@pytest.mark.parametrize(("kind", "how"), [
    (mp.Linear, {LOSS: "by outputs, gathered", CLASSES: "by outputs, up to the loss"}),
    (MyLinear, {LOSS: "whole", CLASSES: "whole"}),
])
def test_tied_layers_are_divided_alike(kind, how, loss):
    rng = np.random.default_rng(0)
    tokens, labels = rng.integers(0, 5, (2, 2, 3))
    layers = exact([mp.Embedding(5, 2, tie="w"), mp.Linear(2, 2), mp.Tanh(), kind(2, 5, tie="w")])
    net = mp.TensorParallel(layers, loss, 2)
    assert_equals_full_batch(net, tokens, eighths(mp.one_hot(labels, 5)))
    of_tokens = "whole" if how[loss] == "whole" else "by tokens"
    assert net.split == [of_tokens, "by outputs, gathered", "whole", how[loss]]
