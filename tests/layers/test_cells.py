"""AmoebaNet's cells: operations as published, derivatives against central differences, pairs as messages."""

import numpy as np
import pytest
from cases import eighths
from compared import assert_equals_full_batch, assert_same, assert_within
from layers.every_layer import linear_cell

import minipipe as mp
from minipipe.arrays import leaves
from minipipe.exact import rational
from minipipe.layers import every_layer
from minipipe.layers.through import forward_through

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


def ready(cell, shapes, m=3, shrink=4):
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
def test_operations_and_strides_are_those_of_the_paper(cell, shapes):
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


def test_a_factorised_reduction_sees_the_even_places_and_the_odd_ones():
    """Derivatives tell which places it sees: half of the channels (even, even), the other half (odd, odd)."""
    cell, (_, A_before), _ = ready(*CELLS["normal, two resolutions"])
    fit = cell.layers[1]
    n, rng = cell.layers[0].output_shape((24, 2, 2, 3))[0], np.random.default_rng(0)
    for half, parity in ((slice(0, n // 2), 0), (slice(n // 2, n), 1)):
        dZ = np.zeros(fit.forward(abs(A_before)).shape)
        dZ[half] = rng.standard_normal(dZ[half].shape)
        seen = (fit.backward_input(dZ) != 0).any(axis=(0, 3))
        assert np.array_equal(seen, [[h % 2 == w % 2 == parity for w in range(4)] for h in range(4)])


def test_the_list_of_cells_is_that_of_the_paper():
    names = [repr(layer) for layer in mp.models.amoebanet_d(6, 16) if isinstance(layer, mp.models.Cell)]
    assert names == [
        "ReductionCell(8)", "ReductionCell(16)", "NormalCell(16)", "NormalCell(16)", "ReductionCell(32)",
        "NormalCell(32)", "NormalCell(32)", "ReductionCell(64)", "NormalCell(64)", "NormalCell(64)",
    ]


def test_shapes_on_the_way_are_those_assumed_here():
    on_the_way = [row.output_shape for row in mp.describe(NETWORK, (3, 64, 64)).rows]
    assert on_the_way[2:6] == [shapes for _, shapes in CELLS.values()]


def test_derivatives_of_a_whole_network_equal_central_differences():
    """Along one random direction of all parameters at once: what cells hand to each other is complete.

    J is smooth between -h and h, so (J(h) - J(-h)) / 2h is off by c h^2 + O(h^4), and that at 2h by four
    times as much: their difference is 3 c h^2, so it bounds the error with room for the h^4. J is a sum in
    which up to a thousand roundings in a row, 1000 u, add to each term.
    """
    rng = np.random.default_rng(0)
    net = mp.Sequential(mp.models.amoebanet_d(3, 8, n_classes=3), mp.SoftmaxCrossEntropy())
    X, Y = rng.standard_normal((3, 64, 64, 3)), mp.one_hot([0, 1, 2], 3)
    net.forward_backward(X, Y)
    parameters = leaves([(layer.W, layer.b) for layer in net.layers])
    gradients = leaves(net.gradients)
    there = [part.copy() for part in parameters]
    directions = [rng.standard_normal(part.shape) * max(part.std(), 0.1) for part in parameters]

    def J(step):
        for part, before, D in zip(parameters, there, directions):
            part[...] = before + step * D
        return net.loss.forward(forward_through(net.layers, X, {}), Y)

    h = 1e-8
    slope, other = ((J(step) - J(-step)) / (2 * step) for step in (h, 2 * h))
    error = abs(other - slope) + 1000 * np.finfo(float).eps * J(0) / h
    expected = sum((g * D).sum() for g, D in zip(gradients, directions, strict=True))
    assert error < abs(expected) / 1000  # so no part of the gradient is missing that is a thousandth of it
    assert_within(slope, expected, bound=error, because="twice the step is off by as much")


@pytest.mark.parametrize("recompute", ["never", "always"])
@pytest.mark.parametrize("partition", [[6], [1, 5], [3, 3], [5, 1], [1] * 6], ids=str)
def test_cells_equal_the_full_batch_wherever_they_are_cut(partition, recompute):
    """In rational numbers; 5 samples in 3 ragged micro-batches."""
    rng = np.random.default_rng(0)
    layers = [
        mp.Linear(2, 3), mp.models.Pair(), linear_cell(3, 3), linear_cell(6, 3), mp.models.First(),
        mp.Linear(6, 2),
    ]
    layers = [layer.copy(eighths) for layer in mp.Sequential(layers, None).layers]
    X, Y = rational(rng.integers(-4, 5, (2, 5))), rational(rng.integers(-4, 5, (2, 5)))
    cut = mp.Cut(partition)
    pipe = mp.Pipeline(layers, mp.MeanSquaredError(), cut, 3, "1f1b", recompute)
    assert_equals_full_batch(pipe, X, Y)


def test_no_derivative_is_a_derivative_of_zero():
    cell, A_prev, (dA, dA_second) = ready(*CELLS["normal"])
    cell.forward(A_prev)
    with_none, with_zeros = cell.backward((dA, None)), cell.backward((dA, 0 * dA_second))
    assert_same(with_none, with_zeros)
    assert not np.array_equal(leaves(cell.backward((dA, dA_second)))[0], leaves(with_none)[0])


def test_wrong_calls_say_what_is_wrong():
    cell, A_prev, (dA, _) = ready(*CELLS["normal"])
    with pytest.raises(ValueError, match=r"dZ has shape \(1, 2\), but the output had shape"):
        cell.backward((dA, np.zeros((1, 2))))
    with pytest.raises(ValueError, match=r"needs a pair \(A_prev, A_before\), got one array of shape"):
        cell.forward(A_prev[0])


def test_states_of_different_shapes_are_not_stretched_to_fit():
    """NumPy would repeat the one place of an image of 1 x 1."""
    cell, _ = CELLS["reduction, both alike"]
    with pytest.raises(
        ValueError, match=r"outputs of shapes \(4, 1, 1, 3\) and \(4, 2, 2, 3\), which cannot be added"
    ):
        ready(cell, ((2, 12, 12), (2, 12, 12)))


def test_the_first_of_a_pair_ends_it():
    A, dA, dS = np.random.default_rng(0).integers(-4, 5, (3, 2, 5)).astype(float)
    pair, first = mp.models.Pair(), mp.models.First()
    pair.forward(A)
    assert first.forward((A, dS)) is A and first.backward_input(dA) == (dA, None)
    with pytest.raises(ValueError, match=r"First\(\) needs a pair"):
        first.forward(A)
    with pytest.raises(ValueError, match=r"Pair\(\): dZ has shape \(\(2, 5\), \(1, 5\)\)"):
        pair.backward_input((dA, dS[:1]))
