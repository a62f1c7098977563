"""Solutions of the exercises in notebook 34, and what their checkers say to typical wrong answers."""

import pytest
from notebooks.checkers import are_named, are_not_solved_yet, are_right, of_each
from notebooks.template import solutions

from exercises.all_reduce import check_all_gather, check_fastest, check_ring_ticks

CHECKERS = [check_ring_ticks, check_all_gather, check_fastest]
RING, GATHER = solutions("34").ring_ticks, solutions("34").all_gather


def gather_by_sending_to_all(group, part):
    parts = [None] * group.size
    parts[group.rank] = part
    for step in range(1, group.size):
        yield group.send(group.rank + step, "part", part)
    for step in range(1, group.size):
        parts[group.rank - step] = yield group.receive(group.rank - step, "part")
    return parts


test_solutions = are_right([
    (check_ring_ticks, RING),
    (check_ring_ticks, lambda N, n, alpha, beta: 2 * (N - 1) * alpha + 2 * (N - 1) / N * n * beta),
    (check_all_gather, GATHER),
    (check_all_gather, gather_by_sending_to_all),
    (check_fastest, ["doubling", "halving"]),
    (check_fastest, ("doubling", "halving")),
])


test_stubs = are_not_solved_yet([(check_fastest, [None, None]), (check_fastest, ["doubling", None])])


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


test_mistakes = are_named(of_each(CHECKERS, [
    [
        (lambda N, n, alpha, beta: 2 * (N - 1) * (alpha + n * beta), "one chunk, n / N bytes"),
        (lambda N, n, alpha, beta: (N - 1) * (alpha + n / N * beta), "That is half of it"),
        (lambda N, n, alpha, beta: 2 * N * (alpha + n / N * beta), "One step too many in each round"),
        (lambda N, n, alpha, beta: 2 * alpha + 2 * (N - 1) / N * n * beta, "each pays the latency"),
        (lambda N, n, alpha, beta: 2 * N * (N - 1) * (alpha + n / N * beta), "the messages of all ranks"),
        (lambda N, n, alpha, beta: 0, "With N = 4, n = 1024, alpha = 100, beta = 0.0625 the count is 696"),
        (lambda N: N, "stopped with TypeError"),
    ],
    [
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
    [
        (["owners", "halving"], "Not quite: for 64 bytes owners takes 1407 ticks, doubling 312"),
        (["doubling", "ring"], "Not quite: for 1 MB ring takes"),
        (["doubling"], "Write two names"),
        (["doubling", "rings"], "Write two names, each one of naive, tree"),
    ],
]))


@pytest.mark.parametrize("n_ranks", [1, 2, 3])
def test_a_prediction_and_its_check_agree(n_ranks):
    assert RING(n_ranks, n_ranks, 1, 0) == 2 * (n_ranks - 1)
