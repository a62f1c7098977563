"""The processes that `mpiexec` has started: what they do together, and how they end."""

from __future__ import annotations

import atexit
import faulthandler
import os
import pickle
import re
import struct
import sys
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from itertools import accumulate
from traceback import format_exception
from typing import Any

import numpy as np

from .threads import patience

INTERRUPTED = 130      # exit status of a program that Ctrl-C has ended: 128 + SIGINT
STATUS = 2             # exit status of a job that an error has ended
MISTAKES = ValueError, RuntimeError, MemoryError, OSError, ArithmeticError  # errors with a sentence for users
GRACE = 0.5            # seconds for which a failing rank lets lower ranks print their message first
SPOKEN = 0.3           # seconds until mpiexec has passed a printed message on
ABORT_AFTER = 10       # seconds after which a rank aborts the job in any case
FAILED, ENDED = 1, 3   # tags of empty messages: "this rank ends the job", "this rank's program has ended"
STARTED = 60           # seconds that each rank may take to start, at least
LAST_WORDS = 2         # seconds in which messages that a rank sent before its end may still arrive
SPIN, NAP = 0.002, 5e-5  # seconds of busy polling; then of each sleep between polls
SMALL = 244            # bytes: a value of at most this size travels in the head
HEAD = f"=Iq{SMALL}s"  # each rank sends first: checksum of the call's name, size of the value, small value
LONGEST = 90           # characters of a text that an error shows


