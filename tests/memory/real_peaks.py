"""What the actions of a run really allocate, by Python's own tracing, which NumPy reports its arrays to."""

import tracemalloc
from contextlib import contextmanager
from inspect import getgeneratorlocals

from minipipe.cluster.accounts import Accounts


@contextmanager
def real_peaks(monkeypatch):
    """{(device, kind of action, stage): [bytes counted before it, after it, and really held inside it]}.

    Each list has the moment at which most was really held there: what the device was counted to hold when the
    action began, and the most that was allocated beyond that until its end.
    """
    found, call = {}, Accounts.call

    def traced_call(accounts, lane, function, args, now):
        device = lane.device

        def counted(work):
            lane.work = work
            return sum(accounts._held(device).values())

        def traced(work, *more):
            parts = getgeneratorlocals(work)["parts"]
            before = counted((work, *more))
            tracemalloc.reset_peak()
            start, _ = tracemalloc.get_traced_memory()
            answer = function(work, *more)
            held = before + tracemalloc.get_traced_memory()[1] - start
            after = counted(((work, *more), answer))
            for kind, stage, _ in parts:
                place = device, kind, stage
                found[place] = max(found.get(place, [0, 0, 0]), [before, after, held], key=lambda row: row[2])
            return answer

        return call(accounts, lane, traced, args, now)

    with monkeypatch.context() as patch:
        patch.setattr(Accounts, "call", traced_call)
        tracemalloc.start()
        try:
            yield found
        finally:
            tracemalloc.stop()
