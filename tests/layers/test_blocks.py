"""Layers made of layers: blocks by hand, what they cost, and their updates; and AmoebaNet's cells.

The cells have the operations as published; `test_contracts.py` tries the derivatives of a small one.
"""

import math

import numpy as np
import pytest
from cases import eighths
from compared import assert_equals_full_batch, assert_refused, assert_same
from layers.every_layer import is_pair, linear_cell, tree

import minipipe as mp
from minipipe.arrays import leaves
from minipipe.exact import rational
from minipipe.layers import every_layer


def whole(rng, *shape):
    return rational(rng.integers(-12, 13, shape)) / 8


def linear(rng, n_prev, n):
    return mp.Linear(n_prev, n, W=whole(rng, n, n_prev), b=whole(rng, n, 1))


@pytest.mark.parametrize("shape", [(3, 4), (3, 2, 2)])
def test_branches_are_added_or_put_one_below_the_other(shape):
    """Forward alone: their backward is that of the contract of every layer."""
    rng = np.random.default_rng(0)
    A_prev = whole(rng, *shape)
    first, second, third = (linear(rng, 3, 3) for _ in range(3))
    branches = [first], [second, mp.ReLU(), third]
    through_first = first.forward(A_prev)
    through_others = third.forward(np.maximum(second.forward(A_prev), 0))
    assert np.array_equal(mp.Add(*branches).forward(A_prev), through_first + through_others)
    assert np.array_equal(mp.Concat(*branches).forward(A_prev), [*through_first, *through_others])
    assert np.array_equal(mp.Residual(*branches[1]).forward(A_prev), A_prev + through_others)


def test_branches_without_layers_hand_on_what_they_get():
    A_prev, dZ = np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]])
    for layer, A, dA_prev in [
        (mp.Residual(), 2 * A_prev, 2 * dZ),
        (mp.Concat([], []), np.vstack([A_prev] * 2), 2 * dZ),
        (mp.Chain(), A_prev, dZ),
    ]:
        assert np.array_equal(layer.forward(A_prev), A)
        assert np.array_equal(layer.backward_input(np.vstack([dZ] * len(A))), dA_prev)


def test_branches_may_begin_with_tokens():
    """Two embeddings of the same tokens, added up, are one whose W is the sum; tokens have no derivative."""
    rng = np.random.default_rng(0)
    tables = [mp.Embedding(5, 2) for _ in range(2)]
    for table in tables:
        table.W = whole(rng, 5, 2)
    for layer in (mp.Add(*tables), mp.Concat(*tables)):
        net = mp.Sequential([layer], mp.MeanSquaredError())
        tokens, rows = rng.integers(0, 5, (3, 4)), 2 if isinstance(layer, mp.Add) else 4
        assert net.forward_backward(rational(tokens), whole(rng, rows, 3, 4)) > 0
        assert layer.forward(tokens).shape == (rows, 3, 4)
        dA_prev, dW, _ = layer.backward(whole(rng, rows, 3, 4))
        assert dA_prev is None and [part.shape for part in leaves(dW)] == [(5, 2)] * 2


# --- costs

class Counted(float):
    """A number that counts how often it is multiplied."""

    n = 0

    def __mul__(self, other):
        Counted.n += 1
        return Counted(float(self) * float(other))

    def __add__(self, other):
        return Counted(float(self) + float(other))

    def __radd__(self, other):
        return Counted(float(self) + float(other))

    def __sub__(self, other):
        return Counted(float(self) - float(other))

    def __truediv__(self, other):
        return Counted(float(self) / float(other))

    def exp(self):
        return Counted(math.exp(self))


def counted(array):
    values = np.empty(np.shape(array), object)
    values.flat = [Counted(value) for value in np.asarray(array).flat]
    return values


