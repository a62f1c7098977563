"""Bugs that parameter servers and federated averaging have shipped, with their checks."""

from fractions import Fraction

import numpy as np
from asynchronous.by_the_rule import LOSS, exact_clients, exact_layers, sequential, weights
from compared import assert_same

import minipipe as mp
from minipipe.arrays import constant
from minipipe.exact import Rational, rational
from minipipe.servers import FederatedAveraging, federated_averaging
from minipipe.servers.programs import Replica, Share

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


def assert_is_gradient_descent(n_rounds=1, fraction=1):
    """Rounds of full passes: the bits of one device that has all samples of the chosen clients."""
    data = exact_clients(1, 2, 4)
    net = FederatedAveraging(exact_layers(), LOSS, data, fraction=fraction)
    batches = []
    for done in net.train(n_rounds, mp.SGD(RATE)):
        chosen = [data[k] for k in done.chosen]
        batches.append([np.concatenate(side, axis=-1) for side in zip(*chosen)])
    assert_same(weights(net), weights(sequential(exact_layers(), batches, mp.SGD(RATE))[0]))


def updates_without_a_lock(monkeypatch):
    """The server writes what it makes of the weights that the worker had read, over all updates since."""
    init, update = Share.__init__, Share.update

    def remembering(self, *args):
        init(self, *args)
        self.history = [[vector.copy() for vector in self.part]]

    def from_what_was_read(self, label, pushes):
        for vector, read in zip(self.part, self.history[label.read]):
            vector[...] = read
        update(self, label, pushes)
        self.history.append([vector.copy() for vector in self.part])

    monkeypatch.setattr(Share, "__init__", remembering)
    monkeypatch.setattr(Share, "update", from_what_was_read)


def check_updates_without_a_lock():
    """The gradient of a layer is 1 at all weights: W tells how many of 6 updates have reached it."""
    layers = [mp.Linear(1, 1, W=rational([[0]]), b=rational([[0]]))]
    net = mp.ParameterServer(layers, Slope(), 2, mode="async")
    net.train([STEADY] * 6, mp.SGD(1))
    assert net.layers[0].W[0, 0] == -6


def shards_sent_to_the_wrong_server(monkeypatch):
    """Each worker numbers the servers from its own place on."""
    gradient = Replica.gradient

    def rolled(self, number, versions):
        pushes = gradient(self, number, versions)
        parts = [push.terms[0] for push in pushes]
        first = self._part % len(parts)
        turned = parts[first:] + parts[:first]
        return [push._replace(terms=(part, *push.terms[1:])) for push, part in zip(pushes, turned)]

    monkeypatch.setattr(Replica, "gradient", rolled)


def check_shards_sent_to_the_wrong_server():
    """Two layers of two numbers each, one on each server."""
    layers = [mp.Linear(1, 1, W=rational([[w]]), b=rational([[1]])) for w in (2, 3)]
    batches = [(rational([[1, 2]]), rational([[0, 1]]))] * 2
    net = mp.ParameterServer(layers, LOSS, 2, servers=2)
    net.train(batches, mp.SGD(RATE))
    assert_same(weights(net), weights(sequential(layers, batches, mp.SGD(RATE))[0]))


def clients_averaged_alike(monkeypatch):
    """The plain mean of the clients' weights, whoever has how many samples."""
    averaged = federated_averaging.averaged

    def mean(uploads):
        return averaged([upload._replace(n=1) for upload in uploads])

    monkeypatch.setattr(federated_averaging, "averaged", mean)


def check_clients_averaged_alike():
    assert_is_gradient_descent()


def divided_by_all_clients(monkeypatch):
    """The weights of those who were chosen are divided by the samples of all: they shrink."""
    init, averaged = FederatedAveraging.__init__, federated_averaging.averaged

    def dividing_by_all(self, *args, **options):
        init(self, *args, **options)
        n = sum(one.n for one in self.clients)

        def with_too_small_shares(uploads):
            share = Fraction(sum(upload.n for upload in uploads), n)
            state, J = averaged(uploads)
            return [constant(share, array) * array for array in state], J

        monkeypatch.setattr(federated_averaging, "averaged", with_too_small_shares)

    monkeypatch.setattr(FederatedAveraging, "__init__", dividing_by_all)


def check_divided_by_all_clients():
    assert_is_gradient_descent(fraction=0.6)


def running_statistics_stay_behind(monkeypatch):
    """Only parameters are averaged; what batch norm has counted remains as it was."""
    arrays_of = federated_averaging.arrays_of

    def parameters_of(layers):
        return [(layer, name) for layer, name in arrays_of(layers) if name in ("W", "b")]

    monkeypatch.setattr(federated_averaging, "arrays_of", parameters_of)


def check_running_statistics_stay_behind():
    layers = [mp.BatchNorm(1, momentum=0.5), mp.Linear(1, 1)]
    data = [(np.array([[0.0, 2.0]]), np.zeros((1, 2))), (np.array([[4.0, 6.0]]), np.zeros((1, 2)))]
    net = mp.FederatedAveraging(layers, LOSS, data)
    net.round(mp.SGD(0.1))
    assert net.layers[0].running_mean[0, 0] == 0.5 * (1 + 5) / 2


def clients_go_on_with_their_own_weights(monkeypatch):
    """A client does not take what the server sends, but what it had at the end of the round before."""
    take, layers_of_clients = federated_averaging.take, []  # of three clients, round after round

    def take_own(layers, state):
        layers_of_clients.append(layers)
        before = layers_of_clients[:-3][-1:]
        take(layers, federated_averaging.state_of(*before) if before else state)

    monkeypatch.setattr(federated_averaging, "take", take_own)


def check_clients_go_on_with_their_own_weights():
    assert_is_gradient_descent(2)
