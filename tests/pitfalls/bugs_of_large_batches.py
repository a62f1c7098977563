"""Bugs that come with large mini-batches, which many workers share.

As those of `bugs.py`, which has them, too; `checks_of_large_batches.py` has a check of each name.
"""

import numpy as np

from minipipe import LARS, SGD, DataParallel, network, training
from minipipe.collectives import Feedback
from minipipe.functions import leaves, norm, root, scaled, sum_of_squares
from minipipe.pipeline.in_stages import InStages
from minipipe.rates import GradualWarmUp, value_at


def rate_scaled_twice(monkeypatch):
    """The warm-up takes the whole rate for that of the small mini-batch, and multiplies it by k once more."""
    def before(self, t):
        then = value_at(self.then, t)
        k = then / self.start
        return then + (k - 1) * then * t / self.n_epochs

    monkeypatch.setattr(GradualWarmUp, "before", before)


def statistics_over_the_wrong_group(monkeypatch):
    """Batch norm takes the statistics of all workers together, though nobody has asked for that."""
    init = DataParallel.__init__

    def synchronised_init(self, *args, **options):
        init(self, *args, **{**options, "sync_batch_norm": True})

    monkeypatch.setattr(DataParallel, "__init__", synchronised_init)


def a_shuffle_for_each_worker(monkeypatch):
    """Each of two workers shuffles all samples by itself, and takes the first half of its own order."""
    def by_worker(m, seed, epoch):
        orders = [np.random.default_rng([seed, epoch, worker]).permutation(m) for worker in (0, 1)]
        return np.concatenate([orders[0][:m // 2], orders[1][m // 2:]])

    monkeypatch.setattr(training, "shuffled", by_worker)


def the_same_order_in_each_epoch(monkeypatch):
    """The epoch is not handed to what shuffles."""
    shuffled = training.shuffled
    monkeypatch.setattr(training, "shuffled", lambda m, seed, epoch: shuffled(m, seed, 1))


def clipping_per_shard(monkeypatch):
    """Each device clips its own gradients by their own norm, so the direction of the whole changes."""
    def clipped(self, clip, gradients):
        if clip is None:
            return gradients
        found = []
        for indices in self._layers_of_stages():
            own = [gradients[index] for index in indices]
            length = root(sum(map(sum_of_squares, leaves(own))))
            found += scaled(own, clip / length) if length > clip else own
        return found

    monkeypatch.setattr(InStages, "_clipped", clipped)


def norm_counts_shared_weights_twice(monkeypatch):
    """The norm of all gradients adds up what several layers, or devices, have of one W."""
    monkeypatch.setattr(network, "each_once", lambda gradients, ties: gradients)


def lars_applies_its_ratio_at_the_write(monkeypatch):
    """What is remembered has no local rates, so old gradients count with the newest one."""
    def before_step(self, W, g):
        self.local = self.trust * norm(W) / norm(g) if norm(W) and norm(g) else 1
        return SGD.before_step(self, W, g)

    monkeypatch.setattr(LARS, "before_step", before_step)
    monkeypatch.setattr(LARS, "after_step", lambda self, W, step: (W, step * self.local))


def zero_parameters_never_move(monkeypatch):
    """The trust ratio of a parameter of zeros is 0."""
    before_step = LARS.before_step
    monkeypatch.setattr(
        LARS, "before_step", lambda self, W, g: before_step(self, W, g) * (1 if norm(W) else 0)
    )


def feedback_is_forgotten(monkeypatch):
    """What has not been sent is dropped in each step, as when buckets are rebuilt."""
    right = Feedback.all_reduce

    def all_reduce(self, group, arrays):
        self.left = None
        return (yield from right(self, group, arrays))

    monkeypatch.setattr(Feedback, "all_reduce", all_reduce)


def feedback_of_the_sum(monkeypatch):
    """Each rank keeps what the sum of all lacks, in the place of what it has not sent itself."""
    right = Feedback.all_reduce

    def all_reduce(self, group, arrays):
        totals = yield from right(self, group, arrays)
        self.left = [array - total for array, total in zip(arrays, totals, strict=True)]
        return totals

    monkeypatch.setattr(Feedback, "all_reduce", all_reduce)


BUGS_OF_LARGE_BATCHES = {
    function.__name__: function
    for function in (
        rate_scaled_twice,
        statistics_over_the_wrong_group,
        a_shuffle_for_each_worker,
        the_same_order_in_each_epoch,
        clipping_per_shard,
        norm_counts_shared_weights_twice,
        lars_applies_its_ratio_at_the_write,
        zero_parameters_never_move,
        feedback_is_forgotten,
        feedback_of_the_sum,
    )
}
