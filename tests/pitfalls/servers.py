"""Bugs that parameter servers and federated averaging have shipped, with their checks."""

from fractions import Fraction

import numpy as np
from asynchronous.by_the_rule import (
    LOSS, THIRD, exact_clients, exact_layers, exact_mini_batches, sequential, weights,
)
from compared import assert_same

import minipipe as mp
from minipipe.arrays import constant
from minipipe.exact import Rational, rational
from minipipe.federated import (
    FederatedAveraging, federated_averaging, programs as rounds, programs as uploads,
)
from minipipe.federated.programs import R
from minipipe.parallel.layout import put_together
from minipipe.servers import programs, share
from minipipe.servers.share import Share

RATE = Rational(1, 8)
STEADY = rational([[1]]), rational([[100]])  # far from what a layer of 0 says


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


def constant_gradients(servers, pace=mp.Pace(), n_batches=6):
    """Of a layer whose gradient is 1 at all weights: W tells how many updates have reached it."""
    layers = [mp.Linear(1, 1, W=rational([[0]]), b=rational([[0]]))]
    net = mp.ParameterServer(layers, Slope(), 2, servers, pace=pace)
    net.train([STEADY] * n_batches, mp.SGD(1), keep_every=1)
    return net


def assert_is_gradient_descent(n_rounds=1, fraction=1, outer=None):
    """Rounds of full passes: the bits of one device that has all samples of those who report."""
    data = exact_clients(1, 2, 4)
    net = mp.FederatedAveraging(exact_layers(), LOSS, data, mp.Rounds(fraction), outer)
    batches = []
    for done in net.train(n_rounds, mp.SGD(RATE)):
        chosen = [data[k] for k in done.reported]
        batches.append([np.concatenate(side, axis=-1) for side in zip(*chosen)])
    assert_same(weights(net), weights(sequential(exact_layers(), batches, mp.SGD(RATE))[0]))


def updates_without_a_lock(monkeypatch):
    """The server writes what it makes of the weights that the worker had read, over all updates since."""
    remember, update = Share.remember, Share.update

    def remember_always(self, worker):
        remember(self, worker)
        self._read[worker] = self._copy()

    def from_what_was_read(self, label, pushes, m=None):
        if label.staleness:
            for vector, read in zip(self.part, self._read.get(label.workers[0], self._first)):
                vector[...] = read
        update(self, label, pushes, m)

    monkeypatch.setattr(Share, "remember", remember_always)
    monkeypatch.setattr(Share, "update", from_what_was_read)


def check_updates_without_a_lock():
    assert constant_gradients(mp.Servers(mode="async")).layers[0].W[0, 0] == -6


def lost_updates_are_not_named(monkeypatch):
    """A write without a lock is taken for one with a lock."""
    monkeypatch.setattr(programs.SharedMemory, "overwrites", lambda self, places, loaded: ())


def check_lost_updates_are_not_named():
    net = constant_gradients(mp.Servers(mode="hogwild"), mp.Pace(update_ticks=1))
    stays = {0: 0}
    for update in net.updates:
        n_since = update.number - 1 - update.onto
        assert len(update.lost) == n_since
        stays[update.number] = stays[update.onto] + 1
        assert -net.kept[update.number][0][0, 0] == stays[update.number]
    assert stays[6] < 6


def bound_that_binds_nothing(monkeypatch):
    """The bound is an option that nobody reads."""
    monkeypatch.setattr(programs, "may_read", lambda clock, slowest, bound: True)


def ends_of_the_fast_one(bound):
    net = constant_gradients(mp.Servers(mode="ssp", bound=bound), mp.Pace(speeds=THIRD), n_batches=12)
    return [span.end for span in net.trace.spans_of(1)][:5]


def check_bound_that_binds_nothing():
    assert ends_of_the_fast_one(2) == [1, 2, 3, 4, 7]


def bound_of_one_more(monkeypatch):
    """The clock before the gradient is compared in the place of the one behind it."""
    monkeypatch.setattr(programs, "may_read", lambda clock, slowest, bound: clock - 1 - slowest <= bound)


def check_bound_of_one_more():
    assert ends_of_the_fast_one(0) == [1, 4, 7, 10, 13]


def late_gradients_count_as_fresh(monkeypatch):
    """A gradient that has missed its round is summed into the next one."""
    monkeypatch.setattr(programs, "is_late", lambda read, version: False)


def check_late_gradients_count_as_fresh():
    pace, batches = mp.Pace(speeds=[1, 1, Fraction(1, 3)]), exact_mini_batches(5, m=6)
    net = mp.ParameterServer(exact_layers(), LOSS, 3, mp.Servers(backups=1), pace=pace)
    net.train(batches, mp.SGD(RATE))
    assert {update.workers for update in net.updates} == {(0, 1)} and len(net.late) == 2
    of_the_first_two = [(X[:, :4], Y[:, :4]) for X, Y in batches]
    expected, _ = sequential(exact_layers(), of_the_first_two, mp.SGD(RATE))
    assert_same(weights(net), weights(expected))


def backups_do_not_change_the_divisor(monkeypatch):
    """The sum over those who came is taken for the sum over all."""
    update = Share.update
    monkeypatch.setattr(
        Share, "update", lambda self, label, pushes, m=None:
        update(self, label, pushes, None if m is None else sum(push.m for push in pushes.values()))
    )


