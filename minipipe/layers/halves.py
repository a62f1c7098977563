"""A layer's backward, whole or in halves: what a class does not write is made from what it writes."""

from functools import cache
from typing import NamedTuple

import numpy as np

from ..checks import to_be_written, without_return


class Halves:
    """The base of `Layer` that has `backward`, `backward_input` and `backward_weight`.

    A class that writes both halves has the whole from them. One that writes a whole `backward` has the halves
    from it, and so works in every schedule and split. But such halves save nothing: `backward_input` computes
    dW and db, too, and leaves them in `cache`. A `W`, which a schedule moves into a bubble, only hands them
    on, and until then they take the place of A_prev and dZ in memory.

    >>> from .layer import Layer
    >>> class Scale(Layer):                     # A = W A_prev, with W (n, 1)
    ...     def __init__(self, W):
    ...         self.W = W
    ...     def forward(self, A_prev):
    ...         self.cache = A_prev
    ...         return self.W * A_prev
    ...     def backward(self, dZ):
    ...         return self.W * dZ, (dZ * self.cache).sum(axis=1, keepdims=True), None
    >>> layer = Scale(np.array([[2.0], [3.0]]))
    >>> A = layer.forward(np.array([[1.0, 4.0], [1.0, 5.0]]))
    >>> layer.backward_input(np.ones((2, 2)))
    array([[2., 2.],
           [3., 3.]])
    >>> layer.cache
    MadeGradients(dW=array([[5.],
           [6.]]), db=None)
    """

    @property
    def weight_after_input(self):
        """Whether `backward_weight` reads what `backward_input` has left, and no dZ.

        So it is where both are made from a whole `backward`. A class that writes them may say
        `weight_after_input = True`.
        """
        return _writes(self, "backward") and not _writes(self, "backward_input", "backward_weight")

    def backward(self, dZ):
        """Return (dA_prev, dW, db), by both halves. The cache then is as before, so another dZ may follow."""
        if not _writes(self, "backward_input", "backward_weight"):
            raise to_be_written(self, "Layer", "backward(self, dZ)", "(dA_prev, dW, db)")
        cache = self.cache
        derivatives = self.backward_input(dZ), *self.backward_weight(dZ)
        self.cache = cache
        return derivatives

    def backward_input(self, dZ):
        """Return dA_prev by a whole `backward`, whose dW and db then lie in the cache."""
        dA_prev, dW, db = self._by_whole(dZ, "backward_input(self, dZ)", "dA_prev")
        if self.weight_after_input:
            self.cache = MadeGradients(dW, db) if self.has_parameters else None
        return dA_prev

    def backward_weight(self, dZ):
        """Return (dW, db): those that `backward_input` has left, or else those of a whole `backward`."""
        if isinstance(self.cache, MadeGradients):
            return tuple(self.cache)
        if not _writes(self, "backward") and self.parameter_shapes() == (None, None):
            return None, None
        return self._by_whole(dZ, "backward_weight(self, dZ)", "(dW, db)")[1:]

    def _by_whole(self, dZ, half, answer):
        """Return what the class's own `backward` returns; raise an error for the half that cannot be made.

        half: with its arguments. answer: what it returns.
        """
        if not _writes(self, "backward", "backward_input", "backward_weight"):
            raise to_be_written(self, "Layer", "backward(self, dZ)", "(dA_prev, dW, db)")
        if not _writes(self, "backward"):
            raise to_be_written(self, "Layer", half, answer)
        try:
            derivatives = self.backward(dZ)
        except RecursionError:  # its `backward` asks for the half that is to be made from it
            raise to_be_written(self, "Layer", half, answer) from None
        if not (isinstance(derivatives, tuple) and len(derivatives) == 3):
            raise without_return(self, "backward", "dA_prev, dW, db", derivatives)
        return derivatives


class MadeGradients(NamedTuple):
    """What the cache of a layer with a whole `backward` holds between the halves."""

    dW: np.ndarray
    db: np.ndarray | None


def _writes(layer, *methods):
    """Tell whether the class of `layer`, or a base of it, writes one of these methods itself."""
    return any(getattr(type(layer), method) is not getattr(Halves, method) for method in methods)


@cache
def check_halves(kind):
    """Refuse a class whose whole `backward` no network would call, since a base has written the halves."""
    whole = _writer(kind, "backward")
    for half in ("backward_input", "backward_weight"):
        base = _writer(kind, half)
        if base is not Halves and base is not whole and issubclass(whole, base):
            raise TypeError(
                f"{whole.__name__} writes backward, but a network calls {half}, which is {base.__name__}'s: "
                f"write backward_input and backward_weight in {whole.__name__}, or derive it from Layer"
            )


def _writer(kind, method):
    """Return the class, `kind` or a base of it, that writes this method."""
    return next(base for base in kind.__mro__ if method in vars(base))
