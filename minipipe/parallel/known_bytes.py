"""Equal runs hold equal bytes: those of the first are counted, and the next ones take them over."""

from collections.abc import Sequence

from ..cluster import Buffers
from .options import CLUSTER, Options
from .stage import Stage

MOST_KINDS = 8  # kinds of runs of one order whose bytes are kept


class KnownBytes:
    """The bytes that devices have held in runs of one order, for each kind of run.

    When something happens follows from the order, the costs and the links. What is held then follows from
    shapes and dtypes, never from the numbers in the arrays. So it is counted once for each kind of run.

    options: of all of them.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._rows = {}  # kind of a run -> its rows of `Record.memory`

    def kind(self, stages: Sequence[Stage], memories: Sequence, batches: Sequence[tuple]) -> tuple | None:
        """Return what decides the bytes of a run: a key, equal for runs in which these are equal.

        These are the shapes and dtypes of the mini-batches (X, Y), and for each stage its parameters and what
        an optimizer remembers for them, of which `memories` is the list. Return None for a run whose bytes
        must be counted: if memory is limited, or if a stage has a layer that may keep what it likes, see
        `all_proved`.
        """
        if self._options.on.engine != CLUSTER or self._options.memory.limit is not None:
            return None
        if not all(stage.is_proved for stage in stages):
            return None
        data = [(array.shape, array.dtype) for batch in batches for array in batch]
        return tuple(data + list(map(_kind_of_stage, stages, memories)))

    def rows(self, kind: tuple | None) -> list | None:
        """Return the rows of an earlier run of this kind, or None."""
        return self._rows.get(kind)

    def keep(self, kind: tuple, rows: list) -> None:
        """Keep the rows of a run of this kind that is finished."""
        if kind not in self._rows and len(self._rows) >= MOST_KINDS:
            self._rows.clear()
        self._rows[kind] = rows


def _kind_of_stage(stage: Stage, memory) -> tuple:
    """Return the dtypes of its parameters, and the bytes of each of them and of each array in `memory`."""
    weights = [array for array in stage.weights() if array is not None]
    return *[array.dtype for array in weights], *Buffers([weights, memory]).values()
