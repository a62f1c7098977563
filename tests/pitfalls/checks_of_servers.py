"""Checks of what parameter servers and federated averaging are not to get wrong, see `bugs_of_servers.py`."""

from fractions import Fraction

import numpy as np
from compared import assert_same
from asynchronous.server_cases import LOSS, THIRD, exact_layers, exact_mini_batches, sequential, weights

import minipipe as mp
from minipipe.exact import Rational, rational

RATE = Rational(1, 8)
STEADY = rational([[1]]), rational([[100]])  # far from what a layer of 0 says


def constant_gradients(mode, n_workers=2, **options):
    """Of a layer whose gradient is 1 at all weights: W tells how many updates have reached it."""
    layers = [mp.Linear(1, 1, W=rational([[0]]), b=rational([[0]]))]
    net = mp.ParameterServer(layers, Slope(), n_workers, mp.SGD(1), mode, **options)
    net.train([STEADY] * 6, keep_every=1)
    return net


class Slope(mp.losses.Loss):
    """J = the mean of A."""

    def check(self, Y):
        pass

    def forward(self, A, Y, m=None):
        self.cache = A, A.shape[-1] if m is None else m
        return A.sum() / self.cache[1]

    def backward(self):
        A, m = self.cache
        return 0 * A + Rational(1, m)


def check_updates_without_a_lock():
    assert constant_gradients("async").layers[0].W[0, 0] == -6


def check_lost_updates_are_not_named():
    net = constant_gradients("hogwild", update_ticks=1)
    stays = {0: 0}
    for update in net.updates:
        n_since = update.number - 1 - update.onto
        assert len(update.lost) == n_since
        stays[update.number] = stays[update.onto] + 1
        assert -net.kept[update.number][0][0, 0] == stays[update.number]
    assert stays[6] < 6


def ends_of_the_fast_one(bound):
    layers = [mp.Linear(1, 1, W=rational([[0]]), b=rational([[0]]))]
    net = mp.ParameterServer(layers, Slope(), 2, mp.SGD(1), "ssp", bound=bound, speeds=THIRD)
    net.train([STEADY] * 12)
    return [span.end for span in net.trace.spans_of(1)][:5]


def check_bound_that_binds_nothing():
    assert ends_of_the_fast_one(2) == [1, 2, 3, 4, 7]


def check_bound_of_one_more():
    assert ends_of_the_fast_one(0) == [1, 4, 7, 10, 13]


def with_a_backup():
    net = mp.ParameterServer(
        exact_layers(), LOSS, 3, mp.SGD(RATE), backups=1, speeds=[1, 1, Fraction(1, 3)]
    )
    batches = exact_mini_batches(5, m=6)
    net.train(batches)
    first_two = [(X[:, :4], Y[:, :4]) for X, Y in batches]
    return net, sequential(exact_layers(), first_two, mp.SGD(RATE))[0]


def check_late_gradients_count_as_fresh():
    net, expected = with_a_backup()
    assert {update.workers for update in net.updates} == {(0, 1)} and len(net.late) == 2
    assert_same(weights(net), weights(expected))


def check_backups_do_not_change_the_divisor():
    net, expected = with_a_backup()
    assert_same(weights(net), weights(expected))


def check_shards_sent_to_the_wrong_server():
    """Two layers of two numbers each, one on each server."""
    layers = [mp.Linear(1, 1, W=rational([[w]]), b=rational([[1]])) for w in (2, 3)]
    batches = [(rational([[1, 2]]), rational([[0, 1]]))] * 2
    net = mp.ParameterServer(layers, LOSS, 2, mp.SGD(RATE), n_servers=2)
    net.train(batches)
    assert_same(weights(net), weights(sequential(layers, batches, mp.SGD(RATE))[0]))


def clients(*sizes):
    rng = np.random.default_rng(1)
    return [(rational(rng.integers(-2, 3, (3, n))), rational(rng.integers(-2, 3, (2, n)))) for n in sizes]


def assert_is_gradient_descent(n_rounds=1, **options):
    """Rounds of full passes: the bits of one device that has all samples of those who report."""
    data = clients(1, 2, 4)
    net = mp.FederatedAveraging(exact_layers(), LOSS, data, mp.SGD(RATE), **options)
    batches = []
    for done in net.train(n_rounds):
        chosen = [data[k] for k in done.reported]
        batches.append([np.concatenate(side, axis=-1) for side in zip(*chosen)])
    assert_same(weights(net), weights(sequential(exact_layers(), batches, mp.SGD(RATE))[0]))


def check_clients_averaged_alike():
    assert_is_gradient_descent()


def check_divided_by_all_clients():
    assert_is_gradient_descent(fraction=0.6)


def check_running_statistics_stay_behind():
    layers = [mp.BatchNorm(1, momentum=0.5), mp.Linear(1, 1)]
    data = [(np.array([[0.0, 2.0]]), np.zeros((1, 2))), (np.array([[4.0, 6.0]]), np.zeros((1, 2)))]
    net = mp.FederatedAveraging(layers, LOSS, data, mp.SGD(0.1))
    net.round()
    assert net.layers[0].running_mean[0, 0] == 0.5 * (1 + 5) / 2


def check_clients_go_on_with_their_own_weights():
    assert_is_gradient_descent(2)


def check_outer_gradient_reversed():
    """Outer SGD of rate 1 is the average."""
    assert_is_gradient_descent(2, outer=mp.SGD(1))


def check_masks_of_the_missing_stay():
    data, plain = clients(1, 2, 4), []
    for secure in (False, True):
        net = mp.FederatedAveraging(
            exact_layers(), LOSS, data, mp.SGD(RATE), secure=secure, drop_out=0.3, seed=5
        )
        assert len(net.round().reported) == 2
        plain.append(weights(net))
    assert_same(*plain)


def check_secure_sum_passes_the_modulus():
    """It is refused, rather than another number."""
    huge = [layer.copy(lambda p: p + 2**40) for layer in exact_layers()]
    net = mp.FederatedAveraging(huge, Slope(), clients(2, 2), mp.SGD(RATE), secure=True)
    try:
        net.round()
    except ValueError as error:
        assert "may pass R" in str(error)
    else:
        raise AssertionError("a sum has passed the modulus")
