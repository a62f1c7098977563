"""Messages that share ports: what passes when, counted in ticks."""

import numpy as np
import pytest

from minipipe.cluster import (
    Cluster, Compute, DeadlockError, Link, Port, Receive, Send, examples, ports,
)
from minipipe.cluster.carrier import Carrier
from minipipe.collectives import Group, all_reduce
from minipipe.meta import MetaArray


def run(name, N, n, link=Link(), ports=()):
    """The trace of an all-reduce of n bytes on N ranks."""
    programs = [all_reduce(Group(rank, range(N)), MetaArray(n, np.uint8), name) for rank in range(N)]
    return Cluster(programs, link=link, ports=ports).run()


def swap(label, n, to, source):
    """One message to a rank, and one from a rank, on their way at the same time."""
    yield Send(label, None, to, n)
    yield Receive(label, source)


def test_gpus_on_one_bus_at_tick_each_other():
    """All 4 GPUs on one bus: 24 messages of 40 MB, one after another, take 60 ms, however they are sent."""
    bus = [Port(16, sends=range(4), receives=range(4))]
    for name in ("owners", "ring"):
        assert run(name, 4, 160, ports=bus).makespan == 60


# A bug, and what it would make of it


@pytest.fixture
def reserved_when_sent(monkeypatch):
    """The bug: all that a message passes is reserved when it is sent, for as soon as all of it is free."""

    def set_out(self, message, now):
        passes, _, _ = self._way(message)
        self._start(message, now, max(now, self._free_at(passes)))
        return True

    monkeypatch.setattr(Carrier, "set_out", set_out)


def test_reserving_at_send_time_would_give_45_ms_and_424_ticks(reserved_when_sent):
    """Instead of 15 and 296, which `test_collectives` counts."""
    assert run("owners", 4, 160, ports=ports(4, 16)).makespan == 45
    assert run("owners", 4, 1024, Link(100), ports(4, 16)).makespan == 424


# The ring with arrays, step by step


def test_the_ring_adds_as_it_is_drawn():
    """4 ranks, 8 elements x_r[i] = (i + 1) 10^r, chunks of 2; an addition takes a tick, messages none."""
    data = [np.split((np.arange(8) + 1) * 10**r, 4) for r in range(4)]
    cluster = Cluster([examples.ring(r, 4, parts) for r, parts in enumerate(data)])
    for rank, sums in [(1, [11, 22]), (2, [111, 222]), (3, [1111, 2222])]:
        cluster.tick()
        assert data[rank][0].tolist() == sums
    trace = cluster.run()
    assert all(np.concatenate(parts).tolist() == [1111 * (i + 1) for i in range(8)] for parts in data)
    assert len(trace.messages) == 24 and trace.makespan == 3
    assert [sum(m.n_bytes for m in trace.messages if m.source == r) for r in range(4)] == [12 * 8] * 4


# Communication beside the work: two copies of a network, and two lanes a device


def backward(device, order):
    """The lane that computes: two ticks for each layer, whose gradient it hands over at once."""
    for layer in order:
        yield Compute(f"B{layer}", ticks=2)
        yield Send(f"gradient {layer}", None, device)


def exchange(device, buckets, n_bytes):
    """The lane that communicates: for each bucket in turn, when all of its gradients are there, a swap."""
    for number, layers in enumerate(buckets):
        for layer in layers:
            yield Receive(f"gradient {layer}", device)
        yield from swap(number, n_bytes * len(layers), 1 - device, 1 - device)


def exposed(buckets, alpha, ticks_a_layer):
    """How long the run lasts when all work is done."""
    programs = [
        {"compute": backward(r, [3, 2, 1, 0]), "communication": exchange(r, buckets, ticks_a_layer)}
        for r in range(2)
    ]
    trace = Cluster(programs, link=Link(alpha), ports=ports(2, 1)).run()
    assert trace.busy_ticks() == [8, 8]
    return trace.makespan - 8


def test_an_exchange_beside_the_work_is_exposed_as_far_as_it_lasts_longer():
    """4 layers of b = 2 ticks, and c ticks for the exchange of each: max(c, 4 c - 3 b)."""
    one_by_one = [[3], [2], [1], [0]]
    found = [exposed(one_by_one, 0, c) for c in (1, 2, 3)]
    assert found == [max(c, 4 * c - 6) for c in (1, 2, 3)] == [1, 2, 6]


def test_buckets_save_latency_and_cost_overlap():
    """alpha = 2, and a tick a layer: buckets of 1, 2 and 4 layers; and of 2 in the forward's order."""
    one_by_one, pairs, together = [[3], [2], [1], [0]], [[3, 2], [1, 0]], [[3, 2, 1, 0]]
    assert [exposed(buckets, 2, 1) for buckets in (one_by_one, pairs, together)] == [6, 4, 6]
    assert exposed([[1, 0], [3, 2]], 2, 1) == 8


def test_buckets_in_different_orders_are_a_deadlock_on_links_that_wait_to_be_asked():
    """Collectives are matched by the order of the calls; here one device begins with a, the other with b."""

    def swaps(device, order):
        for bucket in order:
            yield Send(f"bucket {bucket}", None, 1 - device)
            yield Receive(f"bucket {bucket}", 1 - device)

    def wait_first(device, order):
        for bucket in order:
            yield Receive(f"bucket {bucket}", 1 - device)
            yield Send(f"bucket {bucket}", None, 1 - device)

    same = [swaps(0, "ab"), wait_first(1, "ab")]
    assert Cluster(same, link=Link(1, rendezvous=True)).run().makespan == 4
    words = "device 0 waits until device 1 asks for bucket a, device 1 waits for bucket b from device 0"
    with pytest.raises(DeadlockError, match=f"{words}: a cycle"):
        Cluster([swaps(0, "ab"), wait_first(1, "ba")], link=Link(1, rendezvous=True)).run()
