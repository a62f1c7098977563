"""One run after another of the same kind, and those of a copied network."""

import copy
import pickle

import numpy as np
import pytest
from compared import assert_same, state
from engines.on_engines import LOSS, mini_batch, network
from sampling import one_in

import minipipe as mp
from minipipe.arrays import leaves
from minipipe.order import in_copies, with_updates
from minipipe.schedules import build


def batch(m, seed):
    X, Y = mini_batch(m)
    return X + np.float32(seed), Y * np.float32(1 + seed)


@pytest.mark.parametrize("schedule", ["1f1b", in_copies(build("1f1b", 3, 2), 2)], ids=["alone", "in copies"])
def test_a_stage_is_handed_copies(monkeypatch, schedule):
    """None of the arrays that a layer gives is handed to one of another stage."""
    pipe = mp.Pipeline(network(), LOSS, 3, 4, schedule=schedule, dtype=np.float32)
    pipe.forward_backward(*batch(13, 0))
    stage_of = {layer: stage.index for stage in pipe.stages for layer in stage.layers}
    handed, given = [], []
    for kind in set(map(type, stage_of)):
        for method in ("forward", "backward_input"):
            def watched(layer, A, called=getattr(kind, method)):
                result = called(layer, A)
                if layer in stage_of:
                    handed.extend((stage_of[layer], array) for array in leaves(A))
                    given.extend((stage_of[layer], array) for array in leaves(result))
                return result

            monkeypatch.setattr(kind, method, watched)
    pipe.forward_backward(*batch(13, 0))
    shared = {(stage, other) for stage, A in handed for other, B in given if np.shares_memory(A, B)}
    assert shared == {(0, 0), (1, 1), (2, 2)}


def test_after_the_second_run_nothing_ticks_and_it_can_be_copied():
    pipe = mp.Pipeline(network(), LOSS, 3, 4, dtype=np.float32)
    for _ in range(2):
        J = pipe.forward_backward(*batch(13, 0))
    twin = pickle.loads(pickle.dumps(pipe))
    for each in (pipe, twin):
        assert not each.tick() and each.J == J and each.trace == pipe.trace
        assert each.forward_backward(*batch(13, 0)) == J


def test_a_second_that_fails_is_undone_on_all_devices(monkeypatch):
    """Some copies have made their updates already when another one fails."""
    order = with_updates(in_copies(build("1f1b", 2, 4), 2))
    failing, other = (mp.Pipeline(network(), LOSS, 2, 8, schedule=order, dtype=np.float32) for _ in range(2))
    adam, its = mp.Adam(0.01), mp.Adam(0.01)
    for pipe, own in ((failing, adam), (other, its)):
        pipe.train([batch(19, 0), batch(19, 1)], own)
    calls, update = [], mp.Adam.update

    def fails_once(optimizer, *args):
        calls.append(optimizer)
        if len(calls) == 4:
            raise MemoryError
        update(optimizer, *args)

    with monkeypatch.context() as patched:
        patched.setattr(mp.Adam, "update", fails_once)
        with pytest.raises(MemoryError):
            failing.train([batch(19, 2)], adam)
    assert len(calls) == 4
    for seed in (2, 3):
        assert failing.train([batch(19, seed)], adam) == other.train([batch(19, seed)], its)
    assert_same(state(failing.layers), state(other.layers))
    assert failing.trace == other.trace


def test_messages_have_the_bytes_that_a_users_layer_sends_in_each_run():
    """It may send what it likes: here, as many numbers as it has been called."""

    class Grows(mp.layers.Layer):
        n = 4

        def forward(self, A_prev):
            self.n += 1
            return np.ones((self.n, A_prev.shape[1]), A_prev.dtype)

        def backward_input(self, dZ):
            return np.zeros((4, dZ.shape[1]), dZ.dtype)

    class Shrinks(mp.layers.Layer):
        def forward(self, A_prev):
            return A_prev[:4]

        def backward_input(self, dZ):
            return dZ

    pipe = mp.Pipeline([mp.Linear(6, 4), Grows(), Shrinks()], LOSS, 3, 2, dtype=np.float32)
    sizes = []
    for _ in range(2):
        pipe.forward_backward(*mini_batch(8))
        sizes.append([message.n_bytes for message in pipe.trace.messages if message.to == 2])
    assert sizes == [[5 * 16, 6 * 16], [7 * 16, 8 * 16]]


# A copy of a network behaves as the network does after every kind of run, and ticks mean one thing

X, Y = mini_batch(13)


def ran(pipe, times):
    for _ in range(times):
        pipe.forward_backward(X, Y)


def stepped(pipe):
    pipe.start(X, Y)
    while pipe.tick():
        pass


def failed(pipe):
    pipe.forward_backward(X, Y)
    with pytest.raises(FloatingPointError):
        pipe.forward_backward(X + np.float32(3e38), Y)


def outcome(call):
    """Return what `call()` returns, or the words of its error."""
    try:
        return call()
    except (RuntimeError, ValueError) as error:
        return str(error)


KINDS = {
    "nothing": lambda pipe: None, "one run": lambda pipe: ran(pipe, 1), "two runs": lambda pipe: ran(pipe, 2),
    "a failed run": failed, "steps of the clock": stepped,
}
RUNS = [(kind, "cluster") for kind in KINDS]
RUNS += [(kind, "threads") for kind in KINDS if KINDS[kind] is not stepped]  # these have no ticks


@pytest.mark.parametrize("run, twin_of", one_in(
    2, RUNS, [copy.deepcopy, lambda pipe: pickle.loads(pickle.dumps(pipe))]
))
def test_it_does_what_the_original_does(run, twin_of):
    kind, engine = run
    pipe = mp.Pipeline(network(), LOSS, 3, 4, dtype=np.float32, engine=engine)
    KINDS[kind](pipe)
    twin = twin_of(pipe)
    for look in (
        lambda pipe: pipe.J, lambda pipe: pipe.gradients, lambda pipe: pipe.trace.spans,
        lambda pipe: pipe.tick(), lambda pipe: pipe.step(mp.SGD(0.01)),
        lambda pipe: pipe.forward_backward(X, Y), lambda pipe: pipe.J,
    ):
        assert_same(outcome(lambda: look(twin)), outcome(lambda: look(pipe)))
        assert_same(state(twin.layers), state(pipe.layers))


def test_a_copy_of_a_run_under_way_is_refused():
    pipe = mp.Pipeline(network(), LOSS, 3, 4, dtype=np.float32)
    pipe.start(X, Y)
    pipe.tick()
    with pytest.raises(RuntimeError, match="this run is under way, and its programs cannot be copied"):
        copy.deepcopy(pipe)


def test_threads_have_no_ticks():
    pipe = mp.Pipeline(network(), LOSS, 3, 4, dtype=np.float32, engine="threads")
    for run in (lambda: pipe.start(X, Y), pipe.tick):
        with pytest.raises(ValueError, match="threads know seconds, not ticks: use forward_backward"):
            run()
