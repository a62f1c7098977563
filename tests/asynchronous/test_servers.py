"""Parameter servers: synchronous ones are data parallelism, asynchronous ones do what their trace says.

Then what rounds cost, other engines, updates without a lock, and what is refused.
"""

import copy
from fractions import Fraction

import numpy as np
import pytest
from asynchronous.by_the_rule import (
    LAYERS, LOSS, THIRD, exact_layers, exact_mini_batches, mini_batches, network_at, sequential, weights,
)
from compared import assert_same
from hypothesis import given, settings
from hypothesis import strategies as st

import minipipe as mp
from minipipe.arrays import leaves
from minipipe.collectives.group import unflattened
from minipipe.exact import Rational, rational
from minipipe.parallel.layout import parameters_in_parts
from minipipe.servers import (
    Gradient, Update, bytes_on_workers, bytes_through_server, round_ticks, speeds_with, synchronous_ticks,
)
from minipipe.servers import mini_batches as line_of

N_BYTES = 26 * 8  # of the weights of LAYERS


# Synchronous


@settings(max_examples=8)
@given(st.integers(1, 4), st.integers(0, 2), st.sampled_from([1, 2, 3, 14]))
def test_synchronous_servers_are_one_device_in_rational_numbers(n_workers, more, n_servers):
    """Ragged parts, any number of workers and shards, momentum."""
    batches, optimizer = exact_mini_batches(3), mp.SGD(Rational(1, 8), momentum=Rational(1, 2))
    M = min(5, n_workers + more)
    net = mp.ParameterServer(exact_layers(), LOSS, n_workers, mp.Servers(n_servers), n_microbatches=M)
    costs = net.train(batches, optimizer)
    reference, expected = sequential(exact_layers(), batches, optimizer.fresh())
    assert costs == expected
    assert_same(weights(net), weights(reference))


@pytest.mark.parametrize("n_workers, n_servers, M", [(1, 1, 4), (2, 3, 4), (3, 1, 4), (4, 16, 4), (3, 3, 3)])
def test_synchronous_servers_have_the_bits_of_data_parallelism(n_workers, n_servers, M):
    """On any floats, for the same micro-batches: dropout, batch norm's statistics and two trainings, too."""
    layers = [mp.Linear(3, 4), mp.BatchNorm(4), mp.Dropout(0.3), mp.Tanh(), mp.Linear(4, 2)]
    net = mp.ParameterServer(
        layers, LOSS, n_workers, mp.Servers(n_servers), n_microbatches=M,
        pace=mp.Pace(speeds=range(n_workers, 0, -1)), weights=mp.Weights(dtype=np.float32),
    )
    batches = mini_batches(5, 9, np.float32)
    own, optimizer = mp.Adam(0.01), mp.Adam(0.01)
    costs = net.train(batches[:2], own) + net.train(batches[2:], own)
    copies, expected = mp.DataParallel(layers, LOSS, 2, M, dtype=np.float32), []
    for X, Y in batches:
        expected.append(copies.forward_backward(X, Y))
        copies.step(optimizer)
    assert costs == expected and costs[0].dtype == np.float32
    assert_same(weights(net), weights(copies))
    assert_same(dict(own.memory), dict(optimizer.memory))
    assert_same([net.layers[1].running_mean, net.layers[1].running_var],
                 [copies.layers[1].running_mean, copies.layers[1].running_var])
    assert all(update.staleness == 0 and len(update.workers) == n_workers for update in net.updates)


def test_tied_layers_stay_tied():
    layers = [mp.Linear(3, 3, tie="W"), mp.Tanh(), mp.Linear(3, 3, tie="W"), mp.Linear(3, 2)]
    batches = mini_batches(4)
    for mode in ("sync", "async"):
        net = mp.ParameterServer(layers, LOSS, 1, mp.Servers(mode=mode))
        net.train(batches, mp.SGD(0.1))
        assert_same(weights(net), weights(sequential(layers, batches, mp.SGD(0.1))[0]))
    with pytest.raises(ValueError, match="tear tied layers apart"):
        mp.ParameterServer(layers, LOSS, 1, mp.Servers(2))


