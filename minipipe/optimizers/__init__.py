"""How gradients change parameters.

In every equation W stands for any parameter (each W and each b), g for its gradient,
which needs no division by m since the loss has done that, t for the number of the
update, from 1. The hyper-parameters may be floats, or `exact.Rational` for a network of
rational numbers.

Each file of this room registers its optimizers in `OPTIMIZERS`; they are found there,
and `minipipe` hands them on. A test carries out the equations of each docstring, in
rational numbers.

Where to read: `optimizer` has the walk over the parameters, and `SGD`; `adaptive` the
optimizers that adapt the length of a step.
"""

from .optimizer import OPTIMIZERS, Optimizer, checked_optimizer  # noqa: F401 (for subclasses and rooms)

globals().update(OPTIMIZERS.load())

__all__ = sorted(OPTIMIZERS)
