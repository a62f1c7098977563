"""Parameter servers: synchronous ones are data parallelism, asynchronous ones do what their trace says.

Then what rounds cost, threads, and what is refused. Federated averaging: one full step is gradient descent,
and averages are weighted.
"""

import copy
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from asynchronous.by_the_rule import (
    LAYERS, LOSS, THIRD, clients, exact_clients, exact_layers, exact_mini_batches, mini_batches, network_at,
    sequential, weights,
)
from compared import assert_same
from hypothesis import given, settings
from hypothesis import strategies as st

import minipipe as mp
from minipipe.arrays import leaves
from minipipe.collectives.group import unflattened
from minipipe.exact import Rational, rational
from minipipe.parallel.layout import ParameterShard
from minipipe.servers import Gradient, Update
from minipipe.servers import mini_batches as line_of
from minipipe.servers.federated_averaging import Upload, averaged

N_BYTES = 26 * 8  # of the weights of LAYERS
HALF = Rational(1, 2)


# Synchronous


@settings(max_examples=8)
@given(st.integers(1, 5), st.sampled_from([1, 2, 3, 14]))
def test_synchronous_servers_equal_one_device_in_rationals(n_workers, n_servers):
    """Ragged parts, any number of workers and servers, momentum."""
    batches, optimizer = exact_mini_batches(3), mp.SGD(Rational(1, 8), momentum=Rational(1, 2))
    net = mp.ParameterServer(exact_layers(), LOSS, n_workers, servers=n_servers)
    costs = net.train(batches, optimizer)
    reference, expected = sequential(exact_layers(), batches, optimizer.fresh())
    assert costs == expected
    assert_same(weights(net), weights(reference))


@pytest.mark.parametrize("n_workers, n_servers", [(1, 1), (2, 3), (3, 1), (3, 3), (4, 16)])
def test_synchronous_servers_have_the_bits_of_data_parallelism(n_workers, n_servers):
    """On any floats, for the same parts: dropout, batch norm's statistics and two trainings, too."""
    layers = [mp.Linear(3, 4), mp.BatchNorm(4), mp.Dropout(0.3), mp.Tanh(), mp.Linear(4, 2)]
    net = mp.ParameterServer(
        layers, LOSS, n_workers, servers=n_servers, speeds=range(n_workers, 0, -1), dtype=np.float32
    )
    batches = mini_batches(5, 9, np.float32)
    own, optimizer = mp.Adam(0.01), mp.Adam(0.01)
    costs = net.train(batches[:2], own) + net.train(batches[2:], own)
    copies, expected = mp.DataParallel(layers, LOSS, n_workers, dtype=np.float32), []
    for X, Y in batches:
        expected.append(copies.forward_backward(X, Y))
        copies.step(optimizer)
    assert costs == expected and costs[0].dtype == np.float32
    assert_same(weights(net), weights(copies))
    assert_same(dict(own.memory), dict(optimizer.memory))
    assert own.n_updates == optimizer.n_updates == 5
    assert_same([net.layers[1].running_mean, net.layers[1].running_var],
                 [copies.layers[1].running_mean, copies.layers[1].running_var])
    assert all(update.staleness == 0 and len(update.workers) == n_workers for update in net.updates)


# Asynchronous


def test_one_asynchronous_worker_is_plain_sgd():
    layers = [mp.Linear(3, 4), mp.BatchNorm(4), mp.Dropout(0.3), mp.Linear(4, 2)]
    batches, optimizer = mini_batches(6), mp.SGD(0.1, momentum=0.9)
    net = mp.ParameterServer(layers, LOSS, 1, mode="async")
    costs = net.train(batches, optimizer)
    reference, expected = sequential(layers, batches, optimizer.fresh())
    assert costs == expected
    assert_same(weights(net), weights(reference))
    assert np.array_equal(net.layers[1].running_var, reference.layers[1].running_var)


def flat(arrays):
    return np.concatenate([array.ravel() for array in arrays])


