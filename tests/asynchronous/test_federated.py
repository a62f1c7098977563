"""Federated averaging: one full step is gradient descent, averages are weighted, and masks cancel."""

from fractions import Fraction
from functools import partial
from itertools import combinations

import numpy as np
import pytest
from compared import assert_same, difference
from hypothesis import given, settings
from hypothesis import strategies as st

import minipipe as mp
from minipipe.exact import Rational, rational
from minipipe.federated.programs import (
    R, Upload, add_masks, averaged, from_whole, hidden, mask, revealed, secret, summed, to_whole,
)
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
    uploads = {k: Upload(n, [vector], vector[0]) for k, (n, vector) in enumerate(zip((10, 30), vectors))}
    (average,), J = averaged(uploads)
    assert average[0] == J == Rational(7, 4)


def test_the_sum_goes_by_the_clients_and_not_by_who_was_first():
    """((0 + 1) + (2 + 3)) / 4 of 2^55, 4, -2^55, 4 is 1 in floats: 2^53 + 1 = 2^53, but 1 - 2^53 is exact."""
    sent = {0: 2.0**55, 1: 4.0, 2: -(2.0**55), 3: 4.0}
    uploads = {k: Upload(5, [np.array([sent[k]])], sent[k]) for k in (1, 3, 0, 2)}
    (average,), J = averaged(uploads)
    assert average.tolist() == [1] and J == 1


def test_each_round_chooses_other_clients():
    net = mp.FederatedAveraging(LAYERS, LOSS, clients(1, 2, 3, 4, 5), mp.Rounds(0.4), weights=mp.Weights(2))
    chosen = [net.round(mp.SGD(0.1)).chosen for _ in range(5)]
    assert {len(set(of_round)) for of_round in chosen} == {2} and len(set(chosen)) > 1


def test_one_client_with_all_samples_is_plain_sgd():
    """Bit for bit, in the order of its passes; batch norm's statistics, too."""
    (X, Y), = data = clients(11)
    layers = [mp.Linear(3, 4), mp.BatchNorm(4), mp.Tanh(), mp.Linear(4, 2)]
    rounds = mp.Rounds(n_epochs=2, batch_size=4)
    net = mp.FederatedAveraging(layers, LOSS, data, rounds, weights=mp.Weights(3))
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


@pytest.mark.parametrize("E, fixed", [
    (1, Fraction(3, 4)), (2, Fraction(51, 70)), (5, Fraction(83193, 124144)),
])
def test_more_passes_drift_to_another_point(E, fixed):
    """Costs a/2 (w - c)^2, a = 3 and 1, c = 1 and 0: the optimum is 3/4; one round leads from there to itself
    only for E = 1. With rate 1/10, the fixed point is known.
    """
    rate, shares = Fraction(1, 10), []
    for a in (3, 1):
        shares.append(1 - (1 - rate * a) ** E)
    assert shares[0] / sum(shares) == fixed
    layers = [Scaled(fixed)]
    data = [(rational([[3]]), rational([[1]])), (rational([[1]]), rational([[0]]))]
    net = mp.FederatedAveraging(layers, Quadratic(), data, mp.Rounds(n_epochs=E))
    net.round(mp.SGD(Rational(rate)))
    assert net.layers[0].W[0, 0] == fixed


class Scaled(mp.layers.Layer):
    """A = (w, a): a weight that knows nothing of the samples, beside them."""

    def __init__(self, w):
        self.W = rational([[w]])

    def parameter_shapes(self):
        return (1, 1), None

    def forward(self, A_prev):
        self.cache = A_prev
        return np.concatenate([self.W + 0 * A_prev, A_prev])

    def backward_input(self, dZ):
        return dZ[1:]

    def backward_weight(self, dZ):
        return dZ[:1].sum(axis=1, keepdims=True), None


class Quadratic(mp.losses.Loss):
    """a/2 (w - c)^2 for A = (w, a) and Y = c."""

    def check(self, Y):
        pass

    def forward(self, A, Y, m=None):
        self.cache = A, Y
        return (A[1] * (A[0] - Y[0]) ** 2).sum() / 2 / A.shape[-1]

    def backward(self):
        A, Y = self.cache
        slope = A[1:] * (A[:1] - Y) / A.shape[-1]
        return np.concatenate([slope, 0 * slope])


