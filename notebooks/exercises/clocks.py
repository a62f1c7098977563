"""One's own machine on the clock, its picture, and the two checkers of notebook 31."""

import os
import socket
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from . import called, judged, numbers

ROWS = {  # what Dive into Deep Learning, section 13.4, says it takes, in seconds; what is measured here
    "lock and unlock a mutex": (25e-9, "the same"),
    "compress 1 KB": (3e-6, "the same, by zlib"),
    "send 4 KB over 10 Gbit/s Ethernet": (10e-6, "through a socket of this machine"),
    "start a kernel on a GPU": (10e-6, "start a NumPy function"),
    "read 1 MB from main memory": (25e-6, "read it, and write it"),
    "read 1 MB from an NVMe disk": (208e-6, "from a file that memory still has"),
}


def median(work, times=1):
    """Return the median seconds of `work`, of seven times `times` calls after one that is not counted."""
    work()
    found = []
    for _ in range(7):
        start = perf_counter()
        for _ in range(times):
            work()
        found.append((perf_counter() - start) / times)
    return sorted(found)[3]


def own_machine() -> dict[str, float]:
    """Return {row: the seconds that this machine takes}."""
    lock, one, kilobyte, page = Lock(), np.ones(1, np.float32), os.urandom(512) * 2, bytes(4096)
    array, copy = np.ones((2, 2**24), np.float32)
    here, there = socket.socketpair()

    def send():
        here.sendall(page)
        left = len(page)
        while left:
            left -= len(there.recv(left))

    def locked():
        with lock:
            pass

    with TemporaryDirectory() as folder, here, there:
        file = Path(folder) / "file"
        file.write_bytes(bytes(10**6))
        megabytes = array.nbytes / 1e6
        found = [
            median(locked, 1000), median(lambda: zlib.compress(kilobyte, 1), 100), median(send, 100),
            median(lambda: np.multiply(one, one, out=one), 1000),
            median(lambda: np.copyto(copy, array)) / megabytes, median(file.read_bytes, 10),
        ]
    return dict(zip(ROWS, found, strict=True))


def beside_the_book(own: dict[str, float]) -> Figure:
    """Draw what the book says and what this machine takes, in seconds."""
    with plt.rc_context({"figure.dpi": 100, "font.size": 11, "figure.constrained_layout.use": True}):
        fig, ax = plt.subplots(figsize=(9, 3.6))
        rows, books = range(len(ROWS)), [book for book, _ in ROWS.values()]
        ax.hlines(rows, books, [own[name] for name in ROWS], color="#BBBBBB", zorder=0)
        ax.plot(books, rows, "s", color="#0072B2", markersize=9, label="the book")
        ax.plot([own[name] for name in ROWS], rows, "o", color="#D55E00", markersize=9, label="this machine")
        names = [f"{name}\n(here: {here})" for name, (_, here) in ROWS.items()]
        ax.set_yticks(rows, names, fontsize=9)
        ax.set(xscale="log", xlabel="seconds", ylim=(len(ROWS) - 0.5, -0.5), xlim=(1e-9, 1e-2))
        ax.grid(axis="x", color="#EEEEEE")
        ax.legend(frameon=False, loc="lower left")
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)
    return fig


class _Device:
    """A device with a clock of its own, whose runs take the given seconds; it works while others go on."""

    def __init__(self, seconds):
        self.now, self.free, self.left, self.calls = 0.0, 0.0, list(seconds), 0

    def start(self):
        """Ask for a run, which takes a millisecond."""
        self.now += 0.001
        self.calls += 1
        self.free = max(self.free, self.now) + (self.left.pop(0) if self.left else 1.0)

    def wait(self):
        """Wait until all runs that were asked for are done."""
        self.now = max(self.now, self.free)

    def clock(self):
        """Return the time."""
        return self.now


SLOW_FIRST = [30, 4, 1, 1, 9, 2]  # seconds of the first run, and of the five after it
OFTEN = {  # what a wrong measurement finds in these runs: what it has done
    0.001: "That is how long it takes to *ask* for a run. Wait for the device before you read the clock.",
    4.001: "The first run is in it, which fetches memory and libraries. Run once before you read the clock.",
    3.401: "That is the mean, and one run that was disturbed pulls it up. Take the median.",
    1.001: "That is the fastest run. The median tells what a run takes on most days.",
    30.001: "That is the first run alone. Let it go by, and take the median of the `n` after it.",
    2.0: "Read the clock before you ask: asking belongs to a run.",
}


def check_seconds(seconds):
    """Judge `seconds(start, wait, clock, n)`: the median of n runs of a device, each on the clock, after one
    run that is not counted.

    >>> def asked(start, wait, clock, n):
    ...     begin = clock()
    ...     start()
    ...     return clock() - begin
    >>> check_seconds(asked)[:60]
    'That is how long it takes to *ask* for a run. Wait for the d'
    """
    if seconds is None or not callable(seconds):
        return called(seconds)[1]
    for runs, right in ((SLOW_FIRST, 2.001), ([7, 3, 5, 6], 5.001)):
        device = _Device(runs)
        value, sentence = called(lambda: seconds(device.start, device.wait, device.clock, len(runs) - 1))
        if sentence is None:
            value, sentence = numbers("the result", value, ())
        if sentence is not None:
            return sentence
        if round(float(value), 6) != right:
            known = OFTEN.get(round(float(value), 6), "") if runs is SLOW_FIRST else ""
            return known or (f"The runs take {runs} seconds, and asking for one takes 0.001. Without the "
                             f"first one the median is {right:g}, yours is {float(value):g}.")
    return "Right: warm up, wait, repeat, and say what the middle one took."


def check_bound(bound):
    """Judge `bound(base, K, M)`: the largest relative throughput of any schedule with recomputation or
    without, on K devices with M equal micro-batches.

    base: the time of the cell that all are divided by, K = 2 and M = 1, in forwards of the whole network; a
    backward is two of them.

    >>> check_bound(lambda base, K, M: base * K / 3)
    'That is the work alone, spread evenly: with M = 1 only one device works at a time.'
    """
    cases = [(3.5, 8, 4), (3.5, 8, 1), (4, 4, 32), (3.5, 2, 4), (4, 3, 3)]
    mistakes = [
        (lambda base, K, M: base * M / 3,
         "That is the way of one micro-batch alone: with many of them, each device still has M / K of all "
         "the work to do."),
        (lambda base, K, M: base * K / 3,
         "That is the work alone, spread evenly: with M = 1 only one device works at a time."),
        (lambda base, K, M: base / 4 * min(K, M),
         "You counted a recomputation: for a bound on any schedule, not even that has to be computed again."),
        (lambda base, K, M: min(K, M) / 3, "The cells are relative to the base: multiply by its time."),
        (lambda base, K, M: min(K, M), "The cells are relative to the base: multiply by its time over 3."),
        (lambda base, K, M: base / 3 * max(K, M), "The smaller of the two: both limits hold."),
        (lambda base, K, M: base * K * M / (M + K - 1) / 3,
         "That is GPipe's schedule with equal stages: other schedules can be faster."),
    ]
    right = [base / 3 * min(K, M) for base, K, M in cases]
    return judged(bound, ("base", "K", "M"), cases, right, mistakes) or (
        "Right: base / 3 * min(K, M). For K = 8, M = 4 and a base of 3.5 it is 4.67, and the paper prints "
        "4.8.")