@cache
def world() -> World:
    """Return the `World` of this process; raise `RuntimeError` without an MPI."""
    # MPICH otherwise prints messages of its own next to ours
    os.environ.setdefault("MPIR_CVAR_SUPPRESS_ABORT_MESSAGE", "1")
    # MPI's start waits in C, for ever if another rank has ended before it
    faulthandler.dump_traceback_later(max(patience(), STARTED), exit=True, file=sys.__stderr__ or sys.stderr)
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
    """The ranks of a job, with the collective calls that all of them make.

    Args:
        MPI: the module `mpi4py.MPI`.
        Intracomm: mpi4py's class of a communicator with out-of-band pickles, which
            sends a large array without copying it into the pickle.

    Attributes:
        rank: the number of this process, 0 to size - 1.
        size: the number of processes.
        n_runs, n_networks: how many runs this process has begun, and how many networks
            with `engine="mpi"` it has made.
        unsent: requests of messages that failed runs have left in flight; they keep
            alive the arrays that MPI still reads.

    Each collective call has a name, `what`. The ranks compare the names before they
    exchange a value. An exception that is not caught ends the whole job.
    """

    def __init__(self, MPI: Any, Intracomm: Any) -> None:
        self.MPI, self.rank, self.size = MPI, MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
        self.comm, self._notices = Intracomm(MPI.COMM_WORLD.Dup()), MPI.COMM_WORLD.Dup()
        self.n_runs = self.n_networks = 0
        self.unsent: list = []
        if self.size > 1:
            sys.excepthook = self._end_by_uncaught
            atexit.register(self._notify, ENDED)

    def gathered(self, value: Any, what: str) -> list:
        """Return the list of all ranks' values, in the order of the ranks.

        Args:
            value: this rank's value, anything that can be pickled.
            what: the name of the call, which errors show.

        Raises:
            RuntimeError: if the ranks make different calls.
        """
        mine = pickle.dumps(value)
        head = struct.pack(HEAD, zlib.crc32(what.encode()), len(mine), mine)
        received = bytearray(self.size * len(head))
        self.wait(self.comm.Iallgather(head, received), what, all_take_part=False)
        calls, sizes, small = zip(*struct.iter_unpack(HEAD, received), strict=True)
        if len(set(calls)) > 1:
            names: dict[str, list[str]] = {}
            for rank, name in enumerate(self.gathered(what, "the comparison of calls")):
                names.setdefault(name, []).append(str(rank))
            told = "; ".join(f"rank {' and '.join(ranks)}: {name}" for name, ranks in names.items())
            raise RuntimeError(
                f"ranks make different calls. {told}. All ranks must make the same calls in the same order"
            )
        if max(sizes) <= SMALL:
            return [pickle.loads(each) for each in small]  # pickle ignores the padding at the end
        everything, begins = np.empty(sum(sizes), np.uint8), [0, *accumulate(sizes[:-1])]
        self.wait(self.comm.Iallgatherv(mine, [everything, (sizes, begins), self.MPI.BYTE]), what)
        return [pickle.loads(everything[at:at + n].data) for at, n in zip(begins, sizes, strict=True)]

    def gathered_dict(self, mine: Mapping, what: str) -> dict:
        """Return one dict of all ranks' dicts `mine`. what: as for `gathered`."""
        return {key: value for of_rank in self.gathered(mine, what) for key, value in of_rank.items()}

    def broadcast(self, value: Any, root: int, what: str) -> Any:
        """Return the value of rank `root` on all ranks.

        Args:
            value: what `root` sends; the other ranks' values are not read.
            root: the sender.
            what: as for `gathered`.
        """
        found = self.gathered(value if self.rank == root else None, what)
        return value if self.rank == root else found[root]

    def check_equal(self, things: dict[str, Any], what: str) -> None:
        """Raise `ValueError` unless each of these `things` is equal on all ranks.

        Args:
            things: {name: a text or a list of arrays; or None on a rank that does not
                take part in the comparison}.
            what: as for `gathered`.
        """
        things = {  # addresses of objects differ between processes
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

    def wait(self, request: Any, what: str, all_take_part: bool = True) -> Any:
        """Wait for an MPI request; return its value. Raise the errors of `check_wait`.

        Args:
            request: an mpi4py request.
            what: as for `gathered`.
            all_take_part: whether all ranks are known to have reached this call, so
                that a rank whose program has ended since is not missing from it.
        """
        pause, (done, value) = Pause(), request.test()
        while not done:
            self.check_wait(pause, what, all_take_part)
            pause()
            done, value = request.test()
        return value

    def check_wait(self, pause: Pause, what: str, all_take_part: bool = False) -> None:
        """Raise an error if a wait cannot succeed any more.

        Args:
            pause: the `Pause` of this wait.
            what, all_take_part: as for `wait`.

        Raises:
            TimeoutError: if the wait exceeds the seconds of `patience`.
            RuntimeError: if the program of a rank has ended.
        """
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
    def job(self) -> Iterator[None]:
        """End all processes with one sentence if a rank fails in this `with` block."""
        try:
            yield
        except (KeyboardInterrupt, Exception) as error:
            self.end(error, f"minipipe: error: {_words(error)}")

    def _end_by_uncaught(self, kind, error, trace):
        """End the job because of an uncaught exception: the `sys.excepthook`."""
        source = getattr(error, "of_rank", self.rank)
        report = "".join(format_exception(error))
        self.end(error, f"minipipe: an error of rank {source} ends the job\n{report}")

    def end(self, error: BaseException, message: str) -> None:
        """End all processes of the job because of `error`; one prints `message`.

        Of several ranks with an error, the lowest prints. But if the error came from
        another rank, and that rank also ends the job, that rank prints it.
        """
        source = getattr(error, "of_rank", None)
        is_said = source is not None and self._ends_job([source], 2 * GRACE)
        if not is_said:
            sent = self._notify(FAILED)  # noqa: F841 (MPI reads the arrays of these requests)
            is_said = self._ends_job(range(self.rank), GRACE)
        sys.stdout.flush()
        is_interrupt = isinstance(error, KeyboardInterrupt)
        if is_said:
            time.sleep(ABORT_AFTER)  # the rank that has printed ends this process, too
        else:
            print("minipipe: stopped" if is_interrupt else message.rstrip(), file=sys.stderr, flush=True)
            time.sleep(SPOKEN)
        self.MPI.COMM_WORLD.Abort(INTERRUPTED if is_interrupt else STATUS)

    def _ends_job(self, ranks, seconds):
        """Tell whether one of `ranks` ends the job; wait for `seconds` at most."""
        pause = Pause()
        while ranks and pause.seconds() < seconds:
            if any(self._notices.Iprobe(rank, FAILED) for rank in ranks):
                return True
            pause()
        return False

    def _notify(self, tag):
        """Send an empty message with `tag` to all other ranks; return the requests."""
        if self.MPI.Is_finalized():
            return []
        others = (other for other in range(self.size) if other != self.rank)
        return [self._notices.Isend(np.empty(0), other, tag) for other in others]


def check_sum(arrays: str | Iterable[np.ndarray]) -> int:
    """Return a checksum of a list of `arrays`, or of a text, which processes compare.

    >>> check_sum([np.arange(4)]) == check_sum([np.arange(4)]) != check_sum([np.array([0, 1, 3, 2])])
    True
    """
    if isinstance(arrays, str):
        return zlib.crc32(arrays.encode())
    total = 0
    content: Any
    for array in arrays:
        # an array of Python objects holds addresses, which differ between processes
        content = repr(array.tolist()).encode() if array.dtype.hasobject else np.ascontiguousarray(array)
        for part in (f"{array.dtype} {array.shape}".encode(), content):
            total = zlib.crc32(part, total)
    return total


# The messages of errors.

def _words(error):
    """Return the message of `error`, with its type unless it is one of `MISTAKES`."""
    return str(error) if isinstance(error, MISTAKES) and str(error) else f"{type(error).__name__}: {error}"


def _difference(values, *ranks):
    """Return ": ... on rank r, ... on rank s" with the two texts, or "" for arrays.

    Of long texts, such as those of schedules, it shows the part where they first
    differ.
    """
    texts = [values[rank] for rank in ranks]
    if not any(texts):
        return ""
    first = next((i for i, (one, other) in enumerate(zip(*texts)) if one != other), 0)
    part = slice(first // LONGEST * LONGEST, (first // LONGEST + 1) * LONGEST)
    return ": " + ", ".join(f"{values[rank][part] or 'none'} on rank {rank}" for rank in ranks)


class Pause:
    """The pauses of a process that polls: none at first, later short sleeps.

    Attributes:
        since_end: when this process noticed that another rank's program has ended, or
            None.
    """

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self.since_end: float | None = None

    def __call__(self) -> None:
        time.sleep(0 if self.seconds() < SPIN else NAP)

    def seconds(self) -> float:
        """Return the seconds since the wait began."""
        return time.monotonic() - self._begin
