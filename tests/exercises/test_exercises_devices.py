"""Exercises about devices, servers and large mini-batches, in notebooks 38 to 50: other solutions than the
notebooks', and what the checkers say to typical wrong answers.
"""

import sys
from itertools import accumulate

import numpy as np
from notebooks.checkers import are_named, are_not_solved_yet, are_right
from notebooks.template import solutions

import minipipe as mp
from exercises.all_reduce import check_all_gather, check_fastest, check_ring_ticks
from exercises.automatic import check_overlapped
from exercises.data_parallel import check_end, check_exposed
from exercises.federated import check_average
from exercises.large_batches import check_noise, check_rate
from exercises.order_of_a_sum import check_tree_sum
from exercises.real_processes import check_lead, check_speed_up, check_swap
from exercises.servers import check_first_round
from exercises.shards import check_numbers_of_block, check_rows_of_packed
from exercises.three_dimensions import check_rank, check_step
from exercises.traps import check_local
from exercises.traps import check_step as check_momentum_step
from minipipe.order import in_copies, with_all_reduce
from minipipe.schedules import build

ROWS, END = solutions("41").rows_of_packed, solutions("42").end
RANK, STEP = solutions("43").rank, solutions("43").step
tree_sum = solutions("50").my_tree_sum


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


def trace(b, B, small, large):
    return (small - large) / (1 / b - 1 / B)


def halving(terms):
    half = len(terms) // 2
    return terms[0] if half == 0 else halving(terms[:half]) + halving(terms[half:])


