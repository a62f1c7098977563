"""One run and the next: ticks, failures, interruptions, and networks that share nothing."""

import copy

import numpy as np
import pytest
from compared import J_and_gradients, assert_same, parameters
from sampling import one_in

import minipipe as mp
from minipipe.arrays import leaves
from minipipe.layers import Layer
from minipipe.order import in_copies, with_all_reduce, with_updates
from minipipe.schedules import build, gpipe

LAYERS = [mp.Linear(4, 6), mp.BatchNorm(6), mp.Tanh(), mp.Linear(6, 6), mp.ReLU(), mp.Linear(6, 3)]
LOSS = mp.MeanSquaredError()


def mini_batch(m=16, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((4, m)).astype(dtype), rng.standard_normal((3, m)).astype(dtype)


def state(pipe, optimizer):
    """All that a run can change: parameters, running statistics, what is remembered, n_steps."""
    arrays = [getattr(layer, name) for layer in pipe.layers for name in layer.arrays]
    kept = [list(optimizer.memory.values()), optimizer.n_updates]
    return leaves(copy.deepcopy([arrays, kept, pipe.n_steps]))


ORDERS = {
    "no flush": "pipedream",
    "step": build("1f1b", 3, 4),
    "U": with_updates(build("1f1b", 3, 4)),
    "A": with_all_reduce(in_copies(build("gpipe", 3, 2), 2)),
    "A and U, copies": with_updates(in_copies(build("1f1b", 3, 2), 2)),
    "recomputed": with_updates(build("1f1b", 3, 4)),
}


def pipeline(name, layers=LAYERS):
    """A network of 3 stages with an order of `ORDERS`."""
    return mp.Parallel(
        layers, LOSS, stages=3, microbatches=1 if name == "no flush" else 4, schedule=ORDERS[name],
        recompute="always" if name == "recomputed" else "never",
    )


class Fails(Layer):
    """The identity, until its `calls` reach the number at which it raises `error`."""

    calls, at, error = {"forward": 0, "backward": 0}, {}, KeyboardInterrupt

    def call(self, name):
        self.calls[name] += 1
        if self.calls[name] == self.at.get(name):
            raise self.error

    def forward(self, A_prev):
        self.call("forward")
        return A_prev

    def backward_input(self, dZ):
        self.call("backward")
        return dZ


@pytest.mark.parametrize("error, way, at, name", one_in(
    7, [KeyboardInterrupt, ZeroDivisionError], ["forward", "backward"], [1, 4], ORDERS
))
def test_an_interrupted_run_changes_nothing_and_the_next_works(
    monkeypatch, error, way, at, name
):
    """Parameters, running statistics, what the optimizer remembers, n_steps;
    then the same bits as without the interruption."""
    layers = [*LAYERS[:2], Fails(), *LAYERS[2:]]
    pipe, untouched = pipeline(name, layers), pipeline(name, layers)
    batches, adam, its = [mini_batch(seed=seed) for seed in range(4)], mp.Adam(0.01), mp.Adam(0.01)
    pipe.train(batches, adam), untouched.train(batches, its)
    before = state(pipe, adam)
    monkeypatch.setattr(Fails, "error", error)
    monkeypatch.setattr(Fails, "at", {way: at})
    monkeypatch.setattr(Fails, "calls", {"forward": 0, "backward": 0})
    with pytest.raises(error):
        pipe.train(batches, adam)
    assert_same(state(pipe, adam), before)
    assert all(layer.cache is layer.statistics is None for layer in pipe.layers) and pipe.loss.cache is None
    for ask in (pipe.tick, lambda: pipe.J):
        with pytest.raises(RuntimeError, match=f"has stopped with an error \\({error.__name__}"):
            ask()
    monkeypatch.setattr(Fails, "at", {})
    assert pipe.train(batches, adam) == untouched.train(batches, its)
    assert_same(state(pipe, adam), state(untouched, its))


def test_an_undone_run_does_not_touch_what_the_user_sets():
    pipe, adam, its = pipeline("U"), mp.Adam(0.01), mp.Adam(0.01)
    X, Y = mini_batch()
    with pytest.raises(FloatingPointError):
        pipe.train([(X, Y * 1e300)], adam)
    pipe.layers[0].W = np.ones((6, 4))
    with pytest.raises(RuntimeError, match="has stopped with an error"):
        pipe.tick()
    pipe.train([(X, Y)], adam)
    other = pipeline("U", [mp.Linear(4, 6, W=np.ones((6, 4))), *LAYERS[1:]])
    other.train([(X, Y)], its)
    assert_same(state(pipe, adam), state(other, its))


@pytest.mark.parametrize("name", ["step", "U", "A and U, copies"])
def test_two_pipelines_of_one_list_of_layers_share_nothing(name):
    """One loss, too; tick by tick in turns."""
    nets, optimizers = [pipeline(name) for _ in range(3)], [mp.Adam(0.01) for _ in range(3)]
    alone, first, second = nets
    for net, optimizer, seed in zip(nets, optimizers, (0, 0, 1), strict=True):
        net.start(*mini_batch(seed=seed), optimizer if net.has_updates else None)
    while alone.tick():
        pass
    while first.tick() | second.tick():
        pass
    assert first.J == alone.J != second.J
    assert_same(state(first, optimizers[1]), state(alone, optimizers[0]))
    ids, others = ({id(array) for array in parameters(pipe.layers).values()} for pipe in (first, second))
    assert not ids & others


def test_the_costs_of_a_training_are_their_callers():
    pipe = pipeline("no flush")
    costs = pipe.train([mini_batch()] * 3, mp.Adam(0.01))
    last = costs[-1]
    costs.append(0)
    assert pipe.J == last


@pytest.mark.parametrize("name", ["main", "0F0", "sums of stage 0"])
def test_a_skip_connection_may_have_any_name(name):
    layers = [mp.Linear(4, 3), mp.Fork(name), mp.Linear(3, 3), mp.Tanh(), mp.Join(name)]
    X, Y = mini_batch()
    pipe, one = mp.Pipeline(layers, LOSS, 5, 4, schedule="1f1b"), mp.Pipeline(
        layers, LOSS, 1, 4, schedule=gpipe(1, 4)
    )
    assert_same(J_and_gradients(pipe, X, Y), J_and_gradients(one, X, Y))


@pytest.mark.parametrize("split, sums", [
    (dict(stages=2, microbatches=3), mp.Sums()), (dict(shards=2, microbatches=3), mp.Sums()),
    (dict(replicas=2, shards=2, microbatches=4), mp.Sums(sync_batch_norm=True)),
])
def test_a_prediction_between_two_ticks_disturbs_no_run(split, sums):
    layers = [mp.Linear(3, 4), mp.BatchNorm(4), mp.Tanh(), mp.Linear(4, 2)]
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((3, 12)), rng.standard_normal((2, 12))
    on = dict(link=mp.Link(latency=1))
    net, other = (mp.Parallel(layers, LOSS, **split, sums=sums, **on) for _ in "12")
    expected, J = other.predict(X), other.forward_backward(X, Y)
    net.start(X, Y)
    assert_same(net.predict(X), expected)
    while net.tick():
        assert_same(net.predict(X), expected)
    assert net.J == J
    assert_same(net.gradients, other.gradients)
