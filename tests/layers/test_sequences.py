"""Embeddings and attention against loops over single numbers, in rational numbers, with ==."""

import numpy as np
import pytest
from compared import assert_same

import minipipe as mp
from minipipe.arrays import leaves
from minipipe.exact import Rational, rational


def whole(rng, *shape):
    """Rational numbers with 8 below the line."""
    return rational(rng.integers(-12, 13, shape)) / 8


# --- embeddings

@pytest.mark.parametrize("n_tokens, d, shape", [
    (6, 3, (4,)), (6, 3, (5, 3)), (6, 3, (2, 3, 2)), (1, 1, (1, 1)),
])
def test_embedding_equals_loops_over_single_numbers(n_tokens, d, shape):
    """Some tokens occur several times, others never; tokens come as any kind of number."""
    rng = np.random.default_rng(0)
    layer = mp.Embedding(n_tokens, d)
    layer.W = whole(rng, n_tokens, d)
    tokens = rng.integers(0, max(n_tokens - 1, 1), shape)
    dZ = whole(rng, d, *shape)
    expected = [[Rational(0)] * d for _ in range(n_tokens)]
    for place in np.ndindex(shape):
        for i in range(d):
            expected[tokens[place]][i] += dZ[(i, *place)]
    for kind in (np.int64, np.uint8, np.float32, np.float64, rational):
        A_prev = kind(tokens) if kind is rational else tokens.astype(kind)
        A = layer.forward(A_prev)
        assert A.shape == (d, *shape)
        for place in np.ndindex(shape):
            assert [A[(i, *place)] for i in range(d)] == [layer.W[tokens[place], i] for i in range(d)]
        dA_prev, dW, db = layer.backward(dZ)
        assert np.array_equal(dW, expected) and dA_prev is db is None
        assert all(type(number) is Rational for number in dW.flat)


@pytest.mark.parametrize("T", [1, 3, 4])
def test_positional_embedding_equals_loops_over_single_numbers(T):
    rng = np.random.default_rng(0)
    layer = mp.PositionalEmbedding(2, 4)
    layer.W = whole(rng, 2, 4)
    A_prev, dZ = whole(rng, 2, T, 3), whole(rng, 2, T, 3)
    A, (_, dW, _) = layer.forward(A_prev), layer.backward(dZ)
    for i, t, k in np.ndindex(2, T, 3):
        assert A[i, t, k] == A_prev[i, t, k] + layer.W[i, t]
    assert dW.tolist() == [[sum(dZ[i, t]) if t < T else 0 for t in range(4)] for i in range(2)]


# --- attention

def attention(d, n_heads, causal, rng):
    layer = mp.MultiHeadAttention(d, n_heads, causal)
    layer.initialize(rng)
    layer = layer.copy(rational)
    for part in layer.layers:
        part.W, part.b = whole(rng, d, d), whole(rng, d, 1)
    return layer


def by_loops(layer, A_prev):
    """A, by loops over samples, heads, queries and keys."""
    d, T, m = A_prev.shape
    d_h, scale = d // layer.n_heads, Rational(1 / np.sqrt(d // layer.n_heads))
    (Wq, Wk, Wv, Wo), (bq, bk, bv, bo) = layer.W, layer.b
    A = np.zeros_like(A_prev)
    for k in range(m):
        X = A_prev[:, :, k]
        Q, K, V = (
            [[dot(W[i], X[:, t]) + b[i, 0] for t in range(T)] for i in range(d)]
            for W, b in [(Wq, bq), (Wk, bk), (Wv, bv)]
        )
        O = np.zeros_like(X)
        for head, t in np.ndindex(layer.n_heads, T):
            rows = range(head * d_h, (head + 1) * d_h)
            seen = range(t + 1) if layer.causal else range(T)
            S = {j: sum(K[r][j] * Q[r][t] for r in rows) * scale for j in seen}
            e = {j: (S[j] - max(S.values())).exp() for j in seen}
            for r in rows:
                O[r, t] = sum(V[r][j] * e[j] / sum(e.values()) for j in seen)
        for i, t in np.ndindex(d, T):
            A[i, t, k] = dot(Wo[i], O[:, t]) + bo[i, 0]
    return A


def dot(left, right):
    return sum(a * b for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d, n_heads, T, m", [(2, 1, 3, 1), (4, 2, 2, 2), (3, 3, 3, 1), (4, 1, 1, 2)])
def test_attention_equals_loops_over_heads_queries_and_keys(d, n_heads, T, m, causal):
    """Forward; its backward is that of the contract of every layer, by dual numbers."""
    rng = np.random.default_rng(0)
    layer, A_prev = attention(d, n_heads, causal, rng), whole(rng, d, T, m)
    assert_same(layer.forward(A_prev), by_loops(layer, A_prev))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("causal", [False, True])
def test_large_scores_overflow_nothing_and_hidden_ones_push_nothing_out(causal, dtype):
    """Place 2 has keys whose scores are up to 10^6; where it is hidden, the others share 1 among themselves
    as ever.
    """
    layer = mp.MultiHeadAttention(1, 1, causal)
    one, zero = np.ones((1, 1), dtype), np.zeros((1, 1), dtype)
    for part in layer.layers:
        part.W, part.b = one, zero
    A_prev = np.array([1, -1, 1000], dtype).reshape(1, 3, 1)
    A = layer.forward(A_prev)
    assert np.isfinite(A).all() and np.isfinite(layer.backward_input(np.ones_like(A_prev))).all()
    if causal:
        assert np.array_equal(A[:, :2], layer.forward(A_prev[:, :2]))
    assert A[0, 2, 0] == 1000


@pytest.mark.parametrize("d, n_heads", [(4, 2), (6, 1)])
def test_transformer_block_is_what_its_docstring_says(d, n_heads):
    """B = A + attention(LayerNorm(A)), B + W2 GELU(W1 LayerNorm(B) + b1) + b2, and 12 d^2 + 13 d parameters.
    """
    block = mp.TransformerBlock(d, n_heads, causal=True)
    block.initialize(np.random.default_rng(0))
    attend, feed = (residual.layers[1].layers for residual in block.layers)
    A_prev = np.random.default_rng(1).standard_normal((d, 3, 2))
    B = A_prev + attend[1].forward(attend[0].forward(A_prev))
    A = B + feed[3].forward(feed[2].forward(feed[1].forward(feed[0].forward(B))))
    assert np.array_equal(block.forward(A_prev), A)
    assert sum(parameter.size for parameter in leaves((block.W, block.b))) == 12 * d**2 + 13 * d
    assert [type(layer) for layer in (*attend, *feed)] == [
        mp.LayerNorm, mp.MultiHeadAttention, mp.LayerNorm, mp.Linear, mp.GELU, mp.Linear,
    ] and attend[1].causal
    with_dropout = mp.TransformerBlock(d, n_heads, n_hidden=5, dropout=0.25)
    assert [residual.layers[1].layers[-1].p for residual in with_dropout.layers] == [0.25, 0.25]
    assert with_dropout.layers[1].layers[1].layers[1].n == 5
