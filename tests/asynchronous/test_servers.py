"""Parameter servers: synchronous ones are data parallelism, asynchronous ones do what their trace says."""

from fractions import Fraction

import numpy as np
import pytest
from compared import assert_same
from hypothesis import given, settings
from hypothesis import strategies as st

import minipipe as mp
from minipipe.collectives.group import unflattened
from minipipe.exact import Rational
from minipipe.arrays import leaves
from minipipe.servers import Gradient, Update, mini_batches as line_of
from minipipe.parallel.layout import parameters_in_parts
from asynchronous.server_cases import (
    LAYERS, LOSS, THIRD, exact_layers, exact_mini_batches, mini_batches, network_at, sequential, weights,
)

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
def test_every_update_is_the_rule_applied_to_the_versions_that_the_trace_names(
    servers, update_ticks, machine
):
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
def test_clocks_at_reads_are_never_further_apart_than_the_bound_and_reach_it(bound):
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
