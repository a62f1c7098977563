"""Bugs of the kinds that pipeline frameworks have shipped, ready to be put into minipipe.

Each function puts one bug in, with pytest's `monkeypatch`, which takes it out again. `test_pitfalls.py` has a
check of the same name for each, and shows that the check fails with the bug in. Those of copies of a network
and of shards of its layers stand in `bugs_of_splits.py`, those of large mini-batches in
`bugs_of_large_batches.py`, those of parameter servers and federated averaging in `bugs_of_servers.py`. To see
all that a bug breaks:

    python -m pytest --bug reused_receive_buffer
"""

from dataclasses import replace

import numpy as np
from pitfalls.bugs_of_large_batches import BUGS_OF_LARGE_BATCHES
from pitfalls.bugs_of_servers import BUGS_OF_SERVERS
from pitfalls.bugs_of_splits import BUGS_OF_SPLITS

from minipipe import SGD, BatchNorm, Dropout, Linear, MultiHeadAttention, ReLU, SoftmaxCrossEntropy, Trace
from minipipe import network
from minipipe.cluster import mail
from minipipe.layers.activations import Elementwise
from minipipe.losses import Loss
from minipipe.layers.statistics import commit
from minipipe.partitioning import solvers
from minipipe.pipeline import Stage
from minipipe.pipeline.batches import MicroBatches
from minipipe.schedules import SCHEDULES, Action, Schedule, bidirectional, schedule, validation
from minipipe.schedules.building import schedule_of
from minipipe.sums import TreeSum


def gradient_scale(monkeypatch):
    """Each micro-batch's mean cost is sent back undivided, so gradients are M times too large."""
    forward = Loss.forward
    monkeypatch.setattr(Loss, "forward", lambda self, A, Y, m=None: forward(self, A, Y))


def unequal_microbatches(monkeypatch):
    """The micro-batches' means are averaged over M, although the last ones are shorter."""
    init = MicroBatches.__init__

    def with_equal_weights(self, batches, n, step, grain=None, n_takers=1):
        init(self, batches, n, step, grain, n_takers)
        self.origins = [origin._replace(m=n * Y.shape[-1]) for origin, Y in zip(self.origins, self.labels)]

    monkeypatch.setattr(MicroBatches, "__init__", with_equal_weights)


def reused_receive_buffer(monkeypatch):
    """Messages of one shape are received into one buffer, which the layer's cache still refers to."""
    buffers = {}

    def own(value):
        if not isinstance(value, np.ndarray):
            return value, 0
        buffer = buffers.setdefault((value.shape, value.dtype), np.empty_like(value))
        buffer[...] = value
        return buffer, buffer.nbytes

    monkeypatch.setattr(mail, "own", own)


def in_place_backward(monkeypatch):
    """An activation's backward writes into the array that it was handed."""

    def backward_input(self, dA):
        dA *= self.slope(self.cached(dA, np.shape))
        return dA

    monkeypatch.setattr(Elementwise, "backward_input", backward_input)


def dtype_promotion(monkeypatch):
    """A NumPy scalar in a formula turns float32 into float64."""
    forward = ReLU.forward
    monkeypatch.setattr(ReLU, "forward", lambda self, Z: forward(self, Z) * np.float64(1))


def equal_shape_equal_weights(monkeypatch):
    """Weights are seeded by the layer's shape, so layers of one shape start identical."""
    initialize = Linear.initialize
    monkeypatch.setattr(
        Linear,
        "initialize",
        lambda self, rng, dtype=np.float64: initialize(
            self, np.random.default_rng([self.n_prev, self.n]), dtype
        ),
    )


def cost_depends_on_company(monkeypatch):
    """Softmax subtracts the maximum of the whole micro-batch instead of each column's own."""


    def shifted_by_the_batch(self, Z, Y, m):
        with np.errstate(all="ignore"):
            shifted = Z - Z.max()
            exponentials = np.exp(shifted)
            total = exponentials.sum(axis=0)
            self.cache = exponentials / total, Y, m
            return (np.log(total) - (Y * shifted).sum(axis=0)).sum() / m

    monkeypatch.setattr(SoftmaxCrossEntropy, "cost", shifted_by_the_batch)


