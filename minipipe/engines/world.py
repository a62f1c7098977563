"""All processes that `mpiexec` has started, as the engine sees them."""

import atexit
import faulthandler
import os
import pickle
import platform
import re
import struct
import sys
import time
import traceback
import zlib
from contextlib import contextmanager
from functools import cache
from itertools import accumulate
from time import perf_counter

import numpy as np

from .threads import patience

INTERRUPTED = 130      # what a shell reports of a program that Ctrl-C has ended: 128 + SIGINT
STATUS = 2             # of a job that has ended by a mistake
MISTAKES = ValueError, RuntimeError, MemoryError, OSError, ArithmeticError  # errors with a sentence for users
# seconds: in which a lower rank may speak first; that words need; after which a job ends in any case
GRACE, SPOKEN, ABORT_AFTER = 0.5, 0.3, 10
FAILED, ENDED = 1, 3   # the tags of empty messages: a rank ends the job; the program of a rank has ended
STARTED = 60           # seconds that each rank may take to start, at least
LAST_WORDS = 2         # seconds in which what a rank has sent before its end may still arrive
SPIN, NAP = 0.002, 5e-5  # seconds of asking without a rest, and of each rest after that
SMALL = 244            # bytes of a value that needs no message of its own
HEAD = f"=Iq{SMALL}s"  # what each rank sends first: which call it makes, the size of its value, a small value
HERE = os.path.dirname(os.path.dirname(__file__)) + os.sep
LONGEST = 90           # letters of a text or a line in an error


@cache
def world():
    """Return the `World` of this process; raise `RuntimeError` where no MPI is installed."""
    # MPICH otherwise prints lines of its own beside ours
    os.environ.setdefault("MPIR_CVAR_SUPPRESS_ABORT_MESSAGE", "1")
    # MPI waits for all ranks in C, for ever if one has ended before its first call of MPI
    faulthandler.dump_traceback_later(max(patience(), STARTED), exit=True, file=sys.__stderr__)
    try:
        from mpi4py import MPI
        from mpi4py.util.pkl5 import Intracomm
    except (ImportError, RuntimeError) as error:
        raise RuntimeError(
            f"the engine 'mpi' needs mpi4py and an MPI ({error}): in a virtual environment, "
            "pip install mpi4py mpich"
        ) from None
    else:
        return World(MPI, Intracomm)
    finally:
        faulthandler.cancel_dump_traceback_later()


