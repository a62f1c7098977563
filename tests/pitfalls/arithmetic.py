"""Bugs in what layers, losses, sums and optimizers make of numbers, each with its check.

On top, the network and the mini-batches of most checks of this folder.
"""

import math

import numpy as np
from cases import eighths
from compared import J_and_gradients, assert_equals_full_batch, assert_same, assert_same_bits, parameters

import minipipe as mp
from minipipe import network
from minipipe.arrays import leaves, scaled
from minipipe.cluster import mail
from minipipe.exact import Rational, rational
from minipipe.layers.activations import Elementwise
from minipipe.layers.layer import commit
from minipipe.losses import Loss
from minipipe.parallel.batches import MicroBatches
from minipipe.parallel.stage import Stage
from minipipe.sums import TreeSum

LOSS = mp.MeanSquaredError()
LAYERS = [mp.Linear(3, 4), mp.ReLU(), mp.Linear(4, 4), mp.ReLU(), mp.Linear(4, 4)]


def exact(layers):
    return [layer.copy(eighths) for layer in mp.Sequential(layers, None).layers]


def mini_batch(m, convert=eighths):
    rng = np.random.default_rng(m)
    return convert(rng.standard_normal((3, m))), convert(rng.standard_normal((4, m)))


def gradient_scale(monkeypatch):
    """Each micro-batch's mean cost is sent back undivided, so gradients are M times too large."""
    forward = Loss.forward
    monkeypatch.setattr(Loss, "forward", lambda self, A, Y, m=None: forward(self, A, Y))


def check_gradient_scale():
    assert_equals_full_batch(mp.Pipeline(exact(LAYERS), LOSS, 2, 4), *mini_batch(8))


def unequal_microbatches(monkeypatch):
    """The micro-batches' means are averaged over M, although the last ones are shorter."""
    init = MicroBatches.__init__

    def with_equal_weights(self, batches, n, *others, **named):
        init(self, batches, n, *others, **named)
        self.origins = [origin._replace(m=n * Y.shape[-1]) for origin, Y in zip(self.origins, self.labels)]

    monkeypatch.setattr(MicroBatches, "__init__", with_equal_weights)


def check_unequal_microbatches():
    for net in (mp.Pipeline(exact(LAYERS), LOSS, 2, 3), mp.DataParallel(exact(LAYERS), LOSS, 3)):
        assert_equals_full_batch(net, *mini_batch(8))


def reused_receive_buffer(monkeypatch):
    """Messages of one shape are received into one buffer, which the layer's cache still refers to."""
    buffers = {}

    def own(value):
        if not isinstance(value, np.ndarray):
            return value, 0
        buffer = buffers.setdefault((value.shape, value.dtype), np.empty_like(value))
        buffer[...] = value
        return buffer, buffer.nbytes

    monkeypatch.setattr(mail, "copy_for_receiver", own)


def check_reused_receive_buffer():
    assert_same_bits(mp.Pipeline(LAYERS, LOSS, 5, 4, schedule="gpipe"), *mini_batch(8, np.float64))


def in_place_backward(monkeypatch):
    """An activation's backward writes into the array that it was handed."""

    def backward_input(self, dA):
        dA *= self.slope(self.cached(dA, np.shape))
        return dA

    monkeypatch.setattr(Elementwise, "backward_input", backward_input)


def check_in_place_backward():
    """In a sum of branches, too, where each branch gets the same dZ."""
    layers = [
        mp.ReLU(), mp.Sigmoid(), mp.Tanh(), mp.Linear(2, 2), mp.LayerNorm(2), mp.Dropout(),
        mp.Residual(mp.Tanh()), mp.Add([mp.ReLU()], [mp.Tanh()]), mp.Concat([mp.ReLU()]),
    ]
    for layer in layers:
        layer.initialize(np.random.default_rng(0))
        A_prev, dZ = np.array([[1.0, -2.0], [0.5, 3.0]]), np.array([[1.0, 2.0], [3.0, 4.0]])
        layer.forward(A_prev)
        layer.backward(dZ)
        assert A_prev.tolist() == [[1.0, -2.0], [0.5, 3.0]] and dZ.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def dtype_promotion(monkeypatch):
    """A NumPy scalar in a formula turns float32 into float64."""
    forward = mp.ReLU.forward
    monkeypatch.setattr(mp.ReLU, "forward", lambda self, Z: forward(self, Z) * np.float64(1))


