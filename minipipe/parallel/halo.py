"""What a device borrows where images are split by rows: a few rows of its neighbours."""

import numpy as np

from ..layers.layer import finite
from .exchanges import Exchanging


class Halo(Exchanging):
    """A = A_prev with the `n` nearest rows of both neighbours around it; beyond the image's edge, zeros.

    A_prev (C, rows, ..., m), A (C, n + rows + n, ..., m).

    The derivative by a row that was borrowed goes back to its owner, who adds it to its own:

        dA_prev = dZ without its outer rows + what the neighbours send for this device's outer rows
    """

    exchanges = True, True
    can_overflow = False

    def __init__(self, n):
        self.n = n

    def forward(self, A_prev):
        """A program."""
        n = self.n
        if A_prev.shape[1] < n:
            raise ValueError(
                f"a kernel that reaches {n} rows beyond its own needs as many on each device, not "
                f"{A_prev.shape[1]}: use fewer shards, or rows=False"
            )
        above, below = yield from self._swapped(A_prev[:, :n], A_prev[:, -n:])
        outside = A_prev[:, :n] * 0
        above, below = (outside if rows is None else rows for rows in (above, below))
        return np.concatenate([above, A_prev, below], axis=1)

    def backward_input(self, dZ):
        """A program."""
        n = self.n
        above, below = yield from self._swapped(dZ[:, :n], dZ[:, -n:])
        dA_prev = dZ[:, n:-n].copy()
        if above is not None:
            dA_prev[:, :n] += above
        if below is not None:
            dA_prev[:, -n:] += below
        return finite(self, dA_prev, "the sum of the rows' derivatives")

    def _swapped(self, first, last):
        """A program: (what the device above has sent down, what the one below has sent up), or None."""
        group, label = self.group, self.group.begin("rows")
        has_above, has_below = group.rank > 0, group.rank < group.size - 1
        if has_above:
            yield group.send(group.rank - 1, f"{label}: up", first.copy())
        if has_below:
            yield group.send(group.rank + 1, f"{label}: down", last.copy())
        above = (yield group.receive(group.rank - 1, f"{label}: down")) if has_above else None
        below = (yield group.receive(group.rank + 1, f"{label}: up")) if has_below else None
        return above, below