class World:
    """The ranks of a job, and what they do together. Each of these methods is called by all of them.

    Args:
        MPI: the module `mpi4py.MPI`.
        Intracomm: the class of a communicator that sends a large array by itself, and
            not as a part of a pickle.

    Attributes:
        rank: the number of this process, from 0 on.
        size: how many there are.
        clock: the `Clock` of this process.
        n_runs, n_networks: how many runs and networks of all ranks this process has
            begun.
        unsent: requests of messages that a failed run has left; MPI still reads their
            arrays.

    Each collective call has a name, `what`. The ranks compare the names before any
    value travels. An exception that nobody has caught ends the whole job.
    """

    def __init__(self, MPI, Intracomm):
        self.MPI, self.rank, self.size = MPI, MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
        self.comm, self._notices = Intracomm(MPI.COMM_WORLD.Dup()), MPI.COMM_WORLD.Dup()
        self.clock = Clock(self.comm)
        self.n_runs = self.n_networks = 0
        self.unsent = []
        if self.size > 1:
            sys.excepthook = self._end_by
            atexit.register(self._notify, ENDED)

    def gathered(self, value, what):
        """Return the values of all ranks, in their order. what: the words for an error."""
        mine = pickle.dumps(value)
        heads = self._heads(mine, what)
        sizes = [size for _, size, _ in heads]
        if max(sizes) <= SMALL:
            return [pickle.loads(small) for _, _, small in heads]  # which ignores the zeros at the end
        everything, begins = np.empty(sum(sizes), np.uint8), [0, *accumulate(sizes[:-1])]
        self.wait(self.comm.Iallgatherv(mine, [everything, (sizes, begins), self.MPI.BYTE]), what)
        return [pickle.loads(everything[begin:begin + n]) for begin, n in zip(begins, sizes, strict=True)]

    def brought_together(self, mine, what):
        """Return the dicts of all ranks as one. what: as for `gathered`."""
        return {key: value for of_rank in self.gathered(mine, what) for key, value in of_rank.items()}

    def broadcast(self, value, root, what):
        """Return the value of the rank `root`, on all ranks. what: as for `gathered`."""
        mine = pickle.dumps(value) if self.rank == root else b""
        _, size, received = self._heads(mine, what)[root]
        if size > SMALL:
            received = bytearray(mine or size)
            self.wait(self.comm.Ibcast(received, root), what)
        return value if self.rank == root else pickle.loads(received)

    def _heads(self, mine, what):
        """Return what each rank sends first, see `HEAD`; raise `RuntimeError` if ranks make different calls.

        Args:
            mine: the bytes of this rank's value.
        """
        head = struct.pack(HEAD, zlib.crc32(what.encode()), len(mine), mine)
        received = bytearray(self.size * len(head))
        self.wait(self.comm.Iallgather(head, received), what, all_take_part=False)
        heads = list(struct.iter_unpack(HEAD, received))
        if len({call for call, _, _ in heads}) > 1:
            calls = {}
            for rank, call in enumerate(self.gathered(f"{_line_of_user()}{what}", "the comparison of calls")):
                calls.setdefault(call, []).append(str(rank))
            told = "; ".join(f"rank {' and '.join(ranks)}: {call}" for call, ranks in calls.items())
            raise RuntimeError(
                f"ranks make different calls. {told}. All ranks must make the same calls in the same order"
            )
        return heads

    def check_alike(self, things, what):
        """Raise `ValueError` unless all ranks have the same things.

        Args:
            things: {what it is: a text, or a list of arrays, or None on a rank that
                need not have it}.
            what: as for `gathered`.
        """
        things = {  # an address says nothing
            name: re.sub(" at 0x[0-9A-Fa-f]+", "", thing) if isinstance(thing, str) else thing
            for name, thing in things.items()
        }
        sums = [None if thing is None else check_sum(thing) for thing in things.values()]
        for (name, thing), *column in zip(things.items(), *self.gathered(sums, what), strict=True):
            first, *others = (rank for rank, found in enumerate(column) if found is not None)
            other = next((rank for rank in others if column[rank] != column[first]), None)
            if other is not None:
                texts = self.gathered(thing if isinstance(thing, str) else "", f"the comparison of {name}")
                raise ValueError(
                    f"ranks {first} and {other} differ in the {name}{_difference(texts, first, other)}: run "
                    "one program with the same arguments and data on all of them"
                )

    def wait(self, request, what, all_take_part=True):
        """Return the value of an MPI request when it is done; raise an error if that takes too long.

        Args:
            all_take_part: whether all ranks are in this call already, for none of them
                then can be missing.
        """
        pause, (done, value) = Pause(), request.test()
        while not done:
            self.check_wait(pause, what, all_take_part)
            pause()
            done, value = request.test()
        return value

    def check_wait(self, pause, what, all_take_part=False):
        """Raise `TimeoutError` if a wait takes too long, `RuntimeError` if a rank has ended its program."""
        if pause.seconds() > patience():
            raise TimeoutError(
                f"rank {self.rank} waits for the other ranks in {what} for more than {patience():g} "
                "seconds: all ranks must make the same calls in the same order"
            )
        status = self.MPI.Status()
        if all_take_part or not self._notices.Iprobe(self.MPI.ANY_SOURCE, ENDED, status):
            return
        pause.since_end = pause.since_end or time.monotonic()
        if time.monotonic() > pause.since_end + LAST_WORDS:
            raise RuntimeError(
                f"the program of rank {status.Get_source()} has ended, and rank {self.rank} waits for it in "
                f"{what}: all ranks must make the same calls in the same order"
            )

    @contextmanager
    def job(self):
        """End all processes with one sentence if a mistake happens on any rank in this `with` block."""
        try:
            yield
        except (KeyboardInterrupt, Exception) as error:
            self.end(error, f"minipipe: error: {_words(error)}")

    def _end_by(self, kind, error, trace):
        """End the job by an exception that nobody has caught: this is its `sys.excepthook`."""
        report = traceback.TracebackException.from_exception(error)
        frames = [frame for frame in report.stack if not _is_internal(frame)]
        source = getattr(error, "of_rank", self.rank)
        if source != self.rank or isinstance(error, MISTAKES) or frames[-1:] == report.stack[-1:]:
            report.stack = traceback.StackSummary.from_list(frames)  # else it is a mistake of ours
        self.end(error, f"minipipe: an error of rank {source} ends the job\n{''.join(report.format())}")

    def end(self, error, words):
        """End the job, all of its processes, by an error; only the lowest rank that does so says `words`.

        A rank that has the error from another one leaves the words to that one, if it
        ends the job, too.
        """
        source = getattr(error, "of_rank", None)
        is_said = source is not None and self._ends_job([source], 2 * GRACE)
        if not is_said:
            sent = self._notify(FAILED)  # noqa: F841 (MPI reads it until the end)
            is_said = self._ends_job(range(self.rank), GRACE)
        sys.stdout.flush()
        is_interrupt = isinstance(error, KeyboardInterrupt)
        if is_said:
            time.sleep(ABORT_AFTER)  # whoever has spoken ends this process, too
        else:
            print("minipipe: stopped" if is_interrupt else words.rstrip(), file=sys.stderr, flush=True)
            time.sleep(SPOKEN)  # until mpiexec has passed it on
        self.MPI.COMM_WORLD.Abort(INTERRUPTED if is_interrupt else STATUS)

    def _ends_job(self, ranks, seconds):
        """Tell whether one of these ranks has ended the job, or does so in the next seconds."""
        pause = Pause()
        while ranks and pause.seconds() < seconds:
            if any(self._notices.Iprobe(rank, FAILED) for rank in ranks):
                return True
            pause()
        return False

    def _notify(self, tag):
        """Send an empty message to all other ranks; return the requests."""
        if self.MPI.Is_finalized():
            return []
        others = (other for other in range(self.size) if other != self.rank)
        return [self._notices.Isend(np.empty(0), other, tag) for other in others]


