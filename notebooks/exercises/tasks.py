"""How many cores a call keeps busy, and the checkers of notebook 30, what may run at once."""

from time import perf_counter, process_time

import numpy as np

from . import called, judged, short

PAIRS = [  # (what the earlier call reads and writes, what the later one does, whether it waits, a mistake)
    ("ab", "c", "cd", "e", True, "It lets a call start before what it reads is written"),
    ("ab", "c", "d", "a", True, "It lets a call write over what an earlier one has still to read"),
    ("ab", "c", "d", "c", True, "It lets two calls write one array in any order: the later one's must stay"),
    ("ab", "c", "ab", "d", False, "Two calls may read the same array at once: nobody changes it"),
    ("ab", "c", "d", "e", False, "It makes a call wait for one with which it shares nothing"),
    ("a", "a", "b", "b", False, "It makes a call wait for one with which it shares nothing"),
    ("", "ab", "b", "", True, "A call may write several arrays: one that is read is enough"),
]


def cores_busy(work):
    """Return how many cores `work` keeps busy: the most of three calls, after one that is not counted."""
    def once():
        wall, cpu = perf_counter(), process_time()
        work()
        return (process_time() - cpu) / (perf_counter() - wall)

    return max([once() for _ in range(4)][1:])


def check_must_wait(must_wait):
    """Judge `must_wait(earlier, later)`: whether a call has to wait for an earlier one.

    Each is a pair of sets, (what it reads, what it writes).

    >>> check_must_wait(lambda earlier, later: bool(earlier[1] & later[0]))
    'It lets a call write over what an earlier one has still to read: earlier reads a, b and writes c; later
    reads d and writes a.'
    """
    for *arrays, waits, sentence in PAIRS:
        reads, writes, reads_later, writes_later = map(set, arrays)
        value, stopped = called(must_wait, (reads, writes), (reads_later, writes_later))
        if stopped is not None:
            return stopped
        if not isinstance(value, (bool, np.bool_)):
            return f"Return True or False: this is {short(value)}."
        if value != waits:
            first, second, third, fourth = (", ".join(names) or "nothing" for names in arrays)
            return (f"{sentence}: earlier reads {first} and writes {second}; later reads {third} and writes "
                    f"{fourth}.")
    return "Right: write and read, read and write, write and write. Two reads never wait."


def check_overlapped(overlapped):
    """Judge `overlapped(n, c, k)`: the ticks of n products of c, of which each result is copied in k.

    >>> check_overlapped(lambda n, c, k: n * (c + k))
    'That is one after the other. A result can travel while the next product is computed.'
    """
    cases = [(50, 2, 1), (50, 1, 2), (4, 3, 3), (1, 5, 2)]
    mistakes = [
        (lambda n, c, k: n * (c + k),
         "That is one after the other. A result can travel while the next product is computed."),
        (lambda n, c, k: n * max(c, k), "Nearly: nothing can be copied while the first product is made."),
        (lambda n, c, k: n * c + k,
         "That holds while a copy takes no longer than a product. Otherwise copies queue up."),
        (lambda n, c, k: c + n * k, "That holds if a copy takes at least as long as a product."),
    ]
    right = [c + (n - 1) * max(c, k) + k for n, c, k in cases]
    return judged(overlapped, ("n", "c", "k"), cases, right, mistakes) or (
        "Right: c + (n - 1) max(c, k) + k. Only the first product and the last copy are alone.")
