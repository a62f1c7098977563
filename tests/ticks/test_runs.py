"""One run and the next: ticks, failures, interruptions, runs that are left, bytes counted only once."""

import copy

import numpy as np
import pytest
from compared import J_and_gradients, assert_same, parameters
from sampling import one_in

import minipipe as mp
from minipipe.functions import leaves
from minipipe.layers import Layer
from minipipe.schedules import build, gpipe, in_copies, pipedream, with_all_reduce, with_updates

LAYERS = [mp.Linear(4, 6), mp.BatchNorm(6), mp.Tanh(), mp.Linear(6, 6), mp.ReLU(), mp.Linear(6, 3)]
LOSS = mp.MeanSquaredError()


def mini_batch(m=16, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((4, m)).astype(dtype), rng.standard_normal((3, m)).astype(dtype)


def state(pipe):
    """All that a run can change: parameters, running statistics, the optimizers' memory, n_steps."""
    arrays = [getattr(layer, name) for layer in pipe.layers for name in layer.arrays]
    kept = [stage.optimizer_state() for stage in pipe.stages]
    own = [optimizer.memory for of_shard in pipe._optimizers or [] for optimizer in of_shard]
    return leaves(copy.deepcopy([arrays, kept, [list(memory.values()) for memory in own], pipe.n_steps]))


def ledgers(pipe):
    return [pipe.trace.ledger(device) for device in range(pipe.trace.n_devices)]


ORDERS = {
    "no flush": None,
    "step": build("1f1b", 3, 4),
    "U": with_updates(build("1f1b", 3, 4)),
    "A": with_all_reduce(in_copies(build("gpipe", 3, 2), 2)),
    "A and U, copies": with_updates(in_copies(build("1f1b", 3, 2), 2)),
    "recomputed": with_updates(build("1f1b", 3, 4)),
}


def pipeline(name, layers=LAYERS, optimizer=mp.Adam(0.01), **options):
    order = ORDERS[name]
    if order is None:
        return mp.AsynchronousPipeline(layers, LOSS, 3, optimizer, **options)
    recompute = name == "recomputed"
    if "U" not in order.kinds:
        optimizer = None
    return mp.Pipeline(layers, LOSS, 3, 4, order, recompute, optimizer=optimizer, **options)


def go(pipe, *batches):
    """Train with `batches`, by whatever means the pipeline has; the costs."""
    if pipe._optimizers is not None:
        return pipe.train(batches)
    optimizer, costs = mp.Adam(0.01), []
    for X, Y in batches:
        costs.append(pipe.forward_backward(X, Y))
        pipe.step(optimizer)
    return costs


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


@pytest.mark.parametrize("order, link", one_in(2, [
    with_updates(build("1f1b", 3, 4)), with_all_reduce(in_copies(build("zb-h1", 3, 4), 2)),
    with_updates(in_copies(build("1f1b", 3, 2), 3)), with_updates(build("dualpipe-v", 2, 4)),
], [mp.Link(), mp.Link(latency=2, bandwidth=64)]), ids=lambda value: getattr(value, "name", None))
def test_ticking_through_all_reduces_and_updates_equals_running(order, link):
    X, Y = mini_batch(25)
    K, M, costs = order.n_stages, order.n_microbatches, mp.Costs(F=1, B=2, A=3, U=2)
    optimizer = mp.Adam(0.01) if "U" in order.kinds else None
    ran, ticked = (
        mp.Pipeline(LAYERS, LOSS, K, M, order, costs=costs, link=link, optimizer=optimizer) for _ in range(2)
    )
    for _ in range(2):
        J = ran.forward_backward(X, Y)
        ticked.start(X, Y)
        while ticked.tick():
            pass
        assert ticked.trace == ran.trace
        assert_same((ticked.J, state(ticked)), (J, state(ran)))
        if optimizer is None:
            assert_same(ticked.gradients, ran.gradients)


@pytest.mark.parametrize("error, way, at, name", one_in(
    4, [KeyboardInterrupt, ZeroDivisionError], ["forward", "backward"], [1, 4], ORDERS
))
def test_an_interrupted_run_changes_nothing_and_the_next_works(
    monkeypatch, error, way, at, name
):
    """Parameters, running statistics, the optimizers' memory, n_steps;
    then the same bits as without the interruption."""
    layers = [*LAYERS[:2], Fails(), *LAYERS[2:]]
    pipe, untouched = pipeline(name, layers), pipeline(name, layers)
    batches = [mini_batch(seed=seed) for seed in range(4)]
    go(pipe, *batches), go(untouched, *batches)
    before = state(pipe)
    monkeypatch.setattr(Fails, "error", error)
    monkeypatch.setattr(Fails, "at", {way: at})
    monkeypatch.setattr(Fails, "calls", {"forward": 0, "backward": 0})
    with pytest.raises(error):
        go(pipe, *batches)
    assert_same(state(pipe), before)
    assert all(layer.cache is layer.statistics is None for layer in pipe.layers) and pipe.loss.cache is None
    for ask in (pipe.tick, lambda: pipe.J):
        with pytest.raises(RuntimeError, match=f"has stopped with an error \\({error.__name__}"):
            ask()
    monkeypatch.setattr(Fails, "at", {})
    if name in ("step", "A"):  # their Adam is new in each `go`, as it was before
        assert pipe.forward_backward(*batches[0]) == untouched.forward_backward(*batches[0])
    else:
        assert go(pipe, *batches) == go(untouched, *batches)
    assert_same(state(pipe), state(untouched))


@pytest.mark.parametrize("name", ["step", "U", "A", "A and U, copies"])
def test_a_run_that_is_left_has_changed_nothing(name):
    """Updates that it has made are taken back when the next run begins."""
    X, Y = mini_batch()
    untouched = pipeline(name)
    J, makespan = untouched.forward_backward(X, Y), untouched.trace.makespan
    for n_ticks in range(1, makespan, 2):
        pipe = pipeline(name)
        pipe.start(*mini_batch(seed=1))
        for _ in range(n_ticks):
            assert pipe.tick()
        assert pipe.forward_backward(X, Y) == J
        assert_same(state(pipe), state(untouched))


def test_an_undone_run_does_not_touch_what_the_user_sets():
    pipe = pipeline("U")
    X, Y = mini_batch()
    with pytest.raises(FloatingPointError):
        pipe.forward_backward(X, Y * 1e300)
    pipe.layers[0].W = np.ones((6, 4))
    with pytest.raises(RuntimeError, match="has stopped with an error"):
        pipe.tick()
    pipe.forward_backward(X, Y)
    other = pipeline("U", [mp.Linear(4, 6, W=np.ones((6, 4))), *LAYERS[1:]])
    other.forward_backward(X, Y)
    assert_same(state(pipe), state(other))


@pytest.mark.parametrize("name", ["step", "U", "A and U, copies"])
def test_two_pipelines_of_one_list_of_layers_share_nothing(name):
    """One loss and one optimizer, too; tick by tick in turns."""
    optimizer = mp.Adam(0.01)
    alone, first, second = (pipeline(name, optimizer=optimizer) for _ in range(3))
    alone.forward_backward(*mini_batch())
    first.start(*mini_batch())
    second.start(*mini_batch(seed=1))
    while first.tick() | second.tick():
        pass
    assert first.J == alone.J != second.J
    assert_same(state(first), state(alone))
    ids, others = ({id(array) for array in parameters(pipe.layers).values()} for pipe in (first, second))
    assert not ids & others
    assert optimizer.memory == {}


def test_the_costs_of_a_training_are_their_callers():
    pipe = pipeline("no flush")
    costs = pipe.train([mini_batch()] * 3)
    last = costs[-1]
    costs.append(0)
    assert pipe.J == last


# What a run has held is taken for the next one of its kind. Each of these changes what is held in between.


def other_dtype_of_parameters(pipe):
    """Half the bytes of parameters; the optimizer's memory makes up for them."""
    arrays = []
    for layer in pipe.layers:
        for name in layer.arrays:
            if getattr(layer, name) is not None:
                setattr(layer, name, getattr(layer, name).astype(np.float32))
    for stage in pipe.stages:
        arrays.append([array.copy() for array in stage.weights() if array is not None])
        stage.keep_optimizer_state(arrays[-1])


def other_optimizer(pipe):
    pipe.step(mp.Adam())


def first_optimizer(pipe):
    pipe.step(mp.SGD(0.1))


def ticks_in_between(pipe):
    pipe.start(*mini_batch(8))
    pipe.tick()


def nothing(pipe):
    pass


@pytest.mark.parametrize("change", [
    other_dtype_of_parameters, first_optimizer, other_optimizer, ticks_in_between, nothing,
])
@pytest.mark.parametrize("batch", [
    mini_batch(), mini_batch(17), mini_batch(16, 1, np.float32), mini_batch(dtype=int),
], ids=["equal", "ragged", "float32", "int"])
def test_bytes_are_those_of_a_run_that_counts(change, batch):
    pipe = pipeline("step")
    pipe.forward_backward(*mini_batch())
    change(pipe)
    pipe.forward_backward(*batch)
    taken = ledgers(pipe)
    pipe._known._rows.clear()
    pipe.forward_backward(*batch)
    assert taken == ledgers(pipe)


def test_bytes_of_another_order_of_this_size_are_counted_again():
    """A function makes PipeDream first, and then its variant with vertical sync: that keeps more versions."""
    variants = {"vertical_sync": False}
    pipe = pipeline("no flush", optimizer=mp.SGD(0.1), schedule=lambda K, M: pipedream(K, M, **variants))
    pipe.train([mini_batch()] * 6)
    variants["vertical_sync"] = True
    pipe.train([mini_batch()] * 6)
    counted = pipeline("no flush", optimizer=mp.SGD(0.1), schedule="pipedream-vertical")
    counted.train([mini_batch()] * 6)
    assert ledgers(pipe) == ledgers(counted)


def test_bytes_after_a_left_run_are_those_of_a_run_that_counts():
    """It is left in its last tick, when all stages have made Adam's memory already."""
    slow = mp.Costs(F=1, B=2, U=2)
    pipe, counted = pipeline("U", costs=slow), pipeline("U", costs=slow, memory_limit=1e9)
    counted.forward_backward(*mini_batch())
    pipe.start(*mini_batch())
    for _ in range(counted.trace.makespan - 1):
        pipe.tick()
    counted = pipeline("U", costs=slow, memory_limit=1e9)
    for _ in range(3):
        assert pipe.forward_backward(*mini_batch()) == counted.forward_backward(*mini_batch())
        assert ledgers(pipe) == ledgers(counted)


def test_bytes_after_a_failure_are_those_of_a_run_that_counts():
    """The run that fails has made Adam's memory, which the run after it does not begin with."""
    pipe, counted = pipeline("no flush"), pipeline("no flush", memory_limit=1e9)
    X, Y = mini_batch()
    with pytest.raises(FloatingPointError):
        pipe.train([(X, Y * 1e300)] * 3)
    for _ in range(3):
        assert pipe.train([mini_batch()] * 3) == counted.train([mini_batch()] * 3)
        assert ledgers(pipe) == ledgers(counted)


class KeepsIndices(Layer):
    """A ReLU of a user, whose cache is as long as there are positive numbers."""

    def forward(self, A_prev):
        self.cache = A_prev.shape, np.flatnonzero(A_prev > 0)
        return A_prev * (A_prev > 0)

    def backward_input(self, dZ):
        shape, positive = self.cache
        dA_prev = np.zeros(shape)
        dA_prev.flat[positive] = dZ.flat[positive]
        return dA_prev


def test_layers_of_a_user_may_keep_what_they_like():
    """Their bytes depend on the data, so they are counted each time, inside of other layers too."""
    for layer in (KeepsIndices(), mp.Residual(KeepsIndices())):
        layers = [mp.Linear(4, 6), layer, mp.Linear(6, 3)]
        pipe, counted = (mp.Pipeline(layers, LOSS, 3, 4, memory_limit=limit) for limit in (None, 1e9))
        for seed in range(3):
            X, Y = mini_batch(seed=seed)
            assert pipe.forward_backward(X, Y) == counted.forward_backward(X, Y)
            assert ledgers(pipe) == ledgers(counted)


def test_gradients_of_a_users_layer_are_not_written_into():
    """A penalty whose gradient is W itself, and one that cannot be written."""
    class Penalty(mp.Linear):
        def backward_weight(self, dZ):
            return self.W, np.broadcast_to(np.ones(1), self.b.shape)

    pipe = mp.Pipeline([Penalty(4, 3), mp.Linear(3, 3)], LOSS, 2, 4)
    before = pipe.layers[0].W.copy()
    pipe.forward_backward(*mini_batch())
    assert np.array_equal(pipe.layers[0].W, before)
    dW, db = pipe.gradients[0]
    assert np.array_equal(dW, before + before + (before + before))
    assert np.array_equal(db, np.full((3, 1), 4.0))


@pytest.mark.parametrize("name", ["main", "0F0", "sums of stage 0"])
def test_a_skip_connection_may_have_any_name(name):
    layers = [mp.Linear(4, 3), mp.Fork(name), mp.Linear(3, 3), mp.Tanh(), mp.Join(name)]
    X, Y = mini_batch()
    pipe, one = mp.Pipeline(layers, LOSS, 5, 4, "1f1b"), mp.Pipeline(layers, LOSS, 1, 4, gpipe(1, 4))
    assert_same(J_and_gradients(pipe, X, Y), J_and_gradients(one, X, Y))
