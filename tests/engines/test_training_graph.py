"""What people arrange by hand comes out of a list: overlap, delayed weight gradients, prefetching."""

import numpy as np
import pytest
from cases import eighths
from compared import J_and_gradients, assert_same, parameters

import minipipe as mp
from minipipe.exact import Rational
from minipipe.graph import Graph, list_schedule, run_listed, schedule_of, training_tasks
from minipipe.order import with_all_reduce
from minipipe.schedules import data_parallel


def exposed(b, c):
    """Of all-reduces of c ticks behind backwards of b, the last layer first: the formula."""
    n = len(b)
    ready = [sum(b[layer:]) for layer in range(n)]
    return max(ready[layer] + sum(c[:layer + 1]) for layer in range(n)) - sum(b)


@pytest.mark.parametrize("c, golden", [(1, 1), (2, 2), (3, 6)])
def test_the_exchange_of_gradients_hides_behind_the_backward(c, golden):
    """Golden 13, and the order in which DistributedDataParallel begins its all-reduces."""
    tasks = training_tasks([1] * 4, [2] * 4, all_reduce=[c] * 4)
    found = list_schedule(tasks)
    assert found.makespan - 12 == golden == exposed([2] * 4, [c] * 4)
    begun = [tasks[number].name[1] for number in found.orders[0, "communication"]]
    by_hand = with_all_reduce(data_parallel(2, 2, 4)).devices[0]
    assert begun == [action.stage for action in by_hand if action.kind == "A"] == [3, 2, 1, 0]


@pytest.mark.parametrize("K, M", [(3, 6), (4, 8), (6, 12)])
def test_weight_gradients_are_put_off_by_themselves(K, M):
    """Input gradients first, then forwards: ZB-H2's makespan in its memory; and the gradients are right."""
    tasks = training_tasks([1] * K, [1] * K, [1] * K, M, range(K), rooms=[2 * K - 1] * K)
    first = sorted(range(len(tasks)), key=lambda n: ("IFW".index(tasks[n].name[0]), tasks[n].name[2]))
    found = list_schedule(tasks, priority=first)
    assert found.makespan == mp.simulate(mp.schedules.build("zb-h2", K, M), mp.Costs(F=1, B=2)).makespan
    assert found.makespan == found.bounds.best == 3 * M + K - 1
    schedule = schedule_of(tasks, found.orders)
    assert mp.simulate(schedule, mp.Costs(F=1, B=2)).makespan == found.makespan
    assert list_schedule(tasks).makespan < mp.simulate(mp.schedules.build("1f1b", K, M)).makespan

    layers, X = [mp.Linear(3, 3) for _ in range(K)], np.arange(3.0 * M).reshape(3, M)
    pipe = mp.Pipeline([layer.copy() for layer in layers], mp.MeanSquaredError(), K, M, schedule)
    one = mp.Pipeline([layer.copy() for layer in layers], mp.MeanSquaredError(), K, M, "gpipe")
    assert_same(J_and_gradients(pipe, X, X), J_and_gradients(one, X, X))


@pytest.mark.parametrize("g", [1, 2, 3])
def test_parameters_are_gathered_ahead(g):
    """ZeRO-3: with room for two layers, gathers run behind the layer before; with room for one, none does."""
    n, f, b = 4, 2, 4
    two, one = (training_tasks([f] * n, [b] * n, gather=[g] * n, rooms={"layers": room}) for room in (2, 1))
    assert list_schedule(one).makespan == n * (g + f) + n * (g + b)
    found = list_schedule(two)
    # only the first gather is waited for, and what others last longer than the layer before them
    assert found.makespan == g + n * f + (n - 1) * max(0, g - f) + n * b + max(0, g - f)
    assert run_listed(two, found.orders).makespan == found.makespan
    of_two = training_tasks([f] * n, [b] * n, n_microbatches=2, gather=[g] * n)
    assert sum(task.kind == "G" for task in of_two) == 2 * n  # the next micro-batch finds them there