def assert_follows_the_rule(net, first, batches, optimizer):
    """The weights are those that the rule makes of the versions that the trace names, from `first` on."""
    servers = range(net.n_servers)
    shards = [ParameterShard(net.layers, k, net.n_servers, has_all=True).vectors for k in servers]
    ends = np.cumsum([0, *(flat(shard).size for shard in shards)])
    entries = [slice(*ends[k:k + 2]) for k in servers]
    cuts = np.cumsum([array.size for array in first])[:-1]
    read = {label.batch: label.versions for label in labels_of(net.trace.spans, Gradient)}
    updates = [labels_of(net.trace.spans_of(k), Update) for k in servers]
    assert [len(of_server) for of_server in updates] == [len(batches)] * net.n_servers
    after = [[flat(first)[of]] for of in entries]  # after[k][v]: the shard of server k after v updates
    own = [optimizer.fresh() for _ in servers]

    def shard(k, version):
        while len(after[k]) <= version:
            update = updates[k][len(after[k]) - 1]
            assert (update.number, update.read) == (len(after[k]), read[update.batch][k])
            g = gradient(update.batch)[entries[k]]
            layer = mp.Linear(1, g.size, W=after[k][-1][:, None], b=np.zeros((g.size, 1)))
            own[k].update([layer], [(g[:, None], None)])
            after[k].append(layer.W[:, 0])
        return after[k][version]

    @cache
    def gradient(batch):
        values = np.concatenate([shard(k, version) for k, version in enumerate(read[batch])])
        twin = network_at(unflattened(np.split(values, cuts), first))
        twin.forward_backward(*batches[batch])
        return flat(leaves(twin.gradients))

    assert_same(flat(weights(net)), np.concatenate([shard(k, len(batches)) for k in servers]))


@pytest.mark.parametrize("options", [
    {}, {"servers": 3, "ports": mp.cluster.ports(3, 40)},
    {"servers": 2, "link": mp.Link(latency=0.25)}, {"servers": 2, "on_workers": True},
    {"engine": "threads"}, {"servers": 3, "engine": "threads"},
])
def test_each_update_equals_the_rule_at_its_recorded_versions(options):
    """No update is lost or doubled, on any floats, bit for bit."""
    batches, optimizer = mini_batches(12), mp.SGD(0.1, momentum=0.5)
    net = mp.ParameterServer(LAYERS, LOSS, 4, mode="async", speeds=[1, 2, 1, 0.3], **options)
    first = [array.copy() for array in weights(net)]
    net.train(batches, optimizer)
    assert_follows_the_rule(net, first, batches, optimizer)
    assert sorted(update.batch for update in net.updates) == list(range(len(batches)))
    assert "engine" in options or max(update.staleness for update in net.updates) >= 2


@pytest.mark.parametrize("n, speeds, staleness", [
    (4, None, [0, 1, 2, 3, 3, 3, 3, 3]), (2, THIRD, [0, 0, 0, 3, 1, 0, 0, 3]), (1, None, [0] * 8),
])
def test_staleness_equals_counts_by_hand(n, speeds, staleness):
    net = mp.ParameterServer(LAYERS, LOSS, n, mode="async", speeds=speeds)
    net.train(mini_batches(8), mp.SGD(0.1))
    assert [update.staleness for update in net.updates] == staleness


def labels_of(spans, kind):
    return [span.label for span in spans if isinstance(span.label, kind)]


def round_ticks(times, n_bytes, bandwidth, *, servers=1, latency=0):
    """The formula in the docstring of `ParameterServer`."""
    N, c = len(times), Fraction(n_bytes, servers * bandwidth)
    return max(t + (N - i) * c for i, t in enumerate(sorted(times))) + N * c + 2 * latency


def test_one_worker_trains_on_the_mini_batches_of_fit():
    X, Y = (np.concatenate(side, axis=-1) for side in zip(*mini_batches(2, m=7)))
    net = mp.ParameterServer(LAYERS, LOSS, 1, seed=3)
    net.train(line_of(X, Y, batch_size=4, n=8, seed=5), mp.SGD(0.1))
    reference = mp.Sequential(LAYERS, LOSS, seed=3)
    mp.fit(reference, X, Y, mp.SGD(0.1), epochs=2, batch_size=4, seed=5, metric=lambda A, Y: 0, report=None)
    assert_same(weights(net), weights(reference))


# Ticks and bytes


def test_a_round_takes_the_slowest_worker_and_the_transfers():
    for times, s, latency in [
        ([5, 5, 5], 1, 0), ([5, 5, 50], 1, 3), ([1, 2, 90, 91], 2, 0), ([1, 2, 90, 91], 2, 1), ([3], 1, 3),
        ([2, 40, 41, 60], 1, 3), ([2, 40, 41, 60], 2, 1), ([5, 5, 5], 2, 1),
    ]:
        net = mp.ParameterServer(
            LAYERS, LOSS, len(times), servers=s, speeds=[Fraction(1, t) for t in times],
            link=mp.Link(latency=latency), ports=mp.cluster.ports(s, 8),
        )
        net.train(mini_batches(1), mp.SGD(0.1))
        expected = round_ticks(times, N_BYTES, 8, servers=s, latency=latency)
        assert net.trace.makespan == expected, (times, s, latency)