def attention_depends_on_company(monkeypatch):
    """Attention subtracts the largest score of the whole micro-batch instead of each query's own."""

    def shifted_by_the_batch(self, S):
        visible = np.triu(np.ones(S.shape[2:], bool)) if self.causal else True
        with np.errstate(all="ignore"):
            exponentials = np.exp(S - S.max()) * visible
            return exponentials / exponentials.sum(axis=2, keepdims=True)

    monkeypatch.setattr(MultiHeadAttention, "_softmax", shifted_by_the_batch)


def attention_sees_the_future(monkeypatch):
    """The causal mask is put on behind the softmax, whose sum has counted what it hides."""

    def masked_too_late(self, S):
        exponentials = np.exp(S - S.max(axis=2, keepdims=True))
        P = exponentials / exponentials.sum(axis=2, keepdims=True)
        return P * np.triu(np.ones(S.shape[2:], bool)) if self.causal else P

    monkeypatch.setattr(MultiHeadAttention, "_softmax", masked_too_late)


def batch_norm_statistics_leak(monkeypatch):
    """The running statistics are updated in the forward, so once for each micro-batch, and again
    on recomputation.
    """
    count = BatchNorm.count

    def count_and_commit(self, mean, var, n):
        count(self, mean, var, n)
        self.commit(self.statistics)
        self.statistics = None

    monkeypatch.setattr(BatchNorm, "count", count_and_commit)


def batch_norm_sums_leak_into_the_next_mini_batch(monkeypatch):
    """What a mini-batch has counted is not forgotten at its end."""
    left_over = {}

    def commit_with_what_was_there(layers, total):
        if total is None:
            return
        if layers[0] in left_over:
            total = [new if old is None else old + new for old, new in zip(left_over[layers[0]], total)]
        left_over[layers[0]] = total
        commit(layers, total)

    monkeypatch.setattr(network, "commit", commit_with_what_was_there)


def dropout_differs_on_recomputation(monkeypatch):
    """Masks come from a generator with a state, which nobody sets back before a recomputation."""
    generator = np.random.default_rng(0)
    monkeypatch.setattr(Dropout, "_kept", lambda self, shape: generator.random(shape) >= self.p)


def missing_and_phantom_actions(monkeypatch):
    """The last device of 1F1B lists its forwards as 1..M instead of 0..M-1."""
    right = SCHEDULES["1f1b"]

    def wrong(n_stages, n_microbatches):
        devices = right(n_stages, n_microbatches).devices
        last = tuple(Action(kind, s, i + 1 if kind == "F" else i) for kind, s, i in devices[-1])
        return Schedule((*devices[:-1], last), n_stages, n_microbatches, "1f1b")

    monkeypatch.setitem(SCHEDULES, "1f1b", wrong)


def duplicated_action_passes(monkeypatch):
    """The validator compares sets, so an action that is listed twice is accepted."""

    def of_sets(checked, *limits):
        devices = tuple(tuple(dict.fromkeys(order)) for order in checked.devices)
        return validation.faults(Schedule(devices, checked.n_stages, checked.n_microbatches))

    monkeypatch.setattr(schedule, "faults", of_sets)


def deadlock_passes(monkeypatch):
    """Each device's order is checked by itself, never how the devices wait for each other."""
    monkeypatch.setattr(
        schedule,
        "faults",
        lambda checked, *limits: [*validation._wrong_count(checked), *validation._wrong_order(checked)],
    )


