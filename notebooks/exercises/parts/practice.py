"""What notebooks 28 to 31 ask for: formulas of large batches and overlap, tests, and a measurement."""

from ..judging import Part, calls, truth

EPOCHS = [  # of two workers with 4 samples
    [[[2, 0], [3, 1]], [[0, 3], [1, 2]]],       # healthy
    [[[2, 0], [3, 1]]],                         # healthy
    [[[2, 0], [3, 1]], [[2, 0], [3, 1]]],       # twice the same order
    [[[2, 0], [0, 1]], [[0, 3], [1, 2]]],       # sample 3 never
    [[[2, 0], [3, 1]], [[1, 3], [1, 2]]],       # sample 0 never in the second epoch
    [[[2, 0, 1], [3, 1]], [[0, 3], [1, 2]]],    # all, but sample 1 twice
]
CALLS = [  # what the earlier call reads and writes, then the later one
    ("ab", "c", "cd", "e"), ("ab", "c", "d", "a"), ("ab", "c", "d", "c"), ("ab", "c", "ab", "d"),
    ("ab", "c", "d", "e"), ("a", "a", "b", "b"), ("", "ab", "b", ""),
]


def of_healthy_epochs(my):
    """Yield whether epochs are healthy."""
    for epochs in EPOCHS:
        said = my.healthy_epochs([[list(shard) for shard in shards] for shards in epochs], 4)
        yield f"healthy_epochs({epochs}, 4)", truth(said)


def of_must_wait(my):
    """Yield whether a call waits, where it shares something with the earlier one, and where not."""
    for arrays in CALLS:
        a, b, c, d = (", ".join(names) or "nothing" for names in arrays)
        words = f"must_wait of calls that read {a} and write {b}, then read {c} and write {d}"
        reads, writes, reads_later, writes_later = map(set, arrays)
        yield words, truth(my.must_wait((reads, writes), (reads_later, writes_later)))


class Device:
    """A device with a clock of its own, whose runs take the given seconds; it works while others go on."""

    def __init__(self, seconds):
        self.now, self.free, self.left = 0.0, 0.0, list(seconds)

    def start(self):
        """Ask for a run, which takes a millisecond."""
        self.now += 0.001
        self.free = max(self.free, self.now) + (self.left.pop(0) if self.left else 1.0)

    def wait(self):
        """Wait until all runs that were asked for are done."""
        self.now = max(self.now, self.free)

    def clock(self):
        """Return the time."""
        return self.now


def of_seconds(my):
    """Yield the median of two series of runs, of which the first run is not counted."""
    for runs in ([30, 4, 1, 1, 9, 2], [7, 3, 5, 6]):
        device = Device(runs)
        found = my.seconds(device.start, device.wait, device.clock, len(runs) - 1)
        yield f"the seconds of runs that take {runs}, where asking takes 0.001", found