def test_rounds_of_equal_workers_take_the_closed_form():
    for N, s, ticks, latency in [
        (1, 1, 30, 0), (2, 1, 1, 0), (6, 1, 7, 2), (6, 1, 30, 0), (2, 2, 7, 2), (4, 2, 1, 0), (4, 2, 30, 0),
        (5, 2, 7, 2), (5, 2, 1, 0), (13, 13, 7, 2),
    ]:
        net = mp.ParameterServer(
            LAYERS, LOSS, N, servers=s, ticks=ticks, link=mp.Link(latency=latency),
            ports=mp.cluster.ports(s, 16),
        )
        net.train(mini_batches(3, m=13), mp.SGD(0.1))
        c, others = Fraction(N_BYTES, s * 16), ticks + 2 * latency
        last = round_ticks([ticks] * N, N_BYTES, 16, servers=s, latency=latency)
        expected = 2 * (others + (N + s) * c) + last
        assert net.trace.makespan == expected, (N, s, ticks, latency)


@pytest.mark.parametrize("N, s", [(3, 1), (4, 2), (2, 13)])
def test_each_server_gets_its_share_of_n_times_the_weights(N, s):
    net = mp.ParameterServer(LAYERS, LOSS, N, servers=s)
    net.train(mini_batches(3), mp.SGD(0.1))
    for server in range(s):
        into = sum(message.n_bytes for message in net.trace.messages if message.to == server)
        out = sum(message.n_bytes for message in net.trace.messages if message.source == server)
        assert into == out == 3 * N * N_BYTES // s


