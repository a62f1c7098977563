"""Checks of what large mini-batches are not to get wrong; `bugs_of_large_batches.py` puts each bug in."""

import numpy as np
from cases import eighths
from compared import J_and_gradients, assert_same

import minipipe as mp
from minipipe.cluster import Cluster
from minipipe.collectives import Feedback, Group, TopK
from minipipe.exact import Rational, rational
from minipipe.functions import leaves
from minipipe.rates import GradualWarmUp

LOSS = mp.MeanSquaredError()


def mini_batch(m, convert=np.asarray):
    rng = np.random.default_rng(m)
    return convert(rng.standard_normal((3, m))), convert(rng.standard_normal((4, m)))


def check_rate_scaled_twice():
    """A gradual warm-up begins with the small mini-batch's rate, and never passes k times it."""
    rate = GradualWarmUp(4.0, start=0.5, n_epochs=2)
    assert [rate(t) for t in (0, 0.5, 1, 2, 3)] == [0.5, 1.375, 2.25, 4, 4]


def check_statistics_over_the_wrong_group():
    """Workers with 2 samples each have the gradients of micro-batches of 2."""
    X, Y = mini_batch(4)
    layers = [mp.BatchNorm(3), mp.Linear(3, 4)]
    nets = mp.DataParallel(layers, LOSS, 2), mp.Pipeline(layers, LOSS, 1, 2)
    assert_same(*(J_and_gradients(net, X, Y) for net in nets))


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


def check_the_same_order_in_each_epoch():
    first, second = orders_of_training()
    assert first.tolist() != second.tolist()


def step_of(net, X, Y, **options):
    """What a step by plain SGD with rate 1 takes from each parameter."""
    net.forward_backward(X, Y)
    before = leaves([(layer.W, layer.b) for layer in net.layers])
    net.step(mp.SGD(Rational(1)), **options)
    after = leaves([(layer.W, layer.b) for layer in net.layers])
    return [a - b for a, b in zip(before, after)]


def check_clipping_per_shard():
    """Each parameter moves by the same share of its gradient."""
    X, Y = mini_batch(4, eighths)
    layers = mp.Sequential([mp.Linear(3, 4), mp.ReLU(), mp.Linear(4, 4)], None).layers
    net = mp.Pipeline([layer.copy(eighths) for layer in layers], LOSS, 3, 2)
    steps, length = step_of(net, X, Y, clip=Rational(1, 8)), net.gradient_norm()
    assert_same(steps, [g / (8 * length) for g in leaves(net.gradients)])


def check_norm_counts_shared_weights_twice():
    """Two layers with one W = (1): A = X, J = 1/2, and each gives dW = 1; their sum is one gradient of 2."""
    layers = [mp.Linear(1, 1, W=rational([[1]]), bias=False, tie="W") for _ in range(2)]
    net = mp.Sequential(layers, LOSS)
    net.forward_backward(rational([[1]]), rational([[0]]))
    assert net.gradient_norm() == 2


def check_lars_applies_its_ratio_at_the_write():
    layer = mp.Linear(1, 1, W=rational([[4]]), bias=False)
    optimizer = mp.LARS(Rational(1), Rational(9, 10), trust=Rational(1, 10))
    for g in (1, 2):
        optimizer.update([layer], [(rational([[g]]), None)])
    assert layer.W[0, 0] == Rational(72, 25)


def check_zero_parameters_never_move():
    layer = mp.Linear(1, 1, W=[[0.0]], bias=False)
    mp.LARS(1.0).update([layer], [(np.array([[3.0]]), None)])
    assert layer.W[0, 0] == -3


def sent_and_left():
    """Two ranks, three gradients each, top 1: (all that was sent, all that is left)."""
    feedbacks, sent = [Feedback(TopK(1)) for _ in range(2)], []

    def program(rank):
        group = Group(rank, range(2))
        for g in ([3, 2, 1], [1, 1, 1], [1, 1, 1]):
            total, = yield from feedbacks[rank].all_reduce(group, [rational(g) * (rank + 1)])
            sent.append(total if rank == 0 else 0)

    Cluster([program(rank) for rank in range(2)]).run()
    return sum(sent), sum(feedback.left[0] for feedback in feedbacks)


def check_feedback_is_forgotten():
    """3, 3, 3 at places 0, 1, 2, from the second rank twice that; without feedback, all at place 0."""
    assert sent_and_left()[0].tolist() == [9, 9, 9]


def check_feedback_of_the_sum():
    sent, left = sent_and_left()
    assert (sent + left).tolist() == [15, 12, 9]
