"""Federated averaging: one full step is gradient descent, and averages are weighted."""

from fractions import Fraction

import numpy as np
import pytest
from compared import assert_same
from hypothesis import given, settings
from hypothesis import strategies as st

import minipipe as mp
from minipipe.exact import Rational, rational
from minipipe.servers.federated_averaging import Upload, averaged
from asynchronous.by_the_rule import (
    LAYERS, LOSS, clients, exact_clients, exact_layers, sequential, weights,
)

HALF = Rational(1, 2)


def together(clients):
    return tuple(np.concatenate([client[side] for client in clients], axis=-1) for side in (0, 1))


# FedSGD and the average


@settings(max_examples=8)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(1, 2))
def test_fedsgd_is_gradient_descent_on_all_samples(sizes, n_rounds):
    """In rational numbers, whatever client has which samples."""
    data, rate = exact_clients(*sizes), mp.SGD(Rational(1, 8))
    net = mp.FederatedAveraging(exact_layers(), LOSS, data)
    net.train(n_rounds, rate)
    reference, _ = sequential(exact_layers(), [together(data)] * n_rounds, rate)
    assert_same(weights(net), weights(reference))


def test_the_average_is_weighted_by_samples():
    """10 and 30 samples that have come to 1 and 2: 7/4, and not 3/2."""
    vectors = [rational([1]), rational([2])]
    uploads = [Upload(n, [vector], vector[0]) for n, vector in zip((10, 30), vectors)]
    (average,), J = averaged(uploads)
    assert average[0] == J == Rational(7, 4)


def test_the_sum_goes_along_the_tree_over_the_clients():
    """((0 + 1) + (2 + 3)) / 4 of 2^55, 4, -2^55, 4 is 1 in floats: 2^53 + 1 = 2^53, but 1 - 2^53 is exact."""
    sent = [2.0**55, 4.0, -(2.0**55), 4.0]
    (average,), J = averaged([Upload(5, [np.array([number])], number) for number in sent])
    assert average.tolist() == [1] and J == 1


def test_each_round_chooses_other_clients():
    net = mp.FederatedAveraging(LAYERS, LOSS, clients(1, 2, 3, 4, 5), fraction=0.4, seed=2)
    chosen = [net.round(mp.SGD(0.1)).chosen for _ in range(5)]
    assert {len(set(of_round)) for of_round in chosen} == {2} and len(set(chosen)) > 1


def test_one_client_with_all_samples_is_plain_sgd():
    """Bit for bit, in the order of its passes; batch norm's statistics, too."""
    (X, Y), = data = clients(11)
    layers = [mp.Linear(3, 4), mp.BatchNorm(4), mp.Tanh(), mp.Linear(4, 2)]
    net = mp.FederatedAveraging(layers, LOSS, data, epochs=2, batch_size=4, seed=3)
    net.train(2, mp.SGD(0.1))
    batches = []
    for number in range(4):
        order = np.random.default_rng([3, 0, number]).permutation(11)
        parts = [order[:4], order[4:8], order[8:]]
        batches += [(X[:, part], Y[:, part]) for part in parts]
    reference, _ = sequential(layers, batches, mp.SGD(0.1), seed=3)
    assert_same(weights(net), weights(reference))
    assert np.array_equal(net.layers[1].running_var, reference.layers[1].running_var)


def test_what_layers_have_counted_is_averaged_like_the_weights():
    data = [(rational([[0, 2]]), rational([[0, 0]])), (rational([[4, 6, 8]]), rational([[0, 0, 0]]))]
    layers = [mp.BatchNorm(1, momentum=HALF), mp.Linear(1, 1, W=rational([[1]]), b=rational([[0]]))]
    layers = [layer.copy(rational) for layer in mp.Sequential(layers, LOSS).layers]
    net = mp.FederatedAveraging(layers, LOSS, data)
    net.round(mp.SGD(HALF))
    # (0 + 1)/2 of 2 samples and (0 + 6)/2 of 3
    assert net.layers[0].running_mean[0, 0] == (2 * HALF + 3 * 3) / Rational(5)


def test_clients_begin_each_round_with_a_fresh_optimizer():
    """So that momentum, in one step a round, does nothing."""
    data = clients(5)
    net = mp.FederatedAveraging(LAYERS, LOSS, data)
    net.train(3, mp.SGD(0.1, momentum=0.5))
    reference, _ = sequential(LAYERS, data * 3, mp.SGD(0.1))
    assert_same(weights(net), weights(reference))


# What a round takes, and what clients share


def test_bytes_and_ticks_of_a_round():
    """Weights down to each client, and up from each; the slowest client decides."""
    sizes, n_bytes, optimizer = (2, 3, 7), 26 * 8, mp.SGD(0.1)
    net = mp.FederatedAveraging(
        LAYERS, LOSS, clients(*sizes), epochs=4, batch_size=2, ticks=2, speeds=[Fraction(1, 10), 1, 1]
    )
    done = net.round(optimizer)
    assert (done.bytes_down, done.bytes_up) == (3 * n_bytes, 3 * n_bytes)
    assert done.ticks == max(4 * 2 * 2 * 10, 4 * 2 * 3, 4 * 2 * 7)


def test_a_round_that_fails_changes_nothing():
    data = clients(4, 4)
    data[1] = data[1][0] * 1e200, data[1][1] * 1e200
    net = mp.FederatedAveraging(LAYERS, LOSS, data, batch_size=2)
    before = [array.copy() for array in weights(net)]
    with pytest.raises(FloatingPointError, match="is not finite"):
        net.round(mp.SGD(0.1))
    assert_same(weights(net), before)
    assert net.n_rounds == 0 and net.positions == [0, 0]


# Splits and bad input


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("sizes", [None, [1, 2, 3, 4, 5]])
def test_every_sample_is_with_one_client(skewed, sizes):
    X, Y = np.arange(61.0)[None], mp.one_hot(np.arange(61) % 10, 10)
    parts = mp.servers.clients_of(X, Y, 5, skewed=skewed, sizes=sizes, seed=1)
    assert sorted(np.concatenate([part.ravel() for part, _ in parts])) == X.ravel().tolist()
    assert all(np.array_equal(Y[:, part.ravel().astype(int)], labels) for part, labels in parts)
    classes = [int(labels.any(axis=1).sum()) for _, labels in parts]
    assert sum(classes) < 25 if skewed else sum(classes) > 30
    if sizes:
        assert np.argsort([part.size for part, _ in parts]).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("options, words", [
    ({"fraction": 0.1}, "fraction=0.1 of 3 clients selects nobody: use at least 0.333"),
    ({"clients": []}, "clients is an empty list"),
    ({"clients": [3]}, r"clients\[0\] must be a pair"),
    ({"speeds": [1, 1]}, "speeds has 2 numbers for 3 clients"),
    ({"epochs": 0}, "epochs=0 must be at least 1"),
    ({"batch_size": 2.5}, "batch_size=2.5 must be"),
])
def test_clients_that_cannot_be_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        mp.FederatedAveraging(LAYERS, LOSS, **{"clients": clients(2, 2, 2)} | options)


@pytest.mark.parametrize("n, sizes, words", [
    (2, [100, 1], "client 1 is without data: 4 samples in 2 runs for 2 clients"),
    (5, None, "is without data"),
])
def test_splits_that_leave_a_client_without_data_are_refused(n, sizes, words):
    with pytest.raises(ValueError, match=words):
        mp.servers.clients_of(np.arange(4.0)[None], np.eye(4), n, sizes=sizes)
