"""Messages that share ports: what textbooks write in closed form, counted in ticks.

alpha: the latency of a link. beta: ticks per byte, 1 / the bandwidth of a port. N ranks with n bytes each.
"""

import time
from fractions import Fraction

import numpy as np
import pytest

from minipipe.cluster import ANY, Cluster, Compute, DeadlockError, Link, Port, Receive, Send, examples, ports
from minipipe.cluster.carrier import Carrier

# Collectives without numbers: the program of rank r of N, with n bytes


def swap(label, n, to, source):
    """One message to a rank, and one from a rank, on their way at the same time."""
    yield Send(label, None, to, n)
    yield Receive(label, source)


def naive(r, N, n):
    """Everybody sends to rank 0, which sends the sum back."""
    if r > 0:
        yield Send("up", None, 0, n)
        yield Receive("down", 0)
    else:
        for _ in range(1, N):
            yield Receive("up", ANY)
        for other in range(1, N):
            yield Send("down", None, other, n)


def broadcast(r, N, n):
    """A binomial tree: in each step, whoever has it sends it on; the farthest rank is sent to first."""
    for distance in reversed(distances(N)):
        if r % (2 * distance) == distance:
            yield Receive("down", r - distance)
        elif r % (2 * distance) == 0 and r + distance < N:
            yield Send("down", None, r + distance, n)


def tree(r, N, n):
    """A binomial tree up to rank 0, and down again."""
    for distance in distances(N):
        if r % (2 * distance) == distance:
            yield Send("up", None, r - distance, n)
            break
        if r + distance < N:
            yield Receive("up", r + distance)
    yield from broadcast(r, N, n)


def distances(N):
    """1, 2, 4, ..., below N."""
    return [2**k for k in range((N - 1).bit_length())]


def doubling(r, N, n):
    """Recursive doubling: all that is there is swapped with a partner at distance 1, 2, 4, ..."""
    for distance in distances(N):
        yield from swap(distance, n, r ^ distance, r ^ distance)


def halving(r, N, n):
    """Half, a quarter, an eighth ... are swapped to add, and the same again in reverse order."""
    for distance in distances(N):
        yield from swap(("add", distance), n / (2 * distance), r ^ distance, r ^ distance)
    yield from all_gather_by_doubling(r, N, n)


def all_gather_by_doubling(r, N, n):
    """Each rank has n/N bytes; what a rank has doubles in each step."""
    for distance in reversed(distances(N)):
        yield from swap(("gather", distance), n / (2 * distance), r ^ distance, r ^ distance)


def ring(r, N, n, name="ring", ranks=None):
    """A reduce-scatter and an all-gather along a ring of `ranks`; of all ranks, if they are left out."""
    yield from around(r, N, n, f"{name}: add", ranks)
    yield from around(r, N, n, f"{name}: gather", ranks)


def around(r, N, n, name="gather", ranks=None):
    """N - 1 steps in which each rank sends n/N bytes to the next one: an all-gather, or a reduce-scatter."""
    ranks = ranks or range(N)
    for step in range(N - 1):
        yield from swap((name, step), n / N, ranks[(r + 1) % N], ranks[(r - 1) % N])


def owners(r, N, n):
    """Chunk c of everybody goes to rank c, which sends the sum to everybody."""
    yield from to_all(r, N, n, "add")
    yield from to_all(r, N, n, "gather")


def to_all(r, N, n, label="chunk"):
    """n/N bytes to each other rank, to r + 1 first, then to r + 2, ..., and as many from each."""
    for step in range(1, N):
        yield Send(label, None, (r + step) % N, n / N)
    for _ in range(1, N):
        yield Receive(label, ANY)


def scatter_and_gather(r, N, n):
    """A broadcast: rank 0 halves what it has to give away, log2 N times; then an all-gather along a ring."""
    for distance in reversed(distances(N)):
        if r % (2 * distance) == distance:
            yield Receive("scatter", r - distance)
        elif r % (2 * distance) == 0:
            yield Send("scatter", None, r + distance, n * distance / N)
    yield from around(r, N, n)


def barrier(r, N, n):
    """A signal of no bytes to the rank at distance 1, 2, 4, ...; nobody leaves before all have come."""
    for distance in distances(N):
        yield from swap(distance, 0, (r + distance) % N, (r - distance) % N)


def run(collective, N, n, link=Link(latency=100), bandwidth=16):
    """The trace of a collective on N ranks, each with an egress and an ingress."""
    programs = [collective(r, N, Fraction(n)) for r in range(N)]
    return Cluster(programs, link=link, ports=ports(N, bandwidth)).run()


