"""The clock, the links, the memory and the trace, with programs that know nothing of neural networks."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minipipe as mp
from minipipe.cluster import (
    Cluster, Compute, DeadlockError, Idle, Link, MemoryLimitError, Message, Receive, Repeat, Send,
    UnreceivedError,
)
from minipipe.cluster.memory import own


def ring(device, n_devices, parts):
    """A ring all-reduce, no pipeline at all: after it, `parts` holds the sum over devices in every place."""
    for step in range(2 * (n_devices - 1)):
        place = (device - step) % n_devices
        yield Send(f"part {place} of step {step}", parts[place], to=(device + 1) % n_devices)
        place = (device - 1 - step) % n_devices
        received = yield Receive(f"part {place} of step {step}", source=(device - 1) % n_devices)

        def combine():
            parts[place] = parts[place] + received if step < n_devices - 1 else received

        yield Compute(f"combine {step}", combine)


@pytest.mark.parametrize("n_devices", [2, 3, 5])
def test_a_ring_all_reduce_is_just_a_program(n_devices):
    data = [[np.array([10.0**device]) for _ in range(n_devices)] for device in range(n_devices)]
    cluster = Cluster([ring(device, n_devices, data[device]) for device in range(n_devices)])
    trace = cluster.run()
    total = sum(10.0**device for device in range(n_devices))
    assert all(part[0] == total for parts in data for part in parts)
    assert len(trace.messages) == n_devices * 2 * (n_devices - 1) and trace.makespan == 2 * (n_devices - 1)


def sender(n_messages, size=25):
    for i in range(n_messages):
        yield Compute(f"make {i}")
        yield Send(i, np.zeros(size, np.uint8), to=1)


def receiver(n_messages):
    for i in range(n_messages):
        yield Receive(i, source=0)
        yield Compute(f"use {i}")


def test_links_delay_and_queue_messages():
    """Latency 3, 10 bytes a tick: 25 bytes occupy the link for 2.5 ticks, so the second message queues."""
    trace = Cluster([sender(2), receiver(2)], link=Link(latency=3, bandwidth=10)).run()
    assert trace.messages == [Message(0, 0, 1, 1, 6.5, 6.5, 25), Message(1, 0, 1, 2, 9.0, 9.0, 25)]
    assert [span[2:4] for span in trace.spans_of(1)] == [(6.5, 7.5), (9.0, 10.0)]


def test_a_bandwidth_alone_delays_messages_too():
    trace = Cluster([sender(1), receiver(1)], link=Link(bandwidth=10)).run()
    assert trace.messages[0].arrived == 3.5


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


def test_messages_are_listed_by_the_tick_in_which_they_were_sent():
    def program(ticks, to):
        for tick in range(ticks):
            yield Compute(tick)
        yield Send("x", 1, to=to)
        yield Receive("x", source=to)

    trace = Cluster([program(3, 1), program(1, 0)]).run()
    assert [(message.source, message.sent) for message in trace.messages] == [(1, 1), (0, 3)]


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


def test_a_device_may_send_to_itself():
    def program():
        yield Send("note", 7, to=0)
        number = yield Receive("note", source=0)
        yield Compute(number)

    trace = Cluster([program()], link=Link(latency=5)).run()
    assert [span.label for span in trace.spans] == [7] and trace.makespan == 1 and trace.messages == []


def test_every_idle_span_has_its_reason():
    def first():
        yield Compute("a")
        yield Send("x", 1, to=1)
        yield Receive("y", source=1)
        yield Compute("b")

    def second():
        yield Receive("x", source=0)
        yield Compute("c")
        yield Compute("d")
        yield Send("y", 1, to=0)

    trace = Cluster([first(), second()], duration=lambda label: 2).run()
    assert trace.idle == [
        Idle(1, 0, 2, "fill", "x", 0), Idle(0, 2, 6, "wait", "y", 1), Idle(1, 6, 8, "drain"),
    ]
    assert str(trace.idle[1]) == "device 0 idle from 2 to 6: wait, waiting for y from device 1"


@settings(max_examples=60)
@given(st.integers(1, 5), st.integers(1, 6), st.sampled_from(["naive", "gpipe", "1f1b"]),
       st.lists(st.integers(1, 4), min_size=5, max_size=5), st.integers(0, 3))
def test_work_and_idle_spans_cover_every_device_from_beginning_to_end(K, M, name, costs, latency):
    schedule = mp.schedules.build(name, K, M)
    trace = mp.simulate(schedule, mp.Costs(F=costs[:K], B=costs[::-1][:K]), Link(latency=latency))
    for device in range(K):
        gaps = [span for span in trace.idle if span.device == device]
        edges = sorted((span.start, span.end) for span in [*trace.spans_of(device), *gaps])
        assert edges[0][0] == 0 and edges[-1][1] == trace.makespan
        assert all(before[1] == after[0] for before, after in zip(edges, edges[1:]))
    idle = sum(span.end - span.start for span in trace.idle)
    assert trace.bubble("total") == idle / (K * trace.makespan)
    assert trace.bubble("ideal") == idle / sum(trace.busy_ticks())


def test_four_bubbles_have_four_names():
    trace = mp.simulate(mp.schedules.build("1f1b", 4, 8))
    assert (trace.bubble("total"), trace.bubble("ideal")) == (3 / 11, 3 / 8)
    assert trace.bubble("span") == 18 / 114  # gaps of 9, 6 and 3 ticks in spans of 33, 30, 27 and 24
    assert trace.bubble("worst") == 9 / 33
    with pytest.raises(ValueError, match="choose 'total', 'ideal', 'span' or 'worst'"):
        trace.bubble("mean")


def test_ticking_gives_the_trace_of_running_and_moves_one_tick_at_a_time():
    for link in (Link(), Link(latency=2), Link(latency=0.5, bandwidth=10)):
        whole = Cluster([sender(3), receiver(3)], link=link).run()
        cluster, ticks = Cluster([sender(3), receiver(3)], link=link), 0
        while True:
            more = cluster.tick()
            ticks += 1
            assert cluster.now == ticks
            assert all(span.start < ticks for span in cluster.trace.spans)
            assert [s for s in whole.spans if s.start < ticks] == cluster.trace.spans
            if not more:
                break
        assert cluster.trace == whole and ticks == math.ceil(whole.makespan)


def test_a_trace_does_not_change_when_the_run_goes_on():
    cluster = Cluster([sender(3), receiver(3)])
    cluster.tick()
    early = cluster.trace
    cluster.run()
    assert len(early.spans) == 1 and len(cluster.trace.spans) == 6 and early != cluster.trace


def waits(source, label="x"):
    yield Receive(label, source=source)


def test_deadlock_names_the_cycle():
    with pytest.raises(DeadlockError) as error:
        Cluster([waits(1), waits(2), waits(1)]).run()
    words = "device 1 waits for x from device 2, device 2 waits for x from device 1: a cycle"
    assert words in str(error.value)


def test_deadlock_names_the_device_that_has_finished():
    words = "device 0 waits for x from device 1: and device 1 has finished without sending it"
    with pytest.raises(DeadlockError, match=words):
        Cluster([waits(1), iter_nothing()]).run()


def test_deadlock_is_met_while_ticking_too():
    cluster = Cluster([waits(1), waits(0)])
    with pytest.raises(DeadlockError):
        for _ in range(3):
            cluster.tick()


def iter_nothing():
    return
    yield


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


def test_messages_that_wait_count_at_the_receiver():
    def left():
        yield Send("x", np.zeros(40, np.uint8), to=1)
        yield Compute("rest")

    def right():
        yield Compute("long")
        yield Receive("x", source=0)
        yield Compute("use")

    trace = Cluster([left(), right()], link=Link(latency=0.25), holdings=[dict, dict]).run()
    assert dict(trace.memory(1))[0.25] == 40 and trace.memory(1)[-1][1] == 0


def test_what_a_program_receives_last_is_counted():
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


def test_the_memory_limit_is_the_peak_to_the_byte():
    """A whole pipeline, with messages on slow links: the limit passes at the counted peak, and not below."""
    X, Y = (part[:, :24] for part in mp.datasets.digits().train)
    layers = [mp.Linear(64, 16), mp.ReLU(), mp.Linear(16, 16), mp.ReLU(), mp.Linear(16, 10)]

    def pipe(limit=None):
        slow, loss = Link(latency=1), mp.SoftmaxCrossEntropy()
        return mp.Pipeline(layers, loss, 3, 6, "gpipe", link=slow, memory_limit=limit)

    counted = pipe()
    counted.forward_backward(X, Y)
    peak = max(counted.trace.peak_bytes())
    pipe(peak).forward_backward(X, Y)
    with pytest.raises(MemoryLimitError):
        pipe(peak - 1).forward_backward(X, Y)


def test_messages_to_a_device_that_has_finished_count_against_its_limit():
    def left():
        yield Compute("work")
        yield Send("late", np.zeros(1000, np.uint8), to=1)

    def right():
        yield Compute("work")

    for link in (Link(), Link(latency=3)):
        with pytest.raises(MemoryLimitError, match="device 1 holds 1,000 bytes"):
            Cluster([left(), right()], link=link, holdings=[dict, dict], memory_limit=100).run()


def test_a_program_that_ends_with_a_receive_ends_the_run():
    def left():
        yield Send("x", 1, to=1)
        yield Compute("work")

    def right():
        yield Receive("x", source=0)

    trace = Cluster([left(), right()], link=Link(latency=100)).run()
    assert trace.makespan == 100 and trace.idle == [Idle(1, 0, 100, "fill", "x", 0), Idle(0, 1, 100, "drain")]


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


@pytest.mark.parametrize("program, words", [
    (lambda: iter([3]), "yielded 3: yield Compute, Send or Receive"),
    (lambda: iter([Send("x", 1, to=9)]), "sends x to device 9: devices are 0..0"),
    (lambda: iter([Send("x", 1, to=0), Send("x", 1, to=0)]), "sends x to device 0 twice"),
    (lambda: iter([Receive("x", source=7)]), "device 0 waits for x from device 7: devices are 0..0"),
])
def test_programs_that_make_no_sense_are_told_so(program, words):
    def generator():
        yield from program()

    with pytest.raises((ValueError, TypeError)) as error:
        Cluster([generator()]).run()
    assert words in str(error.value)


@pytest.mark.parametrize("make, words", [
    (lambda: Link(latency=-1), "latency=-1 must be at least 0 ticks"),
    (lambda: Link(bandwidth=0), "bandwidth=0 must be above 0"),
    (lambda: Link(bandwidth=None),
     "bandwidth=None must be a number, above 0 bytes per tick: leave it out for no limit"),
    (lambda: Link(latency="1"), "latency='1' must be a number, at least 0"),
    (lambda: Cluster([sender(1)], duration=lambda label: -1).run(),
     "make 0 on device 0: ticks=-1 must be at least 0"),
    (lambda: Cluster([sender(1)], duration=lambda label: math.nan).run(), "ticks=nan must be at least 0"),
    (lambda: Cluster([sender(1)], holdings=[]), "holdings has 0 functions for 1 devices"),
    (lambda: Cluster([sender(1)], memory_limit=1), "memory_limit needs holdings"),
    (lambda: Cluster([iter_nothing()]).run().bubble("total"), "nothing has been computed yet"),
    (lambda: Cluster([sender(0)]).run().memory(0), "counted no memory"),
])
def test_impossible_hardware_is_refused(make, words):
    with pytest.raises(ValueError) as error:
        make()
    assert words in str(error.value)


def test_own_copies_whatever_holds_arrays():
    A = np.arange(6.0).reshape(2, 3).T
    copy, n_bytes = own([A, (A, "word")])
    assert n_bytes == 96 and copy[0].flags.c_contiguous and not np.shares_memory(copy[0], A)
    assert np.array_equal(copy[1][0], A) and copy[1][1] == "word"
    message = Message({"A": A}, 0, 1, 2, 3, 4, 5)  # a named tuple with a dict
    copy, n_bytes = own(message)
    A[:] = 9
    assert type(copy) is Message and n_bytes == 48 and copy.label["A"].max() == 5


def test_a_device_counts_in_numbers_of_its_own():
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
def test_a_message_that_nobody_receives_is_an_error_at_the_end(link):
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


def test_it_is_one_in_a_repeated_run_too():
    def left():
        yield Send("news", 1, to=1)

    first = Cluster([left(), receives_news()])
    first.run()
    with pytest.raises(UnreceivedError, match="device 0 has sent more to device 1"):
        Repeat(forgetful(), first.record).run()


def test_of_several_that_nobody_receives_their_number_is_told():
    def left():
        for number in range(3):
            yield Send(number, None, to=1)

    with pytest.raises(UnreceivedError, match="without receiving it, and 2 more messages are left"):
        Cluster([left(), (nothing for nothing in ())]).run()