@pytest.mark.parametrize("N", [2, 13])
def test_servers_on_all_workers_send_as_many_bytes_as_a_ring(N):
    net = mp.ParameterServer(LAYERS, LOSS, N, servers=N, on_workers=True)
    net.train(mini_batches(1, m=13), mp.SGD(0.1))
    sent = [sum(message.n_bytes for message in net.trace.messages if message.source == r) for r in range(N)]
    assert sent == [2 * (N - 1) * N_BYTES // N] * N


def test_each_worker_pushes_to_another_server_first():
    """So that not all queue up for the first."""
    net = mp.ParameterServer(LAYERS, LOSS, 4, servers=3, ports=mp.cluster.ports(3, 8))
    net.train(mini_batches(1), mp.SGD(0.1))
    to = {worker: [m.to for m in net.trace.messages if m.source == 3 + worker] for worker in range(4)}
    assert to == {0: [0, 1, 2], 1: [1, 2, 0], 2: [2, 0, 1], 3: [0, 1, 2]}


def test_synchronous_workers_alone_wait_for_the_slowest():
    """80 updates in 240 ticks with one worker three times as slow; 800 gradients without waiting."""
    speeds, batches = [1, 1, 1, 1 / 3], mini_batches(10, m=4)
    sync = mp.ParameterServer(LAYERS, LOSS, 4, speeds=speeds)
    sync.train(batches[:8], mp.SGD(0.1))
    assert sync.trace.makespan == 8 * 3
    free = mp.ParameterServer(LAYERS, LOSS, 4, mode="async", speeds=speeds)
    free.train(batches * 8, mp.SGD(0.1))
    assert free.trace.makespan == 24 and len(free.updates) == 80
    assert not free.trace.idle or all(idle.end == 24 for idle in free.trace.idle if idle.device > 0)


# Threads


@pytest.mark.parametrize("options", [{}, {"servers": 3}, {"servers": 2, "on_workers": True}])
def test_synchronous_servers_have_the_same_bits_on_threads(options):
    nets = [mp.ParameterServer(LAYERS, LOSS, 3, engine=engine, **options)
            for engine in ("cluster", "threads")]
    costs = [net.train(mini_batches(4), mp.Adam(0.1)) for net in nets]
    assert costs[0] == costs[1] and nets[0].updates == nets[1].updates and nets[1].trace.unit == "seconds"
    assert_same(*map(weights, nets))


def test_a_run_that_fails_changes_nothing():
    for mode in ("sync", "async"):
        net = mp.ParameterServer(LAYERS, LOSS, 2, mode=mode)
        optimizer = mp.SGD(0.1, momentum=0.9)
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


# Bad input


@pytest.mark.parametrize("options, words", [
    ({"servers": 27}, "servers=27 exceed the 26 parameters of the network: use at most 26"),
    ({"speeds": [1, 0, 1]}, r"speeds\[1\]=0 must be above 0"),
    ({"speeds": [1, 2]}, "speeds has 2 numbers for 3 workers"),
    ({"mode": "ssp"}, "mode='ssp' must be one of 'sync', 'async'"),
    ({"servers": 4, "on_workers": True}, "servers=4 on the devices of 3 workers: use at most 3"),
    ({"engine": "gpu"}, "engine='gpu' must be one of 'cluster', 'threads'"),
    ({"ports": [mp.Port(8, [4])]}, r"is of device 4: devices are 0\.\.3"),
    ({"link": 3}, "link=3 must be a Link"),
])
def test_wrong_options_of_parameter_servers_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        mp.ParameterServer(LAYERS, LOSS, 3, **options)


def test_servers_refuse_tied_layers_and_whole_parameters():
    with pytest.raises(ValueError, match="a server updates a range of all parameters: use layers without"):
        mp.ParameterServer([mp.Linear(3, 3, tie="W"), mp.Linear(3, 3, tie="W")], LOSS, 3)
    net = mp.ParameterServer(LAYERS, LOSS, 3)
    with pytest.raises(ValueError, match="LARS looks at whole parameters, but a server updates a range"):
        net.train(mini_batches(1), mp.LARS(0.1))
    with pytest.raises(ValueError, match="workers=3 exceeds the batch of m=2 samples"):
        net.train(mini_batches(2, m=2), mp.SGD(0.1))
    assert net.n_steps == 0 and net.trace is None


def test_fit_and_step_are_refused_by_servers_and_clients():
    X, Y = mini_batches(1)[0]
    nets = {r"call train\(batches, optimizer\)": mp.ParameterServer(LAYERS, LOSS, 2),
            r"call train\(rounds, optimizer\)": mp.FederatedAveraging(LAYERS, LOSS, [(X, Y)])}
    for words, net in nets.items():
        with pytest.raises(ValueError, match=words):
            mp.fit(net, X, Y, mp.SGD(0.1), 1, 2)
        with pytest.raises((ValueError, RuntimeError)):
            net.step(mp.SGD(0.1))


def together(clients):
    return tuple(np.concatenate([client[side] for client in clients], axis=-1) for side in (0, 1))


# Federated averaging: FedSGD and the average


@settings(max_examples=8)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(1, 2))
def test_fedsgd_is_gradient_descent_on_all_samples(sizes, n_rounds):
    """In rational numbers, however the samples are divided."""
    data, rate = exact_clients(*sizes), mp.SGD(Rational(1, 8))
    net = mp.FederatedAveraging(exact_layers(), LOSS, data)
    net.train(n_rounds, rate)
    reference, _ = sequential(exact_layers(), [together(data)] * n_rounds, rate)
    assert_same(weights(net), weights(reference))


def test_uploads_are_summed_along_the_tree_over_the_clients():
    """((0 + 1) + (2 + 3)) / 4 of 2^55, 4, -2^55, 4 is 1 in floats: 2^53 + 1 = 2^53, but 1 - 2^53 is exact."""
    sent = [2.0**55, 4.0, -(2.0**55), 4.0]
    (average,), J = averaged([Upload(5, [np.array([number])], number) for number in sent])
    assert average.tolist() == [1] and J == 1


def test_each_round_chooses_other_clients():
    net = mp.FederatedAveraging(LAYERS, LOSS, clients(1, 2, 3, 4, 5), fraction=0.4, seed=2)
    chosen = [net.round(mp.SGD(0.1)).chosen for _ in range(5)]
    assert {len(set(of_round)) for of_round in chosen} == {2} and len(set(chosen)) > 1


def test_one_client_with_all_samples_is_plain_sgd():
    """Bit for bit, in the order of its passes; dropout and batch norm's statistics, too."""
    (X, Y), = data = clients(11)
    layers = [mp.Linear(3, 4), mp.BatchNorm(4), mp.Dropout(0.3), mp.Tanh(), mp.Linear(4, 2)]
    net = mp.FederatedAveraging(layers, LOSS, data, epochs=2, batch_size=4, seed=3)
    found = net.train(2, mp.SGD(0.1))
    batches = []
    for number in range(4):
        order = np.random.default_rng([3, 0, number]).permutation(11)
        parts = [order[:4], order[4:8], order[8:]]
        batches += [(X[:, part], Y[:, part]) for part in parts]
    reference, costs = sequential(layers, batches, mp.SGD(0.1), seed=3)
    assert_same(weights(net), weights(reference))
    assert [one.J for one in found] == [sum(costs[3:6]) / 3, sum(costs[9:]) / 3]  # of each round's last pass
    assert np.array_equal(net.layers[1].running_var, reference.layers[1].running_var)


