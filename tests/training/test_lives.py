"""Lives of a training: updates, Ctrl-C at any line, files, copies, other splits, refused calls, left runs.

Beside it a `Sequential` makes the same updates and meets nothing of all that. After each event both have the
same arrays, bit for bit: parameters, running statistics, and what their optimizers remember.
"""

import copy
import pickle
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from compared import assert_same, state
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test,
)
from training.test_interrupted_steps import interrupted

import minipipe as mp
from minipipe.exact import Rational, rational
from minipipe.order import in_copies, with_updates, with_zero
from minipipe.schedules import build, data_parallel

LOSS = mp.MeanSquaredError()


def layers(number):
    """Six layers, of which two are inside another one; `number` converts their arrays."""
    made = [
        mp.Linear(3, 4), mp.BatchNorm(4), mp.ReLU(), mp.Residual(mp.Linear(4, 4), mp.ReLU()),
        mp.Dropout(0.25), mp.Linear(4, 2),
    ]
    return [layer.copy(number) for layer in mp.Sequential(made, LOSS).layers]


def parallel(split, schedule="1f1b", memory=mp.Memory(), sums=mp.Sums(grain=2), engine="cluster"):
    """Return a function that makes such a network of its layers."""
    return lambda made: mp.Parallel(made, LOSS, split, schedule, memory, sums, mp.Machine(engine))


PIPE, COPIES = mp.Split(stages=2, microbatches=4), mp.Split(replicas=2, stages=2, microbatches=4)
IN_COPIES, BUCKETS = in_copies(build("1f1b", 2, 2), 2), mp.Sums(buckets="layer", grain=2)
SPLITS = {
    "one device": lambda made: mp.Sequential(made, LOSS, grain=2),
    "pipeline": parallel(mp.Split(stages=3, microbatches=4), "gpipe"),
    "recomputed": parallel(mp.Split(stages=2, microbatches=2), "gpipe", mp.Memory("always")),
    "threads": parallel(PIPE, engine="threads"),
    "updates": parallel(PIPE, with_updates(build("zb-h1", 2, 4))),
    "copies": parallel(mp.Split(replicas=3, microbatches=4)),
    "copies with buckets": parallel(COPIES, sums=BUCKETS),
    "copies with updates": parallel(COPIES, with_updates(IN_COPIES)),
    "ZeRO 1": parallel(mp.Split(replicas=2, microbatches=4), memory=mp.Memory(zero=1)),
    "ZeRO 2 on threads": parallel(COPIES, memory=mp.Memory(zero=2), sums=BUCKETS, engine="threads"),
    "ZeRO 3": parallel(mp.Split(replicas=3), memory=mp.Memory(zero=3)),
    "ZeRO 3, stages": parallel(COPIES, memory=mp.Memory("sqrt", zero=3)),
    "ZeRO 3 of an order": parallel(COPIES, with_zero(IN_COPIES, 3)),
}
SHARDS = {
    "shards": parallel(mp.Split(shards=2, microbatches=4), "gpipe"),
    "shards with updates": parallel(
        mp.Split(shards=2, stages=2, microbatches=4), with_updates(build("1f1b", 2, 4))
    ),
    "shards and copies": parallel(
        mp.Split(replicas=2, shards=2, microbatches=4), with_updates(data_parallel(2, 4))
    ),
    "shards and ZeRO 1": parallel(mp.Split(2, 2, 2, microbatches=4), with_zero(IN_COPIES, 1)),
    "shards and ZeRO 3": parallel(
        mp.Split(2, 3, 2, microbatches=4), memory=mp.Memory(zero=3), sums=BUCKETS
    ),
}
TOGETHER = mp.Sums(sync_batch_norm=True)
STATISTICS = {
    "copies": parallel(mp.Split(replicas=3), sums=TOGETHER),
    "copies of stages": parallel(mp.Split(replicas=2, stages=2), memory=mp.Memory("always"), sums=TOGETHER),
    "shards and ZeRO 2": parallel(mp.Split(2, 2, 2), memory=mp.Memory(zero=2), sums=TOGETHER),
}


