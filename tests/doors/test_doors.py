"""What may be handed in: numbers leave their door as Python's own, and what was handed in may change."""

import copy
import math
import os
import pickle
import signal
from dataclasses import FrozenInstanceError, fields, is_dataclass
from fractions import Fraction

import numpy as np
import pytest
from compared import assert_same, difference, parameters
from doors.good import public

import minipipe as mp
from minipipe.checks import is_plain, real_number
from minipipe.cli.main import main
from minipipe.collectives import all_reduce_ticks
from minipipe.parallel import in_buckets
from minipipe.schedules import build, data_parallel, gpipe

LAYERS, LOSS = [mp.Linear(2, 3), mp.ReLU(), mp.Linear(3, 1)], mp.MeanSquaredError()
X, Y = np.ones((2, 4)), np.ones((1, 4))
BANANA = mp.datasets.characters("banana")


def network(**options):
    return mp.Sequential(LAYERS, LOSS, **options)


def pipeline(n_microbatches=2, schedule="gpipe", **options):
    return mp.Pipeline(LAYERS, LOSS, 2, n_microbatches, schedule=schedule, **options)


def stream(batches):
    return pipeline(1, "pipedream").train(batches, mp.SGD(0.1))


def carried(n_bytes, bandwidth):
    """The makespan of three messages in a row."""
    def sender():
        for k in range(3):
            yield mp.cluster.Send(f"message {k}", None, 1, n_bytes=n_bytes)

    def receiver():
        for k in range(3):
            yield mp.cluster.Receive(f"message {k}", 0)

    return mp.cluster.Cluster([sender(), receiver()], link=mp.Link(bandwidth=bandwidth)).run().makespan


def simulated(costs=mp.Costs(), link=mp.Link()):
    return mp.simulate(gpipe(4, 8), costs, link).makespan


SUM = (8 + 4 - 1) * 3  # ticks of GPipe with F = 1 and B = 2
IN_NUMPY = {  # what -> (the makespan with NumPy's numbers, that with Python's)
    "costs": (lambda: simulated(mp.Costs(F=np.int32(10**8), B=np.int32(2 * 10**8))), 10**8 * SUM),
    "costs in a list": (lambda: simulated(mp.Costs(F=[np.int8(50)] * 4, B=[np.int8(100)] * 4)), 50 * SUM),
    "costs in an array": (lambda: simulated(mp.Costs(F=np.full(4, 50, np.int8), B=100)), 50 * SUM),
    "bytes": (
        lambda: simulated(mp.Costs(message_bytes=np.int32(10**9)), mp.Link(bandwidth=1)), 20 * 10**9 + 12
    ),
    "latency": (lambda: simulated(link=mp.Link(latency=np.int8(100))), SUM + 600),
    "ticks of a Compute": (
        lambda: mp.cluster.Cluster(
            [(mp.cluster.Compute(k, ticks=np.int8(100)) for k in range(3))]
        ).run().makespan, 300
    ),
    "duration": (
        lambda: mp.cluster.Cluster(
            [(mp.cluster.Compute(k) for k in range(3))], lambda _: np.int8(100)
        ).run().makespan, 300
    ),
    "bytes of a Send": (lambda: carried(np.int8(100), np.int8(1)), 300),
    "sizes": (
        lambda: mp.simulate(build("interleaved", np.int8(16), np.int8(16))).makespan,
        mp.simulate(build("interleaved", 16, 16)).makespan,
    ),
    "sizes of a split": (lambda: mp.Parallel(
        LAYERS, LOSS, replicas=np.int8(32), shards=np.int8(3), stages=np.int8(2), microbatches=np.int8(32),
        schedule="gpipe").groups["pp"][-1][-1], 32 * 3 * 2 - 1),
    "sizes of two directions": (
        lambda: mp.simulate(build("chimera", np.int8(16), np.int8(16))).makespan,
        mp.simulate(build("chimera", 16, 16)).makespan,
    ),
    "numbers in an all-reduce": (
        lambda: all_reduce_ticks("ring", np.int8(100), np.int32(10**9), 100, beta=np.int8(2)), 3960019800
    ),
    "bandwidth of a port": (lambda: mp.Port(np.longdouble(2), [0]).bandwidth, 2.0),
    "units": (lambda: mp.Linear(np.int8(100), np.int8(100)).macs((100, 100)), 10**6),
}


def test_numpys_numbers_do_not_overflow():
    for name, (make, expected) in IN_NUMPY.items():
        found = make()
        assert found == expected and type(found) in (int, float, Fraction), name


