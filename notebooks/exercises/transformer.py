"""Checkers for notebooks 21 and 22, attention and a Transformer."""

import math

import numpy as np

from minipipe import Embedding, LayerNorm, Linear, PositionalEmbedding, TransformerBlock
from minipipe.layers import every_layer

from . import called, judged, numbers, same, shape_of


def check_shares(shares):
    """Judge `shares(Q, K) -> P` of one head with the causal mask: Q, K (d_h, T), P (T, T), one column for
    each query.

    >>> check_shares(lambda Q, K: np.ones((K.shape[1], Q.shape[1])))[:57]
    'The columns of P must add up to 1, yours add up to [3.0, '
    """
    rng = np.random.default_rng(8)
    cases = [[rng.integers(-4, 5, (d_h, T)) / 2 for _ in range(2)] for d_h, T in ((4, 3), (2, 5))]
    answers = []
    for Q, K in cases:
        with np.errstate(all="ignore"):
            value, sentence = called(shares, Q, K)
        if sentence is not None:
            shapes = f" The shapes are Q {Q.shape}, K {K.shape}."
            return sentence + shapes if "stopped" in sentence else sentence
        P, sentence = numbers("P", value, (Q.shape[1], Q.shape[1]))
        if sentence is not None:
            return sentence
        answers.append(P)
    if all(same(P, _shares(Q, K)) for P, (Q, K) in zip(answers, cases)):
        return ("Right: each column adds up to 1, nothing comes from the future, and d_h cannot "
                "make the shares extreme.")
    if np.isnan(answers[0][:, 0]).all() and not np.isnan(answers[0][:, 1:]).any():
        return ("Column 0 is not a number: nothing is left to look at. A place sees itself, so hide j "
                "> t only, not j = t.")
    for wrong, sentence in _MISTAKES_OF_SHARES:
        if all(same(P, wrong(Q, K)) for P, (Q, K) in zip(answers, cases)):
            return sentence
    return _first_difference(answers, cases)


def _shares(Q, K, scale=None, hidden=None, axis=0, masked=-np.inf):
    """P of one head. hidden: what the mask hides, the future if None; masked: the score that it gets
    there.
    """
    T = Q.shape[1]
    S = K.T @ Q / (math.sqrt(len(Q)) if scale is None else scale)
    S = np.where(np.tril(np.ones((T, T), bool), -1) if hidden is None else hidden, masked, S)
    exponentials = np.exp(S - S.max(axis=axis, keepdims=True))
    return exponentials / exponentials.sum(axis=axis, keepdims=True)


def _past(Q):
    return np.triu(np.ones((Q.shape[1], Q.shape[1]), bool), 1)


def _visible(Q):
    return np.triu(np.ones((Q.shape[1], Q.shape[1])))


def _scores(Q, K):
    return K.T @ Q / math.sqrt(len(Q))


_MISTAKES_OF_SHARES = [
    (lambda Q, K: _shares(Q, K, hidden=_past(Q)),
     "You hid the wrong triangle: row j is the key, column t the query, and the future is j > "
     "t, below the diagonal."),
    (lambda Q, K: _shares(Q, K, hidden=False), "The mask is missing: P[j, t] must be 0 for j > t."),
    (lambda Q, K: _shares(Q, K, axis=1),
     "The softmax runs over the wrong axis: your rows add up to 1. Each query, a column, "
     "hands out shares of 1."),
    (lambda Q, K: _shares(Q, K, hidden=_past(Q), axis=1),
     "The softmax runs over the wrong axis, and the wrong triangle is hidden: a query is a "
     "column, the future is j > t."),
    (lambda Q, K: _shares(Q, K, hidden=False, axis=1),
     "The softmax runs over the wrong axis, and the mask is missing: a query is a "
     "column, the future is j > t."),
    (lambda Q, K: _shares(Q, K, scale=1),
     "The division by sqrt(d_h) is missing: with d_h rows, products are that much larger."),
    (lambda Q, K: _shares(Q, K, scale=len(Q)), "You divided by d_h: it is the square root of d_h."),
    (lambda Q, K: _shares(Q, K, scale=1 / math.sqrt(len(Q))), "You multiplied by sqrt(d_h): divide by it."),
    (lambda Q, K: _shares(Q, K, scale=math.sqrt(Q.shape[1])),
     "You divided by sqrt(T): it is d_h, the number of rows of Q."),
    (lambda Q, K: _shares(Q, K, hidden=False) * _visible(Q),
     "You masked after the softmax, so the columns no longer add up to 1: mask the scores, "
     "with -inf, before it."),
    (lambda Q, K: _shares(Q, K, masked=0),
     "You set hidden scores to 0, but e^0 = 1: a hidden place still gets a share. Take "
     "-inf, since e^-inf = 0."),
    (lambda Q, K: _shares(K, Q), "Q and K are exchanged: S[j, t] is how well key j fits query t, S = K^T Q."),
    (lambda Q, K: _shares(Q, K).T,
     "P is turned round: one column for each query. (Many papers have a row for each.)"),
    (lambda Q, K: _scores(Q, K) * _visible(Q), "Those are the scores S, masked: the softmax is missing."),
    (lambda Q, K: np.where(_visible(Q) > 0, _scores(Q, K), -np.inf),
     "Those are the scores S, masked: the softmax is missing."),
    (lambda Q, K: np.exp(_scores(Q, K)) * _visible(Q),
     "The exponentials are not divided by the sum of their column."),
]


