"""Lanes, messages from anybody, links that wait to be asked, and ports that messages share."""

import math

import numpy as np
import pytest

from minipipe.cluster import (
    ANY, Cluster, Compute, DeadlockError, Link, MemoryLimitError, Port, Receive, Send,
)
from minipipe.collectives import Group, all_reduce
from minipipe.meta import MetaArray


def tell(*requests):
    """A program that yields these requests and drops the answers: `yield from` a tuple can take none."""
    return (request for request in requests)


def test_lanes_that_send_in_one_tick_queue_up_in_one_order():
    """Lane by lane; one that comes from work of no ticks is behind the other, also where a tick of the clock
    ends."""

    def cluster():
        first = tell(Compute("one", ticks=1), Compute("nothing", ticks=0), Send("x", None, 1, n_bytes=2))
        second = tell(Compute("one too", ticks=1), Send("y", None, 1, n_bytes=2))
        lanes = {"compute": first, "communication": second}
        return Cluster([lanes, tell(Receive("x", 0), Receive("y", 0))], link=Link(bandwidth=1))

    stepped = cluster()
    while stepped.tick():
        pass
    assert stepped.trace == cluster().run()
    assert [(message.label, message.arrived) for message in stepped.trace.messages] == [("y", 3), ("x", 5)]


def test_what_has_come_through_a_port_is_not_asked_for_again():
    """Its sender, which waited for the arrival, waits for something else when the receiver takes the
    message."""
    sender = tell(Send("x", None, 1, n_bytes=1), Receive("y", 1))
    receiver = tell(Compute("late", ticks=5), Receive("x", 0), Compute("more", ticks=3), Send("y", None, 0))
    trace = Cluster([sender, receiver], link={(0, 1): Link(blocking=True)}, ports=[Port(1, sends=[0])]).run()
    assert trace.makespan == 8 and trace.asked == {}
    assert [message[3:6] for message in trace.messages] == [(0, 1, 5), (8, 8, 8)]


def test_anybody_is_who_comes_first():
    """Device 1 sends first over a link of 10 ticks, device 2 later over one of 4: its message comes first."""
    answers = []

    def receiver():
        yield Compute("late", ticks=3)
        for _ in range(2):
            answers.append((yield Receive("x", ANY)))

    link = {(1, 0): Link(latency=10), (2, 0): Link(latency=4)}
    slow, fast = tell(Send("x", "slow", 0)), tell(Compute("first", ticks=2), Send("x", "fast", 0))
    trace = Cluster([receiver(), slow, fast], link=link).run()
    assert answers == [(2, "fast"), (1, "slow")]
    assert sorted(message.received for message in trace.messages) == [6, 10]


def test_a_lane_hands_things_to_the_lane_beside_at_no_cost():
    """The link is slow, and all ports are narrow; but what stays on the device passes neither."""
    giver = tell(Compute("make", ticks=2), Send("x", np.zeros(100), 0), Compute("more", ticks=2))
    taker = tell(Receive("x", 0), Compute("use", ticks=1))
    bus = [Port(1, sends=[0], receives=[0])]
    trace = Cluster([{"compute": giver, "beside": taker}], link=Link(9, 1, True, True), ports=bus).run()
    assert [span[1:4] for span in trace.spans] == [("make", 0, 2), ("more", 2, 4), ("use", 2, 3)]
    assert trace.messages == [] and trace.busy_ticks() == [4]


def test_the_memory_of_a_device_is_that_of_all_its_lanes():
    """One lane works with 100 bytes for three ticks, the other with 10 in the second; 3 go between them."""

    def compute():
        yield Compute("long", np.zeros, 100, np.uint8, ticks=3)
        yield Compute("idle", ticks=1)
        yield Receive("note", 0)

    def communication():
        yield Compute("first", ticks=1)
        yield Compute("short", np.zeros, 10, np.uint8, ticks=1)
        yield Send("note", np.zeros(3, np.uint8), 0)

    def cluster(limit=None):
        lanes = {"compute": compute(), "communication": communication()}
        return Cluster([lanes], holdings=[dict], memory_limit=limit)

    trace = cluster().run()
    assert dict(trace.memory(0)) == {0: 100, 1: 110, 2: 103, 3: 3, 4: 0}
    assert trace.ledger(0)[2:] == [(2, {"work": 100, "messages": 3}), (3, {"messages": 3}), (4, {})]
    cluster(limit=110).run()
    words = "device 0 holds 110 bytes at tick 1, above its limit of 109: work 110;"
    with pytest.raises(MemoryLimitError, match=words):
        cluster(limit=109).run()


# Ports


def run(name, N, n, link=Link(), ports=()):
    """The trace of an all-reduce of n bytes on N ranks."""
    programs = [all_reduce(Group(rank, range(N)), MetaArray(n, np.uint8), name) for rank in range(N)]
    return Cluster(programs, link=link, ports=ports).run()


def test_gpus_on_one_bus_at_tick_each_other():
    """All 4 GPUs on one bus: 24 messages of 40 MB, one after another, take 60 ms, however they are sent."""
    bus = [Port(16, sends=range(4), receives=range(4))]
    for name in ("owners", "ring"):
        assert run(name, 4, 160, ports=bus).makespan == 60


# Communication beside the work: two copies of a network, and two lanes a device


def test_buckets_in_other_orders_are_a_deadlock_by_rendezvous():
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


# What is refused


def one(*requests):
    """A cluster of one device with one lane."""
    return Cluster([tell(*requests)])


def shared():
    program = tell(Compute("work"))
    return Cluster([program, {"compute": tell(), "communication": program}])