def test_a_rational_number_may_meet_a_clock_in_floats():
    third = mp.exact.Rational(1, 3)
    assert simulated(mp.Costs(F=third, B=0.5), mp.Link(latency=third)) > 0
    assert mp.cluster.Cluster(
        [(mp.cluster.Compute(ticks, ticks=ticks) for ticks in (0.5, third))]
    ).run().makespan > 0.8


def test_costs_do_not_change_when_a_list_that_made_them_does():
    given = [1, 2]
    costs = mp.Costs(F=given)
    given[0] = 100
    assert costs.F == [1, 2]


def test_a_plain_number_is_one_that_the_checks_accept():
    finite = (0, 1, 0.5, Fraction(1, 3), 10**100, 10**101, 5e-324, 1e-99, -1, np.int8(1), np.float64(1))
    for number in (*finite, True, math.nan, math.inf, "1", None):
        try:
            checked = real_number("ticks", number, least=0, clock=True)
        except ValueError:
            checked = None
        assert is_plain(number) == (checked is not None and type(checked) is type(number))


def test_options_and_schedules_cannot_be_changed():
    """Costs, options, schedules and whatever else is a dataclass: its checks are those of its constructor."""
    found = {name: entry for name, entry in public().items() if is_dataclass(entry)}
    assert {"Costs", "Link", "Schedule", "Cut", "Sums"} < found.keys()
    for entry in found.values():
        with pytest.raises(FrozenInstanceError):
            setattr(object.__new__(entry), fields(entry)[0].name, None)


def test_layers_may_come_from_a_generator():
    def generator():
        return (layer for layer in LAYERS)

    for make in (lambda layers: mp.Sequential(layers, LOSS),
                 lambda layers: mp.Pipeline(layers, LOSS, 2, 2),
                 lambda layers: mp.describe(layers, (2,)),
                 lambda layers: mp.partition(layers, 2), mp.without_values):
        assert repr(make(generator())) == repr(make(LAYERS))
    assert mp.measure(generator(), LOSS, 2, X, Y, rounds=1).F


def test_loss_and_accuracy_accept_lists():
    loss = mp.MeanSquaredError()
    assert loss.forward([[1.0, 3.0]], [[0, 1]]) == 1.25 and loss.backward().tolist() == [[0.5, 1.0]]
    assert mp.accuracy([[1.0, 0.0], [0.0, 1.0]], [[1, 1], [0, 0]]) == 0.5


def test_a_run_can_be_copied_once_it_is_over():
    pipe = pipeline()
    pipe.start(X, Y)
    pipe.tick()
    for make in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(RuntimeError, match="this run is not finished, and its programs cannot be copied"):
            make(pipe)
    while pipe.tick():
        pass
    before = parameters([layer.copy() for layer in pipe.layers])
    for make in (copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))):
        twin = make(pipe)
        assert twin.J == pipe.J and twin.trace == pipe.trace
        twin.step(mp.SGD(0.1))
        assert twin.forward_backward(X, Y) < pipe.J
        assert difference(parameters(twin.layers), before) and twin.stages[0].layers[0] is twin.layers[0]
        assert_same(parameters(pipe.layers), before)


def test_failed_pipelines_and_those_without_a_flush_are_copied():
    pipe = mp.Parallel(LAYERS, LOSS, stages=2, memory_limit=1)
    with pytest.raises(mp.cluster.MemoryLimitError):
        pipe.forward_backward(X, Y)
    with pytest.raises(mp.cluster.MemoryLimitError):
        copy.deepcopy(pipe).forward_backward(X, Y)
    pipe, optimizer = pipeline(1, "pipedream"), mp.SGD(0.1, momentum=0.5)
    costs = pipe.train([(X, Y)] * 3, optimizer)
    twin, of_twin = pickle.loads(pickle.dumps((pipe, optimizer)))
    assert twin.J == pipe.J == costs[-1]
    assert twin.train([(X, Y)] * 2, of_twin) == pipe.train([(X, Y)] * 2, optimizer)
    assert_same(dict(of_twin.memory), dict(optimizer.memory))
    assert_same(parameters(twin.layers), parameters(pipe.layers))


def test_layers_loss_and_sizes_of_a_pipeline_cannot_be_replaced():
    pipe, net = pipeline(), network()
    for name in ("layers", "loss", "n_stages", "n_microbatches"):
        for model in (pipe, net) if name in ("layers", "loss") else (pipe,):
            with pytest.raises(AttributeError):
                setattr(model, name, getattr(model, name))
    for layers in (pipe.layers, pipe.stages[0].layers, net.layers):
        with pytest.raises(TypeError):
            layers[0] = mp.Linear(2, 3)
    with pytest.raises(TypeError):
        pipe.stages[0] = pipe.stages[1]
    assert repr(net).startswith("Sequential([Linear(2, 3), ")
    assert repr(pipe.stages[1]) == "Stage(1, [Linear(3, 1)])"


