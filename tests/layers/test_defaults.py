"""The table of defaults that differ from PyTorch's, in minipipe/layers: our column is what the code does."""

from inspect import Parameter, signature
from pathlib import Path

import numpy as np

import minipipe as mp
from minipipe.exact import Rational, rational

README = (Path(__file__).parents[2] / "minipipe" / "layers" / "README.md").read_text(encoding="utf-8")
TABLE = README.partition("## Defaults that differ from PyTorch's")[2].partition("\n#")[0]
N = 300


def default(function, name):
    return signature(function).parameters[name].default


def drawn(layer, seed=0):
    layer = layer.copy()
    layer.initialize(np.random.default_rng(seed))
    return layer


def has_variance(W, variance):
    """The mean square of n normal numbers is off by more than 5 sqrt(2 / n) once in a million times."""
    return abs((W * W).mean() / variance - 1) < 5 * np.sqrt(2 / W.size)


def uniform_never(W):
    """A uniform distribution of this variance ends at sqrt(3) standard deviations."""
    return abs(W).max() > 2.5 * W.std()


def by_he(layer, n_prev):
    W = drawn(layer).W
    return has_variance(W, 2 / n_prev) and uniform_never(W)


def biases():
    layers = [mp.Linear(3, 4), mp.Conv2d(2, 3, 3), mp.ConvTranspose1d(2, 3, 3), mp.LayerNorm(3),
              mp.BatchNorm(3), mp.GroupNorm(1, 3), *mp.MultiHeadAttention(4, 2).layers]
    return not any(drawn(layer).b.any() for layer in layers)


def block():
    wanted = "LayerNorm", "MultiHeadAttention", "LayerNorm", "Linear", "GELU", "Linear"
    parts = [part.layers[1] for part in mp.TransformerBlock(8, 2).layers]
    layers = [layer for part in parts for layer in part.layers]
    return tuple(type(layer).__name__ for layer in layers) == wanted and layers[3].n == 4 * 8


def cost(loss, A, Y):
    return loss.forward(rational(np.full((3, 2), A)), rational(np.full((3, 2), Y)))


def first_weights(**seed):
    return mp.Sequential([mp.Linear(2, 2)], None, **seed).layers[0].W


ROWS = {  # the row: (our column, whether the code does so)
    "order of the axes": ("samples last", lambda: mp.Linear(3, 2).output_shape((3, 7)) == (2, 7)),
    "dtype": (
        "float64", lambda: first_weights().dtype == np.dtype(default(mp.Pipeline, "dtype")) == np.float64
    ),
    "what is drawn": (
        "the same for the same seed, which is 0",
        lambda: np.array_equal(first_weights(), first_weights(seed=0)) and first_weights(seed=1)[0, 0] != 0
        and not np.array_equal(first_weights(), first_weights(seed=1)),
    ),
    "W of `Linear`, `Conv`": (
        "N(0, 2 / n_prev), He's",
        lambda: by_he(mp.Linear(N, N), N) and by_he(mp.Conv2d(30, 40, 3), 30 * 9),
    ),
    "b of all layers": ("0, nothing is drawn", biases),
    "W of `Embedding`": ("N(0, 1 / d)", lambda: has_variance(drawn(mp.Embedding(N, 50)).W, 1 / 50)),
    "W of `MultiHeadAttention`": (
        "N(0, 2 / (n_prev + n)), Xavier's",
        lambda: all(has_variance(drawn(part).W, 2 / (2 * N)) for part in mp.MultiHeadAttention(N, 2).layers),
    ),
    "`GELU`": ("the tanh form", lambda: round(mp.GELU().forward(np.array([[1.0]])).item(), 6) == 0.841192),
    "`MeanSquaredError`": (
        "1/(2m), summed over outputs", lambda: cost(mp.MeanSquaredError(), 2.0, 0.0) == 3 * 2 * 4 / (2 * 2)
    ),
    "`BinaryCrossEntropy`": (
        "1/m, summed over outputs",
        lambda: cost(mp.BinaryCrossEntropy(), 0.5, 1.0) == 3 * Rational(2).log(),
    ),
    "`TransformerBlock`": ("normalisation first, GELU, 4 d hidden units, no dropout", block),
    "`SGD`": ("a learning rate must be given", lambda: default(mp.SGD, "learning_rate") is Parameter.empty),
}


def test_the_table_of_defaults_is_what_layers_do():
    lines = [line for line in TABLE.splitlines() if line.startswith("| ") and "---" not in line]
    columns = [line.removeprefix("| ").split(" | ")[:2] for line in lines[1:]]
    assert columns == [[row, words] for row, (words, _) in ROWS.items()]
    assert [row for row, (_, holds) in ROWS.items() if not holds()] == []


def test_options_outside_the_table_have_pytorchs_defaults():
    """As torch.nn and torch.optim document them in version 2."""
    for function, name, value in (
        (mp.Adam, "learning_rate", 1e-3), (mp.Adam, "betas", (0.9, 0.999)), (mp.Adam, "epsilon", 1e-8),
        (mp.Adam, "weight_decay", 0), (mp.AdamW, "weight_decay", 0.01), (mp.AdamW, "epsilon", 1e-8),
        (mp.RMSProp, "learning_rate", 0.01), (mp.RMSProp, "rho", 0.99), (mp.RMSProp, "epsilon", 1e-8),
        (mp.SGD, "momentum", 0), (mp.SGD, "nesterov", False), (mp.BatchNorm, "momentum", 0.1),
        (mp.BatchNorm, "epsilon", 1e-5), (mp.LayerNorm, "epsilon", 1e-5), (mp.GroupNorm, "epsilon", 1e-5),
        (mp.LeakyReLU, "negative_slope", 0.01), (mp.Conv2d, "bias", True), (mp.Conv2d, "stride", 1),
        (mp.Conv2d, "padding", 0), (mp.Conv2d, "groups", 1), (mp.MaxPool2d, "padding", 0),
    ):
        assert default(function, name) == value


def test_weights_are_drawn_with_the_variance_of_the_papers():
    """He's 2 / fan-in, where the fan-in of a transposed convolution is its share of the kernel; Xavier's."""
    for layer, variance in [
        (mp.Linear(300, 200, initialization=mp.layers.xavier), 2 / 500),
        (mp.Conv2d(32, 32, 5, groups=2), 2 / (16 * 25)),
        (mp.ConvTranspose2d(32, 32, 4, stride=2, groups=2), 2 / (16 * 16 / 4)),
        (mp.PositionalEmbedding(50, 300), 1 / 50),
    ]:
        layer.initialize(np.random.default_rng(0), np.float32)
        assert layer.W.dtype == np.float32 and layer.W.shape == layer.parameter_shapes()[0], layer
        assert has_variance(layer.W, variance), layer
        assert layer.b is None or (layer.b.dtype == np.float32 and not layer.b.any()), layer