# Variations


def test_fedprox_pulls_towards_the_first_weights():
    """Two steps by hand: w = 0, then w - rate (a (w - c) + mu (w - 0)); mu = 0 is federated averaging."""
    a, c, mu, rate = 1, 1, Rational(1, 4), HALF
    first = rate * a * c
    second = first - rate * (a * (first - c) + mu * first)
    layers, data = [Scaled(0)], [(rational([[a]]), rational([[c]]))]
    net = mp.FederatedAveraging(layers, Quadratic(), data, mp.Rounds(n_epochs=2, proximal=mu))
    net.round(mp.SGD(rate))
    assert net.layers[0].W[0, 0] == second != first - rate * a * (first - c)


@pytest.mark.parametrize("outer, after", [
    (None, [1, 2]), (mp.SGD(1), [1, 2]), (mp.SGD(Rational(7, 10)), [Rational(7, 10)]),
    (mp.SGD(Rational(7, 10), momentum=Rational(9, 10), nesterov=True), [Rational(133, 100)]),
])
def test_the_outer_optimizer_gets_the_weights_less_the_average(outer, after):
    """Each round moves the average by 1, so Delta = -1. Rate 1 is the average itself."""
    layers, data = [Scaled(0)], [(rational([[1]]), rational([[10**6]]))]

    class ByOne(mp.optimizers.SGD):
        def step(self, g):
            return (0 * g - 1,)

    net = mp.FederatedAveraging(layers, Quadratic(), data, outer=outer)
    found = []
    for _ in after:
        net.round(ByOne(1))
        found.append(net.layers[0].W[0, 0])
    assert found == after


def test_local_steps_take_one_mini_batch_after_the_other():
    """H = 1 with plain SGD, one mini-batch of each client a round, is a synchronous step on all of these."""
    data, rate = exact_clients(4, 4), mp.SGD(Rational(1, 8))
    rounds = mp.Rounds(batch_size=2, n_steps=1)
    net = mp.FederatedAveraging(exact_layers(), LOSS, data, rounds, weights=mp.Weights(1))
    net.train(3, rate)
    batches = []
    for number, part in ((0, slice(0, 2)), (0, slice(2, 4)), (1, slice(0, 2))):
        orders = [np.random.default_rng([1, k, number]).permutation(4)[part] for k in (0, 1)]
        batches.append(together([(X[:, at], Y[:, at]) for (X, Y), at in zip(data, orders)]))
    reference, _ = sequential(exact_layers(), batches, rate)
    assert_same(weights(net), weights(reference))


def test_clients_keep_their_memory_if_they_are_asked_to():
    def trained(rounds):
        net = mp.FederatedAveraging(LAYERS, LOSS, data, rounds)
        net.train(3, mp.SGD(0.1, momentum=0.5))
        return weights(net)

    data = clients(5)
    reference, _ = sequential(LAYERS, data * 3, mp.SGD(0.1, momentum=0.5))
    assert_same(trained(mp.Rounds(keep_memory=True)), weights(reference))
    plain, _ = sequential(LAYERS, data * 3, mp.SGD(0.1))
    assert_same(trained(mp.Rounds()), weights(plain))


# Masks


@settings(max_examples=20)
@given(st.integers(2, 5), st.data())
def test_masks_cancel_for_every_subset_that_reports(K, data):
    """Secure sums are plain sums, of both signs; who has dropped out leaves nothing behind."""
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    values = rng.integers(-10**6, 10**6, (K, 3))
    pair = partial(secret, [7, 1])
    masks = [{j: mask(pair(k, j), 3) for j in range(K) if j != k} for k in range(K)]
    sent = [add_masks(to_whole(values[k], 1, K, k), k, masks[k]) for k in range(K)]
    assert all(not np.array_equal(sent[k], values[k] % R) for k in range(K))
    for size in range(2, K + 1):
        for here in combinations(range(K), size):
            left_over = [(i, j, masks[i][j]) for i in here for j in range(K) if j not in here]
            total = summed({k: sent[k] for k in here}, left_over)
            assert from_whole(total) == values[list(here)].sum(axis=0).tolist()


