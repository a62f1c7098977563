"""All processes that `mpiexec` has started, as the engine sees them."""

import os
import pickle
import platform
import sys
import time
import zlib
from contextlib import contextmanager
from functools import cache
from time import perf_counter

import numpy as np

from .threads import patience

INTERRUPTED = 130      # what a shell reports of a program that Ctrl-C has ended: 128 + SIGINT
STATUS = 2             # of a job that has ended by a mistake
# seconds: in which a lower rank may speak first; that words need; after which a job ends in any case
GRACE, SPOKEN, ABORT_AFTER = 0.5, 0.3, 10
FAILED = 1             # the tag of an empty message from a rank that ends the job
SPIN, NAP = 0.002, 5e-5  # seconds of asking without a rest, and of each rest after that


@cache
def world():
    """Return the `World` of this process; raise `RuntimeError` where no MPI is installed."""
    # MPICH otherwise prints lines of its own beside ours
    os.environ.setdefault("MPIR_CVAR_SUPPRESS_ABORT_MESSAGE", "1")
    try:
        from mpi4py import MPI
        from mpi4py.util.pkl5 import Intracomm
    except (ImportError, RuntimeError) as error:
        raise RuntimeError(
            f"the engine 'mpi' needs mpi4py and an MPI ({error}): in a virtual environment, "
            "pip install mpi4py mpich"
        ) from None
    return World(MPI, Intracomm)


class World:
    """The ranks of a job, and what they do together. Each of these methods is called by all of them.

    MPI: the module `mpi4py.MPI`.
    Intracomm: the class of a communicator that sends a large array by itself, and not as a part of a pickle.

    rank: the number of this process, from 0 on.
    size: how many there are.
    clock: the `Clock` of this process.
    """

    def __init__(self, MPI, Intracomm):
        self.MPI, self.comm = MPI, Intracomm(MPI.COMM_WORLD.Dup())
        self._failures = MPI.COMM_WORLD.Dup()
        self.rank, self.size = self.comm.rank, self.comm.size
        self.clock = Clock(self.comm)

    def gathered(self, value, what):
        """Return the values of all ranks, in their order. what: the words for an error."""
        mine = np.frombuffer(pickle.dumps(value), np.uint8)
        sizes = np.empty(self.size, np.int64)
        self.wait(self.comm.Iallgather(np.array([len(mine)]), sizes), what)
        ends = np.cumsum(sizes)
        everything = np.empty(ends[-1], np.uint8)
        places = sizes.tolist(), (ends - sizes).tolist()
        self.wait(self.comm.Iallgatherv(mine, [everything, places, self.MPI.BYTE]), what)
        return [pickle.loads(everything[end - size:end]) for size, end in zip(sizes, ends)]

    def brought_together(self, mine, what):
        """Return the dicts of all ranks as one. what: as for `gathered`."""
        return {key: value for of_rank in self.gathered(mine, what) for key, value in of_rank.items()}

    def broadcast(self, value, root, what):
        """Return the value of the rank `root`, on all ranks. what: as for `gathered`."""
        mine = np.frombuffer(bytearray(pickle.dumps(value)), np.uint8) if self.rank == root else None
        size = np.array([0 if mine is None else len(mine)])
        self.wait(self.comm.Ibcast(size, root), what)
        if mine is None:
            mine = np.empty(size[0], np.uint8)
        self.wait(self.comm.Ibcast(mine, root), what)
        return value if self.rank == root else pickle.loads(mine)

    def check_alike(self, things):
        """Raise `ValueError` unless all ranks have the same things.

        things: {what it is: a list of arrays, or a text}.
        """
        sums = [
            zlib.crc32(thing.encode()) if isinstance(thing, str) else check_sum(thing)
            for thing in things.values()
        ]
        ours = self.gathered(sums, f"the comparison of {', '.join(things)}")
        for column, (what, thing) in enumerate(things.items()):
            other = next((rank for rank in range(self.size) if ours[rank][column] != ours[0][column]), None)
            if other is not None:
                of_this = f", {thing} on rank {self.rank}" if isinstance(thing, str) else ""
                raise ValueError(
                    f"ranks 0 and {other} differ in the {what}{of_this}: run one program with the same "
                    "arguments and data on all of them"
                )

    def wait(self, request, what):
        """Wait until an MPI request is done; raise `TimeoutError` if that takes too long."""
        pause = Pause()
        while not request.Test():
            if pause.seconds() > patience():
                raise TimeoutError(
                    f"rank {self.rank} waits for the other ranks in {what} for more than {patience():g} "
                    "seconds: all ranks must make the same calls in the same order"
                )
            pause()

    @contextmanager
    def job(self):
        """End all processes with one sentence if a mistake happens on any rank in this `with` block."""
        try:
            yield
        except KeyboardInterrupt:
            self.end("minipipe: stopped", INTERRUPTED)
        except Exception as error:
            self.end(f"minipipe: error: {_words(error)}")

    def end(self, words, status=STATUS):
        """End the job, all of its processes: only the lowest rank that does so says `words`."""
        sent = [self._failures.Isend(np.empty(0), other, FAILED) for other in range(self.size)]
        begin, is_lowest = time.monotonic(), True
        while is_lowest and time.monotonic() < begin + (GRACE if self.rank else 0):
            is_lowest = not any(self._failures.Iprobe(other, FAILED) for other in range(self.rank))
            time.sleep(NAP)
        if is_lowest:
            print(words, file=sys.stderr, flush=True)
            time.sleep(SPOKEN)  # until mpiexec has passed it on
        else:
            time.sleep(ABORT_AFTER)  # whoever has spoken ends this process, too
        self.MPI.COMM_WORLD.Abort(status)
        return sent