def check_dtype_promotion():
    pipe = mp.Pipeline(LAYERS, LOSS, 5, 2, dtype=np.float32)
    J = pipe.forward_backward(*mini_batch(8, np.float32))
    assert {array.dtype for array in (J, *leaves(pipe.gradients))} == {np.dtype(np.float32)}
    assert {message.n_bytes for message in pipe.trace.messages} == {4 * 4 * 4}  # 4 units, 4 samples, 4 bytes


def equal_shape_equal_weights(monkeypatch):
    """Weights are seeded by the layer's shape, so layers of one shape start identical."""
    initialize = mp.Linear.initialize

    def by_shape(self, rng, dtype=np.float64):
        initialize(self, np.random.default_rng([self.n_prev, self.n]), dtype)

    monkeypatch.setattr(mp.Linear, "initialize", by_shape)


def check_equal_shape_equal_weights():
    layers = mp.Sequential([mp.Linear(4, 4), mp.Linear(4, 4)], None).layers
    assert not np.array_equal(layers[0].W, layers[1].W)


def cost_depends_on_company(monkeypatch):
    """Softmax subtracts the maximum of the whole micro-batch instead of each column's own."""

    def shifted_by_the_batch(self, Z, Y, m):
        with np.errstate(all="ignore"):
            shifted = Z - Z.max()
            exponentials = np.exp(shifted)
            total = exponentials.sum(axis=0)
            self.cache = exponentials / total, Y, m
            return (np.log(total) - (Y * shifted).sum(axis=0)).sum() / m

    monkeypatch.setattr(mp.SoftmaxCrossEntropy, "cost", shifted_by_the_batch)


def check_cost_depends_on_company():
    loss = mp.SoftmaxCrossEntropy()
    Z, Y = np.array([[1.0, 2000.0], [2.0, 0.0]]), np.array([[1.0, 1.0], [0.0, 0.0]])
    alone = loss.forward(Z[:, :1], Y[:, :1], m=2)
    dZ_alone = loss.backward()
    other = loss.forward(Z[:, 1:], Y[:, 1:], m=2)
    together = loss.forward(Z, Y, m=2)
    assert together == alone + other and np.array_equal(loss.backward()[:, :1], dZ_alone)


def attention_depends_on_company(monkeypatch):
    """Attention subtracts the largest score of the whole micro-batch instead of each query's own."""

    def shifted_by_the_batch(self, S):
        visible = np.triu(np.ones(S.shape[2:], bool)) if self.causal else True
        with np.errstate(all="ignore"):
            exponentials = np.exp(S - S.max()) * visible
            return exponentials / exponentials.sum(axis=2, keepdims=True)

    monkeypatch.setattr(mp.MultiHeadAttention, "_softmax", shifted_by_the_batch)


def check_attention_depends_on_company():
    """Scores of the second sample that are 10^6 larger leave the first one's shares as they were."""
    layer = mp.MultiHeadAttention(1, 1)
    layer.initialize(np.random.default_rng(0))
    A_prev = np.array([[[1.0, 1000.0], [2.0, 0.0]]])
    alone = layer.forward(A_prev[..., :1])
    assert np.array_equal(layer.forward(A_prev)[..., :1], alone)