test_solutions = are_right({
    check_ring_ticks: [lambda N, n, alpha, beta: 2 * (N - 1) * alpha + 2 * (N - 1) / N * n * beta],
    check_all_gather: [gather_by_sending_to_all],
    check_fastest: [("doubling", "halving")],
    check_swap: [listens_first],
    check_rows_of_packed: [lambda d, T, rank: np.arange(3 * d).reshape(3, T, d // T)[:, rank].ravel()],
    check_numbers_of_block: [lambda b, s, h, T: 4 * 2 * (b * s * h - b * s * h / T)],
    check_exposed: [lambda L, b, c: END([b * (k + 1) for k in range(L)], [c] * L) - L * b],
    check_end: [lambda ready, c: max(start + sum(c[k:]) for k, start in enumerate(ready))],
    check_rank: [lambda t, d, k, T, D: (k * D + d) * T + t],
    check_first_round: [lambda N, t, c: sum([c, c] * N, t)],
    check_rate: [lambda i, W, eta, k: eta * (1 + (k - 1) * min(i / W, 1))],
    check_noise: [
        lambda b, B, small, large: trace(b, B, small, large) * (B - b) / (B * large - b * small),
    ],
    check_momentum_step: [lambda v, g, m, old, new: new * (m * v / old + g)],
})
test_stubs = are_not_solved_yet({
    check_fastest: [[None, None], ["doubling", None]],
})
test_mistakes = are_named({
    check_ring_ticks: [
        (lambda N, n, alpha, beta: 2 * (N - 1) * (alpha + n * beta), "one chunk, n / N bytes"),
        (lambda N, n, alpha, beta: (N - 1) * (alpha + n / N * beta), "That is half of it"),
        (lambda N, n, alpha, beta: 2 * N * (alpha + n / N * beta), "One step too many in each round"),
        (lambda N, n, alpha, beta: 2 * alpha + 2 * (N - 1) / N * n * beta, "each pays the latency"),
        (lambda N, n, alpha, beta: 2 * N * (N - 1) * (alpha + n / N * beta), "the messages of all ranks"),
    ],
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
    check_speed_up: [
        (lambda K, M: K, "without the bubble"),
        (lambda K, M: M / (M + K - 1), "the share of the time in which one device works"),
        (lambda K, M: (M + K - 1) / (K * M), "the speed-up is one over it"),
        (lambda K, M: (K - 1) / (M + K - 1), "That is the bubble"),
        (lambda K, M: K * M / (M + K), "K = 1, must have a speed-up of 1"),
    ],
    check_lead: [
        (lambda t0, t1, t2: t1 - t0, "the way there for no time"),
        (lambda t0, t1, t2: t1 - t2, "the way back for no time"),
        (lambda t0, t1, t2: (t0 + t2) / 2 - t1, "the sign is wrong"),
        (lambda t0, t1, t2: t1 - (t2 - t0) / 2, "the length of one way"),
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
    check_numbers_of_block: [
        (lambda b, s, h, T: 4 * b * s * h * (T - 1) / T, "That is half of it"),
        (lambda b, s, h, T: 8 * b * s * h * (T - 1), "what all T devices send"),
        (lambda b, s, h, T: 2 * b * s * h * (T - 1) / T, "That is one all-reduce"),
        (lambda b, s, h, T: 8 * b * s * h, "think of T = 1"),
    ],
    check_exposed: [
        (lambda L, b, c: L * c, "without any overlap"),
        (lambda L, b, c: c, "while c is at most b"),
        (lambda L, b, c: L * c - (L - 1) * b, "if c is at least b"),
        (lambda L, b, c: max(c, L * c - L * b), "only L - 1 backwards hide anything"),
        (lambda L, b, c: max(0, L * c - (L - 1) * b), "at least c"),
    ],
    check_end: [
        (lambda ready, c: max(ready) + sum(c), "wait for the last gradient"),
        (lambda ready, c: max(start + own for start, own in zip(ready, c)), "at the same time"),
        (lambda ready, c: ready[0] + sum(c), "the lane can also be free"),
        (lambda ready, c: sum(c), "before its gradient is ready"),
    ],
    check_rank: [
        (lambda t, d, k, T, D: d + D * (t + T * k), "That is dp-tp-pp"),
        (lambda t, d, k, T, D: t + T * d + D * k, "how many devices has one stage"),
        (lambda t, d, k, T, D: t + T * (d + k), "T D devices apart"),
    ],
    check_step: [
        (lambda P, M, F, B, sums: (M + P - 1) * (F + B) + sums[0], "That is device 0's"),
        (lambda P, M, F, B, sums: (M + P - 1) * (F + B) + sum(sums), "do not wait for each other"),
        (lambda P, M, F, B, sums: M * (F + B) + max(0, *(s - r * B for r, s in enumerate([*sums, 0]))),
         "You have forgotten the bubble"),
    ],
    check_overlapped: [
        (lambda n, c, k: n * (c + k), "one after the other"),
        (lambda n, c, k: n * max(c, k), "while the first product"),
        (lambda n, c, k: n * c + k, "copies queue up"),
        (lambda n, c, k: c + n * k, "at least as long as a product"),
    ],
    check_first_round: [
        (lambda N, t, c: t + N * c, "the way in"),
        (lambda N, t, c: t + 2 * c, "one worker alone"),
        (lambda N, t, c: N * (t + 2 * c), "t counts once"),
        (lambda N, t, c: 2 * N * c, "t is missing"),
        (lambda N, t, c: t + (N + 1) * c, "behind another one"),
    ],
    check_average: [
        (lambda clients: sum(w for _, w in clients) / len(clients), "the plain mean"),
        (lambda clients: sum(n * w for n, w in clients), "divide it by the samples"),
        (lambda clients: sum(n * w for n, w in clients) / len(clients), "not by how many clients"),
        (lambda clients: sum(w for _, w in clients), "the plain sum"),
        (lambda clients: 1.75, "Of [(1, 0.0), (2, 3.0), (5, -1.0)] the average is 0.125, yours is 1.75."),
    ],
    check_rate: [
        (lambda i, W, eta, k: eta if i < W else k * eta, "constant warm-up"),
        (lambda i, W, eta, k: eta + (k - 1) * eta * i / W, "grows on"),
        (lambda i, W, eta, k: k * eta * min(i, W) / W, "begins at 0"),
        (lambda i, W, eta, k: eta + k * eta * min(i, W) / W, "ends at (k + 1) eta"),
        (lambda i, W, eta, k: eta + (k - 1) * eta * min(i + 1, W) / W, "one update early"),
    ],
    check_noise: [
        (trace, "That is tr(Sigma)"),
        (lambda b, B, small, large: trace(b, B, small, large) / large, "of the large mini-batch"),
        (lambda b, B, small, large: trace(b, B, small, large) / small, "of the small mini-batch"),
        (lambda b, B, small, large: (small / trace(b, B, small, large) - 1 / b), "Upside down"),
    ],
    check_momentum_step: [
        (lambda v, g, m, old, new: m * v + new * g, "the form as it is written"),
        (lambda v, g, m, old, new: m * (old / new) * v + new * g, "Upside down"),
        (lambda v, g, m, old, new: (new / old) * (m * v + new * g), "has its rate already"),
        (lambda v, g, m, old, new: m * (new / old) * v + g, "forgets the rate"),
        (lambda v, g, m, old, new: (new / old) * v + new * g, "forgets the momentum"),
    ],
    check_local: [
        (lambda size, size_of_g, decay, trust: trust * size / (size_of_g + decay * size), "never moves"),
        (lambda size, size_of_g, decay, trust: trust * size / (size_of_g + decay * size) if size else 1,
         "without a gradient, too"),
        (lambda size, size_of_g, decay, trust: trust * size / size_of_g if size_of_g else 1,
         "Without the weight decay"),
        (lambda size, size_of_g, decay, trust: trust * (size_of_g + decay * size) / size if size else 1,
         "Upside down"),
    ],
    check_tree_sum: [
        (lambda terms: list(accumulate(terms))[-1], "the running sum, from left to right"),
        (lambda terms: list(accumulate(terms[::-1]))[-1], "the running sum from the right"),
        (sum, "the running sum, from left to right" if sys.version_info < (3, 12) else "Python's sum, which"),
        (halving, "You cut the list into halves"),
        (np.sum, "np.sum"),
        (lambda terms: tree_sum(sorted(terms)), "The sum is right but not its bits"),
        (lambda terms: tree_sum(terms[:len(terms) // 2 * 2] or terms), "is a term left out"),
        (lambda terms: terms[0] + terms[1], "With 1 term: Your function stopped with IndexError"),
        (lambda terms: [sum(terms)], "must have shape ()"),
    ],
})


def test_numbers_are_the_packages_and_ticks_those_of_a_run():
    layers = [mp.Linear(4, 4) for _ in range(4)]
    net = mp.Parallel(layers, mp.MeanSquaredError(), replicas=3, shards=2, stages=4, microbatches=3)
    for d in range(3):
        for k in range(4):
            assert [RANK(t, d, k, 2, 3) for t in range(2)] in net.groups["tp"]
    assert [RANK(1, d, 2, 2, 3) for d in range(3)] in net.groups["dp"]
    order = with_all_reduce(in_copies(build("1f1b", 3, 4), 2))
    for sums in ([0, 0, 8], [3, 1, 2], [1, 3, 5]):
        trace = mp.simulate(order, mp.Costs(F=2, B=3, A=sums))
        assert trace.makespan == STEP(3, 4, 2, 3, sums)
