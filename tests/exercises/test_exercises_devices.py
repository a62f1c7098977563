"""Exercises about memory, devices and servers, in notebooks 33 to 50: other solutions than the
notebooks', and what the checkers say to typical wrong answers.
"""

from notebooks.checkers import are_named, are_right
from notebooks.template import solutions

import minipipe as mp
from exercises.gpipe_by_numbers import check_memory, check_relative
from exercises.real_processes import check_swap


def listens_first(rank, value):
    if rank == 1:
        yield mp.cluster.Send("there", value, to=0)
    theirs = yield mp.cluster.Receive("there" if rank == 0 else "back", source=1 - rank)
    if rank == 0:
        yield mp.cluster.Send("back", value, to=1)
    return theirs


def both_send_first(rank, value):
    yield mp.cluster.Send("mine", value, to=1 - rank)
    return (yield mp.cluster.Receive("mine", source=1 - rank))


def both_receive_first(rank, value):
    theirs = yield mp.cluster.Receive("mine", source=1 - rank)
    yield mp.cluster.Send("mine", value, to=1 - rank)
    return theirs


def returns_its_own(rank, value):
    yield mp.cluster.Compute("nothing")
    return value


def raises(rank, value):
    yield mp.cluster.Compute("nothing")
    return value[7]


test_solutions = are_right({
    check_swap: [listens_first],
})
test_mistakes = are_named({
    check_swap: [
        (both_send_first, "Nobody can go on, where a send waits for its receive: deadlock"),
        (both_receive_first, "Nobody can go on, even where messages are stored: deadlock"),
        (returns_its_own, "Rank 0 must return what the other rank had, [1.0, 1.0]"),
        (lambda rank, value: value, "must `yield` its send and its receive"),
        (raises, "Your program stopped with IndexError"),
    ],
})


def test_what_a_right_answer_is_told_is_true():
    """GPT-2's authors count 124,439,808 parameters, without the bias of the last Linear, V of them."""
    L, d, V, places = 12, 768, 50257, 1024
    n = L * (12 * d**2 + 13 * d) + V * d + V + places * d + 2 * d
    assert n - V == 124_439_808 and f"{16 * n / 2**30:.2f} GiB" in check_memory(solutions("36").memory)
    relative = solutions("35").relative_throughput
    sentence = check_relative(relative)
    assert all(f"{relative(K, 32):.3f} for K = {K}" in sentence for K in (4, 8))
    assert f"are {3.4 / 1.8:.3f} and {6.3 / 1.8:g}" in sentence