RATE, AVERAGE = "eta + (k - 1) * eta * min(i, W) / W", "sum(n * w for n, w in clients)"
RATE_MISTAKES = [
    (RATE, "eta if i < W else k * eta", "That is the constant warm-up, with its jump. Grow in each update."),
    ("min(i, W)", "i", "Right up to update W; but then the rate grows on. It stays at k eta."),
    (RATE, "k * eta * min(i, W) / W", "That begins at 0: the first update would do nothing. Begin at eta."),
    ("(k - 1) *", "k *", "That ends at (k + 1) eta: from eta to k eta it has (k - 1) eta to gain."),
    ("min(i, W)", "min(i + 1, W)", "One update early: update 0 has eta, update W is the first with k eta."),
]
AVERAGE_MISTAKES = [
    (AVERAGE + " / sum(n for n, w in clients)", "sum(w for n, w in clients) / len(clients)",
     "That is the plain mean. A client with three times the samples counts three times as much."),
    (" / sum(n for n, w in clients)", "", "That is the sum of n w: divide it by the samples of all clients."),
    ("sum(n for n, w in clients)", "len(clients)",
     "Divide by the samples of all these clients, not by how many clients there are."),
]
VELOCITY = "m * (new / old) * v + new * g"
VELOCITY_MISTAKES = [
    ("(new / old) * ", "", "That is line C: v still carries the old rate."),
    ("new / old", "old / new", "Upside down: v = old * u is to become new * u, so multiply by new / old."),
    (VELOCITY, "(new / old) * (m * v + new * g)", "The new gradient has its rate already: only v is scaled."),
    ("new * g", "g", "That forgets the rate of the new gradient: in this form it stands inside v."),
    ("m * ", "", "That forgets the momentum m: nothing fades."),
]
DIFFER = " and all(one != other for one, other in zip(orders, orders[1:]))"
EPOCHS_MISTAKES = [
    (DIFFER, "", "It lets two epochs in one order pass, bug F."),
    ("complete and ", "", "It lets an epoch pass in which sample 0 comes twice and 3 never."),
    ("for order in orders)", "for order in orders[:1])", "It lets a bad second epoch pass: look at each."),
    ("sorted(order) == list(range(m))", "set(order) == set(range(m))",
     "It lets an epoch pass in which all samples come, but sample 1 twice."),
    ("sorted(order)", "order", "It calls healthy epochs broken: their samples come in any order."),
    ("zip(orders, orders[1:])", "[orders[:2]]", "It stops at a single epoch, which has no neighbour."),
]
WAITS = "writes & reads_later or reads & writes_later or writes & writes_later"
WAIT_MISTAKES = [
    (WAITS, "writes & reads_later", "It lets a call write over what an earlier one reads or writes."),
    ("writes & reads_later or ", "", "It lets a call start before what it reads is written."),
    (" or reads & writes_later", "", "It lets a call write over what an earlier one has still to read."),
    (" or writes & writes_later", "", "It lets two calls write one array in any order: the later must win."),
    (WAITS, "(reads | writes) & (reads_later | writes_later)", "Two calls may read the same array at once."),
]
TICKS = "c + (n - 1) * max(c, k) + k"
OVERLAPPED_MISTAKES = [
    (TICKS, "n * (c + k)", "That is one after the other. A result can travel while the next is computed."),
    (TICKS, "n * max(c, k)", "Nearly: nothing can be copied while the first product is made."),
    (TICKS, "n * c + k", "That holds while a copy takes no longer than a product: else copies queue up."),
    (TICKS, "c + n * k", "That holds if a copy takes at least as long as a product."),
]
MEDIAN = "sorted(found)[n // 2]"
SECONDS_MISTAKES = [
    ("        wait()\n", "", "That is how long it takes to *ask* for a run: wait before you read the clock."),
    ("    start()\n    wait()\n    found", "    found",
     "The first run is in it, which fetches memory and libraries. Run once before you read the clock."),
    ("    start()\n    wait()\n    found", "    start()\n    found",
     "Wait until the warm-up is over, too: else it delays the first run that counts."),
    (MEDIAN, "found[n // 2]", "That is the n//2-th run. For the median, sort the seconds first."),
    (MEDIAN, "sum(found) / n", "That is the mean, and one disturbed run pulls it up. Take the median."),
    (MEDIAN, "min(found)", "That is the fastest run. The median tells what a run takes on most days."),
    ("        begin = clock()\n        start()", "        start()\n        begin = clock()",
     "Read the clock before you ask: asking belongs to a run."),
]
BOUND, LONGER = "base * M / max(3, 3 * M / K)", "max(3, 3 * M / K)"
BOUND_MISTAKES = [
    (LONGER, "3", "That is the way of one micro-batch alone. Each device still has M / K of all the work."),
    (LONGER, "(3 * M / K)", "That is the work alone, spread evenly: but with M = 1 only one device works."),
    (BOUND, "base / 4 * min(K, M)", "You counted a recomputation: a bound on all schedules has none."),
    (BOUND, "min(K, M) / 3", "The cells are relative to the base: multiply by its time."),
    ("max(", "min(", "The longer of the two: both limits hold."),
    (BOUND, "base * K * M / (M + K - 1) / 3",
     "That is GPipe's schedule with equal stages: others can be faster."),
]

PARTS = [
    Part("rate", 28, calls("rate", "i W eta k", [
        (2, 4, 0.5, 8), (0, 4, 0.5, 8), (4, 4, 0.5, 8), (9, 4, 0.5, 8), (3, 8, 0.25, 16)]), RATE_MISTAKES,
         "it begins where the small mini-batch is at home, and ends at k times that."),
    Part("average", 28, calls("average", "clients", [
        ([(10, 1.0), (30, 2.0)],), ([(1, 0.0), (2, 3.0), (5, -1.0)],), ([(7, 2.5)],)]), AVERAGE_MISTAKES,
         "sum of n w over sum of n. After full steps, it is gradient descent on all samples."),
    Part("velocity", 29, calls("velocity", "v g m old new", [
        (1.0, 2.0, 0.5, 0.5, 2.0), (-1.0, 4.0, 0.25, 2.0, 0.5), (3.0, 1.0, 0.5, 1.0, 1.0)]),
         VELOCITY_MISTAKES, "v stays the rate times u, whatever the rate does."),
    Part("healthy_epochs", 29, of_healthy_epochs, EPOCHS_MISTAKES,
         "it sees what no comparison of gradients can see."),
    Part("must_wait", 30, of_must_wait, WAIT_MISTAKES,
         "write and read, read and write, write and write. Two reads never wait."),
    Part("overlapped", 30, calls("overlapped", "n c k", [(50, 2, 1), (50, 1, 2), (4, 3, 3), (1, 5, 2)]),
         OVERLAPPED_MISTAKES,
         "c + (n - 1) max(c, k) + k. Only the first product and the last copy are alone."),
    Part("seconds", 31, of_seconds, SECONDS_MISTAKES,
         "warm up, wait, repeat, and say what the middle one took."),
    Part("bound", 31, calls("bound", "base K M", [
        (3.5, 8, 4), (3.5, 8, 1), (4, 4, 32), (3.5, 2, 4), (4, 3, 3)]), BOUND_MISTAKES,
         "base / 3 * min(K, M). For K = 8, M = 4 and a base of 3.5 it is 4.67, and the paper prints 4.8."),
]