MULTIPLIED = [  # (layer, shape of A_prev, multiplications that are no products of matrices)
    (mp.Linear(3, 4), (3, 5), 0),
    (mp.Linear(3, 4), (3, 2, 5), 0),
    (mp.Conv2d(2, 4, (2, 3), groups=2), (2, 4, 5, 2), 0),
    (mp.Conv1d(2, 3, 2, stride=2, dilation=2, bias=False), (2, 7, 2), 0),
    (mp.ConvTranspose1d(2, 3, 3, stride=2), (2, 4, 2), 0),
    (mp.Chain(mp.Linear(3, 4), mp.Flatten(), mp.Linear(8, 2)), (3, 2, 5), 0),
    (mp.Add([mp.Linear(3, 4)], mp.Linear(3, 4)), (3, 5), 0),
    (mp.Concat([mp.Linear(3, 4), mp.Linear(4, 1)], []), (3, 5), 0),
    (mp.Residual(mp.Linear(3, 1), mp.Linear(1, 3)), (3, 5), 0),
    # each score by 1/sqrt(d_h), and one to make this constant
    (mp.MultiHeadAttention(4, 2), (4, 3, 2), 2 * 3**2 * 2 + 1),
    (mp.Embedding(5, 2), (3, 4), 0),
    (mp.PositionalEmbedding(2, 3), (2, 3, 4), 0),
    (linear_cell(3, 4), ((3, 5), (4, 5)), 0),
]


def test_macs_are_the_multiplications_that_a_forward_does():
    for layer, shape, others in MULTIPLIED:
        layer = layer.copy()
        layer.initialize(np.random.default_rng(0))
        layer = layer.copy(counted)
        A_prev = tuple(map(np.ones, shape)) if is_pair(shape) else np.ones(shape)
        if not isinstance(layer, mp.Embedding):
            A_prev = tree(counted, A_prev)
        Counted.n = 0
        layer.forward(A_prev)
        assert Counted.n == layer.macs(shape) + others, layer


# --- optimizers

def test_an_optimizer_steps_a_block_as_it_steps_its_parts():
    """Three updates with nested gradients; one layer has none. Each array is updated as if it were alone."""
    rng = np.random.default_rng(0)
    block = mp.Chain(mp.Linear(3, 2), mp.Residual(mp.Linear(2, 2), mp.LayerNorm(2)), mp.Linear(2, 1))
    block.initialize(rng)
    twin, of_block, of_parts = block.copy(), mp.Adam(0.125), mp.Adam(0.125)
    parts = [part for part in every_layer([twin]) if isinstance(part.W, np.ndarray)]
    frozen, before = parts[1], parts[1].copy()
    for _ in range(3):
        pairs = [[rng.standard_normal(p.shape) for p in (part.W, part.b)] for part in parts]
        pairs[1] = None, None
        nested = tuple((first, ((), (second, third)), fourth) for first, second, third, fourth in zip(*pairs))
        of_block.update([mp.ReLU(), block], [(None, None), nested])
        of_parts.update(parts, pairs)
    assert_same((frozen.W, frozen.b), (before.W, before.b))
    assert_same((block.W, block.b), (twin.W, twin.b))


def test_gradients_of_a_wrong_form_are_refused():
    layer = mp.Chain(mp.Linear(2, 2), mp.Linear(2, 2))
    layer.initialize(np.random.default_rng(0))
    before, right = layer.copy(), np.ones((2, 2))
    for dW in [(right,), (right, np.ones((2, 3))), ((right, right), None)]:
        with pytest.raises(ValueError):
            mp.SGD(0.5).update([layer], [(dW, None)])
        assert_same((layer.W, layer.b), (before.W, before.b))
    with pytest.raises(ValueError, match=r"layer 0: W has shape \(\), but its gradient has \(2, 2\)"):
        mp.SGD(0.5).update([mp.ReLU()], [(right, None)])


# --- errors

