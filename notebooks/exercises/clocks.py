"""One's own machine on the clock, for notebooks 30 and 31."""

import os
import socket
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from time import perf_counter, process_time

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

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


def cores_busy(work):
    """Return how many cores `work` keeps busy: the most of three calls, after one that is not counted."""
    def once():
        wall, cpu = perf_counter(), process_time()
        work()
        return (process_time() - cpu) / (perf_counter() - wall)

    return max([once() for _ in range(4)][1:])


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
