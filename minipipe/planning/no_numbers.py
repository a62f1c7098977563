"""What a network needs in which there are only arrays without numbers."""

import numpy as np

from ..meta import MetaArray


class NoNumbers:
    """A generator of random numbers that draws none."""

    def standard_normal(self, size=(), dtype="float64"):
        return MetaArray(size, dtype)

    def __getattr__(self, name):
        return getattr(np.random.default_rng(0), name)


def say_who_fails(owner, methods, name=None):
    """Where one of `methods` cannot do without numbers, the error says so, whose it is, and a remedy.

    name: of the owner in the error; without it, its code, which is written when it is needed: a network has
        many layers.
    Of layers within layers, the innermost is named: what it raises is a `ValueError`, which passes through
    the others.
    """
    def saying(method):
        def called(*arguments):
            try:
                return method(*arguments)
            except (TypeError, AttributeError, IndexError) as error:
                who = name or repr(owner)
                raise ValueError(
                    f"{who} cannot be counted without numbers: {error}. Use functions that arrays without "
                    "numbers know, see minipipe.meta, or mp.measure, which runs the layers with numbers"
                ) from error
        return called

    for method in methods:
        setattr(owner, method, saying(getattr(owner, method)))
