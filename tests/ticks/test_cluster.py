"""The clock, the links, the memory and the trace, with programs that know nothing of neural networks.

Then lanes and ports, and what is refused. `test_random_programs.py` compares all of it with a plain copy.
"""

import math
from fractions import Fraction

import numpy as np
import pytest

import minipipe as mp
from minipipe.cluster import (
    ANY, Cluster, Compute, DeadlockError, Link, MemoryLimitError, Port, Receive, Send, UnreceivedError,
)


def sender(n_messages, size=25):
    for i in range(n_messages):
        yield Compute(f"make {i}")
        yield Send(i, np.zeros(size, np.uint8), to=1)


def receiver(n_messages):
    for i in range(n_messages):
        yield Receive(i, source=0)
        yield Compute(f"use {i}")


def test_traces_differ_when_messages_or_memory_do():
    small, large = (Cluster([sender(1, size), receiver(1)]).run() for size in (1, 2))
    assert small.spans == large.spans and small != large and small != "a trace"
    kept = np.zeros(8)
    nothing, something = (
        Cluster([sender(1), receiver(1)], holdings=[lambda: {"kept": held}] * 2).run()
        for held in ([], [kept])
    )
    assert nothing.messages == something.messages
    assert Cluster([sender(1), receiver(1)], holdings=[lambda: {"kept": kept}] * 2).run() == something
    assert Cluster([sender(1), receiver(1)], holdings=[dict, dict]).run() != something


def test_free_links_keep_ticks_whole():
    trace = Cluster([sender(2), receiver(2)]).run()
    assert all(type(tick) is int for span in trace.spans for tick in (span.start, span.end))


def test_a_message_belongs_to_its_receiver():
    """The sender overwrites its buffer with NaN right after the send; the receiver still has the numbers."""
    received = []

    def left():
        buffer = np.ones(3)
        for i in range(2):
            buffer[:] = i
            yield Send(i, [buffer, (buffer,)], to=1)
            buffer[:] = np.nan

    def right():
        yield Compute("late")
        for i in range(2):
            received.append((yield Receive(i, source=0)))

    Cluster([left(), right()]).run()
    assert [float(part[0][0]) for part in received] == [0, 1] and received[1][1][0][2] == 1
    assert not np.shares_memory(received[0][0], received[1][0])


def test_four_bubbles_have_four_names():
    trace = mp.simulate(mp.schedules.build("1f1b", 4, 8))
    assert (trace.bubble("total"), trace.bubble("ideal")) == (3 / 11, 3 / 8)
    assert trace.bubble("span") == 18 / 114  # gaps of 9, 6 and 3 ticks in spans of 33, 30, 27 and 24
    assert trace.bubble("worst") == 9 / 33
    slow = Cluster([sender(2), receiver(2)], link=Link(bandwidth=10)).run()
    assert slow.bubble("worst") == 1.5 / 3.5  # device 1 works from 3.5 to 4.5 and from 6 to 7
    with pytest.raises(ValueError, match="choose 'total', 'ideal', 'span' or 'worst'"):
        trace.bubble("mean")


def test_a_trace_does_not_change_when_the_run_goes_on():
    cluster = Cluster([sender(3), receiver(3)])
    cluster.tick()
    early = cluster.trace
    cluster.run()
    assert len(early.spans) == 1 and len(cluster.trace.spans) == 6 and early != cluster.trace


def test_memory_is_counted_in_bytes_of_arrays_really_held():
    """A device keeps 100 bytes, 300 more, and then frees all: the work of a Compute counts while it lasts."""
    kept = {}

    def keep(name, n):
        kept[name] = np.zeros(n, np.uint8)
        return kept[name][:1]  # a view of what is kept already

    def program():
        yield Compute("a", keep, "a", 100)
        yield Compute("b", keep, "b", 300)
        yield Compute("temporary", np.zeros, 50)
        yield Compute("free", kept.clear)
        yield Compute("end")

    trace = Cluster([program()], holdings=[lambda: {"kept": kept}]).run()
    assert dict(trace.memory(0)) == {0: 100, 1: 400, 2: 400 + 8 * 50, 3: 400, 4: 0, 5: 0}
    assert trace.peak_bytes() == [800]