def test_running_statistics_are_averaged_like_the_weights():
    data = [(rational([[0, 2]]), rational([[0, 0]])), (rational([[4, 6, 8]]), rational([[0, 0, 0]]))]
    layers = [mp.BatchNorm(1, momentum=HALF), mp.Linear(1, 1, W=rational([[1]]), b=rational([[0]]))]
    layers = [layer.copy(rational) for layer in mp.Sequential(layers, LOSS).layers]
    net = mp.FederatedAveraging(layers, LOSS, data)
    net.round(mp.SGD(HALF))
    # (0 + 1)/2 of 2 samples and (0 + 6)/2 of 3
    assert net.layers[0].running_mean[0, 0] == (2 * HALF + 3 * 3) / Rational(5)


def test_clients_begin_each_round_with_a_fresh_optimizer():
    """So that momentum, in one step a round, does nothing."""
    data = clients(5)
    net = mp.FederatedAveraging(LAYERS, LOSS, data)
    net.train(3, mp.SGD(0.1, momentum=0.5))
    reference, _ = sequential(LAYERS, data * 3, mp.SGD(0.1))
    assert_same(weights(net), weights(reference))


# What a round takes


def test_bytes_and_ticks_of_a_round():
    """Weights down to each client, and up from each; the slowest client decides."""
    sizes, n_bytes, optimizer = (2, 3, 7), 26 * 8, mp.SGD(0.1)
    net = mp.FederatedAveraging(
        LAYERS, LOSS, clients(*sizes), epochs=4, batch_size=2, ticks=2, speeds=[Fraction(1, 10), 1, 1]
    )
    done = net.round(optimizer)
    assert (done.bytes_down, done.bytes_up) == (3 * n_bytes, 3 * n_bytes)
    assert done.ticks == max(4 * 2 * 2 * 10, 4 * 2 * 3, 4 * 2 * 7)


def test_a_round_that_fails_changes_nothing():
    data = clients(4, 4)
    data[1] = data[1][0] * 1e200, data[1][1] * 1e200
    net = mp.FederatedAveraging(LAYERS, LOSS, data, batch_size=2)
    before = [array.copy() for array in weights(net)]
    with pytest.raises(FloatingPointError, match="is not finite"):
        net.round(mp.SGD(0.1))
    assert_same(weights(net), before)
    assert net.n_rounds == 0 and net.positions == [0, 0]


# Splits and bad input


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("sizes", [None, [1, 2, 3, 4, 5]])
def test_every_sample_is_with_one_client(skewed, sizes):
    X, Y = np.arange(61.0)[None], mp.one_hot(np.arange(61) % 10, 10)
    parts = mp.servers.clients_of(X, Y, 5, skewed=skewed, sizes=sizes, seed=1)
    assert sorted(np.concatenate([part.ravel() for part, _ in parts])) == X.ravel().tolist()
    assert all(np.array_equal(Y[:, part.ravel().astype(int)], labels) for part, labels in parts)
    classes = [int(labels.any(axis=1).sum()) for _, labels in parts]
    assert sum(classes) < 25 if skewed else sum(classes) > 30
    if sizes:
        assert np.argsort([part.size for part, _ in parts]).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("options, words", [
    ({"fraction": 0.1}, "fraction=0.1 of 3 clients selects no client: use at least 0.333"),
    ({"clients": []}, "clients is an empty list"),
    ({"clients": [3]}, r"clients\[0\] must be a pair"),
    ({"speeds": [1, 1]}, "speeds has 2 numbers for 3 clients"),
    ({"epochs": 0}, "epochs=0 must be at least 1"),
    ({"batch_size": 2.5}, "batch_size=2.5 must be"),
])
def test_wrong_options_of_federated_averaging_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        mp.FederatedAveraging(LAYERS, LOSS, **{"clients": clients(2, 2, 2)} | options)


@pytest.mark.parametrize("n, sizes, words", [
    (2, [100, 1], "client 1 is without data: 4 samples in 2 runs for 2 clients"),
    (5, None, "is without data"),
])
def test_splits_that_leave_a_client_without_data_are_refused(n, sizes, words):
    with pytest.raises(ValueError, match=words):
        mp.servers.clients_of(np.arange(4.0)[None], np.eye(4), n, sizes=sizes)