def test_with_masks_too_the_average_is_weighted_by_samples():
    """10 and 30 samples at (1, -2) and (2, 0): (7/4, -1/2). Client 2 has dropped out; J is a plain mean."""
    clients, sent = {0: Upload(10, [1, -2], 1.0), 1: Upload(30, [2, 0], 4.0)}, {}
    for numbers, whole in (("Rational", rational), ("float", np.array)):
        for k, (n, vectors, J) in clients.items():
            upload = Upload(n, [whole([1.0 * number]) for number in vectors], J)
            sent[k] = hidden(upload, k, [j for j in range(3) if j != k], [5])
            assert sent[k].n is None and len(sent[k].numbers) == 1
        secrets = {k: {2: secret([5], k, 2)} for k in clients}
        vectors, J = revealed(sent, secrets, [whole([0.0])] * 2)
        assert [vector.tolist() for vector in vectors] == [[1.75], [-0.5]] and J == 2.5
        assert {type(vector[0]).__name__.removesuffix("64") for vector in vectors} == {numbers}


def test_too_few_who_report_change_nothing():
    """One client's sum is its own numbers, so that a round with masks counts only with two."""
    for secure, enough in ((False, 1), (True, 2)):
        net = mp.FederatedAveraging(LAYERS, LOSS, clients(3, 3, 3), mp.Rounds(drop_out=0.8, secure=secure))
        for _ in range(8):
            before = [array.copy() for array in weights(net)]
            done = net.round(mp.SGD(0.1))
            moved = difference(weights(net), before) is not None
            assert moved == bool(done.reported) and (not moved or len(done.reported) >= enough)
            assert (done.J is None) == (not moved)


# Rounds on the cluster and on threads


def test_bytes_and_ticks_of_a_round():
    """Weights down to each client, and up from each; the slowest client decides."""
    sizes, n_bytes, optimizer = (2, 3, 7), 26 * 8, mp.SGD(0.1)
    net = mp.FederatedAveraging(
        LAYERS, LOSS, clients(*sizes), mp.Rounds(n_epochs=4, batch_size=2),
        pace=mp.Pace(ticks=2, speeds=[Fraction(1, 10), 1, 1]),
    )
    done = net.round(optimizer)
    assert (done.bytes_down, done.bytes_up) == (3 * n_bytes, 3 * n_bytes)
    assert done.ticks == max(4 * 2 * 2 * 10, 4 * 2 * 3, 4 * 2 * 7)
    local = mp.FederatedAveraging(LAYERS, LOSS, clients(7), mp.Rounds(batch_size=3, n_steps=2))
    ticks = [local.round(optimizer).ticks for _ in range(3)]
    assert ticks == [3 + 2, 2 + 3, 2 + 2]  # of mini-batches of 3, 2 and 2
    hidden = mp.FederatedAveraging(
        LAYERS, LOSS, clients(*sizes), mp.Rounds(secure=True), weights=mp.Weights(dtype=np.float32)
    )
    assert hidden.round(optimizer).bytes_up == 3 * 8 * 27  # 64 bits each, whatever the floats have, and n


@pytest.mark.parametrize("rounds, outer", [
    (mp.Rounds(batch_size=2), None), (mp.Rounds(batch_size=2, secure=True, drop_out=0.3), None),
    (mp.Rounds(0.5, batch_size=2), mp.SGD(1)),
])
def test_rounds_have_the_same_bits_on_threads(rounds, outer):
    data, float32 = clients(3, 4, 5, 6), mp.Weights(dtype=np.float32)
    nets = [
        mp.FederatedAveraging(LAYERS, LOSS, data, rounds, outer, on=mp.Machine(engine), weights=float32)
        for engine in ("cluster", "threads")
    ]
    made = [net.train(3, mp.Adam(0.1), clients(5)[0], lambda A, Y: float(A.sum())) for net in nets]
    assert [done._replace(ticks=0) for done in made[0]] == [done._replace(ticks=0) for done in made[1]]
    assert_same(*map(weights, nets))