def check_sum(arrays):
    """Return a number by which processes find out whether they have the same arrays.

    >>> check_sum([np.arange(4)]) == check_sum([np.arange(4)]) != check_sum([np.array([0, 1, 3, 2])])
    True
    """
    total = 0
    for array in arrays:
        # the bytes of a fraction would be its address
        content = repr(array.tolist()).encode() if array.dtype.hasobject else np.ascontiguousarray(array)
        for part in (f"{array.dtype} {array.shape}".encode(), content):
            total = zlib.crc32(part, total)
    return total


def _words(error):
    """Return the sentence of a mistake that we have found; of any other error its kind, too."""
    expected = isinstance(error, (ValueError, RuntimeError, MemoryError, OSError, ArithmeticError))
    return str(error) if expected and str(error) else f"{type(error).__name__}: {error}"


class Pause:
    """What a process does that waits: ask again and again at first, later with rests, for others to work."""

    def __init__(self):
        self._begin = time.monotonic()

    def __call__(self):
        time.sleep(0 if self.seconds() < SPIN else NAP)

    def seconds(self):
        """Return how long it has waited."""
        return time.monotonic() - self._begin


# The clocks of several computers, read as one.

N_ROUND_TRIPS = 200


class Clock:
    """The clock of this process, and what rank 0's shows at the same time.

    comm: an MPI communicator.
    read: the function that reads the clock, in seconds.

    At each `compare`, all other ranks ask rank 0 for its time. If the answer t1 took from t0 to t2, then the
    clock of rank 0 is ahead by t1 - (t0 + t2)/2, with an error of at most half the round trip; of some
    hundred, the shortest counts. Clocks run at speeds of their own, so between two comparisons the lead
    moves in a straight line. Ranks of one computer share its clock, and need not ask. Source: Cristian 1989,
    Distributed Computing 3.
    """

    def __init__(self, comm, read=perf_counter):
        self._comm, self.read = comm, read
        name = np.frombuffer(platform.node().encode()[:256].ljust(256, b"\0"), np.uint8)
        names = np.empty((comm.size, 256), np.uint8)
        comm.Allgather(name, names)
        self._is_shared = read is perf_counter and bool((names == names[0]).all())
        self._leads = [(0.0, 0.0)]  # (time of this clock, lead of rank 0's)

    def compare(self, begin=False):
        """Compare the clocks, at the begin and at the end of a run: a call that all ranks make.

        begin: whether this is the first of the two calls.
        """
        if self._is_shared:
            return
        comm, question, answer = self._comm, np.empty(0), np.empty(1)
        for rank in range(1, comm.size):
            trips = []
            for _ in range(N_ROUND_TRIPS):
                if comm.rank == 0:
                    comm.Recv(question, rank)
                    answer[0] = self.read()
                    comm.Send(answer, rank)
                elif comm.rank == rank:
                    sent = self.read()
                    comm.Send(question, 0)
                    comm.Recv(answer, 0)
                    trips.append((self.read() - sent, sent, answer[0]))
            if trips:
                length, sent, answered = min(trips)
                middle = sent + length / 2
                self._leads = [*([] if begin else self._leads[:1]), (middle, answered - middle)]

    def common(self, time):
        """Return what the clock of rank 0 shows when this one shows `time`."""
        (begin, lead), (end, last_lead) = self._leads[0], self._leads[-1]
        if end > begin:
            lead += (last_lead - lead) * (time - begin) / (end - begin)
        return time + lead
