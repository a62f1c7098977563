"""The arguments that functions have in common: for each name its kind, its bounds and its largest size.

A door asks `argument("n_rounds", n_rounds)`. A function in which the name means something else has a row of
its own, "function.name". The hostile tests of tests/doors draw from the same rows.
"""

import sys
from dataclasses import dataclass

from .checks import real_number, shown, truth, whole_number

MOST = 10**9  # devices, micro-batches, units: more than any run could hold
MOST_RANKS = 10**6  # of a group that meets
MOST_ROUNDS = 10**6  # of a measurement
MOST_THREADS = 1000
MOST_ACTIONS = 4_000_000  # of a schedule, of all devices: a run of them takes gigabytes
MOST_SAMPLES = 10**12  # of a mini-batch: far more than anybody has, and far less than would overflow


@dataclass(frozen=True)
class Whole:
    """A whole number from `least` to `most`."""

    least: int = 1
    most: int = MOST

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


TICKS = Real(least=0, note=" ticks", clock=True)
BYTES = Real(least=0, note=" bytes", clock=True)
SHARE = Real(least=0, below=1)

ARGUMENTS = {
    # sizes
    "batch_size": Whole(most=MOST_SAMPLES),
    "at_once": Whole(most=MOST_THREADS),
    "list_schedule.n_devices": Whole(most=MOST_ACTIONS),
    "m": Whole(most=MOST_SAMPLES),
    "mini_batches.n": Whole(),
    "n_replicas": Whole(most=MOST_RANKS),
    "n_shards": Whole(most=MOST_RANKS),
    "n_rounds": Whole(most=MOST_ROUNDS),
    "n_servers": Whole(),
    "n_workers": Whole(),
    # times and speeds
    "bandwidth": Real(above=0, note=" bytes per tick", clock=True),
    "latency": TICKS,
    "n_bytes": BYTES,
    "ticks": TICKS,
    "update": TICKS,
    # numbers that randomness starts from
    "seed": Whole(0, 2**128 - 1),
    # the fields of a recipe
    "Recipe.base": Real(above=0),
    "Recipe.n_epochs": Whole(),
    "Recipe.reference": Whole(),
    "Recipe.warm_up": Real(above=0),
    "Recipe.weight_decay": Real(least=0),
    # objects
    "trace": Made("minipipe.cluster.trace", "Trace", "take the trace of a network, or simulate(schedule)"),
    # yes or no
    "bias": Truth(),
    "causal": Truth(),
    "decoupled": Truth(),
}


def argument(name, value):
    """Return `value` as the row of `name` wants it; raise `ValueError` with a sentence otherwise.

    name: of the argument, or "function.name" for a row of that function alone.

    >>> argument("n_rounds", 3), argument("bias", 0)
    (3, False)
    """
    return ARGUMENTS[name].checked(name.rpartition(".")[2], value)
