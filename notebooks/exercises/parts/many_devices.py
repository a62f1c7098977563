"""What notebooks 23 to 27 ask for: formulas of memory and time, a program, and who has which rows."""

from inspect import isgenerator

import numpy as np

from minipipe.cluster import Cluster
from minipipe.collectives import Group

from ..judging import Part, calls


def of_all_gather(my):
    """Yield what each rank returns and the bytes of all messages, on 1 to 5 ranks."""
    program = my.all_gather(Group(0, range(2)), np.ones(3))
    yield "what a call of all_gather makes", type(program).__name__
    if not isgenerator(program):
        return
    for N in (2, 3, 4, 5, 1):
        found = {}

        def keep(rank, found=found, N=N):
            found[rank] = yield from my.all_gather(Group(rank, range(N)), np.full(3, 10.0 * rank + 1))

        trace = Cluster([keep(rank) for rank in range(N)]).run()
        for rank in range(N):
            yield f"what rank {rank} of {N} returns", found[rank]
        yield f"whether all {N} ranks send to the next one alone", all(
            message.to == (message.source + 1) % N for message in trace.messages)
        yield f"the bytes that {N} ranks send", sum(message.n_bytes for message in trace.messages)


def of_rows_of_packed(my):
    """Yield the rows of each device, for two, four devices and one."""
    for d, T in ((4, 2), (12, 4), (6, 1)):
        for rank in range(T):
            rows = my.rows_of_packed(d, T, rank)
            yield f"rows_of_packed(d={d}, T={T}, rank={rank})", list(rows) if np.iterable(rows) else rows


HELD, ALIVE = "b * ((alive - 1) * a + L // K * c)", "min(M, K - r)"
HELD_MISTAKES = [
    (ALIVE, "M", "That is GPipe, with all M micro-batches alive: 1F1B has fewer, and how many depends on r."),
    (ALIVE, "K - r", "Nearly: where M is smaller than K - r, there are no more than M micro-batches."),
    (ALIVE, "min(M, K)", "That is device 0, with K alive: each device further on has one less."),
    (ALIVE, "min(M, r + 1)", "The other way round: the first device has most, its gradients come last."),
    (ALIVE, "min(M, K - r - 1)", "K - r - 1 is the warm-up. One more forward precedes the first backward."),
    ("(alive - 1)", "alive", "Nearly: the micro-batch whose caches are there has its input among them."),
    (HELD, "b * alive * L / K * c", "That is 1F1B without recomputation."),
    ("L // K", "L", "A device has L / K of the layers, not L."),
    ("return b * ", "return ", "a and c are of one sample: a micro-batch has b of them."),
]
RING, STEPS = "2 * (N - 1) * (alpha + n / N * beta)", "2 * (N - 1)"
RING_MISTAKES = [
    ("n / N * beta", "n * beta", "Each message has one chunk, n / N bytes, not all n."),
    (STEPS, "(N - 1)", "That is half of it: after N - 1 steps each chunk is summed, but on one rank only."),
    (STEPS, "2 * N", "One step too many in each round: a rank's own chunk does not travel."),
    (RING, "2 * alpha + 2 * (N - 1) / N * n * beta",
     "The bytes are right. But each step waits for the one before, so each pays the latency."),
    ("n / N * beta", "n / N / beta", "beta is the ticks of a byte, not the bytes of a tick."),
    (STEPS, "2 * N * (N - 1)", "You added up the messages of all ranks. They travel at the same time."),
]
SENDS = """yield group.send(group.rank + 1, step, part)
        part = yield group"""