def test_data_that_change_between_two_ticks_do_not_reach_the_run():
    given = X.copy(), Y.copy()
    pipe = pipeline(n_microbatches=4)
    J = pipe.forward_backward(*given)
    dW = pipe.gradients[0][0]
    pipe.start(*given)
    for array in given:
        array[:] = 1e6
    while pipe.tick():
        pass
    assert pipe.J == J and np.array_equal(pipe.gradients[0][0], dW)


def test_a_rational_cost_beyond_all_floats_stops_the_training():
    layers = [layer.copy(mp.exact.rational) for layer in network().layers]
    net = mp.Sequential(layers, LOSS)
    W = net.layers[0].W.copy()
    with pytest.raises(FloatingPointError, match=r"epoch 1: .* too large for a float"):
        mp.fit(net, mp.exact.rational(X) * 10**400, mp.exact.rational(Y), mp.SGD(1), 1, 4, report=None)
    assert (net.layers[0].W == W).all()


def test_out_of_memory_is_a_one_line_error_on_the_command_line(capsys, monkeypatch):
    def fails(options):
        raise MemoryError

    monkeypatch.setattr("minipipe.cli.check.check", fails)
    assert main(["check"]) == 2 and capsys.readouterr().err == "minipipe: error: out of memory\n"


def test_ctrl_c_ends_the_command_line_with_status_130(capsys, monkeypatch):
    def interrupted(options):
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("minipipe.cli.check.check", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    try:
        assert main(["check"]) == 130 and capsys.readouterr().err == "minipipe: stopped\n"
    finally:
        signal.signal(signal.SIGINT, before)


def test_no_layer_keeps_a_cache_between_two_ticks():
    for name in ("gpipe", "zb-h1"):
        pipe = pipeline(schedule=name)
        pipe.start(X, Y)
        while pipe.tick():
            assert [one.cache for one in (*pipe.layers, pipe.loss)] == [None] * (len(pipe.layers) + 1)
        assert [one.cache for one in (*pipe.layers, pipe.loss)] == [None] * (len(pipe.layers) + 1)


def test_each_mini_batch_of_a_stream_has_masks_of_its_own():
    """One stage without a flush is plain SGD, and its t-th mini-batch is the t-th step."""
    layers = [mp.Linear(2, 8), mp.Dropout(0.5), mp.Linear(8, 1)]
    pipe, own = mp.Pipeline(layers, LOSS, 1, 1, schedule="pipedream"), mp.SGD(0.1)
    net, optimizer = mp.Sequential(layers, LOSS), mp.SGD(0.1)
    costs = []
    for _ in range(6):
        costs.append(net.forward_backward(X, Y))
        net.step(optimizer)
    assert pipe.train([(X, Y)] * 2, own) + pipe.train([(X, Y)] * 4, own) == costs
    assert np.array_equal(pipe.layers[0].W, net.layers[0].W)


def test_mini_batches_may_come_from_a_generator():
    assert stream((X, Y) for _ in range(3)) == stream([(X, Y)] * 3)


def test_a_message_counts_in_the_memory_of_a_finished_device():
    def sender():
        yield mp.cluster.Compute("work", ticks=2)
        yield mp.cluster.Send("news", np.zeros(10), to=1)

    def done():
        yield mp.cluster.Compute("work")

    holdings = [lambda: {"stash": []}] * 2
    cluster = mp.cluster.Cluster([sender(), done()], None, mp.Link(latency=3), holdings, memory_limit=79)
    with pytest.raises(
        mp.cluster.MemoryLimitError, match="device 1 holds 80 bytes at tick 5, above its limit of"
    ):
        cluster.run()


def test_a_bucket_may_take_all_gradients():
    assert in_buckets([1, 2, 3], (1, float("inf"))) == [[2], [1, 0]]


def test_copies_of_one_stage_follow_the_named_schedule():
    """With one stage, "gpipe" keeps all micro-batches of a copy alive, and "1f1b" one of them."""
    split = dict(replicas=2, microbatches=4)
    all_alive, one_alive = (
        mp.Parallel(LAYERS, LOSS, **split, schedule=name).schedule for name in ("gpipe", "1f1b")
    )
    assert [str(action) for action in all_alive.devices[1]] == ["0F2", "0F3", "0B3", "0B2"]
    assert one_alive.devices == data_parallel(2, 4).devices


def test_mini_batches_keep_integers_as_integers():
    (tokens, _), *_ = mp.servers.mini_batches(np.arange(6).reshape(1, 6), np.ones((1, 6)), 2, n=3)
    assert tokens.dtype.kind == "i"