ALL_REDUCES = [naive, tree, doubling, halving, ring, owners]


@pytest.mark.parametrize("N, n, ticks", [(4, 1024, [584, 656, 328, 496, 696, 296]),
                                         (8, 4096, [3784, 2136, 1068, 1048, 1848, 648])])
def test_six_all_reduces_take_the_ticks_of_their_formulas(N, n, ticks):
    """alpha = 100, beta = 1/16, and k = log2 N; adding takes no time."""
    alpha, beta, k = 100, Fraction(1, 16), (N - 1).bit_length()
    share = 2 * (N - 1) * Fraction(n, N) * beta
    formulas = [
        2 * alpha + 2 * (N - 1) * n * beta, 2 * k * (alpha + n * beta), k * (alpha + n * beta),
        2 * k * alpha + share, 2 * (N - 1) * alpha + share, 2 * alpha + share,
    ]
    assert [run(collective, N, n).makespan for collective in ALL_REDUCES] == formulas == ticks


@pytest.mark.parametrize("N, ticks", [(3, 456), (5, 720), (6, 784), (7, 784)])
def test_a_tree_of_any_number_of_ranks(N, ticks):
    assert run(tree, N, 1024).makespan == ticks


def test_who_sends_how_many_messages_and_bytes():
    """N = 8 ranks with 8 bytes."""
    traces = [run(collective, 8, 8) for collective in ALL_REDUCES]
    sent = [[sum(m.n_bytes for m in trace.messages if m.source == r) for r in range(8)] for trace in traces]
    assert sent == [[56] + [8] * 7, [24, 8, 16, 8, 24, 8, 16, 8], [24] * 8, [14] * 8, [14] * 8, [14] * 8]
    assert [len(trace.messages) for trace in traces] == [14, 14, 24, 48, 112, 112]


@pytest.mark.parametrize("collective, ticks", [
    (broadcast, 1068), (scatter_and_gather, 1448),
    (around, 924), (all_gather_by_doubling, 524), (barrier, 300),
])
def test_other_collectives_take_the_ticks_of_their_formulas(collective, ticks):
    """N = 8, n = 4096, alpha = 100, beta = 1/16: 3 (100 + 256), (3 + 7) 100 + 2 7/8 256, 7 (100 + 32), ..."""
    assert run(collective, 8, 4096).makespan == ticks


