"""LayerNorm, GroupNorm and BatchNorm against loops over single numbers, in rational numbers, with ==."""

import itertools

import numpy as np
import pytest

import minipipe as mp
from minipipe.exact import Rational, rational

CASES = {  # (layer, shape of A_prev)
    "layer": (mp.LayerNorm(5), (5, 3)),
    "layer, sequence": (mp.LayerNorm(3), (3, 4, 2)),
    "layer, one row": (mp.LayerNorm(1), (1, 3)),
    "group": (mp.GroupNorm(2, 6), (6, 3)),
    "group, image": (mp.GroupNorm(2, 4), (4, 3, 2, 3)),
    "one group": (mp.GroupNorm(1, 3), (3, 2, 3)),
    "instance": (mp.GroupNorm(3, 3), (3, 5, 2)),
    "batch": (mp.BatchNorm(3), (3, 5)),
    "batch, image": (mp.BatchNorm(2), (2, 3, 2, 3)),
    "batch, another epsilon": (mp.BatchNorm(2, epsilon=0.25), (2, 3)),
}
every_case = pytest.mark.parametrize("layer, shape", CASES.values(), ids=CASES)


def ready(layer, shape, seed=0):
    rng = np.random.default_rng(seed)
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


@every_case
def test_equals_loops_over_single_numbers(layer, shape):
    """Forward; its backward is that of the contract of every layer, by dual numbers."""
    layer, A_prev = ready(layer, shape)
    A = layer.forward(A_prev)
    for places in groups(layer, shape):
        mean = sum(A_prev[i] for i in places) / len(places)
        variance = sum((A_prev[i] - mean) ** 2 for i in places) / len(places)
        s = (variance + Rational(layer.epsilon)).sqrt()
        for i in places:
            assert A[i] == layer.W[i[0], 0] * (A_prev[i] - mean) / s + layer.b[i[0], 0]


@every_case
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_numbers_are_not_divided_by_0(layer, shape, dtype):
    """Whatever they are, 0 stays: numbers whose mean is exact, with no variance at all."""
    layer = layer.copy()
    layer.initialize(np.random.default_rng(0), dtype)
    assert not layer.forward(np.full(shape, dtype(2.0**40))).any()
    assert np.isfinite(layer.backward_input(np.ones(shape, dtype))).all()


@pytest.mark.parametrize("shape", [(3, 5), (3, 2, 4)])
def test_batch_norm_in_evaluation_equals_loops_and_uses_the_running_statistics(shape):
    layer, A_prev = ready(mp.BatchNorm(3), shape)
    rng = np.random.default_rng(1)
    layer.running_mean, layer.running_var = (rational(rng.integers(1, 9, (3, 1))) / 4 for _ in range(2))
    layer.training = False
    A = layer.forward(A_prev)
    for i in np.ndindex(shape):
        s = (layer.running_var[i[0], 0] + Rational(layer.epsilon)).sqrt()
        assert A[i] == layer.W[i[0], 0] * (A_prev[i] - layer.running_mean[i[0], 0]) / s + layer.b[i[0], 0]
    assert layer.statistics is None
    assert layer.forward(A_prev[..., :1])[0].flat[0] == A[0].flat[0]  # one sample is enough here


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_batch_norm_in_evaluation_keeps_the_dtype_of_the_data(dtype):
    for parameters in (np.float32, np.float64):
        layer = mp.BatchNorm(2)
        layer.initialize(np.random.default_rng(0), parameters)
        layer.forward(np.array([[1.0, 2.0], [3.0, 5.0]], dtype))
        layer.commit(layer.statistics)
        assert layer.running_mean.dtype == layer.running_var.dtype == parameters
        layer.training = False
        assert layer.forward(np.ones((2, 3), dtype)).dtype == dtype


def test_batch_norm_refuses_a_row_of_one_number_and_has_no_backward_in_evaluation():
    layer = mp.BatchNorm(3)
    layer.initialize(np.random.default_rng(0))
    with pytest.raises(
        ValueError,
        match=r"BatchNorm\(3\) in training got 1 number in a row, "
        "but needs at least 2 .*: use fewer micro-batches",
    ):
        layer.forward(np.ones((3, 1)))
    assert layer.cache is None and layer.statistics is None
    layer.forward(np.ones((3, 2)))
    layer.training = False
    layer.forward(np.ones((3, 2)))
    with pytest.raises(RuntimeError, match="backward needs the cache of a forward in training"):
        layer.backward(np.ones((3, 2)))
