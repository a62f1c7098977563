"""The clocks of several computers, read as one."""

import platform
from time import perf_counter

import numpy as np

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
        self._is_shared = read is perf_counter and _on_one_computer(comm)
        self._leads = [(0.0, 0.0)]  # (time of this clock, lead of rank 0's)

    def compare(self, begin=False):
        """A call that all ranks make. begin: whether it is the first of a run, of which there are two."""
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
        """What the clock of rank 0 shows when this one shows `time`."""
        (begin, lead), (end, last_lead) = self._leads[0], self._leads[-1]
        if end > begin:
            lead += (last_lead - lead) * (time - begin) / (end - begin)
        return time + lead


def _on_one_computer(comm):
    name = np.frombuffer(platform.node().encode()[:256].ljust(256, b"\0"), np.uint8)
    names = np.empty((comm.size, 256), np.uint8)
    comm.Allgather(name, names)
    return bool((names == names[0]).all())
