"""AmoebaNet's cells: operations as published, derivatives against central differences, pairs as messages."""

import numpy as np
import pytest
from cases import every_setting
from compared import assert_same, assert_within
from layers.every_layer import unread_between_the_halves

import minipipe as mp
from minipipe.exact import rational
from minipipe.functions import leaves
from minipipe.layers import every_layer
from minipipe.layers.through import forward_through
from minipipe.models.cells import Shift
from minipipe.verification import equals_full_batch, same_bits

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


def ready(cell, shapes, m=3, dtype=np.float64, shrink=4):
    """(a copy with parameters, A, dA), with images `shrink` times smaller than in `shapes`"""
    rng = np.random.default_rng(0)
    cell = cell.copy()
    cell.initialize(rng, dtype)
    for layer in every_layer([cell]):
        if isinstance(layer, mp.BatchNorm):
            layer.W, layer.b = (rng.uniform(0.5, 1.5, (layer.n, 1)).astype(dtype) for _ in range(2))
    A = tuple(rng.standard_normal((c, h // shrink, w // shrink, m)).astype(dtype) for c, h, w in shapes)
    return cell, A, tuple(rng.standard_normal(part.shape).astype(dtype) for part in cell.forward(A))


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


def slope_by_differences(J, h):
    """((J(h) - J(-h)) / 2h, a bound on its error).

    J is smooth between -h and h, so the quotient is off by c h^2 + O(h^4), and that at 2h by four times as
    much: their difference is 3 c h^2, so it bounds the error with room for the h^4. J is a sum in which up
    to a thousand roundings in a row, 1000 u, add to each term; `J` returns the sum of their sizes, too.
    """
    quotients = []
    for step in (h, 2 * h):
        (plus, size), (minus, _) = J(step), J(-step)
        quotients.append((plus - minus) / (2 * step))
    return quotients[0], abs(quotients[1] - quotients[0]) + 1000 * np.finfo(float).eps * size / h


@every_cell
def test_derivatives_equal_central_differences(cell, shapes):
    """For both inputs and each parameter on its own, along a random direction D; J = sum(R * A) over
    both outputs.
    """
    cell, A_prev, R = ready(cell, shapes)
    derivatives, dW, db = cell.backward(R)
    rng = np.random.default_rng(1)
    parameters = leaves(cell.W) + leaves(cell.b)
    A_prev = tuple(np.array(part) for part in A_prev)
    places = [*zip(A_prev, derivatives), *zip(parameters, leaves(dW) + leaves(db), strict=True)]
    for array, derivative in places:
        D, there = rng.standard_normal(array.shape), array.copy()
        D /= np.sqrt((D * D).sum())

        def J(step):
            array[...] = there + step * D
            terms = [r * part for r, part in zip(R, cell.forward(A_prev))]
            array[...] = there
            return sum(part.sum() for part in terms), sum(abs(part).sum() for part in terms)

        slope, error = slope_by_differences(J, h=1e-6)
        assert error < 1e-3  # slopes are of the order of 1: the bound lets nothing pass that is wrong
        assert_within(slope, (derivative * D).sum(), bound=error, because="twice the step is off by as much")


def test_derivatives_of_a_whole_network_equal_central_differences():
    """Along one random direction of all parameters at once: what cells hand to each other is complete."""
    rng = np.random.default_rng(0)
    net = mp.Sequential(mp.models.amoebanet_d(3, 8, n_classes=3), mp.SoftmaxCrossEntropy())
    X, Y = rng.standard_normal((3, 64, 64, 3)), mp.one_hot([0, 1, 2], 3)
    net.forward_backward(X, Y)
    parameters = [part for layer in net.layers for part in leaves(layer.W) + leaves(layer.b)]
    gradients = [
        part for layer, (dW, db) in zip(net.layers, net.gradients) for part in leaves(dW) + leaves(db)
    ]
    there = [part.copy() for part in parameters]
    directions = [rng.standard_normal(part.shape) * max(part.std(), 0.1) for part in parameters]

    def J(step):
        for part, before, D in zip(parameters, there, directions):
            part[...] = before + step * D
        value = net.loss.forward(forward_through(net.layers, X, {}), Y)
        return value, value

    slope, error = slope_by_differences(J, h=1e-8)
    expected = sum((g * D).sum() for g, D in zip(gradients, directions))
    assert error < abs(expected) / 1000  # so no part of the gradient is missing that is a thousandth of it
    assert_within(slope, expected, bound=error, because="twice the step is off by as much")


def linear_cell(n_prev, n_before):
    """A cell for features instead of images, without batch norm, so that the full batch is what it
    must equal.
    """
    fits = [mp.Linear(n_prev, 2), mp.Linear(n_before, 2)]
    sums = [
        ((mp.ReLU(), 0), (mp.Linear(2, 2), 1)),
        ((mp.Chain(), 2), (mp.ReLU(), 0)),
        ((mp.Linear(2, 2), 1), (mp.Chain(), 3)),
    ]
    return mp.models.Cell("LinearCell", fits, sums, concatenated=(0, 2, 4))


@pytest.mark.parametrize("number", [rational, np.float32], ids=["rational", "float32"])
def test_cells_equal_the_full_batch_wherever_they_are_cut(number):
    """In rational numbers the full batch, in floats the bits of one device; 5 samples in 3
    ragged micro-batches.
    """
    rng = np.random.default_rng(0)
    layers = [
        mp.Linear(2, 3), mp.models.Pair(), linear_cell(3, 3), linear_cell(6, 3), mp.models.First(),
        mp.Linear(6, 2),
    ]
    layers = [
        layer.copy(lambda p: number(np.round(8 * p)) / 8) for layer in mp.Sequential(layers, None).layers
    ]
    X, Y = number(rng.integers(-4, 5, (2, 5))), number(rng.integers(-4, 5, (2, 5)))
    verdict = equals_full_batch if number is rational else same_bits
    for partition, schedule, recompute in every_setting(len(layers), 3):
        pipe = mp.Pipeline(
            layers, mp.MeanSquaredError(), len(partition), 3, schedule, recompute, partition=partition
        )
        assert verdict(pipe, X, Y)


@every_cell
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_dtype_of_the_data_is_the_dtype_of_the_result(cell, shapes, dtype):
    for parameters in (np.float32, np.float64):
        twin, _, _ = ready(cell, shapes, dtype=parameters)
        _, A_prev, dZ = ready(cell, shapes, dtype=dtype)
        assert {part.dtype for part in leaves(twin.forward(A_prev)) + leaves(twin.backward(dZ))} == {
            np.dtype(dtype)
        }


@every_cell
def test_writes_into_no_array_that_it_was_handed(cell, shapes):
    cell, A_prev, dZ = ready(cell, shapes)
    for part in (*A_prev, *dZ):
        part.flags.writeable = False
    cell.forward(A_prev)
    cell.backward(dZ)


@every_cell
def test_no_derivative_is_a_derivative_of_zero(cell, shapes):
    cell, A_prev, (dA, dA_second) = ready(cell, shapes)
    cell.forward(A_prev)
    with_none, with_zeros = cell.backward((dA, None)), cell.backward((dA, 0 * dA_second))
    assert_same(with_none, with_zeros)
    assert not np.array_equal(leaves(cell.backward((dA, dA_second)))[0], leaves(with_none)[0])


@every_cell
def test_many_micro_batches_pass_through_one_cell(cell, shapes):
    cell, A_prev, dZ = ready(cell, shapes)
    other = tuple(part[..., ::-1] + 1 for part in A_prev)
    expected = cell.backward(dZ)
    cell.forward(A_prev)
    cache = cell.cache
    cell.forward(other)
    cell.backward(dZ)
    cell.cache = cache
    assert_same(cell.backward(dZ), expected)


@every_cell
def test_between_the_halves_only_what_the_second_reads_is_kept(cell, shapes):
    assert not unread_between_the_halves(*ready(cell, shapes))


@every_cell
def test_wrong_calls_say_what_is_wrong(cell, shapes):
    cell, A_prev, (dA, dA_second) = ready(cell, shapes)
    with pytest.raises(ValueError, match=r"dZ has shape \(1, 2\), but the output had shape"):
        cell.backward((dA, np.zeros((1, 2))))
    with pytest.raises(ValueError, match=r"needs a pair \(A_prev, A_before\), got one array of shape"):
        cell.forward(A_prev[0])
    with pytest.raises(RuntimeError, match="call forward"):
        cell.copy().backward((dA, dA_second))


def test_states_of_different_shapes_are_not_stretched_to_fit():
    """NumPy would repeat the one place of an image of 1 x 1."""
    cell, _ = CELLS["reduction, both alike"]
    with pytest.raises(
        ValueError, match=r"outputs of shapes \(4, 1, 1, 3\) and \(4, 2, 2, 3\), which cannot be added"
    ):
        ready(cell, ((2, 12, 12), (2, 12, 12)))


def test_a_pair_begins_and_ends():
    A, dA, dS = np.random.default_rng(0).integers(-4, 5, (3, 2, 5)).astype(float)
    pair, first = mp.models.Pair(), mp.models.First()
    assert all(part is A for part in pair.forward(A)) and np.array_equal(
        pair.backward_input((dA, dS)), dA + dS
    )
    pair.forward(A)
    assert first.forward((A, dS)) is A and first.backward_input(dA) == (dA, None)
    with pytest.raises(ValueError, match=r"First\(\) needs a pair"):
        first.forward(A)
    with pytest.raises(ValueError, match=r"Pair\(\): dZ has shape \(\(2, 5\), \(1, 5\)\)"):
        pair.backward_input((dA, dS[:1]))


def test_shift_moves_by_one_pixel_and_its_backward_moves_back():
    rng = np.random.default_rng(0)
    layer = Shift()
    A_prev, dZ = rng.integers(-4, 5, (2, 2, 4, 3, 2)).astype(float)
    A, dA_prev = layer.forward(A_prev), layer.backward_input(dZ)
    for h, w in np.ndindex(4, 3):
        assert np.array_equal(A[:, h, w], A_prev[:, h + 1, w + 1] if h < 3 and w < 2 else np.zeros((2, 2)))
        assert np.array_equal(dA_prev[:, h, w], dZ[:, h - 1, w - 1] if h and w else np.zeros((2, 2)))