def test_branches_that_do_not_fit_are_refused_with_both_shapes():
    rows = [
        (mp.Add([mp.Linear(2, 3)], []),
         "cannot add outputs of shapes [(3, 4), (2, 4)]: make them equal"),
        (mp.Residual(mp.Linear(2, 3)),
         "Residual(Linear(2, 3)) cannot add outputs of shapes [(2, 4), (3, 4)]"),
        (mp.Concat([mp.Linear(2, 3)], [mp.Reshape((1, 2))]),
         "cannot concatenate [(3, 4), (1, 2, 4)]: make all axes but the first equal"),
    ]
    for layer, words in rows:
        layer.initialize(np.random.default_rng(0))
        calls = lambda: layer.forward(np.ones((2, 4))), lambda: layer.output_shape((2, 4))
        assert_refused([(call, words) for call in calls])


# --- cells

NORMAL = """
    1x1(1) + max_pool_3x3(1)
    none(1) + 1x7_7x1(0)
    1x1(0) + 1x7_7x1(0)
    max_pool_3x3(2) + none(2)
    avg_pool_3x3(1) + 1x1(5)
"""
REDUCTION = """
    max_pool_2x2(0) + max_pool_3x3(0)
    none(2) + 3x3(1)
    1x7_7x1(2) + max_pool_3x3(2)
    none(3) + max_pool_2x2(1)
    avg_pool_3x3(2) + 1x1(3)
"""
NETWORK = mp.models.amoebanet_d(6, 8, n_classes=3)
CELLS = {  # a cell of each kind, and the shapes that it gets in images of 64 x 64
    "reduction, both alike": (NETWORK[3], ((2, 32, 32), (2, 32, 32))),
    "reduction, two resolutions": (NETWORK[4], ((12, 16, 16), (2, 32, 32))),
    "normal, two resolutions": (NETWORK[5], ((24, 8, 8), (12, 16, 16))),
    "normal": (NETWORK[6], ((32, 8, 8), (24, 8, 8))),
}
every_cell = pytest.mark.parametrize("cell, shapes", CELLS.values(), ids=CELLS)