def test_messages_leave_the_device_of_their_layer():
    """Layers 0 and 1 are on device 0, layer 2 on device 1: a micro-batch is sent once there and once back."""
    tasks = training_tasks([1, 2, 3], [4, 5, 6], n_microbatches=2, devices=[0, 0, 1], transfer=7)
    names = [str(task.name) for task in tasks]
    sent = {name: task for name, task in zip(names, tasks) if task.kind in ("send", "back")}
    lanes = {name: (task.ticks, task.lane, [names[n] for n in task.after]) for name, task in sent.items()}
    assert lanes == {
        name: (7, (device, "communication"), [after])
        for i in range(2) for name, device, after in [(f"1send{i}", 0, f"1F{i}"), (f"2back{i}", 1, f"2I{i}")]
    }
    after = {name: {names[n] for n in task.after} for name, task in zip(names, tasks)}
    assert after["2F1"] == {"1send1"} and after["1F1"] == {"0F1"} and after["0F1"] == set()
    assert after["1I1"] == {"2back1", "1F1"} and after["0I1"] == {"1I1", "0F1"}
    assert not any(task.kind in ("send", "back") for task in training_tasks([1, 1], [1, 1], devices=[0, 1]))


def trained(graph, layers, loss, X, Y, M, rate):
    """One step of gradient descent with M micro-batches, as calls; gradients are added up in their order."""
    totals = {}
    for part in np.split(np.arange(X.shape[-1]), M):
        A, caches = X[:, part], []
        for layer in layers:
            done = graph.call(forward, layer, A, reads=held(layer))
            A, twin = done[0], done[1]
            caches.append(twin)
        dA = graph.call(loss_backward, loss, A, Y[:, part], X.shape[-1])
        for place in reversed(range(len(layers))):
            done = graph.call(backward, caches[place], dA, reads=held(layers[place]))
            dA = done[0]
            if layers[place].W is not None:
                totals.setdefault(place, []).append((done[1], done[2]))
    for place, parts in totals.items():
        for name, column in (("W", 0), ("b", 1)):
            array = getattr(layers[place], name)
            for part in parts:
                graph.call(update, array, part[column], rate, writes=[array])


def held(layer):
    """The parameters that a layer reads: inside an object, the graph does not see them."""
    return [] if layer.W is None else [layer.W, layer.b]


def forward(layer, A_prev):
    twin = layer.copy(lambda array: array)
    return twin.forward(A_prev), twin


def loss_backward(loss, A, Y, m):
    return (A - Y) / m


def backward(twin, dA):
    return twin.backward(dA)


def update(array, gradient, rate):
    array -= gradient * rate


@pytest.mark.parametrize("engine", ["one", "cluster", "threads"])
def test_a_training_step_recorded_as_calls_is_that_of_the_network(engine):
    """Exact, on two devices of the cluster and on two threads: `==` the full batch's step."""
    rng, rate, loss = np.random.default_rng(0), Rational(1, 2), mp.MeanSquaredError()
    X, Y = eighths(rng.standard_normal((3, 8))), eighths(rng.standard_normal((2, 8)))
    layers = mp.Sequential([mp.Linear(3, 4), mp.ReLU(), mp.Linear(4, 2)], loss).layers
    layers = [layer.copy(eighths) for layer in layers]
    net = mp.Sequential(layers, loss)
    net.forward_backward(X, Y)
    net.step(mp.SGD(rate))
    graph = Graph()
    trained(graph, layers, loss, X, Y, 4, rate)
    graph.run(engine, n_devices=2)
    assert_same(parameters(layers), parameters(net.layers))


def test_what_cannot_be_is_said():
    with pytest.raises(ValueError, match="W has 1 numbers for 2 layers"):
        training_tasks([1, 1], [1, 1], [1])