def check_sum(arrays):
    """Return a number by which processes find out whether they have the same arrays, or the same text.

    >>> check_sum([np.arange(4)]) == check_sum([np.arange(4)]) != check_sum([np.array([0, 1, 3, 2])])
    True
    """
    if isinstance(arrays, str):
        return zlib.crc32(arrays.encode())
    total = 0
    for array in arrays:
        # the bytes of a fraction would be its address
        content = repr(array.tolist()).encode() if array.dtype.hasobject else np.ascontiguousarray(array)
        for part in (f"{array.dtype} {array.shape}".encode(), content):
            total = zlib.crc32(part, total)
    return total


# What errors say.

def _words(error):
    """Return the sentence of a mistake that we have found; of any other error its kind, too."""
    return str(error) if isinstance(error, MISTAKES) and str(error) else f"{type(error).__name__}: {error}"


def _difference(values, *ranks):
    """Return the texts of two ranks in words, of long ones the part where they differ; nothing for arrays."""
    texts = [values[rank] for rank in ranks]
    if not any(texts):
        return ""
    first = next((i for i, (one, other) in enumerate(zip(*texts)) if one != other), 0)
    part = slice(first // LONGEST * LONGEST, (first // LONGEST + 1) * LONGEST)
    return ": " + ", ".join(f"{values[rank][part] or 'none'} on rank {rank}" for rank in ranks)


def _is_internal(frame):
    """Tell whether a line of a traceback is not the user's, but of this package or of what started it."""
    return frame.filename.startswith((HERE, "<frozen")) or "mpi4py" in frame.filename


def _line_of_user():
    """Return the line of the user's program that this process is at, in words; "" if there is none."""
    frame = next((frame for frame in reversed(traceback.extract_stack()) if not _is_internal(frame)), None)
    if frame is None:
        return ""
    return f"{frame.line[:LONGEST]} ({os.path.basename(frame.filename)}, line {frame.lineno}), for "


class Pause:
    """What a process does that waits: ask again and again at first, later with rests, for others to work."""

    def __init__(self):
        self._begin, self.since_end = time.monotonic(), None  # when the end of another rank was noticed

    def __call__(self):
        time.sleep(0 if self.seconds() < SPIN else NAP)

    def seconds(self):
        """Return how long it has waited."""
        return time.monotonic() - self._begin


# The clocks of several computers, read as one.

N_ROUND_TRIPS = 200
CLOCK = 4  # the tag of questions and answers


class Clock:
    """The clock of this process, and what rank 0's shows at the same time.

    Args:
        comm: an MPI communicator.
        read: the function that reads the clock, in seconds.

    At each `compare`, all other ranks ask rank 0 for its time. If the answer t1 took
    from t0 to t2, then the clock of rank 0 is ahead by t1 - (t0 + t2)/2, with an error
    of at most half the round trip; of some hundred, the shortest counts. Clocks run at
    speeds of their own, so between two comparisons the lead moves in a straight line.
    Ranks of one computer share its clock, and need not ask. Source: Cristian 1989,
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

        Args:
            begin: whether this is the first of the two calls.
        """
        if self._is_shared:
            return
        comm, question, answer = self._comm, np.empty(0), np.empty(1)
        for rank in range(1, comm.size):
            trips = []
            for _ in range(N_ROUND_TRIPS):
                if comm.rank == 0:
                    comm.Recv(question, rank, CLOCK)
                    answer[0] = self.read()
                    comm.Send(answer, rank, CLOCK)
                elif comm.rank == rank:
                    sent = self.read()
                    comm.Send(question, 0, CLOCK)
                    comm.Recv(answer, 0, CLOCK)
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