def two_lanes(*sources):
    """Two lanes of device 0 that wait for one message; it is sent after a tick."""
    first, second = (tell(Receive("x", source)) for source in sources)
    return Cluster([{"compute": first, "communication": second}, tell(Compute("work"), Send("x", None, 0))])


@pytest.mark.parametrize("make, words", [
    (lambda: Cluster([None]), "the lane 'compute' of device 0 has None to run: give it a generator"),
    (lambda: Cluster([{"compute": tell(), "other": 7}]), "the lane 'other' of device 0 has 7 to run"),
    (lambda: Cluster([tell]), "device 0 has a function to run: give it a generator, as a call of"),
    (lambda: Cluster([{}]), "device 0 has no lanes, and nothing to compute: call one of them 'compute'"),
    (lambda: Cluster([{"work": tell()}]), "device 0 has the lanes 'work', and nothing to compute"),
    (lambda: Cluster(tell()), "programs is one program: pass a list, [program], with one for each device"),
    (shared, "device 1 communication and device 0 have the same generator to run: call"),
    (lambda: Port(0, sends=[0]), "bandwidth=0 must be above 0 bytes per tick: leave it out for no limit"),
    (lambda: Port(math.nan, sends=[0]), "bandwidth=nan must be above 0"),
    (lambda: Port(1), "Port(bandwidth=1, sends=(), receives=()) is of no device: name those that send or"),
    (lambda: Port(1, sends=0), "sends=0 must be a list of devices, even of one: [0]"),
    (lambda: Cluster([tell()], ports=[Port(1, receives=[2])]), "is of device 2: devices are 0..0"),
    (lambda: Cluster([tell()], ports=[16]), "ports has 16: pass a list of Port(bandwidth, sends=[...], rec"),
    (lambda: one(Compute("work", ticks=-1)).run(), "work on device 0: ticks=-1 must be at least 0"),
    (lambda: one(Compute("work", ticks=math.nan)).run(), "work on device 0: ticks=nan must"),
    (lambda: one(Compute("work", ticks=math.inf)).run(), "work on device 0: ticks=inf must be finite"),
    (lambda: one(Compute("work", ticks="2")).run(), "work on device 0: ticks='2' must be a number"),
    (lambda: one(Send("x", None, 0, -1)).run(), "device 0 sends x: n_bytes=-1 must be at least 0"),
    (lambda: one(Send("x", None, ANY)).run(), "device 0 sends x to device any device: devices are 0..0"),
    (lambda: one(3).run(), "the program of device 0 yielded 3: yield Compute, Send or Receive"),
    (lambda: one(Send("x", 1, 0), Send("x", 1, 0)).run(), "sends x to device 0 twice"),
    (lambda: one(Receive("x", 3)).run(), "device 0 waits for x from device 3: devices are 0..0"),
    (lambda: one(Receive("x", None)).run(), "device 0 waits for x from device None: devices are 0..0"),
    (lambda: two_lanes(1, 1).run(), "two lanes of device 0 wait for x: let one hand it on to the other"),
    (lambda: two_lanes(1, ANY).run(), "two lanes of device 0 wait for x: let one hand it on to the other"),
    (lambda: two_lanes(ANY, 1).run(), "two lanes of device 0 wait for x: let one hand it on to the other"),
    (lambda: one().run().spans_of(0, "communication"), "device 0 has no lane 'communication': it runs"),
    (lambda: one().run().spans_of(1), "device=1 is not one of the trace: its devices are 0 to 0"),
    (lambda: one(Compute("work", ticks=0)).run().bubble("total"), "no device has computed for any time"),
    (lambda: one().run().bubble("total"), "nothing has been computed yet"),
    (lambda: one().run().memory(0), "this run has not counted the bytes that devices hold: make the network "
     "with count_bytes=True; simulate counts them with footprints, and a Cluster with holdings"),
    (lambda: Link(bandwidth=None),
     "bandwidth=None must be a number, above 0 bytes per tick: leave it out for no limit"),
    (lambda: Cluster([tell(Compute("work"))], duration=lambda label: -1).run(),
     "work on device 0: ticks=-1 must be at least 0"),
    (lambda: Cluster([tell()], holdings=[]), "holdings has 0 functions for 1 devices"),
    (lambda: Cluster([tell()], memory_limit=1), "memory_limit needs holdings"),
])
def test_what_makes_no_sense_is_told_in_a_sentence(make, words):
    with pytest.raises((ValueError, TypeError)) as error:
        make()
    assert words in str(error.value)


@pytest.mark.parametrize("lanes, words", [
    ({"compute": tell(Receive("x", 1))},
     "device 0 waits for x from device 1: and device 1 has finished without sending it"),
    ({"compute": tell(Receive("x", 0))}, "device 0 waits for x from device 0: it waits for itself: let"),
    ({"compute": tell(Receive("x", 0)), "communication": tell(Receive("y", 0), Send("x", None, 0))},
     "device 0 waits for x from device 0, device 0 communication waits for y from device 0: a cycle"),
    ({"compute": tell(Receive("x", 0)), "communication": tell(Receive("y", 1), Send("x", None, 0))},
     "device 0 waits for x from device 0, device 0 communication waits for y from device 1: and"),
    ({"compute": tell(Receive("x", ANY))}, "device 0 waits for x from any device: and nobody sends that any"),
])
def test_a_deadlock_names_the_lanes(lanes, words):
    with pytest.raises(DeadlockError) as error:
        Cluster([lanes, tell()]).run()
    assert words in str(error.value)