class Life(RuleBasedStateMachine):
    """In floats, in splits that have the bits of one device."""

    splits, grain, number, most_updates = SPLITS, 2, staticmethod(np.float64), 100
    seeds = st.integers(0, 3)

    @initialize(data=st.data())
    def begin(self, data):
        self.alone = mp.Sequential(layers(self.number), LOSS, grain=self.grain), self.optimizer()
        self.net, self.its = data.draw(self.of_splits())(layers(self.number)), self.optimizer()

    def of_splits(self):
        return st.sampled_from(sorted(self.splits)).map(self.splits.get)

    def optimizer(self):
        return mp.Adam(0.125)

    def batch(self, seed):
        rng, m = np.random.default_rng(seed), 8 + 2 * seed
        X, Y = rng.integers(-4, 5, (3, m)) / 4, rng.integers(-4, 5, (2, m)) / 4
        return self.number(X), self.number(Y)

    @invariant()
    def same_arrays(self):
        net, optimizer = self.alone
        expected = state(net.layers), dict(optimizer.memory), optimizer.n_updates, net.n_steps
        found = state(self.net.layers), dict(self.its.memory), self.its.n_updates, self.net.n_steps
        assert_same(found, expected)

    def may_update(self):
        return not hasattr(self, "net") or self.net.n_steps < self.most_updates

    @precondition(may_update)
    @rule(seed=seeds)
    def update(self, seed):
        batch = self.batch(seed)
        assert self.net.train([batch], self.its) == self.alone[0].train([batch], self.alone[1])

    @precondition(may_update)
    @rule(seed=seeds, where=st.floats(0, 1))
    def update_with_an_interrupt(self, seed, where):
        self.net.forget_run()  # a run under way cannot be copied
        batch, (net, its) = self.batch(seed), copy.deepcopy((self.net, self.its))
        n_lines, _ = interrupted(partial(net.train, [batch], its))
        before = self.net.n_steps
        interrupted(partial(self.net.train, [batch], self.its), int(where * n_lines))
        if self.net.n_steps > before:
            self.alone[0].train([batch], self.alone[1])

    @rule(data=st.data())
    def go_on_from_a_file(self, data):
        with tempfile.TemporaryDirectory() as folder:
            mp.save(Path(folder) / "net.npz", self.net, self.its)
            made = mp.Sequential(layers(self.number), LOSS, seed=1).layers
            self.net, self.its = data.draw(self.of_splits())(made), mp.Adam(0.5)
            mp.load(Path(folder) / "net.npz", self.net, self.its)

    @rule(way=st.sampled_from([copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))]))
    def go_on_with_a_copy(self, way):
        self.net.forget_run()
        self.net, self.its = way((self.net, self.its))

    @precondition(may_update)
    @rule(seed=seeds, n_ticks=st.integers(0, 12))
    def leave_a_run(self, seed, n_ticks):
        if not hasattr(self.net, "tick") or self.net._options.on.engine != "cluster":
            return
        batch, has_updates = self.batch(seed), self.net.has_updates
        self.net.start(*batch, self.its if has_updates else None)
        if sum(self.net.tick() for _ in range(n_ticks)) == n_ticks:
            return
        if has_updates:  # it has come to its end
            self.alone[0].train([batch], self.alone[1])

    @rule(seed=seeds)
    def refuse(self, seed):
        X, Y = self.batch(seed)
        for batches, optimizer, error in [
            ([(X, Y), (X, Y[:, 1:])], self.its, ValueError), ([(X[:2], Y)], self.its, ValueError),
            ([(X, Y)], "adam", ValueError),
        ]:
            with pytest.raises(error):
                self.net.train(batches, optimizer)


class LifeOfShards(Life):
    """In fractions, which no file holds, and in which the bits of shards are those of one device, too."""

    splits, number = SHARDS, staticmethod(lambda array: rational(np.round(8 * array) / 8))
    most_updates = 2  # fractions grow long
    go_on_from_a_file = None

    def optimizer(self):
        half = Rational(1, 2)
        return mp.SGD(half / 4, momentum=half, weight_decay=half / 8, weights_only=True)


class LifeOfCopies(LifeOfShards):
    """In fractions, with the statistics of batch norm put together: those of the whole mini-batch."""

    splits, grain = STATISTICS, None


@pytest.mark.parametrize("kind", [Life, LifeOfShards, LifeOfCopies])
@pytest.mark.parametrize("n_lives, n_events", [(6, 10), pytest.param(15, 20, marks=pytest.mark.slow)])
def test_a_training_has_the_arrays_of_one_that_meets_nothing(kind, n_lives, n_events):
    run_state_machine_as_test(kind, settings=settings(max_examples=n_lives, stateful_step_count=n_events))
