"""Bugs that come with large mini-batches, which many workers share, with their checks."""

from dataclasses import replace

import numpy as np
from compared import J_and_gradients, assert_same
from pitfalls.arithmetic import LOSS, exact, mini_batch

import minipipe as mp
from minipipe import network, training
from minipipe.arrays import leaves, norm, root, scaled, sum_of_squares
from minipipe.exact import Rational, rational
from minipipe.rates import GradualWarmUp, value_at


def rate_scaled_twice(monkeypatch):
    """The warm-up takes the whole rate for that of the small mini-batch, and multiplies it by k once more."""
    def before(self, t):
        then = value_at(self.then, t)
        k = then / self.start
        return then + (k - 1) * then * t / self.epochs

    monkeypatch.setattr(GradualWarmUp, "before", before)


def check_rate_scaled_twice():
    """A gradual warm-up begins with the small mini-batch's rate, and never passes k times it."""
    rate = GradualWarmUp(4.0, start=0.5, epochs=2)
    assert [rate(t) for t in (0, 0.5, 1, 2, 3)] == [0.5, 1.375, 2.25, 4, 4]


def statistics_over_the_wrong_group(monkeypatch):
    """Batch norm takes the statistics of all workers together, though nobody has asked for that."""
    init = mp.DataParallel.__init__

    def synchronised_init(self, *args, sums=mp.Sums(), **options):
        init(self, *args, sums=replace(sums, sync_batch_norm=True), **options)

    monkeypatch.setattr(mp.DataParallel, "__init__", synchronised_init)


def check_statistics_over_the_wrong_group():
    """Workers with 2 samples each have the gradients of micro-batches of 2."""
    layers = [mp.BatchNorm(3), mp.Linear(3, 4)]
    nets = mp.DataParallel(layers, LOSS, 2), mp.Pipeline(layers, LOSS, 1, 2)
    assert_same(*(J_and_gradients(net, *mini_batch(4, np.float64)) for net in nets))


def a_shuffle_for_each_worker(monkeypatch):
    """Each of two workers shuffles all samples by itself, and takes the first half of its own order."""
    def by_worker(m, seed, epoch):
        orders = [np.random.default_rng([seed, epoch, worker]).permutation(m) for worker in (0, 1)]
        return np.concatenate([orders[0][:m // 2], orders[1][m // 2:]])

    monkeypatch.setattr(training, "shuffled", by_worker)


def orders_of_training(n_epochs=2):
    """The samples, by number, as a training comes to them, in each epoch."""
    class Spy(mp.Linear):
        def forward(self, A_prev):
            found.extend(A_prev[0].tolist())
            return super().forward(A_prev)

    found, X = [], np.arange(8.0)[None]
    net = mp.DataParallel([Spy(1, 1)], LOSS, 2)
    mp.fit(net, X, X, mp.SGD(1e-6), n_epochs, 4, report=None)
    return np.split(np.array(found), n_epochs)


def check_a_shuffle_for_each_worker():
    """The shards of an epoch are disjoint, and all samples together."""
    assert all(sorted(order) == list(range(8)) for order in orders_of_training())


def the_same_order_in_each_epoch(monkeypatch):
    """The epoch is not handed to what shuffles."""
    shuffled = training.shuffled
    monkeypatch.setattr(training, "shuffled", lambda m, seed, epoch: shuffled(m, seed, 1))


def check_the_same_order_in_each_epoch():
    first, second = orders_of_training()
    assert first.tolist() != second.tolist()


def clipping_per_shard(monkeypatch):
    """Each device clips its own gradients by their own norm, so the direction of the whole changes."""
    def clipped(self, clip, gradients):
        if clip is None:
            return gradients
        found, rest = [], iter(gradients)
        for stage in self.stages:
            own = [next(rest) for _ in stage.layers]
            length = root(sum(map(sum_of_squares, leaves(own))))
            found += scaled(own, clip / length) if length > clip else own
        return found

    monkeypatch.setattr(mp.Parallel, "_clipped", clipped)


def check_clipping_per_shard():
    """Each parameter moves by the same share of its gradient."""
    net = mp.Pipeline(exact([mp.Linear(3, 4), mp.ReLU(), mp.Linear(4, 4)]), LOSS, 3, 2)
    net.forward_backward(*mini_batch(4))
    before = leaves([(layer.W, layer.b) for layer in net.layers])
    net.step(mp.SGD(Rational(1)), clip=Rational(1, 8))
    after = leaves([(layer.W, layer.b) for layer in net.layers])
    expected = [g / (8 * net.gradient_norm()) for g in leaves(net.gradients)]
    assert_same([old - new for old, new in zip(before, after, strict=True)], expected)


def norm_counts_shared_weights_twice(monkeypatch):
    """The norm of all gradients adds up what several layers, or devices, have of one W."""
    monkeypatch.setattr(network, "each_once", lambda gradients, ties: gradients)


def check_norm_counts_shared_weights_twice():
    """Two layers with one W = (1): A = X, J = 1/2, and each gives dW = 1; their sum is one gradient of 2."""
    layers = [mp.Linear(1, 1, W=rational([[1]]), bias=False, tie="W") for _ in range(2)]
    net = mp.Sequential(layers, LOSS)
    net.forward_backward(rational([[1]]), rational([[0]]))
    assert net.gradient_norm() == 2


def lars_applies_its_ratio_at_the_write(monkeypatch):
    """What is remembered has no local rates, so old gradients count with the newest one."""
    def before_step(self, W, g):
        self.local = self.trust * norm(W) / norm(g) if norm(W) and norm(g) else 1
        return mp.SGD.before_step(self, W, g)

    monkeypatch.setattr(mp.LARS, "before_step", before_step)
    monkeypatch.setattr(mp.LARS, "after_step", lambda self, W, step: (W, step * self.local))


def check_lars_applies_its_ratio_at_the_write():
    layer = mp.Linear(1, 1, W=rational([[4]]), bias=False)
    optimizer = mp.LARS(Rational(1), Rational(9, 10), trust=Rational(1, 10))
    for g in (1, 2):
        optimizer.update([layer], [(rational([[g]]), None)])
    assert layer.W[0, 0] == Rational(72, 25)


def zero_parameters_never_move(monkeypatch):
    """The trust ratio of a parameter of zeros is 0."""
    before_step = mp.LARS.before_step
    monkeypatch.setattr(
        mp.LARS, "before_step", lambda self, W, g: before_step(self, W, g) * (1 if norm(W) else 0)
    )


def check_zero_parameters_never_move():
    layer = mp.Linear(1, 1, W=[[0.0]], bias=False)
    mp.LARS(1.0).update([layer], [(np.array([[3.0]]), None)])
    assert layer.W[0, 0] == -3