def test_clients_share_nothing_that_a_pass_changes():
    """On threads, their passes overlap: each of five has layers and a loss of its own."""
    net = mp.FederatedAveraging(LAYERS, LOSS, clients(1, 1, 1, 1, 1))
    nets = [one._net for one in net.clients]
    assert len({id(part) for one in nets for part in (one.loss, *one.layers)}) == 5 * (1 + len(LAYERS))


def test_a_round_that_fails_changes_nothing():
    data = clients(4, 4)
    data[1] = data[1][0] * 1e200, data[1][1] * 1e200
    net = mp.FederatedAveraging(LAYERS, LOSS, data, mp.Rounds(batch_size=2))
    before = [array.copy() for array in weights(net)]
    with pytest.raises(FloatingPointError, match="is not finite"):
        net.round(mp.SGD(0.1))
    assert_same(weights(net), before)
    assert net.n_rounds == 0 and [one.position for one in net.clients] == [0, 0]


# Splits and bad input


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("sizes", [None, [1, 2, 3, 4, 5]])
def test_every_sample_is_with_one_client(skewed, sizes):
    X, Y = np.arange(61.0)[None], mp.one_hot(np.arange(61) % 10, 10)
    parts = mp.clients_of(X, Y, 5, skewed, sizes, seed=1)
    assert sorted(np.concatenate([part.ravel() for part, _ in parts])) == X.ravel().tolist()
    assert all(np.array_equal(Y[:, part.ravel().astype(int)], labels) for part, labels in parts)
    classes = [int(labels.any(axis=1).sum()) for _, labels in parts]
    assert sum(classes) < 25 if skewed else sum(classes) > 30
    if sizes:
        assert np.argsort([part.size for part, _ in parts]).tolist() == [0, 1, 2, 3, 4]


def network(data=clients(2, 2, 2), pace=mp.Pace(), **rounds):
    return mp.FederatedAveraging(LAYERS, LOSS, data, mp.Rounds(**rounds), pace=pace)


@pytest.mark.parametrize("options, words", [
    ({"fraction": 0.1}, "fraction=0.1 of 3 clients selects nobody: use at least 0.333"),
    ({"fraction": 0.3, "secure": True}, "the sum of one is its own numbers"),
    ({"data": []}, "clients is an empty list"),
    ({"data": [(np.zeros((3, 0)), np.zeros((2, 0)))]}, "client 0 is without data: leave it out"),
    ({"n_steps": 2, "n_epochs": 2}, "n_steps=2 and n_epochs=2: give one of them"),
    ({"pace": mp.Pace(speeds=[1, 1])}, "speeds has 2 numbers for 3 workers"),
    ({"pace": mp.Pace(delay=1)}, "delay=1 and update_ticks=0 are of parameter servers"),
    ({"pace": mp.Pace(update_ticks=3)}, "delay=0 and update_ticks=3 are of parameter servers"),
])
def test_clients_that_cannot_be_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        network(**options)


@pytest.mark.parametrize("n, sizes, words", [
    (2, [100, 1], "client 1 is without data: 4 samples in 2 runs for 2 clients"),
    (5, None, "is without data"),
])
def test_splits_that_leave_a_client_without_data_are_refused(n, sizes, words):
    with pytest.raises(ValueError, match=words):
        mp.clients_of(np.arange(4.0)[None], np.eye(4), n, sizes=sizes)


def test_a_sum_that_might_pass_the_modulus_is_refused():
    layers = [layer.copy(lambda p: p + 2.0**40) for layer in mp.Sequential(LAYERS, None).layers]
    net = mp.FederatedAveraging(layers, LOSS, clients(2, 2), mp.Rounds(secure=True))
    with pytest.raises(ValueError, match=r"may pass R = 4611686018427387904: use a lower learning rate"):
        net.round(mp.SGD(1e-30))
    edge = R // 4
    assert from_whole(to_whole(np.array([edge - 1, 1 - edge]), 1, 2, 0)) == [edge - 1, 1 - edge]
    with pytest.raises(ValueError, match="may pass R"):
        to_whole(np.array([edge]), 1, 2, 0)
