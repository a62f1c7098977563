"""Bugs that parameter servers and federated averaging have shipped.

As those of `bugs.py`, which has them, too; `checks_of_servers.py` has a check of the same name for each.
"""

from fractions import Fraction

import numpy as np

from minipipe.functions import constant
from minipipe.parallel.federated import FederatedAveraging, federated_averaging, uploads
from minipipe.parallel.federated import programs as rounds
from minipipe.parallel.federated.secure import R
from minipipe.parallel.servers import hogwild, programs, replica
from minipipe.parallel.servers.share import Share
from minipipe.pipeline.own_part import put_together


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


def lost_updates_are_not_named(monkeypatch):
    """A write without a lock is taken for one with a lock."""
    monkeypatch.setattr(hogwild.Memory, "overwrites", lambda self, places, loaded: ())


def bound_that_binds_nothing(monkeypatch):
    """The bound is an option that nobody reads."""
    monkeypatch.setattr(programs, "may_read", lambda clock, slowest, bound: True)


def bound_of_one_more(monkeypatch):
    """The clock before the gradient is compared in the place of the one behind it."""
    monkeypatch.setattr(programs, "may_read", lambda clock, slowest, bound: clock - 1 - slowest <= bound)


def late_gradients_count_as_fresh(monkeypatch):
    """A gradient that has missed its round is summed into the next one."""
    monkeypatch.setattr(programs, "is_late", lambda read, version: False)


def backups_do_not_change_the_divisor(monkeypatch):
    """The sum over those who came is taken for the sum over all."""
    update = Share.update
    monkeypatch.setattr(
        Share, "update", lambda self, label, pushes, m=None:
        update(self, label, pushes, None if m is None else sum(push.m for push in pushes.values()))
    )


def shards_sent_to_the_wrong_server(monkeypatch):
    """Each worker numbers the servers from its own place on."""
    gradient = replica.Replica.gradient

    def rolled(self, number, versions):
        pushes = gradient(self, number, versions)
        terms = [push.terms for push in pushes]
        first = self._run.start % len(terms)
        turned = terms[first:] + terms[:first]
        return [push._replace(terms=term) for push, term in zip(pushes, turned)]

    monkeypatch.setattr(replica.Replica, "gradient", rolled)


def clients_averaged_alike(monkeypatch):
    """The plain mean of the clients' weights, whoever has how many samples."""
    averaged = uploads.averaged

    def mean(of_clients):
        return averaged({k: upload._replace(n=1) for k, upload in of_clients.items()})

    monkeypatch.setattr(federated_averaging, "averaged", mean)


def divided_by_all_clients(monkeypatch):
    """The weights of those who were chosen are divided by the samples of all: they shrink."""
    average = FederatedAveraging._average

    def with_too_small_shares(self, uploads, secrets):
        share = Fraction(sum(upload.n for upload in uploads.values()), sum(one.n for one in self.clients))
        state, J = average(self, uploads, secrets)
        return [constant(share, vector) * vector for vector in state], J

    monkeypatch.setattr(FederatedAveraging, "_average", with_too_small_shares)


def running_statistics_stay_behind(monkeypatch):
    """Only parameters are averaged; what batch norm has counted remains as it was."""
    monkeypatch.setattr(
        federated_averaging, "take",
        lambda layers, state: put_together(layers, [state[:len(state) - 2]]),
    )


def clients_go_on_with_their_own_weights(monkeypatch):
    """A client does not take what the server sends."""
    monkeypatch.setattr(rounds, "take", lambda layers, state: None)


def outer_gradient_reversed(monkeypatch):
    """The average minus the old weights: an optimizer that subtracts it goes the other way."""
    monkeypatch.setattr(
        federated_averaging, "outer_gradient", lambda old, average: [b - a for a, b in zip(old, average)]
    )


def masks_of_the_missing_stay(monkeypatch):
    """What clients share with those who have dropped out remains in the sum."""
    summed = uploads.summed
    monkeypatch.setattr(uploads, "summed", lambda sent, left_over: summed(sent))


def secure_sum_passes_the_modulus(monkeypatch):
    """Numbers enter the sum without a look at how large it may become."""
    def to_whole(values, scale, n_terms, who, modulus=R):
        return np.array([round(number * scale) % modulus for number in values.tolist()], np.uint64)

    monkeypatch.setattr(uploads, "to_whole", to_whole)


BUGS_OF_SERVERS = {
    function.__name__: function
    for function in (
        updates_without_a_lock,
        lost_updates_are_not_named,
        bound_that_binds_nothing,
        bound_of_one_more,
        late_gradients_count_as_fresh,
        backups_do_not_change_the_divisor,
        shards_sent_to_the_wrong_server,
        clients_averaged_alike,
        divided_by_all_clients,
        running_statistics_stay_behind,
        clients_go_on_with_their_own_weights,
        outer_gradient_reversed,
        masks_of_the_missing_stay,
        secure_sum_passes_the_modulus,
    )
}