def attention_sees_the_future(monkeypatch):
    """The causal mask is put on behind the softmax, whose sum has counted what it hides."""

    def masked_too_late(self, S):
        exponentials = np.exp(S - S.max(axis=2, keepdims=True))
        P = exponentials / exponentials.sum(axis=2, keepdims=True)
        return P * np.triu(np.ones(S.shape[2:], bool)) if self.causal else P

    monkeypatch.setattr(mp.MultiHeadAttention, "_softmax", masked_too_late)


def check_attention_sees_the_future():
    """What comes later changes nothing before: not the shares, and not their sum."""
    layer = mp.MultiHeadAttention(2, 1, causal=True)
    layer.initialize(np.random.default_rng(0))
    layer = layer.copy(rational)
    A_prev = rational([[[1], [2], [-1]], [[0], [1], [3]]])
    for t in (1, 2):
        assert np.array_equal(layer.forward(A_prev)[:, :t], layer.forward(A_prev[:, :t]))


def batch_norm_statistics_leak(monkeypatch):
    """The running statistics are updated in the forward, so once for each micro-batch, and again
    on recomputation.
    """
    count = mp.BatchNorm.count

    def count_and_commit(self, mean, var, n):
        count(self, mean, var, n)
        self.commit(self.statistics)
        self.statistics = None

    monkeypatch.setattr(mp.BatchNorm, "count", count_and_commit)


def running_statistics(recompute, *sizes):
    """Of the numbers 0, 1, 2, ... in mini-batches of these sizes; the newest mini-batch counts alone."""
    layers = [mp.BatchNorm(1, momentum=1), mp.Linear(1, 1)]
    layers = [layer.copy(rational) for layer in mp.Sequential(layers, None).layers]
    pipe = mp.Pipeline(layers, LOSS, 2, 2, recompute=recompute)
    for m in sizes:
        pipe.forward_backward(rational([range(m)]), rational([range(m)]))
        pipe.step(mp.SGD(Rational(1, 8)))
    return pipe.layers[0].running_mean[0, 0], pipe.layers[0].running_var[0, 0]


def check_batch_norm_statistics_leak():
    """0, 1, 2, 3 have mean 3/2 and unbiased variance 5/3, in one mini-batch of two micro-batches,
    recomputed or not.
    """
    for recompute in ("never", "always"):
        assert running_statistics(recompute, 4) == (Rational(3, 2), Rational(5, 3))


def batch_norm_sums_leak_into_the_next_mini_batch(monkeypatch):
    """What a mini-batch has counted is not forgotten at its end."""

    def commit_with_what_was_there(layers, total):
        if total is None:
            return
        left_over = getattr(layers[0], "left_over", [None] * len(layers))
        total = [new if old is None else old + new for old, new in zip(left_over, total, strict=True)]
        layers[0].left_over = total
        commit(layers, total)

    monkeypatch.setattr(network, "commit", commit_with_what_was_there)


def check_batch_norm_sums_leak_into_the_next_mini_batch():
    assert running_statistics("never", 10, 4) == running_statistics("never", 4)


def dropout_differs_on_recomputation(monkeypatch):
    """Masks come from a generator with a state, which nobody sets back before a recomputation."""
    generator = np.random.default_rng(0)
    monkeypatch.setattr(mp.Dropout, "_kept", lambda self, shape: generator.random(shape) >= self.p)


def check_dropout_differs_on_recomputation():
    block = mp.Residual(mp.Dropout(), mp.Tanh(), mp.Dropout())
    layers = [mp.Linear(3, 4), mp.Dropout(), mp.Linear(4, 4), block]
    pipes = [mp.Pipeline(layers, LOSS, 3, 4, recompute=mode) for mode in ("never", "always")]
    assert_same(*(J_and_gradients(pipe, *mini_batch(8, np.float64)) for pipe in pipes))