def dropped_micro_batches(monkeypatch):
    """A schedule in two directions cuts M into units of K, and forgets what is left."""
    right = bidirectional.chimera
    monkeypatch.setitem(
        SCHEDULES,
        "chimera",
        lambda n_devices, n_microbatches: replace(
            right(n_devices, max(n_devices, n_microbatches // n_devices * n_devices)),
            n_microbatches=n_microbatches,
            copy_of=right(n_devices, n_microbatches).copy_of,
        ),
    )


def three_bubbles_one_name(monkeypatch):
    """Whichever bubble is asked for, the answer is idle / ideal time."""
    bubble = Trace.bubble
    monkeypatch.setattr(Trace, "bubble", lambda self, of: bubble(self, "ideal"))


def one_f_one_b_has_a_smaller_bubble(monkeypatch):
    """GPipe is compared with 1F1B at twice as many micro-batches, "since there is memory for them"."""
    right = SCHEDULES["1f1b"]
    monkeypatch.setitem(
        SCHEDULES, "1f1b", lambda n_devices, n_microbatches: right(n_devices, 2 * n_microbatches)
    )


def hang_when_M_is_less_than_K(monkeypatch):
    """The warm-up does not stop at M, so a device waits for micro-batches that do not exist."""

    def for_many_microbatches(n_stages, n_microbatches):
        def order(device):
            warm_up = n_stages - device - 1
            actions = [("F", i) for i in range(warm_up)]
            for i in range(n_microbatches - warm_up):
                actions += [("F", warm_up + i), ("B", i)]
            actions += [("B", i) for i in range(n_microbatches - warm_up, n_microbatches)]
            return [Action(kind, device, i) for kind, i in actions]

        return schedule_of("1f1b", n_stages, n_microbatches, order)

    monkeypatch.setitem(SCHEDULES, "1f1b", for_many_microbatches)


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


def the_picture_is_not_the_run(monkeypatch):
    """The bubble is printed from the formula, whatever the run's idle time was."""

    def formula(self, of):
        n_microbatches = len(self.spans_of(0)) // 2
        return (self.n_devices - 1) / (n_microbatches + self.n_devices - 1)

    monkeypatch.setattr(Trace, "bubble", formula)


def stale_weights_in_a_synchronous_schedule(monkeypatch):
    """A stage updates its weights after each backward, before the last one of the mini-batch."""
    backward = Stage.backward

    def backward_and_update(self, *args):
        results = backward(self, *args)
        for layer in self.layers:
            if layer.W is not None:
                layer.W = layer.W + layer.W
        return results

    monkeypatch.setattr(Stage, "backward", backward_and_update)


def weight_decay_by_scaling_the_loss(monkeypatch):
    """A new learning rate is put into practice by scaling the gradients, which leaves the weight
    decay behind.
    """
    update = SGD.update

    def with_scaled_gradients(self, layers, gradients):
        rate = self.learning_rate
        self.first_rate = self.learning_rate = getattr(self, "first_rate", rate)
        update(self, layers, [tuple(part * (rate / self.first_rate) for part in pair) for pair in gradients])
        self.learning_rate = rate

    monkeypatch.setattr(SGD, "update", with_scaled_gradients)


def momentum_after_a_rate_change(monkeypatch):
    """The velocity of v = m v + rate g is not corrected when the rate changes."""
    step = SGD.step

    def uncorrected(self, g, *memory):
        self.last_rate = self.learning_rate
        return step(self, g, *memory)

    monkeypatch.setattr(SGD, "step", uncorrected)


def balancing_by_shifted_costs(monkeypatch):
    """The smallest cost is subtracted from all costs before they are balanced, so stages of many layers
    look light.
    """
    sums = solvers.sums
    monkeypatch.setattr(solvers, "sums", lambda costs: sums([cost - min(costs) for cost in costs]))


BUGS = {
    function.__name__: function
    for function in (
        gradient_scale,
        unequal_microbatches,
        reused_receive_buffer,
        in_place_backward,
        dtype_promotion,
        equal_shape_equal_weights,
        cost_depends_on_company,
        attention_depends_on_company,
        attention_sees_the_future,
        batch_norm_statistics_leak,
        batch_norm_sums_leak_into_the_next_mini_batch,
        dropout_differs_on_recomputation,
        missing_and_phantom_actions,
        duplicated_action_passes,
        dropped_micro_batches,
        three_bubbles_one_name,
        one_f_one_b_has_a_smaller_bubble,
        deadlock_passes,
        hang_when_M_is_less_than_K,
        gradients_kept_M_wide,
        the_picture_is_not_the_run,
        stale_weights_in_a_synchronous_schedule,
        weight_decay_by_scaling_the_loss,
        momentum_after_a_rate_change,
        balancing_by_shifted_costs,
    )
} | BUGS_OF_SPLITS | BUGS_OF_LARGE_BATCHES | BUGS_OF_SERVERS
