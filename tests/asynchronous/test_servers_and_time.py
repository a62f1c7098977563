"""Parameter servers: what rounds cost, other engines, updates without a lock, and bad input."""

import copy
from fractions import Fraction

import numpy as np
import pytest
from compared import assert_same

import minipipe as mp
from minipipe.exact import Rational, rational
from minipipe.arrays import leaves
from minipipe.servers import (
    bytes_on_workers, bytes_through_server, round_ticks, speeds_with, synchronous_ticks,
)
from asynchronous.server_cases import LAYERS, LOSS, mini_batches, network_at, weights

N_BYTES = 26 * 8  # of the weights of LAYERS


# Ticks and bytes


@pytest.mark.parametrize("times", [[5, 5, 5], [5, 5, 50], [1, 2, 90, 91], [3], [2, 40, 41, 60]])
@pytest.mark.parametrize("s, latency, update", [(1, 0, 0), (1, 3, 2), (2, 0, 0), (2, 1, 1)])
def test_a_round_takes_the_slowest_worker_and_the_servers_transfers(times, s, latency, update):
    net = mp.ParameterServer(
        LAYERS, LOSS, len(times), mp.Servers(s),
        pace=mp.Pace(speeds=[Fraction(1, t) for t in times], update_ticks=update),
        on=mp.Machine(link=mp.Link(latency=latency), ports=mp.cluster.ports(s, 8)),
    )
    net.train(mini_batches(1), mp.SGD(0.1))
    assert net.trace.makespan == round_ticks(times, N_BYTES, 8, s, latency, update)


@pytest.mark.parametrize("n_workers, s", [(1, 1), (2, 1), (6, 1), (2, 2), (4, 2), (5, 2), (13, 13)])
@pytest.mark.parametrize("ticks, latency, update", [(30, 0, 0), (1, 0, 0), (7, 2, 3)])
def test_rounds_of_equal_workers_take_the_closed_form(n_workers, s, ticks, latency, update):
    net = mp.ParameterServer(
        LAYERS, LOSS, n_workers, mp.Servers(s), pace=mp.Pace(ticks=ticks, update_ticks=update),
        on=mp.Machine(link=mp.Link(latency=latency), ports=mp.cluster.ports(s, 16)),
    )
    net.train(mini_batches(4, m=13), mp.SGD(0.1))
    assert net.trace.makespan == synchronous_ticks(
        4, n_workers, ticks, N_BYTES, 16, s, latency=latency, update=update
    )


@pytest.mark.parametrize("n_workers, s", [(3, 1), (4, 2), (2, 13)])
def test_n_workers_push_n_times_the_weights_and_each_server_gets_its_share(n_workers, s):
    net = mp.ParameterServer(LAYERS, LOSS, n_workers, mp.Servers(s))
    net.train(mini_batches(3), mp.SGD(0.1))
    for server in range(s):
        into = sum(message.n_bytes for message in net.trace.messages if message.to == server)
        out = sum(message.n_bytes for message in net.trace.messages if message.source == server)
        assert into == out == 3 * bytes_through_server(n_workers, N_BYTES, s)


@pytest.mark.parametrize("n", [2, 13])
def test_servers_on_all_workers_send_as_many_bytes_as_a_ring(n):
    net = mp.ParameterServer(LAYERS, LOSS, n, mp.Servers(n, on_workers=True))
    net.train(mini_batches(1, m=13), mp.SGD(0.1))
    sent = [sum(message.n_bytes for message in net.trace.messages if message.source == r) for r in range(n)]
    assert sent == [bytes_on_workers(n, N_BYTES)] * n


def test_each_worker_begins_with_another_server():
    """So that not all queue up for the first."""
    net = mp.ParameterServer(LAYERS, LOSS, 4, mp.Servers(3), on=mp.Machine(ports=mp.cluster.ports(3, 8)))
    net.train(mini_batches(1), mp.SGD(0.1))
    to = {worker: [m.to for m in net.trace.messages if m.source == 3 + worker] for worker in range(4)}
    assert to == {0: [0, 1, 2], 1: [1, 2, 0], 2: [2, 0, 1], 3: [0, 1, 2]}


def test_synchronous_workers_wait_for_the_slowest_and_asynchronous_ones_do_not():
    """80 updates in 240 ticks with one worker three times as slow; 800 gradients without waiting."""
    speeds, batches = speeds_with(4, {3: 3}), mini_batches(10, m=4)
    sync = mp.ParameterServer(LAYERS, LOSS, 4, pace=mp.Pace(speeds=speeds))
    sync.train(batches[:8], mp.SGD(0.1))
    assert sync.trace.makespan == 8 * 3
    free = mp.ParameterServer(LAYERS, LOSS, 4, mp.Servers(mode="async"), pace=mp.Pace(speeds=speeds))
    free.train(batches * 8, mp.SGD(0.1))
    assert free.trace.makespan == 24 and len(free.updates) == 80
    assert not free.trace.idle or all(idle.end == 24 for idle in free.trace.idle if idle.device > 0)


