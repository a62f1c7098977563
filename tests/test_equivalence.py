"""The claim: gradients summed over micro-batches equal the full batch's exactly, however the work is split.

All numbers are fractions, so nothing is rounded, and "equal" means ==. The other folders of `tests/` hold
the same for random networks, every option, and floats; in `layers/`, each layer is checked against central
differences.
"""

import numpy as np
import pytest

import minipipe as mp
from minipipe.exact import rational
from minipipe.order import RECOMPUTE
from minipipe.schedules import names_for

# One small network: 2 inputs, 4 hidden units twice, 2 outputs; m = 6 samples, one a column.
W1, b1 = rational([[1, -2], [3, 1], [-1, 2], [2, 2]]) / 2, rational([[1], [0], [-1], [2]]) / 4
W2, b2 = rational([[1, 0, 2, -1], [-1, 3, 1, 0], [2, 1, -2, 1], [0, 1, 1, 1]]) / 3, rational([[1]] * 4) / 2
W3, b3 = rational([[1, 2, -1, 1], [-2, 1, 1, 0]]) / 2, rational([[1], [-1]]) / 3
X = rational([[1, -1, 2, 0, 3, -2], [2, 1, -1, 1, 0, 1]]) / 2
Y = rational([[1, 0, 1, 2, -1, 0], [0, 1, 1, -1, 2, 1]])
m = 6


def network():
    layers = [mp.Linear(2, 4, W=W1, b=b1), mp.ReLU(), mp.Linear(4, 4, W=W2, b=b2), mp.ReLU()]
    return [*layers, mp.Linear(4, 2, W=W3, b=b3)]


def forward_and_backward(X, Y):
    """J = 1/2m sum (A - Y)^2 and each layer's (dW, db), where m is the whole mini-batch's, whatever X is."""
    layers, A = network(), X
    for layer in layers:
        A = layer.forward(A)
    J = ((A - Y) ** 2).sum() / (2 * m)
    dA = (A - Y) / m
    gradients = []
    for layer in reversed(layers):
        dA, dW, db = layer.backward(dA)
        gradients.insert(0, (dW, db))
    return J, gradients


def assert_equals_full_batch(J, gradients):
    expected_J, expected_gradients = forward_and_backward(X, Y)
    n_layers = len(expected_gradients)
    assert len(gradients) == n_layers, f"gradients of {len(gradients)} layers for {n_layers}"
    for index, (pair, expected_pair) in enumerate(zip(gradients, expected_gradients)):
        for name, found, expected in zip(("dW", "db"), pair, expected_pair, strict=True):
            if expected is None:  # as for ReLU
                assert found is None, f"{name} of layer {index} is {found}, but it has no such parameter"
            else:
                assert_equal(f"{name} of layer {index}", found, expected)
    assert_equal("J", np.array(J), np.array(expected_J))


def assert_equal(name, found, expected):
    shapes = np.shape(found), expected.shape
    assert shapes[0] == shapes[1], f"{name} differs: found shape {shapes[0]} expected {shapes[1]}"
    differ = found != expected
    assert not differ.any(), (
        f"{name} differs: found {found[differ][0]} expected {expected[differ][0]}, the first of "
        f"{differ.sum()}\nfound\n{found.astype(str)}\nexpected\n{expected.astype(str)}"
    )


def assert_a_run_equals_full_batch(net):
    J = net.forward_backward(X, Y)
    assert_equals_full_batch(J, net.gradients)


SIZES = [(6,), (3, 3), (2, 2, 2), (1, 2, 3), (5, 1), (1,) * 6]


@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: "sizes " + "+".join(map(str, sizes)))
def test_a_plain_loop_over_micro_batches_equals_the_full_batch(sizes):
    J, first = 0, 0
    gradients = [(0, 0), (None, None), (0, 0), (None, None), (0, 0)]  # ReLU has no parameters
    for size in sizes:
        part = slice(first, first + size)
        J_i, gradients_i = forward_and_backward(X[:, part], Y[:, part])
        for index in (0, 2, 4):
            (dW, db), (dW_i, db_i) = gradients[index], gradients_i[index]
            gradients[index] = dW + dW_i, db + db_i
        J, first = J + J_i, first + size
    assert_equals_full_batch(J, gradients)


@pytest.mark.parametrize("M", range(1, 7), ids="M={}".format)  # micro-batches
@pytest.mark.parametrize("K", range(1, 6), ids="K={}".format)  # stages, of 5 layers
def test_K_stages_and_M_micro_batches_equal_the_full_batch(K, M):
    net = mp.Pipeline(network(), mp.MeanSquaredError(), stages=K, microbatches=M)
    assert_a_run_equals_full_batch(net)


@pytest.mark.parametrize("recompute", RECOMPUTE, ids="recompute={}".format)
@pytest.mark.parametrize("schedule", names_for(stages=4, microbatches=4))
def test_every_schedule_equals_the_full_batch(schedule, recompute):
    net = mp.Pipeline(
        network(), mp.MeanSquaredError(), stages=4, microbatches=4, schedule=schedule, recompute=recompute
    )
    assert_a_run_equals_full_batch(net)


@pytest.mark.parametrize("n_replicas", [1, 2, 3, 6], ids="D={}".format)
def test_D_copies_that_share_the_samples_equal_the_full_batch(n_replicas):
    assert_a_run_equals_full_batch(mp.DataParallel(network(), mp.MeanSquaredError(), n_replicas))


@pytest.mark.parametrize("n_shards", [1, 2, 4], ids="T={}".format)
def test_T_shards_of_every_layer_equal_the_full_batch(n_shards):
    assert_a_run_equals_full_batch(mp.TensorParallel(network(), mp.MeanSquaredError(), n_shards))


def test_copies_of_shards_of_stages_equal_the_full_batch():
    split = dict(replicas=2, shards=2, stages=2, microbatches=4)
    assert_a_run_equals_full_batch(mp.Parallel(network(), mp.MeanSquaredError(), **split))


@pytest.mark.parametrize("spoil, message", [
    (lambda J, gradients: (J * 2, gradients), "J differs: found"),
    (lambda J, gradients: (J, [(dW, db) if dW is None else (dW * 2, db) for dW, db in gradients]),
     "dW of layer 0 differs: found"),
    (lambda J, gradients: (J, [*gradients[:-1], (gradients[-1][0], gradients[-1][1] + rational(1) / 10**9)]),
     "db of layer 4 differs: found"),
    (lambda J, gradients: (J, gradients[:-1]), "gradients of 4 layers for 5"),
], ids=["J twice too large", "dW twice too large", "a billionth in one db", "a layer left out"])
def test_this_proof_can_fail(spoil, message):
    with pytest.raises(AssertionError, match=message):
        assert_equals_full_batch(*spoil(*forward_and_backward(X, Y)))
