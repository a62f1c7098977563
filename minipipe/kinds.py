"""The kinds of arguments: each checks a value, and refuses it in a sentence.

`minipipe.arguments` says which argument is of which kind.
"""

import sys
from dataclasses import dataclass

from .checks import function, listed, real_number, shown, truth, whole_number


@dataclass(frozen=True)
class Whole:
    """A whole number from `least` to `most`; None for no lower bound."""

    least: int | None = 1
    most: int = 10**9  # devices, micro-batches, units: more than any run could hold

    def checked(self, name, value):
        """Return `value` as a Python int; raise `ValueError` if it is not one within the bounds."""
        return whole_number(name, value, self.least, self.most)


@dataclass(frozen=True)
class Real:
    """A real number. Each field as for `real_number`; a bound of None is no bound."""

    least: float | None = None
    above: float | None = None
    below: float | None = None
    most: float | None = None
    note: str = ""
    infinite: bool = False
    clock: bool = False

    def checked(self, name, value):
        """Return `value` as a Python number; raise `ValueError` if it is not one within the bounds."""
        return real_number(name, value, **vars(self))


@dataclass(frozen=True)
class Truth:
    """True or False, or 1 or 0."""

    def checked(self, name, value):
        """Return `value` as a bool; raise `ValueError` for anything else."""
        return truth(name, value)


@dataclass(frozen=True)
class Made:
    """An object of a class.

    module, kind: the names of the class and of its module, since a room above this one has it. Whoever has
        such an object has imported its module.
    how: how to get one.
    """

    module: str
    kind: str
    how: str

    def checked(self, name, value):
        """Return `value`; raise `ValueError` if it is not an object of the class."""
        kind = getattr(sys.modules.get(self.module), self.kind, ())
        if not isinstance(value, kind):
            raise ValueError(f"{name}={shown(value)} is not a {self.kind}: {self.how}")
        return value


@dataclass(frozen=True)
class Has:
    """An object with some methods or attributes, of any class. how: to get one."""

    names: tuple
    how: str

    def checked(self, name, value):
        """Return `value`; raise `ValueError` if it lacks one of the names, or is a class."""
        missing = [one for one in self.names if isinstance(value, type) or not hasattr(value, one)]
        if missing:
            raise ValueError(f"{name}={shown(value)} has no {missing[0]}: {self.how}")
        return value


@dataclass(frozen=True)
class Function:
    """What can be called."""

    def checked(self, name, value):
        """Return `value`; raise `ValueError` if it cannot be called."""
        return function(name, value)


@dataclass(frozen=True)
class Each:
    """A list, or another sequence, in which each item is as `kind` wants it; of at least `least` items."""

    kind: object
    least: int = 0

    def checked(self, name, value):
        """Return a list of the items; raise `ValueError` for what has none, or for a wrong one."""
        items = listed(name, value, self.least)
        return [self.kind.checked(f"{name}[{index}]", item) for index, item in enumerate(items)]