def test_random_delays_are_a_function_of_the_seed():
    def makespan(seed):
        net = mp.ParameterServer(
            LAYERS, LOSS, 2, mp.Servers(mode="async"), pace=mp.Pace(delay=2), weights=mp.Weights(seed)
        )
        net.train(mini_batches(6), mp.SGD(0.1))
        return net.trace.makespan

    assert makespan(0) == makespan(0) != makespan(1)


# Other engines


@pytest.mark.parametrize("servers", [mp.Servers(), mp.Servers(3), mp.Servers(2, on_workers=True)])
def test_synchronous_servers_have_the_same_bits_on_threads(servers):
    nets = [mp.ParameterServer(LAYERS, LOSS, 3, servers, on=mp.Machine(engine))
            for engine in ("cluster", "threads")]
    costs = [net.train(mini_batches(4), mp.Adam(0.1)) for net in nets]
    assert costs[0] == costs[1] and nets[0].updates == nets[1].updates and nets[1].trace.unit == "seconds"
    assert_same(*map(weights, nets))


@pytest.mark.parametrize("servers", [
    mp.Servers(mode="async"), mp.Servers(3, mode="async"), mp.Servers(mode="ssp", bound=1),
    mp.Servers(backups=1), mp.Servers(mode="hogwild"),
])
def test_a_run_on_threads_is_repeated_on_the_cluster_to_the_bit(servers):
    """Whoever came first there, for whatever reason."""
    def net(engine):
        return mp.ParameterServer(LAYERS, LOSS, 3, servers, on=mp.Machine(engine))

    measured, again, batches = net("threads"), net("cluster"), mini_batches(10)
    costs = measured.train(batches, mp.SGD(0.1))
    assert again.train(batches, mp.SGD(0.1), arrivals=measured.arrivals) == costs
    assert again.updates == measured.updates and again.arrivals == measured.arrivals
    assert_same(weights(again), weights(measured))


def test_a_run_that_fails_changes_nothing():
    for mode in ("sync", "async", "hogwild"):
        net = mp.ParameterServer(LAYERS, LOSS, 2, mp.Servers(mode=mode))
        optimizer = mp.SGD(0.1, momentum=0 if mode == "hogwild" else 0.9)
        net.train(mini_batches(2), optimizer)
        before, updates = [array.copy() for array in weights(net)], net.updates
        remembered = copy.deepcopy(dict(optimizer.memory))
        batches = mini_batches(3)
        batches[2] = batches[2][0] * 1e200, batches[2][1] * 1e200
        with pytest.raises(FloatingPointError, match="is not finite"):
            net.train(batches, optimizer)
        assert_same(weights(net), before)
        assert_same(dict(optimizer.memory), remembered)
        assert net.n_steps == optimizer.n_updates == 2 and net.updates is updates


# Without a lock


@pytest.mark.parametrize("update_ticks", [0, 0.5, 2])
def test_hogwild_loses_exactly_the_named_updates(update_ticks):
    """Gradients are of the versions that the trace names; W changes by those that the trace leaves in it."""
    rng, rate = np.random.default_rng(0), Rational(1, 16)
    batches = [(rational(rng.integers(1, 3, (2, 2))), rational(rng.integers(-9, -7, (1, 2))))
               for _ in range(12)]
    layers = [mp.Linear(2, 1, W=rational([[1, 1]]), b=rational([[0]]))]  # dense: each gradient changes all
    net = mp.ParameterServer(
        layers, LOSS, 3, mp.Servers(mode="hogwild"),
        pace=mp.Pace(speeds=[1, 2, 3], delay=1, update_ticks=update_ticks),
    )
    net.train(batches, mp.SGD(rate), keep_every=1)
    assert any(update.lost for update in net.updates) == (update_ticks > 0)
    stays = {0: frozenset()}  # what is in the weights after each update: one that was lost may come back
    gradients = {}
    for update in net.updates:
        assert update.lost == tuple(range(update.onto + 1, update.number))
        stays[update.number] = stays[update.onto] | {update.number}
        twin = network_at(net.kept[update.read], layers)
        twin.forward_backward(*batches[update.batch])
        gradients[update.number] = leaves(twin.gradients)
        expected = [start - rate * sum(of) for start, *of in
                    zip(net.kept[0], *(gradients[number] for number in stays[update.number]), strict=True)]
        assert_same(net.kept[update.number], expected)


@pytest.mark.parametrize("target, meet", [(np.ones((4, 1)), True), (None, False)])
def test_sparse_gradients_lose_nothing_where_they_do_not_meet(target, meet):
    """Each has a column of W of its own; with one unit that errs, its own entry of b, too."""
    units = [np.eye(4)[:, [i]] for i in range(4)]
    layers = [mp.Linear(4, 4, W=np.zeros((4, 4)), b=np.zeros((4, 1)))]
    net = mp.ParameterServer(layers, LOSS, 4, mp.Servers(mode="hogwild"), pace=mp.Pace(update_ticks=1))
    net.train([(unit, unit if target is None else target) for unit in units], mp.SGD(0.5))
    assert any(update.lost for update in net.updates) == meet


