"""How gradients change parameters.

In every equation, W is any parameter (each W and each b), g its gradient, and t the
number of the update, from 1. The loss has divided g by m already. Hyper-parameters may
be floats, or `exact.Rational` for a network of rational numbers. A test computes the
equations of each docstring in rational numbers.

`optimizer` has the walk over the parameters, and `SGD`; `adaptive` has the optimizers
that adapt the length of a step. Each file registers its optimizers in `OPTIMIZERS`,
from which `minipipe` takes them.
"""

from .optimizer import OPTIMIZERS, Optimizer, checked_optimizer  # noqa: F401 (for subclasses and rooms)

globals().update(OPTIMIZERS.load())

__all__ = sorted(OPTIMIZERS)