def gradients_kept_M_wide(monkeypatch):
    """The weight gradients of all micro-batches are kept, and added at the end."""

    def keep(self, i, term):
        self.pending[0, i] = term

    def total(self):
        terms, tree = dict(self.pending), TreeSum(self.n)
        for (_, i), term in sorted(terms.items()):
            add(tree, i, term)
        return tree.pending.popitem()[1]

    add = TreeSum.add
    monkeypatch.setattr(TreeSum, "add", keep)
    monkeypatch.setattr(TreeSum, "value", property(total))


def check_gradients_kept_M_wide():
    for schedule in ("naive", "gpipe", "gpipe-fifo", "1f1b"):
        pipe = mp.Pipeline(LAYERS, LOSS, 2, 32, schedule=schedule)
        pipe.start(*mini_batch(32, np.float64))
        most = 0
        while pipe.tick():
            held = [sums for stage in pipe.stages for sums in stage.totals.held()[0]]
            most = max([most, *(len(pending) for sums in held for pending in sums)])
        assert 0 < most <= math.log2(32) + 1


def stale_weights_in_a_synchronous_schedule(monkeypatch):
    """A stage updates its weights after each backward, before the last one of the mini-batch."""
    backward = Stage.backward

    def backward_and_update(self, *args):
        results = yield from backward(self, *args)
        for layer in self.layers:
            if layer.W is not None:
                layer.W = layer.W + layer.W
        return results

    monkeypatch.setattr(Stage, "backward", backward_and_update)


def check_stale_weights_in_a_synchronous_schedule():
    pipe = mp.Pipeline(LAYERS, LOSS, 3, 4, schedule="1f1b")
    before = [layer.copy() for layer in pipe.layers]
    pipe.forward_backward(*mini_batch(8, np.float64))
    assert_same(parameters(pipe.layers), parameters(before))


def weight_decay_by_scaling_the_loss(monkeypatch):
    """A new learning rate is put into practice by scaling the gradients, which leaves the weight
    decay behind.
    """
    update = mp.SGD.update

    def with_scaled_gradients(self, layers, gradients):
        rate = self.learning_rate
        self.first_rate = self.learning_rate = getattr(self, "first_rate", rate)
        update(self, layers, scaled(gradients, rate / self.first_rate))
        self.learning_rate = rate

    monkeypatch.setattr(mp.SGD, "update", with_scaled_gradients)


def check_weight_decay_by_scaling_the_loss():
    """W - rate decay W - rate g, with the rate of this very update in both places."""
    layer = mp.Linear(1, 1, W=[[1.0]], b=[[0.0]])
    optimizer = mp.SGD(0.125, weight_decay=0.5)
    W = 1.0
    for rate in (0.125, 0.5):
        optimizer.learning_rate = rate
        optimizer.update([layer], [(np.array([[0.25]]), np.array([[0.0]]))])
        W = W - rate * 0.5 * W - rate * 0.25
        assert layer.W[0, 0] == W


def momentum_after_a_rate_change(monkeypatch):
    """The velocity of v = m v + rate g is not corrected when the rate changes."""
    step = mp.SGD.step

    def uncorrected(self, g, *memory):
        self.last_rate = self.learning_rate
        return step(self, g, *memory)

    monkeypatch.setattr(mp.SGD, "step", uncorrected)


def check_momentum_after_a_rate_change():
    """v = m v + rate g stays rate * u, with u = m u + g, when the rate changes."""
    layers = [mp.Linear(1, 1, W=[[1.0]], b=[[0.0]]) for _ in range(2)]
    optimizers = mp.SGD(0.5, momentum=0.5), mp.SGD(0.5, momentum=0.5, rate_inside=True)
    for rate in (0.5, 0.125, 0.25):
        for layer, optimizer in zip(layers, optimizers):
            optimizer.learning_rate = rate
            optimizer.update([layer], [(np.array([[0.25]]), np.array([[1.0]]))])
        assert layers[0].W[0, 0] == layers[1].W[0, 0] and layers[0].b[0, 0] == layers[1].b[0, 0]
