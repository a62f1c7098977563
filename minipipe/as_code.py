"""Objects that print as the call that makes an equal one."""

from functools import cache
from inspect import signature

import numpy as np


class AsCode:
    """The base of layers, losses and optimizers that prints them, from the arguments of their constructor.

    >>> class Scale(AsCode):
    ...     def __init__(self, n, factor=2, shift=0):
    ...         self.n, self.factor, self.shift = n, factor, shift
    >>> Scale(5, shift=1)
    Scale(5, shift=1)
    """

    def argument(self, name):
        """Return what the constructor took as `name`, or an equal of it: the attribute of that name."""
        return getattr(self, name, ...)

    def __repr__(self):
        """Return the call, with the arguments that it needs, and those that differ from their default.

        Arrays, such as given parameters, are left out.
        """
        words = []
        for name, parameter in _parameters_of(type(self)).items():
            value = self.argument(name)
            if parameter.kind is parameter.VAR_POSITIONAL:
                words += map(repr, value)
            elif parameter.default is parameter.empty:
                words.append(_in_code(value))
            elif not (value is ... or isinstance(value, np.ndarray) or value == parameter.default):
                words.append(f"{name}={_in_code(value)}")
        return f"{type(self).__name__}({', '.join(words)})"


@cache
def _parameters_of(kind):
    """Return what the constructor of a class takes: looked up once, since a network has many layers alike."""
    return signature(kind).parameters


def _in_code(value):
    """Return `value` as it is written in code: functions by their name."""
    if value is ...:
        return "..."
    return getattr(value, "__name__", None) or repr(value)
