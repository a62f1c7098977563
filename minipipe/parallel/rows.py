"""Convolutions of images that are split by rows: each device borrows a few rows of its neighbours."""

from dataclasses import replace

import numpy as np

from ..layers import Conv1d, Conv2d, Conv3d
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


def goes_by_rows(layer):
    """Whether it is a convolution whose row p depends on rows of its input around p, as far up as down."""
    if type(layer) not in (Conv1d, Conv2d, Conv3d):
        return False
    windows = layer.windows
    stride, span, padding = windows.stride[0], windows.span[0], windows.padding[0]
    return stride == 1 and span % 2 == 1 and padding == (span // 2, span // 2)


def by_rows(convolution):
    """What a device has in the place of a convolution: a `Halo`, if it reaches beyond a row, and the product.

    Its dW and db are sums over the device's own rows, and so partial.
    """
    part, n = convolution.copy(), convolution.windows.span[0] // 2
    part.windows = replace(part.windows, padding=((0, 0), *part.windows.padding[1:]))
    part.partial = True
    return [Halo(n), part] if n else [part]