def test_backup_workers_are_counted_and_their_samples_lost():
    """80 updates in 240 ticks without, 240 with one; what counts is scaled to the whole mini-batch."""
    batches, speeds = exact_mini_batches(6, m=7), [1, 1, 1, Fraction(1, 3)]
    plain = mp.ParameterServer(exact_layers(), LOSS, 4, pace=mp.Pace(speeds=speeds))
    plain.train(batches, mp.SGD(Rational(1, 8)))
    assert plain.trace.makespan == 6 * 3
    net = mp.ParameterServer(exact_layers(), LOSS, 4, mp.Servers(backups=1), pace=mp.Pace(speeds=speeds))
    costs = net.train(batches, mp.SGD(Rational(1, 8)), keep_every=1)
    assert [update.workers for update in net.updates] == [(0, 1, 2)] * 6
    assert [(late.worker, late.batch) for late in net.late] == [(3, 0), (3, 3)]
    ends = [span.end for span in net.trace.spans_of(0)]
    assert ends == [1, 2, 3, 4, 5, 6] and net.trace.makespan == 6
    computed = [span for span in net.trace.spans if isinstance(span.label, Gradient)]
    assert len(computed) == sum(len(update.workers) for update in net.updates) + len(net.late)
    for update, J in zip(net.updates, costs):
        reference = network_at(net.kept[update.read], exact_layers())
        X, Y = batches[update.batch]
        assert J == reference.forward_backward(X[:, :6], Y[:, :6])  # of 2, 2, 2 and 1 samples
        reference.step(mp.SGD(Rational(1, 8)))
        assert_same(net.kept[update.number], weights(reference))


# Asynchronous


@pytest.mark.parametrize("mode, bound", [("async", None), ("ssp", 0), ("hogwild", None)])
def test_one_worker_is_plain_sgd(mode, bound):
    layers = [mp.Linear(3, 4), mp.BatchNorm(4), mp.Dropout(0.3), mp.Linear(4, 2)]
    batches, optimizer = mini_batches(6), mp.SGD(0.1, momentum=0 if mode == "hogwild" else 0.9)
    net = mp.ParameterServer(layers, LOSS, 1, mp.Servers(mode=mode, bound=bound))
    costs = net.train(batches, optimizer)
    reference, expected = sequential(layers, batches, optimizer.fresh())
    assert costs == expected
    assert_same(weights(net), weights(reference))
    assert np.array_equal(net.layers[1].running_var, reference.layers[1].running_var)


def flat(arrays):
    return np.concatenate([array.ravel() for array in arrays])


def assert_follows_the_rule(net, batches, optimizer, compensation=0):
    """Each update of each server is what the rule makes of the versions that the trace names, all kept."""
    kept = [flat(net.kept[number]) for number in range(len(batches) + 1)]
    ends = np.cumsum([0, *(flat(part).size for part in parameters_in_parts(net.layers, net.n_servers))])
    parts = [slice(*ends[k:k + 2]) for k in range(net.n_servers)]
    cuts = np.cumsum([array.size for array in weights(net)])[:-1]
    read = {label.batch: label.versions for label in gradients_of(net)}
    for k, part in enumerate(parts):
        own = optimizer.fresh()
        updates = [span.label for span in net.trace.spans_of(net._places.servers[k])]
        for number, update in enumerate((label for label in updates if isinstance(label, Update)), start=1):
            seen, before = read[update.batch], kept[number - 1][part]
            assert (update.number, update.read) == (number, seen[k])
            read_weights = np.concatenate([kept[version][of] for version, of in zip(seen, parts)])
            twin = network_at(unflattened(np.split(read_weights, cuts), weights(net)))
            twin.forward_backward(*batches[update.batch])
            g = flat(leaves(twin.gradients))[part]
            g = g + compensation * g * g * (before - kept[seen[k]][part])
            layer = mp.Linear(1, g.size, W=before[:, None].copy(), b=np.zeros((g.size, 1)))
            own.update([layer], [(g[:, None], None)])
            assert_same(layer.W[:, 0], kept[number][part])
        assert number == len(batches)