def test_the_last_message_that_a_program_receives_is_counted():
    kept = []

    def left():
        yield Compute("make")
        yield Send("x", np.zeros(40, np.uint8), to=1)

    def right():
        kept.append((yield Receive("x", source=0)))

    trace = Cluster([left(), right()], holdings=[dict, lambda: {"kept": kept}]).run()
    assert trace.ledger(1)[-1] == (1, {"kept": 40})


def test_the_memory_limit_stops_the_run_and_lists_what_was_held():
    def program(kept):
        for i in range(5):
            yield Compute(i, lambda i=i: kept.append(np.zeros(100, np.uint8)))

    def cluster(limit):
        kept = []
        return Cluster([program(kept)], holdings=[lambda: {"pages": kept}], memory_limit=limit)

    cluster(500).run()
    with pytest.raises(MemoryLimitError) as error:
        cluster(499).run()
    assert (
        "device 0 holds 500 bytes at tick 4, above its limit of 499: pages 500; raise the limit by 1 bytes"
    ) in str(error.value)


def test_an_error_in_a_compute_stops_the_run_for_good():
    """Even StopIteration, which must not be mistaken for the end of a program."""
    def program():
        yield Compute("fails", lambda: next(iter([])))

    cluster = Cluster([program()])
    with pytest.raises(StopIteration):
        cluster.run()
    assert not cluster.done
    with pytest.raises(RuntimeError, match="has stopped with an error"):
        cluster.tick()


def test_fractions_stay_exact_beside_a_device_in_floats():
    """Another device that works at the same tick in floats does not make floats of exact fractions."""
    def program(device, ticks):
        for number in range(3):
            yield Compute("work", ticks=ticks)
            yield Send(f"end {number}", None, to=1 - device)
        for number in range(3):
            yield Receive(f"end {number}", source=1 - device)

    for exact in (0, 1):
        ticks = [0.5, 0.5]
        ticks[exact] = Fraction(1, 2)
        trace = Cluster([program(device, of_device) for device, of_device in enumerate(ticks)]).run()
        for device in (0, 1):
            ends = [span.end for span in trace.spans_of(device)]
            ends += [message.sent for message in trace.messages if message.source == device]
            assert ends == [Fraction(1, 2), 1, Fraction(3, 2)] * 2
            assert all(type(end) is type(ticks[device]) for end in ends)


def test_after_a_run_the_clock_stands_at_its_end():
    def program():
        yield Compute("work", ticks=3)
        yield Compute("more", ticks=4)

    cluster = Cluster([program()])
    cluster.tick()
    assert cluster.now == 1 and cluster.run().makespan == cluster.now == 7


# A message that nobody receives


def forgetful():
    """Device 0 sends two messages, of which device 1 receives one."""
    def left():
        yield Send("news", 1, to=1)
        yield Send("more", 2, to=1)

    return [left(), receives_news()]


def receives_news():
    yield Receive("news", source=0)


@pytest.mark.parametrize("link", [Link(), Link(latency=9), Link(bandwidth=1, blocking=True)])
def test_a_message_that_is_not_received_is_an_error_at_the_end(link):
    """Also one that is still on its way then. What has happened is in the trace."""
    cluster = Cluster(forgetful(), link=link)
    words = "device 0 has sent more to device 1, which has finished without receiving it: add a Receive"
    with pytest.raises(UnreceivedError, match=words):
        cluster.run()
    assert cluster.done and [message.label for message in cluster.trace.messages] == ["news", "more"]
    with pytest.raises(RuntimeError, match="this run has stopped with an error"):
        cluster.run()
    stepped = Cluster(forgetful(), link=link)
    with pytest.raises(UnreceivedError, match=words):
        while stepped.tick():
            pass


def test_an_error_counts_the_messages_that_nobody_receives():
    def left():
        for number in range(3):
            yield Send(number, None, to=1)

    with pytest.raises(UnreceivedError, match="without receiving it, and 2 more messages are left"):
        Cluster([left(), (nothing for nothing in ())]).run()


# Lanes and ports


def tell(*requests):
    """A program that yields these requests and drops the answers: `yield from` a tuple can take none."""
    return (request for request in requests)


