"""Exercises about memory, devices and servers, in notebooks 33 to 50: other solutions than the
notebooks', and what the checkers say to typical wrong answers.
"""

import itertools
import sys

import numpy as np
from notebooks.checkers import are_named, are_not_solved_yet, are_right
from notebooks.template import solutions

import minipipe as mp
from exercises.all_reduce import check_all_gather, check_fastest
from exercises.federated import check_average
from exercises.gpipe_by_numbers import check_memory, check_relative
from exercises.order_of_a_sum import check_tree_sum
from exercises.real_processes import check_swap
from exercises.shards import check_rows_of_packed

tree_sum, ROWS = solutions("50").my_tree_sum, solutions("41").rows_of_packed


def gather_by_sending_to_all(group, part):
    parts = [None] * group.size
    parts[group.rank] = part
    for step in range(1, group.size):
        yield group.send(group.rank + step, "part", part)
    for step in range(1, group.size):
        parts[group.rank - step] = yield group.receive(group.rank - step, "part")
    return parts


def mistaken(new_part="part", place="(group.rank - step - 1) % group.size", steps="group.size - 1", to="+ 1",
             label="step", result="parts", before=""):
    """The solution with one of its parts changed."""
    code = f"""
def all_gather(group, part):
    parts = [None] * group.size
    parts[group.rank] = part
    for step in range({steps}):
        {before}
        yield group.send(group.rank {to}, {label}, part)
        {new_part} = yield group.receive(group.rank - 1, {label})
        parts[{place}] = {new_part}
    return {result}
"""
    names = {}
    exec(code, names)
    return names["all_gather"]


def receives_first(group, part):
    yield group.receive(group.rank - 1, 0)
    yield group.send(group.rank + 1, 0, part)


def sends_all_that_it_has(group, part):
    parts = {group.rank: part}
    for step in range(group.size - 1):
        yield group.send(group.rank + 1, step, parts)
        parts |= yield group.receive(group.rank - 1, step)
    return [parts[rank] for rank in range(group.size)]


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


def halving(terms):
    half = len(terms) // 2
    return terms[0] if half == 0 else halving(terms[:half]) + halving(terms[half:])


test_solutions = are_right({
    check_all_gather: [gather_by_sending_to_all],
    check_fastest: [("doubling", "halving")],
    check_swap: [listens_first],
    check_rows_of_packed: [lambda d, T, rank: np.arange(3 * d).reshape(3, T, d // T)[:, rank].ravel()],
})
test_stubs = are_not_solved_yet({
    check_fastest: [[None, None], ["doubling", None]],
})
test_mistakes = are_named({
    check_all_gather: [
        (lambda group, part: [part], "must `yield` each of its sends and receives"),
        (mistaken(new_part="new"), "With 3 ranks: rank 0 has a wrong part in its list"),
        (mistaken(place="step"), "rank 0 has nothing in place 1 of its list"),
        (mistaken(result="parts[::-1]"), "rank 0 has all parts, but not in the order of the ranks"),
        (mistaken(steps="group.size - 2"), "rank 0 has nothing in place 1 of its list"),
        (mistaken(steps="group.size"), "With 2 ranks: the ranks send 96 bytes; 48 are enough"),
        (mistaken(to="+ 0"), "With 2 ranks nobody can go on: deadlock: device 0 waits for 0 from device 1"),
        (mistaken(result="parts[0]"), "rank 0 must return a list of 2 parts"),
        (mistaken(result="parts if group.rank else None"), "rank 0 must return a list of 2 parts"),
        (mistaken(before="1 / 0"), "Your program stopped with ZeroDivisionError"),
        (mistaken(label="group.rank"), "nobody can go on"),
        (receives_first, "nobody can go on: deadlock: device 0 waits for 0 from device 1, device 1 waits"),
        (sends_all_that_it_has, "With 3 ranks: the ranks send 216 bytes; 144 are enough"),
    ],
    check_fastest: [
        (["owners", "halving"], "Not quite: for 64 bytes owners takes 1407 ticks, doubling 312"),
        (["doubling", "ring"], "Not quite: for 1 MB ring takes"),
        (["doubling"], "Write two names"),
        (["doubling", "rings"], "Write two names, each one of naive, tree"),
    ],
    check_swap: [
        (both_send_first, "Nobody can go on, where a send waits for its receive: deadlock"),
        (both_receive_first, "Nobody can go on, even where messages are stored: deadlock"),
        (returns_its_own, "Rank 0 must return what the other rank had, [1.0, 1.0]"),
        (lambda rank, value: value, "must `yield` its send and its receive"),
        (raises, "Your program stopped with IndexError"),
    ],
    check_rows_of_packed: [
        (lambda d, T, rank: range(3 * d // T * rank, 3 * d // T * (rank + 1)), "all of q and half of k"),
        (lambda d, T, rank: range(d // T * rank, d // T * (rank + 1)), "Those are its rows of q"),
        (lambda d, T, rank: ROWS(d, T, rank)[::-1], "but in another order"),
        (lambda d, T, rank: ROWS(d, T, 0), "With d = 4 and T = 2, device 1 has 6 rows, [2, 3, 6] and so on"),
        (lambda d, T, rank: 3, "Return the numbers of the rows"),
        (lambda d, T, rank: [[0, 1], [4, 5]], "Return the numbers of the rows"),
    ],
    check_average: [
        (lambda clients: sum(w for _, w in clients) / len(clients), "the plain mean"),
        (lambda clients: sum(n * w for n, w in clients), "divide it by the samples"),
        (lambda clients: sum(n * w for n, w in clients) / len(clients), "not by how many clients"),
        (lambda clients: sum(w for _, w in clients), "the plain sum"),
        (lambda clients: 1.75, "Of [(1, 0.0), (2, 3.0), (5, -1.0)] the average is 0.125, yours is 1.75."),
    ],
    check_tree_sum: [
        (lambda terms: list(itertools.accumulate(terms))[-1], "the running sum, from left to right"),
        (lambda terms: list(itertools.accumulate(terms[::-1]))[-1], "the running sum from the right"),
        (sum, "the running sum, from left to right" if sys.version_info < (3, 12) else "Python's sum, which"),
        (halving, "You cut the list into halves"),
        (np.sum, "np.sum"),
        (lambda terms: tree_sum(sorted(terms)), "The sum is right but not its bits"),
        (lambda terms: tree_sum(terms[:len(terms) // 2 * 2] or terms), "is a term left out"),
        (lambda terms: terms[0] + terms[1], "With 1 term: Your function stopped with IndexError"),
        (lambda terms: [sum(terms)], "must have shape ()"),
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
