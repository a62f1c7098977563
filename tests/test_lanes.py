"""Lanes, messages from anybody, and links that wait to be asked: one rule a test."""

import pytest

from minipipe.cluster import (
    ANY,
    Cluster,
    Compute,
    DeadlockError,
    Link,
    Port,
    Receive,
    Send,
)


def tell(*requests):
    """A program that yields these requests, whatever the answers."""
    for request in requests:
        yield request


def test_two_lanes_that_send_in_one_tick_queue_up_in_the_same_order_ticking_and_running():
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


def test_a_message_that_has_come_through_a_port_is_not_asked_for_again():
    """Its sender, which waited for the arrival, waits for something else when the receiver takes the
    message."""
    sender = tell(Send("x", None, 1, n_bytes=1), Receive("y", 1))
    receiver = tell(Compute("late", ticks=5), Receive("x", 0), Compute("more", ticks=3), Send("y", None, 0))
    trace = Cluster([sender, receiver], link={(0, 1): Link(blocking=True)}, ports=[Port(1, sends=[0])]).run()
    assert trace.makespan == 8 and trace.asked == {}
    assert [message[3:6] for message in trace.messages] == [(0, 1, 5), (8, 8, 8)]


def test_who_asks_anybody_asks_one_of_those_that_wait_to_be_asked():
    """As an MPI receive from any source is matched with one synchronous send: the other sender waits for
    ever."""
    for when in (0, 2):
        senders = [tell(Compute("first", ticks=source), Send("x", None, 0)) for source in (1, 1)]
        receiver = tell(Compute("late", ticks=when), Receive("x", ANY))
        cluster = Cluster([receiver, *senders], link=Link(latency=3, rendezvous=True))
        with pytest.raises(DeadlockError, match="device 2 waits until device 0 asks for x: and"):
            cluster.run()
        assert [message.arrived for message in cluster.trace.messages] == [max(when, 1) + 3, None]


def test_the_critical_path_ends_in_the_lane_that_ends_last_even_if_it_does_no_work():
    lanes = {"compute": tell(Compute("work", ticks=1)), "communication": tell(Receive("news", 1))}
    writer = tell(Compute("write", ticks=1), Send("news", None, 0))
    path = Cluster([lanes, writer], link=Link(latency=3)).run().critical_path()
    assert [(step.what.label, step.start, step.end) for step in path] == [("write", 0, 1), ("news", 1, 4)]
