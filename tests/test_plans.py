"""The plan that is said to be the fastest is that among all, and a run of it takes what it says."""

import random

import numpy as np
import pytest

import minipipe as mp
from minipipe.planning import Nodes, plan
from minipipe.planning.search import _Search, _settings
from minipipe.planning.without_numbers import WithoutNumbers

LOSS = mp.MeanSquaredError()
SCHEDULES = ("1f1b", "gpipe", "interleaved", "zb-h1", "zb-v")


def network(n_blocks, n=16):
    return [layer for _ in range(n_blocks) for layer in (mp.Linear(n, n), mp.Tanh())]


def everything(layers, batch, cluster, optimizer, schedules=SCHEDULES):
    """[(makespan, peak)] of every setting that exists, simulated to its end."""
    network = WithoutNumbers(layers, LOSS, (16,), np.float32, optimizer, "running")
    search = _Search(network, mp.costs_of_layers(layers, "macs", (16,)), cluster)
    levels = [None, 1, 2] if optimizer else [None]
    found = []
    for setting in _settings(cluster.size, batch, schedules, ("never", "always"), levels, None, None):
        if search.bound(setting) is not None and search.alone(setting) is not None:
            one = search.simulated(setting)
            assert search.bound(setting) <= search.alone(setting) * (1 + 1e-12), setting
            assert search.with_exchange(setting) <= one.makespan * (1 + 1e-12), setting
            assert search.least_bytes(setting) <= one.peak_bytes, setting
            found.append((one.makespan, one.peak_bytes))
    return found


@pytest.mark.parametrize("seed", range(3))
def test_no_setting_that_the_search_skips_is_faster(seed):
    """Exhaustive, for random clusters, with limits at several peaks; and every bound is one."""
    chance = random.Random(seed)
    layers = network(chance.choice([2, 3, 4]))
    links = [mp.Link(chance.choice([0, 100, 3000]), chance.choice([4, 64, float("inf")])) for _ in range(2)]
    shape = chance.choice([(1, 4), (2, 2), (1, 2)])
    optimizer = chance.choice([None, mp.Adam()])
    cluster = Nodes(*shape, *links, seconds=lambda macs: macs + 500)
    runs = everything(layers, 4, cluster, optimizer)
    peaks = sorted({peak for _, peak in runs})
    for limit in (peaks[0], peaks[len(peaks) // 2], peaks[-1]):
        cluster = Nodes(*shape, *links, memory=limit, seconds=cluster.seconds)
        plans = plan(layers, LOSS, (16,), 4, cluster, optimizer=optimizer, schedules=SCHEDULES, n_best=3)
        expected = sorted(makespan for makespan, peak in runs if peak <= limit)[:3]
        assert [float(one.makespan) for one in plans.found] == pytest.approx(expected, rel=1e-12)
        assert all(one.peak_bytes <= limit for one in plans.found)


X = np.random.default_rng(0).standard_normal((16, 32)).astype(np.float32)


@pytest.mark.parametrize("n_replicas, zero", [(1, None), (2, None), (4, None), (2, 1), (4, 2)])
def test_a_run_of_a_plan_takes_its_ticks_and_its_bytes(n_replicas, zero):
    """With arrays, after an update: makespan and peak, `==`; and its gradients are those of one device."""
    layers, optimizer = network(4), mp.Adam()
    cluster = Nodes(2, 2, mp.Link(50, 64), mp.Link(400, 16), seconds=lambda macs: macs + 500)
    best = plan(
        layers, LOSS, (16,), 32, cluster, optimizer=optimizer, n_replicas=[n_replicas], zero=[zero],
    ).best
    assert (best.n_replicas, best.zero) == (n_replicas, zero)
    pipe = best.pipeline(layers, LOSS, optimizer)
    if zero is None:
        for _ in range(2):
            pipe.forward_backward(X, X)
            pipe.step(optimizer)
    else:
        pipe.train([(X, X)])
        pipe.train([(X, X)])
    assert (pipe.trace.makespan, max(pipe.trace.peak_bytes())) == (best.makespan, best.peak_bytes)
    assert sum(best.shares.values()) == pytest.approx(1)


def test_slow_links_between_nodes_keep_the_pipeline_across_them():
    """Narayanan et al.'s rule: the exchange of all gradients stays inside the nodes, where links are fast."""
    for between, D in ((mp.Link(), 8), (mp.Link(bandwidth=0.01), 1)):
        cluster = Nodes(2, 4, mp.Link(), between, seconds=float)
        best = plan(
            network(8, 64), LOSS, (64,), 64, cluster, n_replicas=[1, 8], schedules=["1f1b"],
            n_microbatches=[2, 8],
        ).best
        assert best.n_replicas == D and best.bound_by == ("computing" if D == 8 else "bubble")


def test_what_cannot_be_is_said():
    layers = network(2)
    with pytest.raises(ValueError, match="4 devices in a node and no link between them: give it inside=Link"):
        Nodes(1, 4)
    with pytest.raises(ValueError, match="2 nodes and no link between them: give it between=Link"):
        Nodes(2, 1)
    for memory in (100, 4_000):
        with pytest.raises(ValueError, match=r"nothing fits .* the closest, .* needs .* too many: give"):
            plan(layers, LOSS, (16,), 8, Nodes(memory=memory))
    with pytest.raises(ValueError, match="must be Nodes"):
        plan(layers, LOSS, (16,), 8, 4)
    with pytest.raises(ValueError, match="divides 1 devices and batch_size=8"):
        plan(layers, LOSS, (16,), 8, Nodes(), n_microbatches=[3])
    with pytest.raises(ValueError, match="no schedule exists for 4 layers on 8 devices"):
        plan(layers, LOSS, (16,), 8, Nodes(1, 8, mp.Link()), n_replicas=[1])
    with pytest.raises(ValueError, match="out of None, 1 and 2"):
        plan(layers, LOSS, (16,), 8, Nodes(), zero=[3])
