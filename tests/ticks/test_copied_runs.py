"""A copy of a network behaves as the network does after every kind of run, and ticks mean one thing."""

import copy
import pickle

import numpy as np
import pytest
from compared import assert_same, state
from engines.on_engines import LOSS, mini_batch, network
from sampling import one_in

import minipipe as mp

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
    pipe = mp.Pipeline(network(), LOSS, 3, 4, dtype=np.float32, on=mp.Machine(engine))
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
    pipe = mp.Pipeline(network(), LOSS, 3, 4, dtype=np.float32, on=mp.Machine("threads"))
    for run in (lambda: pipe.start(X, Y), pipe.tick):
        with pytest.raises(ValueError, match="threads know seconds, not ticks: use forward_backward"):
            run()
