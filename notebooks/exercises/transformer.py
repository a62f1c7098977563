"""Checkers for notebook 22, a Transformer."""

import math

import numpy as np

from minipipe import Embedding, LayerNorm, Linear, PositionalEmbedding, TransformerBlock
from minipipe.layers import every_layer

from . import called, judged, numbers, same, shape_of


def check_tied_gradient(tied_gradient):
    """Judge `tied_gradient(tokens, dE, A, dZ) -> dW` (V, d), where an Embedding and the last Linear share W.

    tokens (T, m) are the Embedding's input and dE (d, T, m) the derivative by its output; A (d, T, m) is the
    Linear's input and dZ (V, T, m) the derivative by its output.
    """
    rng = np.random.default_rng(9)
    for V, d, T, m in ((4, 2, 3, 4), (5, 3, 4, 3)):
        # the last token never occurs, others more than once
        tokens = rng.integers(0, V - 1, (T, m))
        dE, A, dZ = (rng.integers(-4, 5, shape) / 2 for shape in ((d, T, m), (d, T, m), (V, T, m)))
        value, sentence = called(tied_gradient, tokens, dE, A, dZ)
        if sentence is not None:
            shapes = f" The shapes are tokens {tokens.shape}, dE {dE.shape}, A {A.shape}, dZ {dZ.shape}."
            return sentence + shapes if "stopped" in sentence else sentence
        if shape_of(value) == (d, V):
            return f"dW has shape {(d, V)}, turned round: W has one row for each of the {V} tokens, {(V, d)}."
        dW, sentence = numbers("dW", value, (V, d))
        if sentence is not None:
            return sentence
        sentence = _wrong_tied(dW, tokens, dE, A, dZ)
        if sentence is not None:
            return sentence
    return ("Right: W acts on the cost in two places, so its derivative is the sum of two. In a pipeline, "
            "one of them has to travel.")


def _wrong_tied(dW, tokens, dE, A, dZ):
    V, d = len(dZ), len(dE)
    one_hot = np.arange(V)[:, None] == tokens.ravel()              # (V, T m)
    vectors = dE.reshape(d, -1).T                                  # (T m, d)
    embedding, linear = one_hot @ vectors, dZ.reshape(V, -1) @ A.reshape(d, -1).T
    last = np.zeros((V, d))
    last[tokens.ravel()] = vectors
    counts = np.maximum(one_hot.sum(axis=1, keepdims=True), 1)
    both = embedding + linear
    if same(dW, both):
        return None
    for wrong, sentence in (
        (embedding, "That is the Embedding's part only: W is also the last Linear's, whose "
                    "dW is dZ A^T. Add it."),
        (linear, "That is the last Linear's part only: W is also the Embedding's. Add it."),
        (both / 2, "That is the mean of the two parts: W acts in both places, so they are added."),
        (embedding - linear, "The parts are subtracted: they are added."),
        (linear - embedding, "The parts are subtracted: they are added."),
        (last + linear,
         "A token that occurs more than once counts only once: `dW[tokens] += ...` keeps the last one. Use "
                        "np.add.at, or a one-hot matrix."),
        (last, "A token that occurs more than once counts only once: `dW[tokens] = ...` keeps the last one. "
               "And the last Linear's part is missing."),
        (embedding / counts + linear,
         "The Embedding's part is a mean over the places of a token: it has to be their sum."),
        (both / tokens.shape[1], "Did you divide by m? A layer never does: the loss has divided already."),
        (both / tokens.size, "Did you divide by T m? A layer never does: the loss has divided already."),
    ):
        if same(dW, wrong):
            return sentence
    return (f"dW should be {both.tolist()} for tokens {tokens.tolist()}, yours is {dW.tolist()}: the "
            "Embedding's part, row v the sum of dE over the places of token v, plus dZ A^T.")


def check_parameters(parameters):
    """Judge `parameters(V, d, n_blocks, T)`: how many numbers the model of notebook 22 learns, with a tied W.

    >>> check_parameters(lambda V, d, n_blocks, T: n_blocks * (12 * d**2 + 13 * d))
    'Those are the blocks alone: the embeddings, the last LayerNorm and the last b are missing.'
    """
    cases = [(65, 64, 2, 32), (5, 4, 1, 3), (100, 16, 3, 10)]

    def around(V, d, T):
        return V * d + d * T + 2 * d + V

    mistakes = [
        (lambda V, d, n, T: n * (12 * d**2 + 13 * d),
         "Those are the blocks alone: the embeddings, the last LayerNorm and the last b are missing."),
        (lambda V, d, n, T: around(V, d, T) + V * d + n * (12 * d**2 + 13 * d),
         "The shared W is counted twice: Embedding and last Linear have one W between them."),
        (lambda V, d, n, T: around(V, d, T) - V + n * (12 * d**2 + 13 * d),
         "The b of the last Linear is missing: it has V numbers, and is not shared."),
        (lambda V, d, n, T: around(V, d, T) + V * d - V + n * (12 * d**2 + 13 * d),
         "The shared W is counted twice, and the b of the last Linear, V numbers, is missing."),
        (lambda V, d, n, T: around(V, d, T) - d * T + n * (12 * d**2 + 13 * d),
         "The positions are missing: d numbers for each of T places."),
        (lambda V, d, n, T: around(V, d, T) - 2 * d + n * (12 * d**2 + 13 * d),
         "The last LayerNorm is missing: a scale and a shift for each of d rows."),
        (lambda V, d, n, T: around(V, d, T) - d + n * (12 * d**2 + 13 * d),
         "The last LayerNorm has a scale and a shift for each row: 2 d numbers, not d."),
        (lambda V, d, n, T: around(V, d, T) + n * 12 * d**2,
         "In the blocks only the products are counted: their biases and LayerNorms make 13 d more."),
        (lambda V, d, n, T: around(V, d, T) + n * (12 * d**2 + 9 * d),
         "The two LayerNorms of each block are missing: 4 d numbers."),
        (lambda V, d, n, T: around(V, d, T) + n * (11 * d**2 + 12 * d),
         "Attention has four Linear, not three: the one behind the heads is missing."),
        (lambda V, d, n, T: around(V, d, T) + n * (8 * d**2 + 9 * d),
         "The attention of the blocks is missing: 4 (d^2 + d)."),
        (lambda V, d, n, T: around(V, d, T) + n * (4 * d**2 + 8 * d),
         "The MLP of the blocks is missing: 8 d^2 + 5 d."),
        (lambda V, d, n, T: around(V, d, T) + 12 * d**2 + 13 * d,
         "That has one block: multiply its numbers by n_blocks."),
    ]
    right = [_counted(*case) for case in cases]
    return judged(parameters, ("V", "d", "n_blocks", "T"), cases, right, mistakes) or (
        "Right: V d + d T + n_blocks (12 d^2 + 13 d) + 2 d + V. The number of heads does not occur.")


def _counted(V, d, n_blocks, T):
    layers = [Embedding(V, d), PositionalEmbedding(d, T), *(TransformerBlock(d, 1) for _ in range(n_blocks)),
              LayerNorm(d),
              Linear(d, V)]
    shapes = [shape for layer in every_layer(layers) if not layer.layers
              for shape in layer.parameter_shapes()]
    return sum(math.prod(shape) for shape in shapes if shape) - V * d