def test_a_message_that_passed_a_port_is_not_requested_again():
    """Its sender, which waited for the arrival, waits for something else when the receiver takes the
    message."""
    giver = tell(Send("x", None, 1, n_bytes=1), Receive("y", 1))
    taker = tell(Compute("late", ticks=5), Receive("x", 0), Compute("more", ticks=3), Send("y", None, 0))
    trace = Cluster([giver, taker], link={(0, 1): Link(blocking=True)}, ports=[Port(1, sends=[0])]).run()
    assert trace.makespan == 8 and trace.asked == {}
    assert [message[3:6] for message in trace.messages] == [(0, 1, 5), (8, 8, 8)]


def test_a_port_serves_the_message_of_the_lower_device_first():
    """Device 1 has an older queue, and waits longer: with b from tick 2 on, device 0 with c from 3 on."""
    lower = tell(Compute("work", ticks=3), Send("c", None, 2, n_bytes=1))
    upper = tell(Send("a", None, 2, n_bytes=4), Compute("work", ticks=2), Send("b", None, 2, n_bytes=1))
    taker = tell(Receive("a", 1), Receive("b", 1), Receive("c", 0))
    trace = Cluster([lower, upper, taker], ports=[Port(1, receives=[2])]).run()
    assert {message.label: message.arrived for message in trace.messages} == {"a": 4, "c": 5, "b": 6}


def test_the_memory_of_a_device_counts_all_its_lanes():
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
    (lambda: Port(1), "Port(bandwidth=1, sends=(), receives=(), between=None, within=None) is of no device"),
    (lambda: Port(1, [0], between=0), "between=0 must be at least 1"),
    (lambda: Port(1, [0], within=1.5), "within=1.5 must be a whole number"),
    (lambda: Port(1, [0], between=4, within=4), "4 takes no message: those within 4 devices"),
    (lambda: Port(1, sends=0), "sends=0 must be a list of whole numbers, even of one"),
    (lambda: Cluster([tell()], ports=[Port(1, receives=[2])]), "is of device 2: devices are 0..0"),
    (lambda: Cluster([tell()], ports=[16]), "ports has 16: pass a list of Port(bandwidth, sends=[...], rec"),
    (lambda: one(Compute("work", ticks=-1)).run(), "work on device 0: ticks=-1 must be at least 0"),
    (lambda: one(Compute("work", ticks=math.inf)).run(), "work on device 0: ticks=inf must be finite"),
    (lambda: one(Compute("work", ticks="2")).run(), "work on device 0: ticks='2' must be a number"),
    (lambda: one(Send("x", None, 0, -1)).run(), "device 0 sends x: n_bytes=-1 must be at least 0"),
    (lambda: one(Send("x", None, ANY)).run(), "device 0 sends x to device any device: devices are 0..0"),
    (lambda: one(3).run(), "the program of device 0 yielded 3: yield Compute, Send or Receive"),
    (lambda: one(Send("x", 1, 0), Send("x", 1, 0)).run(), "sends x to device 0 twice"),
    (lambda: one(Receive("x", 3)).run(), "device 0 waits for x from device 3: devices are 0..0"),
    (lambda: one(Receive("x", None)).run(), "device 0 waits for x from device None: devices are 0..0"),
    (lambda: two_lanes(1, 1).run(), "two lanes of device 0 wait for x: let one send it to the other"),
    (lambda: two_lanes(1, ANY).run(), "two lanes of device 0 wait for x: let one send it to the other"),
    (lambda: two_lanes(ANY, 1).run(), "two lanes of device 0 wait for x: let one send it to the other"),
    (lambda: one().run().spans_of(0, "communication"), "device 0 has no lane 'communication': it runs"),
    (lambda: one().run().spans_of(1), "device=1 is not one of the trace: its devices are 0 to 0"),
    (lambda: one(Compute("work", ticks=0)).run().bubble("total"), "no device has computed for any time"),
    (lambda: one().run().memory(0), "this run has not counted the bytes that devices hold: make the network "
     "with count_bytes=True, or a Cluster with holdings"),
    (lambda: Link(bandwidth=None),
     "bandwidth=None must be a number, above 0 bytes per tick: leave it out for no limit"),
    (lambda: Cluster([tell(Compute("work"))], duration=lambda label: -1).run(),
     "work on device 0: ticks=-1 must be at least 0"),
    (lambda: Cluster([tell()], holdings=[]), "holdings has 0 functions for 1 devices"),
    (lambda: Cluster([tell()], memory_limit=1), "memory_limit needs holdings"),
])
def test_senseless_input_is_refused_in_a_sentence(make, words):
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