def cell_with_data(cell, shapes, m=3, shrink=4):
    """(a copy with parameters, A, dA), with images `shrink` times smaller than in `shapes`"""
    rng = np.random.default_rng(0)
    cell = cell.copy()
    cell.initialize(rng)
    A = tuple(rng.standard_normal((c, h // shrink, w // shrink, m)) for c, h, w in shapes)
    return cell, A, tuple(rng.standard_normal(part.shape) for part in cell.forward(A))


def name_of(operation):
    """An operation as the paper writes it, and its stride."""
    if isinstance(operation, (mp.MaxPool2d, mp.AvgPool2d)):
        kind = "max_pool" if isinstance(operation, mp.MaxPool2d) else "avg_pool"
        return f"{kind}_{kernel(operation)}", operation.windows.stride
    convolutions = [layer for layer in every_layer([operation]) if isinstance(layer, mp.Conv2d)]
    kinds = [type(layer) for layer in every_layer([operation]) if not isinstance(layer, mp.Chain)]
    assert kinds == [mp.ReLU, mp.Conv2d, mp.BatchNorm] * len(convolutions)
    widths = [layer.out_channels for layer in convolutions]
    assert all(4 * narrow == widths[-1] for narrow in widths[:-1])
    inner = convolutions if len(convolutions) < 2 else convolutions[1:-1]
    strides = [layer.windows.stride for layer in inner]
    return "_".join(map(kernel, inner)) or "none", max(strides, default=(1, 1))


def kernel(layer):
    return "x".join(map(str, layer.windows.kernel_size))


@every_cell
def test_operations_and_strides_match_the_paper(cell, shapes):
    table, concatenated = (REDUCTION, (4, 5, 6)) if "Reduction" in repr(cell) else (NORMAL, (0, 3, 4, 6))
    lines = []
    for k in range(2, 7):
        named = [
            (*name_of(operation), i)
            for operation, i in zip(cell.layers[2 * k - 2 : 2 * k], cell.sources[k - 2])
        ]
        lines.append(" + ".join(f"{name}({i})" for name, _, i in named))
        for _, stride, i in named:
            assert stride == ((2, 2) if table is REDUCTION and i < 2 else (1, 1))
    assert lines == [line.strip() for line in table.strip().splitlines()]
    assert cell.concatenated == concatenated


def test_a_factorised_reduction_sees_even_and_odd_places():
    """Derivatives tell which places it sees: half of the channels (even, even), the other half (odd, odd)."""
    cell, (_, A_before), _ = cell_with_data(*CELLS["normal, two resolutions"])
    fit = cell.layers[1]
    n, rng = cell.layers[0].output_shape((24, 2, 2, 3))[0], np.random.default_rng(0)
    for half, parity in ((slice(0, n // 2), 0), (slice(n // 2, n), 1)):
        dZ = np.zeros(fit.forward(abs(A_before)).shape)
        dZ[half] = rng.standard_normal(dZ[half].shape)
        seen = (fit.backward_input(dZ) != 0).any(axis=(0, 3))
        assert np.array_equal(seen, [[h % 2 == w % 2 == parity for w in range(4)] for h in range(4)])


@pytest.mark.parametrize("recompute", ["never", "always"])
def test_cells_equal_the_full_batch_wherever_they_are_cut(recompute):
    """In rational numbers; 5 samples in 3 ragged micro-batches."""
    rng = np.random.default_rng(0)
    layers = [
        mp.Linear(2, 3), mp.models.Pair(), linear_cell(3, 3), linear_cell(6, 3), mp.models.First(),
        mp.Linear(6, 2),
    ]
    layers = [layer.copy(eighths) for layer in mp.Sequential(layers, None).layers]
    X, Y = rational(rng.integers(-4, 5, (2, 5))), rational(rng.integers(-4, 5, (2, 5)))
    for cut in ([1, 5], [3, 3], [1] * 6):
        pipe = mp.Pipeline(
            layers, mp.MeanSquaredError(), mp.Cut(cut), 3, schedule="1f1b", recompute=recompute
        )
        assert_equals_full_batch(pipe, X, Y)


def test_a_missing_derivative_counts_as_zero():
    cell, A_prev, (dA, dA_second) = cell_with_data(*CELLS["normal"])
    cell.forward(A_prev)
    with_none, with_zeros = cell.backward((dA, None)), cell.backward((dA, 0 * dA_second))
    assert_same(with_none, with_zeros)
    assert not np.array_equal(leaves(cell.backward((dA, dA_second)))[0], leaves(with_none)[0])


def test_wrong_calls_of_cells_raise_errors_that_name_the_mistake():
    cell, A_prev, (dA, _) = cell_with_data(*CELLS["normal"])
    of_one_place = CELLS["reduction, both alike"][0], ((2, 12, 12), (2, 12, 12))  # NumPy would repeat it
    A, dA_pair, dS = np.random.default_rng(0).integers(-4, 5, (3, 2, 5)).astype(float)
    pair, first = mp.models.Pair(), mp.models.First()
    pair.forward(A)
    assert first.forward((A, dS)) is A and first.backward_input(dA_pair) == (dA_pair, None)
    assert_refused([
        (lambda: cell.backward((dA, np.zeros((1, 2)))), "dZ has shape (1, 2), but the output had shape"),
        (lambda: cell.forward(A_prev[0]), "needs a pair (A_prev, A_before), got one array"),
        (lambda: cell_with_data(*of_one_place),
         "outputs of shapes (4, 1, 1, 3) and (4, 2, 2, 3), which cannot be added"),
        (lambda: first.forward(A), "First() needs a pair"),
        (lambda: pair.backward_input((dA_pair, dS[:1])), "Pair(): dZ has shape ((2, 5), (1, 5))"),
    ])