def two_level(r, N, n):
    """Reduce-scatter in the node of 4, a ring over the nodes for each chunk, all-gather in the node."""
    node, place = divmod(r, 4)
    here, there = range(4 * node, 4 * node + 4), range(place, N, 4)
    yield from around(place, 4, n, "add", here)
    yield from ring(node, N // 4, n / 4, "nodes", there)
    yield from around(place, 4, n, "gather", here)


def test_two_levels_against_one_flat_ring():
    """16 ranks in 4 nodes: inside (alpha, beta) = (1, 1/16), outside (100, 1)."""
    pairs = [(source, to) for source in range(16) for to in range(16)]
    link = {
        (source, to): Link(1, 16) if source // 4 == to // 4 else Link(100, 1) for source, to in pairs
    }
    assert run(two_level, 16, 4096, link, bandwidth=16).makespan == 6 * (1 + 64) + 6 * (100 + 256) == 2526
    assert run(ring, 16, 4096, Link(100), bandwidth=1).makespan == 30 * (100 + 256) == 10680


# Dive into Deep Learning, 13.7: 160 MB of gradients on 4 GPUs, 16 GB/s, so 16 MB a millisecond


@pytest.mark.parametrize("collective, N, ms", [
    (naive, 4, 60), (naive, 5, 80), (owners, 4, 15), (ring, 4, 15),
])
def test_the_gpus_of_d2l_share_the_port_of_the_one_they_all_send_to(collective, N, ms):
    """To one GPU and back; to the CPU, a fifth device, and back; each GPU sums a quarter; a ring."""
    assert run(collective, N, 160, Link()).makespan == ms


def test_without_ports_all_messages_pass_at_once():
    """A link for each pair of GPUs: 10 ms to the first GPU, and 10 back, where there are 60."""
    programs = [naive(r, 4, 160) for r in range(4)]
    assert Cluster(programs, link=Link(bandwidth=16)).run().makespan == 20


def test_gpus_on_one_bus_at_tick_each_other():
    """All 4 GPUs on one bus: 24 messages of 40 MB, one after another, take 60 ms, however they are sent."""
    bus = [Port(16, sends=range(4), receives=range(4))]
    for collective in (owners, ring):
        programs = [collective(r, 4, Fraction(160)) for r in range(4)]
        assert Cluster(programs, ports=bus).run().makespan == 60


def arrivals(*senders, ports):
    """{(source, to): the tick at which its message is there}, of `at_tick` programs; 5 devices in all."""
    trace = Cluster([*senders, *(at_tick(0) for _ in range(5 - len(senders)))], ports=ports).run()
    return {(message.source, message.to): message.arrived for message in trace.messages}


def at_tick(ticks, *to):
    """Send 4 bytes to each of these devices at tick `ticks`."""
    yield Compute("before", ticks=ticks)
    for device in to:
        yield Send("x", None, device, 4)


def test_of_two_that_could_start_in_one_tick_the_lower_device_does():
    """At tick 3, device 1 goes before 2; at tick 7, device 0 does, though 2 has come before it."""
    found = arrivals(at_tick(4, 4), at_tick(3, 4), at_tick(3, 4), ports=[Port(1, receives=[4])])
    assert found == {(1, 4): 7, (0, 4): 11, (2, 4): 15}


def test_the_head_of_an_egress_keeps_back_what_is_behind_it():
    """Device 0 sends to 4, whose ingress is taken by device 1 until tick 4, and then to 3, which is free."""
    own = [Port(1, sends=[0]), Port(1, receives=[4])]
    assert arrivals(at_tick(1, 4, 3), at_tick(0, 4), ports=own) == {(1, 4): 4, (0, 4): 8, (0, 3): 12}


def test_a_message_takes_as_long_as_the_narrowest_port_and_keeps_the_wider_one():
    """Out of device 0 at 4 bytes a tick, into device 4 at 1: the next can leave after 4 ticks, not 1."""
    own = [Port(4, sends=[0]), Port(1, receives=[4])]
    assert arrivals(at_tick(0, 4, 3), ports=own) == {(0, 4): 4, (0, 3): 5}


# A bug, and what it would make of it


@pytest.fixture
def reserved_when_sent(monkeypatch):
    """The bug: all that a message passes is reserved when it is sent, for as soon as all of it is free."""

    def set_out(self, message, now):
        passes, _, _ = self._way(message)
        self._start(message, now, max(now, self._free_at(passes)))
        return True

    monkeypatch.setattr(Carrier, "set_out", set_out)


def test_owners_take_15_ms_and_296_ticks():
    assert run(owners, 4, 160, Link()).makespan == 15
    assert run(owners, 4, 1024).makespan == 2 * run(to_all, 4, 1024).makespan == 296


def test_reserving_at_send_time_would_give_45_ms(reserved_when_sent):
    assert run(owners, 4, 160, Link()).makespan == 45


def test_reserving_at_send_time_would_give_488_ticks(reserved_when_sent):
    """For two halves, the second after the first; 424 if each rank goes on by itself."""
    assert 2 * run(to_all, 4, 1024).makespan == 488 and run(owners, 4, 1024).makespan == 424


def to_all_from_rank_0_on(r, N, n):
    for other in range(N):
        if other != r:
            yield Send("chunk", None, other, n / N)
    for _ in range(1, N):
        yield Receive("chunk", ANY)


def test_who_sends_to_all_begins_with_the_next_rank():
    """If all begin with rank 0, they queue up there: 5 messages one after another of 2.5 ms each, not 3."""
    assert run(to_all, 4, 160, Link()).makespan == 7.5
    assert run(to_all_from_rank_0_on, 4, 160, Link()).makespan == 12.5


def test_64_ranks_who_all_send_to_all_take_seconds_at_most():
    """8064 messages; each queue is looked at once in a tick."""
    begin = time.process_time()
    assert run(owners, 64, 4096, Link()).makespan == 2 * 63 * 4
    assert time.process_time() - begin < 3


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


def all_reduce(device, buckets, n_bytes):
    """The lane that communicates: for each bucket in turn, when all of its gradients are there, a swap."""
    for number, layers in enumerate(buckets):
        for layer in layers:
            yield Receive(f"gradient {layer}", device)
        yield from swap(number, n_bytes * len(layers), 1 - device, 1 - device)


def exposed(buckets, alpha, ticks_a_layer):
    """How long the run lasts when all work is done."""
    programs = [
        {"compute": backward(r, [3, 2, 1, 0]), "communication": all_reduce(r, buckets, ticks_a_layer)}
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
