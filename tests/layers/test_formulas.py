"""Linear, activations, norms, embeddings and attention against formulas and loops over single numbers.

Where numbers are rational or whole, `==` decides. Of most, forward alone is looked at: `test_contracts.py`
has the backward of every layer. Convolutions and pooling are in `test_windows.py`.
"""

import itertools
import math

import numpy as np
import pytest
from compared import assert_same

import minipipe as mp
from minipipe.arrays import leaves
from minipipe.exact import Rational, rational

FLOATS = np.float32, np.float64


def whole(rng, *shape):
    """Rational numbers with 8 below the line."""
    return rational(rng.integers(-12, 13, shape)) / 8


def test_linear_equals_loops_over_single_numbers():
    """On whole numbers, where no operation rounds, so that == is right."""
    rng = np.random.default_rng(0)
    W, b, A, dZ = (rng.integers(-4, 5, shape).astype(float) for shape in [(2, 3), (2, 1), (3, 4), (2, 4)])
    layer = mp.Linear(3, 2, W=W, b=b)
    Z = [[sum(W[i, j] * A[j, k] for j in range(3)) + b[i, 0] for k in range(4)] for i in range(2)]
    dA = [[sum(W[i, j] * dZ[i, k] for i in range(2)) for k in range(4)] for j in range(3)]
    dW = [[sum(dZ[i, k] * A[j, k] for k in range(4)) for j in range(3)] for i in range(2)]
    db = [[sum(dZ[i, k] for k in range(4))] for i in range(2)]
    expected = [np.array(part) for part in (Z, dA, dW, db)]
    assert_same([layer.forward(A), *layer.backward(dZ)], expected)


# --- activations

def gelu(z):
    """By (1 + tanh x)/2 = sigmoid(2x)."""
    return z / (1 + math.exp(-2 * math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))


@pytest.mark.parametrize("layer, g", [
    (mp.ReLU(), lambda z: max(z, 0.0)),
    (mp.Sigmoid(), lambda z: 1 / (1 + math.exp(-z))),
    (mp.Tanh(), math.tanh),
    (mp.LeakyReLU(0.125), lambda z: max(z, z / 8)),
    (mp.GELU(), gelu),
    (mp.SiLU(), lambda z: z / (1 + math.exp(-z))),
    (mp.Softplus(), lambda z: math.log(1 + math.exp(z))),
], ids=lambda value: repr(value) if isinstance(value, mp.Layer) else "")
def test_activations_equal_other_formulas_number_by_number(layer, g):
    """Different but equal formulas: each of at most ten operations is right to 4 units in the last place,
    u = eps/2 times 8. GELU's count twice, since its tanh is multiplied by up to z/2 * c * (1 + 3 k z^2) < 3.
    """
    Z = np.linspace(-3, 3, 12).reshape(3, 4)
    bound = (20 if isinstance(layer, mp.GELU) else 10) * 8 * np.finfo(float).eps / 2
    assert np.all(abs(layer.forward(Z) - np.vectorize(g)(Z)) <= bound)


def test_sigmoid_of_huge_numbers_keeps_its_small_values():
    A = mp.Sigmoid().forward(np.array([[-700.0, -1e6, 1e6]]))
    assert A[0, 0] == math.exp(-700) and A[0, 1] == 0 and A[0, 2] == 1


def test_softmax_equals_loops_over_single_numbers():
    """Three operations of error 8u, sums of 3 numbers: 40u covers both sides."""
    Z = np.random.default_rng(0).standard_normal((3, 4))
    A = mp.Softmax().forward(Z)
    for j, k in np.ndindex(3, 4):
        expected = math.exp(Z[j, k]) / sum(math.exp(z) for z in Z[:, k])
        assert abs(A[j, k] - expected) <= 20 * np.finfo(float).eps


@pytest.mark.parametrize("layer, at_zero, low, high", [
    (mp.ReLU(), 0, 0, 1), (mp.LeakyReLU(0.25), 0.25, 0.25, 1), (mp.GELU(), 0.5, 0, 1),
    (mp.SiLU(), 0.5, 0, 1), (mp.Softplus(), 0.5, 0, 1),
], ids=repr)
def test_slopes_at_zero_and_far_out_are_those_documented(layer, at_zero, low, high):
    """Far out each of these is a straight line through 0, with slope `low` on the left and `high` on
    the right, and nothing overflows.
    """
    tiny = 1e-40  # e^-100 is not yet 0
    for dtype in FLOATS:
        layer.forward(np.zeros((1, 1), dtype))
        assert layer.backward_input(np.ones((1, 1), dtype)).item() == at_zero
        for huge in (dtype(100), np.sqrt(np.finfo(dtype).max) * 2, np.finfo(dtype).max / 4):
            Z, slopes = np.array([[-huge, huge]], dtype), np.array([[low, high]], dtype)
            assert np.all(abs(layer.forward(Z) - Z * slopes) <= tiny)
            assert np.all(abs(layer.backward_input(np.ones_like(Z)) - slopes) <= tiny)


def test_softmax_of_huge_numbers_does_not_overflow():
    for dtype in FLOATS:
        huge = np.finfo(dtype).max / 4
        assert np.array_equal(mp.Softmax().forward(np.array([[huge], [-huge], [0]], dtype)), [[1], [0], [0]])


# --- norms

