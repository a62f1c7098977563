"""Which runs are equal but for their numbers: then what the clock has shown of one holds for all."""

from ..cluster import Buffers
from .machine import CLUSTER

MOST_KINDS = 8  # of runs of one order that are kept


class KnownRuns:
    """The records of runs of one order under the clock, one of each kind.

    machine: the `Machine` of all of them.
    """

    def __init__(self, machine):
        self._can_repeat = machine.engine == CLUSTER and machine.memory_limit is None
        self._records = {}

    def kind(self, stages, batches):
        """What decides the ticks and the bytes of a run: a key, equal for runs in which these are equal.

        These are the shapes and dtypes of the mini-batches (X, Y), and for each stage its parameters and what
        its optimizer keeps. None if the run is to be watched: if memory is limited, or if a stage has layers
        of its user's own, which may keep what they like.
        """
        if not (self._can_repeat and all(stage.is_ours for stage in stages)):
            return None
        data = [(array.shape, array.dtype) for batch in batches for array in batch]
        return tuple(data + [_kind_of_stage(stage) for stage in stages])

    def record(self, kind):
        """That of a run of this kind; None without one."""
        return self._records.get(kind)

    def keep(self, kind, cluster):
        """Keep the record of a run of this kind, which has come to its end. cluster: what has run it."""
        if kind is None:
            return
        if len(self._records) >= MOST_KINDS:
            self._records.clear()
        self._records[kind] = cluster.record


def _kind_of_stage(stage):
    """The dtypes of its parameters, and the bytes of all that it and its optimizer keep, one by one."""
    weights = [array for array in stage.weights() if array is not None]
    return *[array.dtype for array in weights], *Buffers([weights, stage.optimizer_state()]).values()
