"""The clock, the links, the memory and the trace, with programs that know nothing of neural networks."""

import math
from fractions import Fraction

import numpy as np
import pytest

import minipipe as mp
from minipipe.cluster import (
    Cluster, Compute, Idle, Link, MemoryLimitError, Receive, Send,
    UnreceivedError,
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


def test_four_bubbles_have_four_names():
    trace = mp.simulate(mp.schedules.build("1f1b", 4, 8))
    assert (trace.bubble("total"), trace.bubble("ideal")) == (3 / 11, 3 / 8)
    assert trace.bubble("span") == 18 / 114  # gaps of 9, 6 and 3 ticks in spans of 33, 30, 27 and 24
    assert trace.bubble("worst") == 9 / 33
    slow = Cluster([sender(2), receiver(2)], link=Link(bandwidth=10)).run()
    assert slow.bubble("worst") == 1.5 / 3.5  # device 1 works from 3.5 to 4.5 and from 6 to 7
    with pytest.raises(ValueError, match="choose 'total', 'ideal', 'span' or 'worst'"):
        trace.bubble("mean")


def test_ticking_gives_the_trace_of_running_tick_by_tick():
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
        return mp.Parallel(
            layers, mp.SoftmaxCrossEntropy(), stages=3, microbatches=6, schedule="gpipe", memory_limit=limit,
            count_bytes=True, link=Link(latency=1),
        )

    counted = pipe()
    counted.forward_backward(X, Y)
    peak = max(counted.trace.peak_bytes())
    pipe(peak).forward_backward(X, Y)
    with pytest.raises(MemoryLimitError):
        pipe(peak - 1).forward_backward(X, Y)


def test_messages_to_a_finished_device_count_against_its_limit():
    def left():
        yield Compute("work")
        yield Send("late", np.zeros(1000, np.uint8), to=1)

    def right():
        yield Compute("work")

    for link in (Link(), Link(latency=3)):
        with pytest.raises(MemoryLimitError, match="device 1 holds 1,000 bytes"):
            Cluster([left(), right()], link=link, holdings=[dict, dict], memory_limit=100).run()


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


def test_of_several_that_nobody_receives_their_number_is_told():
    def left():
        for number in range(3):
            yield Send(number, None, to=1)

    with pytest.raises(UnreceivedError, match="without receiving it, and 2 more messages are left"):
        Cluster([left(), (nothing for nothing in ())]).run()