NORMS = [  # (layer, shape of A_prev)
    (mp.LayerNorm(5), (5, 3)), (mp.LayerNorm(3), (3, 4, 2)), (mp.LayerNorm(1), (1, 3)),
    (mp.GroupNorm(2, 6), (6, 3)), (mp.GroupNorm(2, 4), (4, 3, 2, 3)),
    (mp.GroupNorm(1, 3), (3, 2, 3)), (mp.GroupNorm(3, 3), (3, 5, 2)),
    (mp.BatchNorm(3), (3, 5)), (mp.BatchNorm(2), (2, 3, 2, 3)), (mp.BatchNorm(2, epsilon=0.25), (2, 3)),
]


def exact_norm(layer, shape):
    rng = np.random.default_rng(0)
    layer = layer.copy()
    layer.initialize(rng)
    layer = layer.copy(rational)
    layer.W, layer.b = (rational(rng.integers(-8, 9, (layer.n, 1))) / 8 for _ in range(2))
    return layer, rational(rng.integers(-20, 21, shape)) / 8


def groups(layer, shape):
    """The places of A_prev whose numbers are normalised together."""
    n, *others, m = [range(length) for length in shape]
    if isinstance(layer, mp.LayerNorm):
        return [[(i, *rest) for i in n] for rest in itertools.product(*others, m)]
    if isinstance(layer, mp.BatchNorm):
        return [[(i, *rest) for rest in itertools.product(*others, m)] for i in n]
    size = len(n) // layer.n_groups
    return [
        [(i, *rest, k) for i in n[g * size:(g + 1) * size] for rest in itertools.product(*others)]
        for g in range(layer.n_groups) for k in m
    ]


def test_norms_equal_loops_over_single_numbers():
    for layer, shape in NORMS:
        layer, A_prev = exact_norm(layer, shape)
        A = layer.forward(A_prev)
        for places in groups(layer, shape):
            mean = sum(A_prev[i] for i in places) / len(places)
            variance = sum((A_prev[i] - mean) ** 2 for i in places) / len(places)
            s = (variance + Rational(layer.epsilon)).sqrt()
            for i in places:
                expected = layer.W[i[0], 0] * (A_prev[i] - mean) / s + layer.b[i[0], 0]
                assert A[i] == expected, f"{layer} of {shape} at {i}"


def test_equal_numbers_are_not_divided_by_0():
    """Equal numbers whose mean is exact have the variance 0, and X = 0."""
    for (layer, shape), dtype in itertools.product(NORMS, FLOATS):
        layer = layer.copy()
        layer.initialize(np.random.default_rng(0), dtype)
        assert not layer.forward(np.full(shape, dtype(2.0**40))).any(), layer
        assert np.isfinite(layer.backward_input(np.ones(shape, dtype))).all(), layer


@pytest.mark.parametrize("shape", [(3, 5), (3, 2, 4)])
def test_batch_norm_evaluates_by_its_running_statistics(shape):
    layer, A_prev = exact_norm(mp.BatchNorm(3), shape)
    rng = np.random.default_rng(1)
    layer.running_mean, layer.running_var = (rational(rng.integers(1, 9, (3, 1))) / 4 for _ in range(2))
    layer.training = False
    A = layer.forward(A_prev)
    for i in np.ndindex(shape):
        s = (layer.running_var[i[0], 0] + Rational(layer.epsilon)).sqrt()
        assert A[i] == layer.W[i[0], 0] * (A_prev[i] - layer.running_mean[i[0], 0]) / s + layer.b[i[0], 0]
    assert layer.statistics is None
    assert layer.forward(A_prev[..., :1])[0].flat[0] == A[0].flat[0]  # one sample is enough here


def test_batch_norm_in_evaluation_keeps_the_dtype_of_the_data():
    for dtype, of_parameters in itertools.product(FLOATS, repeat=2):
        layer = mp.BatchNorm(2)
        layer.initialize(np.random.default_rng(0), of_parameters)
        layer.forward(np.array([[1.0, 2.0], [3.0, 5.0]], dtype))
        layer.commit(layer.statistics)
        assert layer.running_mean.dtype == layer.running_var.dtype == of_parameters
        layer.training = False
        assert layer.forward(np.ones((2, 3), dtype)).dtype == dtype


def test_batch_norm_needs_two_numbers_and_training_for_backward():
    layer = mp.BatchNorm(3)
    layer.initialize(np.random.default_rng(0))
    few = r"in training got 1 number in a row, but needs at least 2 .*: use fewer micro-batches"
    with pytest.raises(ValueError, match=few):
        layer.forward(np.ones((3, 1)))
    assert layer.cache is None and layer.statistics is None
    layer.forward(np.ones((3, 2)))
    layer.training = False
    layer.forward(np.ones((3, 2)))
    with pytest.raises(RuntimeError, match="backward needs the cache of a forward in training"):
        layer.backward(np.ones((3, 2)))


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
def test_positional_embedding_equals_loops_over_numbers(T):
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
def test_attention_equals_loops_over_heads_queries_and_keys(causal):
    for d, n_heads, T, m in [(2, 1, 3, 1), (4, 2, 2, 2), (3, 3, 3, 1), (4, 1, 1, 2)]:
        rng = np.random.default_rng(0)
        layer, A_prev = attention(d, n_heads, causal, rng), whole(rng, d, T, m)
        assert_same(layer.forward(A_prev), by_loops(layer, A_prev), f"A of {layer} for T={T}")


@pytest.mark.parametrize("causal, dtype", [*itertools.product([False, True], FLOATS)])
def test_large_scores_overflow_nothing_and_hidden_ones_hide(causal, dtype):
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