# Bad input


def network(n_microbatches=None, speeds=None, delay=0, **servers):
    pace = mp.Pace(speeds=speeds, delay=delay)
    return mp.ParameterServer(LAYERS, LOSS, 3, mp.Servers(**servers), n_microbatches, pace)


@pytest.mark.parametrize("options, words", [
    ({"n": 27}, "n=27 servers exceed the 26 parameters of the network: use at most 26"),
    ({"speeds": [1, 0, 1]}, r"speeds\[1\]=0 would never finish"),
    ({"speeds": [1, -1, 1]}, r"speeds\[1\]=-1 must be above 0"),
    ({"speeds": [1, 2]}, "speeds has 2 numbers for 3 workers"),
    ({"mode": "ssp"}, "bound=None in mode 'ssp'"),
    ({"mode": "ssp", "bound": -1}, "bound=-1 must be at least 0"),
    ({"bound": 2}, "bound=2 in mode 'sync': the mode 'ssp' needs a bound, and no other has one"),
    ({"mode": "async", "backups": 1}, "backups=1 in mode 'async'"),
    ({"backups": 1, "n": 2}, "one server, since several would do without different workers"),
    ({"backups": 3}, "backups=3 of 3 workers leave none to wait for: use at most 2"),
    ({"compensation": 1}, "compensation=1 in mode 'sync'"),
    ({"mode": "hogwild", "n": 2}, "mode 'hogwild' with n=2 servers"),
    ({"mode": "async", "n_microbatches": 4}, "n_microbatches=4 in mode 'async'"),
    ({"n_microbatches": 2}, "n_microbatches=2 must be at least 3"),
    ({"n": 4, "on_workers": True}, "n=4 servers on the devices of 3 workers: use at most 3"),
    ({"mode": "eventually"}, "mode='eventually' must be one of 'sync', 'async', 'ssp', 'hogwild'"),
    ({"delay": -1}, "delay=-1 must be at least 0 ticks"),
])
def test_servers_that_cannot_be_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        network(**options)


@pytest.mark.parametrize("servers, optimizer, words", [
    (mp.Servers(2), mp.LARS(0.1), "n=2 servers with LARS, which looks at whole parameters"),
    (mp.Servers(mode="hogwild"), mp.Adam(0.1),
     "mode 'hogwild' with Adam: without a lock, use SGD without momentum"),
    (mp.Servers(mode="hogwild"), mp.SGD(0.1, momentum=0.5),
     "mode 'hogwild' with SGD: without a lock, use SGD"),
    (mp.Servers(), "sgd", "optimizer is 'sgd': pass an object, such as SGD"),
    (mp.Servers(), None, "optimizer is None: pass an object, such as SGD"),
])
def test_optimizers_that_servers_cannot_use_are_refused(servers, optimizer, words):
    net = mp.ParameterServer(LAYERS, LOSS, 3, servers)
    with pytest.raises(ValueError, match=words):
        net.train(mini_batches(1), optimizer)
    assert net.n_steps == 0 and net.trace is None


def test_no_server_has_the_norm_of_all_gradients():
    with pytest.raises(ValueError, match="clip=1, but no server has the norm of all gradients: leave it out"):
        mp.ParameterServer(LAYERS, LOSS, 2).check_training(mp.SGD(0.1), clip=1)


@pytest.mark.parametrize("arrivals, words", [
    ([[0, 1]], r"arrivals has 1 orders of \[2\] gradients for 1 servers and 3 mini-batches"),
    ([[0, 1, 2]], "arrivals names worker 2 of 2"),
])
def test_an_order_of_another_run_is_refused(arrivals, words):
    net = mp.ParameterServer(LAYERS, LOSS, 2, mp.Servers(mode="async"))
    with pytest.raises(ValueError, match=words):
        net.train(mini_batches(3), mp.SGD(0.1), arrivals=arrivals)


def test_an_order_that_cannot_be_is_a_deadlock():
    """Worker 0 cannot come twice before worker 1 has come, if it waits for worker 1."""
    net = mp.ParameterServer(LAYERS, LOSS, 2, mp.Servers(mode="ssp", bound=0))
    with pytest.raises(mp.DeadlockError, match="waits for gradient from device 1"):
        net.train(mini_batches(4), mp.SGD(0.1), arrivals=[[0, 0, 1, 1]])


def test_a_slow_worker_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="slow worker=4 must be at most 3"):
        speeds_with(4, {4: 2})


def test_the_loop_of_others_is_refused():
    X, Y = mini_batches(1)[0]
    nets = {r"call train\(batches, optimizer\)": mp.ParameterServer(LAYERS, LOSS, 2),
            r"call train\(n_rounds, optimizer\)": mp.FederatedAveraging(LAYERS, LOSS, [(X, Y)])}
    for words, net in nets.items():
        with pytest.raises(ValueError, match=words):
            mp.fit(net, X, Y, mp.SGD(0.1), 1, 2)
        with pytest.raises((ValueError, RuntimeError)):
            net.step(mp.SGD(0.1))