@pytest.mark.parametrize("servers, update_ticks, machine", [
    (mp.Servers(mode="async"), 0, mp.Machine()),
    (mp.Servers(3, mode="async"), 1, mp.Machine(ports=mp.cluster.ports(3, 40))),
    (mp.Servers(mode="ssp", bound=1), 0, mp.Machine()),
    (mp.Servers(2, mode="ssp", bound=1), 0, mp.Machine(link=mp.Link(latency=0.25))),
    (mp.Servers(mode="async", compensation=0.5), 0, mp.Machine()),
    (mp.Servers(2, on_workers=True, mode="async"), 0, mp.Machine()),
])
def test_every_update_is_the_rule_at_the_versions_of_the_trace(servers, update_ticks, machine):
    """No update is lost or doubled, with random delays, on any floats, bit for bit."""
    batches, optimizer = mini_batches(12), mp.SGD(0.1, momentum=0.5)
    pace = mp.Pace(speeds=[1, 2, 1, Fraction(1, 3)], delay=1, update_ticks=update_ticks)
    net = mp.ParameterServer(LAYERS, LOSS, 4, servers, pace=pace, on=machine)
    first = [array.copy() for array in weights(net)]
    net.train(batches, optimizer, keep_every=1)
    assert_same(net.kept[0], first)
    assert_follows_the_rule(net, batches, optimizer, servers.compensation)
    assert sorted(update.batch for update in net.updates) == list(range(len(batches)))
    assert max(update.staleness for update in net.updates) >= 2


@pytest.mark.parametrize("n, speeds, staleness", [
    (4, None, [0, 1, 2, 3, 3, 3, 3, 3]), (2, THIRD, [0, 0, 0, 3, 1, 0, 0, 3]), (1, None, [0] * 8),
])
def test_staleness_by_hand(n, speeds, staleness):
    net = mp.ParameterServer(LAYERS, LOSS, n, mp.Servers(mode="async"), pace=mp.Pace(speeds=speeds))
    net.train(mini_batches(8), mp.SGD(0.1))
    assert [update.staleness for update in net.updates] == staleness


# Stale-synchronous


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_clocks_at_reads_are_as_far_apart_as_the_bound(bound):
    n_workers = 3
    net = mp.ParameterServer(
        LAYERS, LOSS, n_workers, mp.Servers(mode="ssp", bound=bound),
        pace=mp.Pace(speeds=[3, 1, Fraction(1, 4)], delay=0.5),
    )
    net.train(mini_batches(40), mp.SGD(0.01))
    clocks, apart = dict.fromkeys(range(n_workers), 0), []
    for update in net.updates:
        clocks[update.workers[0]] += 1
        reader = [label for label in gradients_of(net) if label.versions == (update.number,)]
        apart += [clocks[worker_of(net, label)] - min(clocks.values()) for label in reader]
    assert max(apart) == bound
    assert max(update.staleness for update in net.updates) <= (n_workers - 1) * (2 * bound + 1)


def gradients_of(net):
    return [span.label for span in net.trace.spans if isinstance(span.label, Gradient)]


def worker_of(net, label):
    return next(update.workers[0] for update in net.updates if update.batch == label.batch)


def test_a_bound_of_0_is_synchronous():
    """Each worker's gradient is applied by itself; without momentum, the sum is the same."""
    n, batches = 3, exact_mini_batches(6, m=3)
    rate = Rational(1, 24)
    servers, pace = mp.Servers(mode="ssp", bound=0), mp.Pace(speeds=[1, 2, 3])
    stale = mp.ParameterServer(exact_layers(), LOSS, n, servers, pace=pace)
    stale.train(batches, mp.SGD(rate))
    together = [tuple(np.concatenate([batch[side] for batch in batches[k:k + n]], axis=-1) for side in (0, 1))
                for k in (0, 3)]
    reference, _ = sequential(exact_layers(), together, mp.SGD(Rational(1, 8)))
    assert_same(weights(stale), weights(reference))


def test_one_worker_meets_the_mini_batches_of_fit():
    X, Y = (np.concatenate(side, axis=-1) for side in zip(*mini_batches(2, m=7)))
    net = mp.ParameterServer(LAYERS, LOSS, 1, weights=mp.Weights(3))
    net.train(line_of(X, Y, batch_size=4, n=8, seed=5), mp.SGD(0.1))
    reference = mp.Sequential(LAYERS, LOSS, seed=3)
    mp.fit(reference, X, Y, mp.SGD(0.1), n_epochs=2, batch_size=4, seed=5, metric=lambda A, Y: 0, report=None)
    assert_same(weights(net), weights(reference))