check_backups_do_not_change_the_divisor = check_late_gradients_count_as_fresh


def shards_sent_to_the_wrong_server(monkeypatch):
    """Each worker numbers the servers from its own place on."""
    gradient = share.Replica.gradient

    def rolled(self, number, versions):
        pushes = gradient(self, number, versions)
        terms = [push.terms for push in pushes]
        first = self._run.start % len(terms)
        turned = terms[first:] + terms[:first]
        return [push._replace(terms=term) for push, term in zip(pushes, turned)]

    monkeypatch.setattr(share.Replica, "gradient", rolled)


def check_shards_sent_to_the_wrong_server():
    """Two layers of two numbers each, one on each server."""
    layers = [mp.Linear(1, 1, W=rational([[w]]), b=rational([[1]])) for w in (2, 3)]
    batches = [(rational([[1, 2]]), rational([[0, 1]]))] * 2
    net = mp.ParameterServer(layers, LOSS, 2, mp.Servers(2))
    net.train(batches, mp.SGD(RATE))
    assert_same(weights(net), weights(sequential(layers, batches, mp.SGD(RATE))[0]))


def clients_averaged_alike(monkeypatch):
    """The plain mean of the clients' weights, whoever has how many samples."""
    averaged = uploads.averaged

    def mean(of_clients):
        return averaged({k: upload._replace(n=1) for k, upload in of_clients.items()})

    monkeypatch.setattr(federated_averaging, "averaged", mean)


def check_clients_averaged_alike():
    assert_is_gradient_descent()


def divided_by_all_clients(monkeypatch):
    """The weights of those who were chosen are divided by the samples of all: they shrink."""
    average = FederatedAveraging._average

    def with_too_small_shares(self, uploads, secrets):
        share = Fraction(sum(upload.n for upload in uploads.values()), sum(one.n for one in self.clients))
        state, J = average(self, uploads, secrets)
        return [constant(share, vector) * vector for vector in state], J

    monkeypatch.setattr(FederatedAveraging, "_average", with_too_small_shares)


def check_divided_by_all_clients():
    assert_is_gradient_descent(fraction=0.6)


def running_statistics_stay_behind(monkeypatch):
    """Only parameters are averaged; what batch norm has counted remains as it was."""
    monkeypatch.setattr(
        federated_averaging, "take", lambda layers, state: put_together(layers, [state[:-2]])
    )


def check_running_statistics_stay_behind():
    layers = [mp.BatchNorm(1, momentum=0.5), mp.Linear(1, 1)]
    data = [(np.array([[0.0, 2.0]]), np.zeros((1, 2))), (np.array([[4.0, 6.0]]), np.zeros((1, 2)))]
    net = mp.FederatedAveraging(layers, LOSS, data)
    net.round(mp.SGD(0.1))
    assert net.layers[0].running_mean[0, 0] == 0.5 * (1 + 5) / 2


def clients_go_on_with_their_own_weights(monkeypatch):
    """A client does not take what the server sends."""
    monkeypatch.setattr(rounds, "take", lambda layers, state: None)


def check_clients_go_on_with_their_own_weights():
    assert_is_gradient_descent(2)


def outer_gradient_reversed(monkeypatch):
    """The average minus the old weights: an optimizer that subtracts it goes the other way."""
    monkeypatch.setattr(
        federated_averaging, "outer_gradient", lambda old, average: [b - a for a, b in zip(old, average)]
    )


def check_outer_gradient_reversed():
    """Outer SGD of rate 1 is the average."""
    assert_is_gradient_descent(2, outer=mp.SGD(1))


def masks_of_the_missing_stay(monkeypatch):
    """What clients share with those who have dropped out remains in the sum."""
    summed = uploads.summed
    monkeypatch.setattr(uploads, "summed", lambda sent, left_over: summed(sent))


def check_masks_of_the_missing_stay():
    for drop_out, reported in ((0, (0, 1, 2)), (0.3, (0, 1))):
        sums = []
        for secure in (False, True):
            net = mp.FederatedAveraging(
                exact_layers(), LOSS, exact_clients(1, 2, 4), mp.Rounds(drop_out=drop_out, secure=secure),
                weights=mp.Weights(seed=5),
            )
            assert net.round(mp.SGD(RATE)).reported == reported
            sums.append(weights(net))
        assert_same(*sums)


def secure_sum_passes_the_modulus(monkeypatch):
    """Numbers enter the sum without a look at how large it may become."""
    def to_whole(values, scale, n_terms, who, modulus=R):
        return np.array([round(number * scale) % modulus for number in values.tolist()], np.uint64)

    monkeypatch.setattr(uploads, "to_whole", to_whole)


def check_secure_sum_passes_the_modulus():
    """It is refused, rather than another number."""
    huge = [layer.copy(lambda p: p + 2**40) for layer in exact_layers()]
    net = mp.FederatedAveraging(huge, Slope(), exact_clients(2, 2), mp.Rounds(secure=True))
    try:
        net.round(mp.SGD(RATE))
    except ValueError as error:
        assert "may pass R" in str(error)
    else:
        raise AssertionError("a sum has passed the modulus")