def _first_difference(answers, cases):
    for P, (Q, K) in zip(answers, cases):
        right = _shares(Q, K)
        if same(P, right):
            continue
        if not same(P.sum(axis=0), np.ones(len(P))):
            return f"The columns of P must add up to 1, yours add up to {P.sum(axis=0).round(3).tolist()}."
        j, t = next(place for place in np.ndindex(P.shape) if not same(P[place], right[place]))
        return (f"P[{j}, {t}] should be {right[j, t]:.4f}, yours is {P[j, t]:.4f}, for d_h = "
                f"{len(Q)} and T = {len(P)}.")


def check_attention_backward(backward):
    """Judge `backward(dO, Q, K, V, P) -> (dQ, dK, dV)` of one head of one sample: all (d_h, T) but P (T, T).

    >>> check_attention_backward(lambda dO, Q, K, V, P: (Q, K, dO @ P))
    'dV = dO P is the way that P went forward: on the way back it is turned round, dO P^T.'
    """
    rng = np.random.default_rng(10)
    Q, K, V, dO = (rng.integers(-4, 5, (4, 3)) / 2 for _ in range(4))
    P = _shares(Q, K)
    value, sentence = called(backward, dO, Q, K, V, P)
    if sentence is not None:
        return sentence + (" All are (4, 3), but P (3, 3)." if "stopped" in sentence else "")
    if not isinstance(value, (tuple, list)) or len(value) != 3:
        return "Return three things: dQ, dK, dV."
    right = _attention_backward(dO, Q, K, V, P)
    for name, got in zip(("dV", "dQ", "dK"), (value[2], value[0], value[1])):
        array, sentence = numbers(name, got, (4, 3))
        if sentence is not None:
            return sentence
        if not same(array, right[name]):
            return _wrong_derivative(name, array, right[name], dO, Q, K, V, P)
    return ("Right: four products and a softmax. Where P is 0, dS is 0: nothing comes from the future, on "
            "the way back either.")


def _attention_backward(dO, Q, K, V, P, inner=lambda P, dP: (dP * P).sum(axis=0), turned=False, scale=2):
    dP = V.T @ dO
    dS = P * (dP - inner(P, dP))
    return {"dV": dO @ P.T, "dQ": K @ (dS.T if turned else dS) / scale,
            "dK": Q @ (dS if turned else dS.T) / scale}


def _wrong_derivative(name, got, right, dO, Q, K, V, P):
    if name == "dV":
        if same(got, dO @ P):
            return "dV = dO P is the way that P went forward: on the way back it is turned round, dO P^T."
        return f"dV[0, 0] should be {right[0, 0]:.4f}, yours is {got[0, 0]:.4f}: O = V P, so dV = dO P^T."
    def rows(P, dP):
        return (dP * P).sum(axis=1, keepdims=True)

    mistakes = [
        (_attention_backward(dO, Q, K, V, P, scale=1), "The division by sqrt(d_h) is missing: S has it."),
        (_attention_backward(dO, Q, K, V, P, scale=4), "You divided by d_h: it is its square root, once."),
        (_attention_backward(dO, Q, K, V, P, turned=True),
         "dS is turned round: S = K^T Q, so dQ = K dS, and dK = Q dS^T."),
        (_attention_backward(dO, Q, K, V, P, inner=lambda P, dP: 0),
         "In dS the sum is missing: a share can grow only if the others of its column shrink."),
        (_attention_backward(dO, Q, K, V, P, inner=rows),
         "The sum in dS runs along the rows: each column of P is a softmax of its own."),
        (_attention_backward(dO, Q, K, V, P, inner=lambda P, dP: dP.sum(axis=0)),
         "The sum in dS is of dP * P, not of dP alone."),
    ]
    for wrong, sentence in mistakes:
        if same(got, wrong[name]):
            return f"{name} is wrong. {sentence}"
    return f"{name}[0, 0] should be {right[0, 0]:.4f}, yours is {got[0, 0]:.4f}."


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
