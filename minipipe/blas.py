"""How many threads NumPy's matrix products use while minipipe computes: one, unless you say otherwise.

Products as small as those of a micro-batch lose time when threads share them, and much of it where other
programs run, too. And the low bits of a product depend on the number of threads.
"""

from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache

from .arguments import argument


_depth = ContextVar("depth", default=0)  # of the `with` blocks that have chosen a number of threads


@contextmanager
def blas_threads(n):
    """In this `with` block, NumPy's matrix products use n threads, those of minipipe, too.

    n: at least 1.

    Without it, whatever a network or an optimizer does, and whatever measures times, uses one thread; all
    other NumPy code keeps those that it has. So a loop of your own over layers gives the bits of a network's
    run for certain only inside `blas_threads(1)`. OpenBLAS, MKL and BLIS have one such setting for the whole
    process: where several threads of yours train at once, put one block around them all. Apple's Accelerate
    has none, so nothing happens there.

    >>> from minipipe import MeanSquaredError, Linear, Sequential
    >>> import numpy as np
    >>> with blas_threads(4):           # for products of matrices with thousands of rows
    ...     J = Sequential([Linear(2, 1)], MeanSquaredError()).forward_backward(np.eye(2), np.ones((1, 2)))
    """
    n = argument("blas_threads.n", n)
    with _libraries().limit(limits=n, user_api="blas"):
        depth = _depth.set(_depth.get() + 1)
        try:
            yield
        finally:
            _depth.reset(depth)


def computing():
    """A `with` block in which matrix products use one thread, unless one around it has chosen a number."""
    return nullcontext() if _depth.get() else blas_threads(1)


@cache
def _libraries():
    """Return what sets the libraries that NumPy has loaded; to look for them takes a millisecond."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