# Ticks and bytes


def test_a_round_takes_the_slowest_worker_and_the_transfers():
    for times, s, latency, update in [
        ([5, 5, 5], 1, 0, 0), ([5, 5, 50], 1, 3, 2), ([1, 2, 90, 91], 2, 0, 0), ([1, 2, 90, 91], 2, 1, 1),
        ([3], 1, 3, 2), ([2, 40, 41, 60], 1, 3, 2), ([2, 40, 41, 60], 2, 1, 1), ([5, 5, 5], 2, 1, 1),
    ]:
        net = mp.ParameterServer(
            LAYERS, LOSS, len(times), mp.Servers(s),
            pace=mp.Pace(speeds=[Fraction(1, t) for t in times], update_ticks=update),
            on=mp.Machine(link=mp.Link(latency=latency), ports=mp.cluster.ports(s, 8)),
        )
        net.train(mini_batches(1), mp.SGD(0.1))
        expected = round_ticks(times, N_BYTES, 8, s, latency, update)
        assert net.trace.makespan == expected, (times, s, latency, update)


def test_rounds_of_equal_workers_take_the_closed_form():
    for n_workers, s, ticks, latency, update in [
        (1, 1, 30, 0, 0), (2, 1, 1, 0, 0), (6, 1, 7, 2, 3), (6, 1, 30, 0, 0), (2, 2, 7, 2, 3),
        (4, 2, 1, 0, 0), (4, 2, 30, 0, 0), (5, 2, 7, 2, 3), (5, 2, 1, 0, 0), (13, 13, 7, 2, 3),
    ]:
        net = mp.ParameterServer(
            LAYERS, LOSS, n_workers, mp.Servers(s), pace=mp.Pace(ticks=ticks, update_ticks=update),
            on=mp.Machine(link=mp.Link(latency=latency), ports=mp.cluster.ports(s, 16)),
        )
        net.train(mini_batches(3, m=13), mp.SGD(0.1))
        expected = synchronous_ticks(3, n_workers, ticks, N_BYTES, 16, s, latency=latency, update=update)
        assert net.trace.makespan == expected, (n_workers, s, ticks, latency, update)


@pytest.mark.parametrize("n_workers, s", [(3, 1), (4, 2), (2, 13)])
def test_each_server_gets_its_share_of_n_times_the_weights(n_workers, s):
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


def test_synchronous_workers_alone_wait_for_the_slowest():
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


def network(n_microbatches=None, speeds=None, **servers):
    return mp.ParameterServer(LAYERS, LOSS, 3, mp.Servers(**servers), n_microbatches, mp.Pace(speeds=speeds))


@pytest.mark.parametrize("options, words", [
    ({"n": 27}, "n=27 servers exceed the 26 parameters of the network: use at most 26"),
    ({"speeds": [1, 0, 1]}, r"speeds\[1\]=0 would never finish"),
    ({"speeds": [1, 2]}, "speeds has 2 numbers for 3 workers"),
    ({"mode": "ssp"}, "bound=None in mode 'ssp'"),
    ({"bound": 2}, "bound=2 in mode 'sync': the mode 'ssp' needs a bound, and no other has one"),
    ({"mode": "async", "backups": 1}, "backups=1 in mode 'async'"),
    ({"backups": 1, "n": 2}, "one server, since several would do without different workers"),
    ({"backups": 3}, "backups=3 of 3 workers leave none to wait for: use at most 2"),
    ({"compensation": 1}, "compensation=1 in mode 'sync'"),
    ({"mode": "hogwild", "n": 2}, "mode 'hogwild' with n=2 servers"),
    ({"mode": "async", "n_microbatches": 4}, "n_microbatches=4 in mode 'async'"),
    ({"n_microbatches": 2}, "n_microbatches=2 must be at least 3"),
    ({"n": 4, "on_workers": True}, "n=4 servers on the devices of 3 workers: use at most 3"),
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
])
def test_optimizers_that_servers_cannot_use_are_refused(servers, optimizer, words):
    net = mp.ParameterServer(LAYERS, LOSS, 3, servers)
    with pytest.raises(ValueError, match=words):
        net.train(mini_batches(1), optimizer)
    assert net.n_steps == 0 and net.trace is None


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