GATHER_MISTAKES = [
    (SENDS, SENDS.replace("yield ", ""),
     "Without `yield` nothing travels: write `yield group.send(...)` and `part = yield group.receive(...)`."),
    ("yield group.send", "group.send", "a send lacks its `yield`, or each rank receives before it sends."),
    ("part = yield", "new = yield", "You send your own part in each step. Send on what came."),
    ("parts[(group.rank - step - 1) % group.size]", "parts[step]",
     "The parts are not in the order of the ranks. In step s that of rank r - s - 1 comes."),
]
END_MISTAKES = [
    ("return free", "return max(ready) + sum(c)",
     "You let all exchanges wait for the last gradient. Each begins when its own is there."),
    ("return free", "return max(map(sum, zip(ready, c)))",
     "You let the exchanges run at the same time. They take one lane, one after the other."),
    ("return free", "return ready[0] + sum(c)", "Nearly: the lane can also be free and wait."),
    ("return free", "return ready[-1] + c[-1]",
     "When the last gradient is ready, the lane can still be busy with those before."),
    ("return free", "return sum(c)", "The first exchange cannot begin before its gradient is ready."),
]
SENT_MISTAKES = [
    ("4 * 2 *", "4 *", "That is half of it: an all-reduce sends 2 (T - 1)/T of the array, there and back."),
    ("(T - 1) / T", "(T - 1)", "That is what all T devices send. What does one?"),
    ("4 * 2 *", "2 *", "That is one all-reduce. How many are there in a block, forward and backward?"),
    (" * (T - 1) / T", "", "What a device has already need not travel: think of T = 1."),
]
PACKED = "[third * d + row for third in range(3) for row in range(rank * n, (rank + 1) * n)]"
PACKED_MISTAKES = [
    (PACKED, "range(3 * n * rank, 3 * n * (rank + 1))",
     "That cuts the matrix as a whole: device 0 gets all of q and half of k. Cut inside each third."),
    (PACKED, "range(n * rank, n * (rank + 1))", "Those are its rows of q. It needs those of k and v, too."),
    ("for third in range(3) for row in range(rank * n, (rank + 1) * n)",
     "for row in range(rank * n, (rank + 1) * n) for third in range(3)",
     "Those are the rows, but in another order: first q's, then k's, then v's."),
]
RANK = "t + T * (d + D * k)"
RANK_MISTAKES = [
    (RANK, "t + d + k", "Two devices have the same number: (0, 1, 0) and (1, 0, 0), for T = 2, D = 2."),
    (RANK, "d + D * (t + T * k)", "That is dp-tp-pp: the copies would be neighbours."),
    (RANK, "t + T * d + D * k", "Nearly: all copies of one stage stand between it and the next one."),
    (RANK, "t + T * (d + k)", "Nearly: two stages are T D devices apart, not T."),
]

PARTS = [
    Part("held", 23, calls("held", "K M r b L a c", [
        (4, 8, 0, 2, 12, 16, 64), (4, 8, 1, 2, 12, 16, 64), (5, 9, 3, 1, 10, 16, 48), (4, 2, 0, 3, 8, 16, 40),
        (6, 7, 2, 2, 6, 16, 56)]), HELD_MISTAKES,
         "b ((min(M, K - r) - 1) a + L/K c). From M = K - r on, a larger M changes nothing any more."),
    Part("ring_ticks", 24, calls("ring_ticks", "N n alpha beta", [
        (4, 1024, 100, 1 / 16), (8, 4096, 100, 1 / 16), (3, 30, 7, 1), (1, 8, 5, 1)]), RING_MISTAKES,
         "2 (N - 1) alpha + 2 (N - 1)/N n beta. The bytes hardly grow with N, the latency does."),
    Part("all_gather", 24, of_all_gather, GATHER_MISTAKES,
         "N - 1 steps, in each of which every rank passes on what it got last."),
    Part("end", 25, calls("end", "ready c", [
        ([2, 4, 6, 8], [3, 3, 3, 3]), ([2, 4, 6, 8], [1, 1, 1, 1]), ([4, 8], [5, 5]), ([1, 9], [5, 2]),
        ([1, 2, 3], [6, 1, 1])]),
         END_MISTAKES, "each begins at the later of two ticks: its gradient is ready, and the lane is free."),
    Part("numbers_sent", 26, calls("numbers_sent", "b s h T", [
        (2, 3, 8, 2), (2, 3, 8, 3), (1, 2048, 12288, 8), (5, 7, 12, 1)]), SENT_MISTAKES,
         "8 b s h (T - 1)/T, as in Narayanan et al. 2021. It does not fall as T grows."),
    Part("rows_of_packed", 26, of_rows_of_packed, PACKED_MISTAKES,
         "the same run of rows in each third, so each device has whole heads of q, k and v."),
    Part("rank", 27, calls("rank", "t d k T D", [
        (1, 2, 3, 2, 3), (3, 1, 2, 4, 2), (1, 0, 0, 2, 2), (0, 1, 0, 2, 2), (0, 0, 1, 2, 2)]), RANK_MISTAKES,
         "t + T (d + D k). Those that talk most are neighbours."),
]
