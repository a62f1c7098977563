"""Which layers and losses keep the promises that contract tests have proved, and their own."""

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from ..layers import LAYERS
from ..losses import LOSSES

PROVED_IN = "minipipe.layers", "minipipe.losses", "minipipe.models", "minipipe.parallel"


def all_proved(objects: Iterable) -> bool:
    """Tell whether all these layers and losses keep two promises, which the tests have proved of our classes.

    What they keep of a micro-batch depends on shapes and dtypes alone, so bytes that were counted once hold
    for all equal runs. And the gradients that they return are new arrays, which may take up a sum.

    >>> from ..layers import ReLU
    >>> class Named(ReLU):
    ...     pass
    >>> class Doubled(ReLU):
    ...     def forward(self, Z):
    ...         return 2 * super().forward(Z)
    >>> all_proved([ReLU(), Named()]), all_proved([ReLU(), Doubled()]), all_proved([ReLU(), object()])
    (True, False, False)
    """
    return all(is_proved(type(one)) for one in objects)


_trusted = set()  # classes whose layers have passed `minipipe.check` in this process


def trust(kind: type) -> None:
    """Take the promises of a class for proved, from now on."""
    _trusted.add(kind)
    is_proved.cache_clear()


@cache
def is_proved(kind: type) -> bool:
    """Tell whether `kind` computes as a class of the package does.

    A class from elsewhere computes so if it defines nothing anew that it has inherited from a class of the
    package. It may have a constructor of its own, and methods with new names, which no network calls. What a
    constructor puts in the place of a method is not looked at. A class that was checked is trusted, too.
    """
    if kind in _trusted:
        return True
    of_package = _classes_of_the_package()
    inherited = {name for base in kind.__mro__ if base in of_package for name in vars(base)}
    of_users = [base for base in kind.__mro__ if base not in of_package]
    defined = {name for base in of_users for name in vars(base) if not name.startswith("__")}
    return bool(inherited) and not defined & inherited


@cache
def is_stated(kind: type, trait: str) -> bool:
    """Tell whether what `kind` has as `trait` was said of what it computes.

    A class from elsewhere that redefines something of a complete layer or loss computes something else, so
    what was said of that one counts no longer, until the class says it anew. What completes an abstract base,
    such as `Elementwise`, keeps what is said there.

    >>> from ..layers import Linear
    >>> class Named(Linear):
    ...     def name(self):
    ...         return "mine"
    >>> class Doubled(Linear):
    ...     def forward(self, A_prev):
    ...         return 2 * super().forward(A_prev)
    >>> is_stated(Named, "splits"), is_stated(Doubled, "splits")
    (True, False)
    """
    of_package, complete = _classes_of_the_package(), {*LAYERS.values(), *LOSSES.values()}
    for place, base in enumerate(kind.__mro__):
        if trait in vars(base):
            return True
        inherited = [one for one in kind.__mro__[place + 1:] if one is not object]
        if base in of_package or not any(one in complete or one not in of_package for one in inherited):
            continue
        if any(name in vars(one) for one in inherited for name in vars(base) if not name.startswith("__")):
            return False
    return False


@cache
def _classes_of_the_package():
    """Return the classes that the files of the rooms define, and their bases."""
    found = set()
    for room in PROVED_IN:
        for file in iter_modules(import_module(room).__path__):
            module = import_module(f"{room}.{file.name}")
            for value in vars(module).values():
                if isinstance(value, type) and value.__module__ == module.__name__:
                    found.update(value.__mro__)
    return found - {object}
