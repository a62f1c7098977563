"""Registries: packages that are extended by files whose classes register themselves.

Layers, losses and optimizers also print in one way, as a call of the constructor.
"""

from __future__ import annotations  # so that help() shows names, not what they stand for

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from inspect import signature
from pkgutil import iter_modules
from typing import Any


@dataclass(frozen=True)
class Examples:
    """What a layer, a loss or an optimizer states about itself.

    Args:
        examples: a function that returns a list for the tests: objects, or pairs
            (object, its input).
    """

    examples: Callable


class Registry(dict):
    """{name: entry} of one package, filled by decorators in its files.

    Args:
        room: the full name of the package whose files are searched, such as
            "minipipe.layers".
        facts: a frozen dataclass of what each entry states about itself. Leaving out a
            fact without a default is a `TypeError` where the entry is defined.

    As a decorator it registers a class or a function, under `name` or under its own
    name. In a file outside of the package, or a notebook cell, it does so when run.

    >>> @dataclass(frozen=True)
    ... class Facts:
    ...     source: str
    >>> ORDERS = Registry("minipipe.schedules", Facts)
    >>> @ORDERS("all-at-once", source="no known paper")
    ... def all_at_once(devices):
    ...     return [0] * devices
    >>> ORDERS["all-at-once"](3), ORDERS.facts["all-at-once"].source
    ([0, 0, 0], 'no known paper')
    """

    def __init__(self, room: str, facts: type):
        super().__init__()
        self.room, self._kind, self._is_loaded = room, facts, False
        self.facts: dict[str, Any] = {}

    def __call__(self, name: str | None = None, **facts: Any) -> Callable:
        """Return a decorator that registers under `name`, with `facts`."""
        facts = self._kind(**facts)

        def register(entry):
            key = entry.__name__ if name is None else name
            before = self.get(key)
            if before is not None and _place(before) != _place(entry):
                raise ValueError(
                    f"{key!r} is registered twice in {self.room}: by {'.'.join(_place(before))} and by "
                    f"{'.'.join(_place(entry))}: choose another name"
                )
            self[key], self.facts[key] = entry, facts
            return entry

        return register

    def load(self) -> Registry:
        """Import every file of the package, and return the registry."""
        if not self._is_loaded:
            for module in iter_modules(import_module(self.room).__path__):
                import_module(f"{self.room}.{module.name}")
            self._is_loaded = True
        return self

    def examples(self) -> dict:
        """Return {name: example} of all entries, whose facts are `Examples`.

        The name is the repr of the object, with its input if the repr is taken already.
        """
        found = {}
        for name in self:
            for example in self.facts[name].examples():
                shown, *takes = example if isinstance(example, tuple) else (example,)
                key = f"{shown!r} of {takes[0]}" if repr(shown) in found else repr(shown)
                if key in found:
                    raise ValueError(f"{key} is an example of {name} already: leave one of them out")
                found[key] = example
        return found


def _place(entry):
    """Return where an entry is defined: equal for a notebook cell that runs again."""
    return entry.__module__, entry.__qualname__


class AsCode:
    """The base of layers, losses and optimizers; its repr is a call of the constructor.

    >>> class Scale(AsCode):
    ...     def __init__(self, n, factor=2, shift=0):
    ...         self.n, self.factor, self.shift = n, factor, shift
    >>> Scale(5, shift=1)
    Scale(5, shift=1)
    """

    def argument(self, name: str) -> Any:
        """Return the constructor's argument `name`: the attribute of that name."""
        return getattr(self, name, ...)

    def __repr__(self) -> str:
        """Return the call, without defaults and arrays."""
        words: list[str] = []
        parameters = _parameters_of(type(self))  # type: ignore[arg-type]  # classes have hashes
        for name, parameter in parameters.items():
            value = self.argument(name)
            if parameter.kind is parameter.VAR_POSITIONAL:
                words += map(repr, value)
            elif parameter.default is parameter.empty:
                words.append(_in_code(value))
            elif not (value is ... or hasattr(value, "dtype") or value == parameter.default):
                words.append(f"{name}={_in_code(value)}")
        return f"{type(self).__name__}({', '.join(words)})"


@cache
def _parameters_of(kind):
    """Return the parameters of the constructor of class `kind`, cached."""
    return signature(kind).parameters


def _in_code(value):
    """Return `value` as it is written in code: functions by their name."""
    if value is ... or getattr(value, "shape", ()):  # an array, which training changes
        return "..."
    return getattr(value, "__name__", None) or repr(value)
