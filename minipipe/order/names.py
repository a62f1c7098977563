"""The schedules with a name, defined in `minipipe.schedules`, and their facts."""

from collections.abc import Callable
from dataclasses import dataclass, field
from difflib import get_close_matches
from inspect import signature
from pathlib import Path

from ..checks import shown, spelled
from ..registry import Registry


@dataclass(frozen=True)
class ScheduleFacts:
    """The facts of a schedule with a name. Contract tests check every one.

    Args:
        makespan: its closed form, or None: a function of K devices, M micro-batches and
            some of the ticks F, B, I, W and c, by these names; `ticks` explains them.
            It returns None where the form does not hold. A form without c holds for
            free links.
        alive: the most micro-batches whose activations a device keeps: a function of K,
            M and `device`, or of K and M for the fullest device; or None.
        source: the paper, or "no known paper".
        title: its name in a sentence, such as "Zero Bubble ZB-H1"; left out, its name.
        also: {another name that is understood: the literature that uses it}.
        stages_per_device: how many stages each device has.
        copies: how many replicas of the network share the devices.
        flush: whether it ends each mini-batch before the next begins; without a flush,
            gradients belong to older weights.
    """

    makespan: Callable | None
    alive: Callable | None
    source: str
    title: str = ""
    also: dict[str, str] = field(default_factory=dict)
    stages_per_device: int = 1
    copies: int = 1
    flush: bool = True

    def ticks(
        self, K: int, M: int, F: float = 1, I: float = 1, W: float = 1, c: float = 0
    ) -> float | None:
        """Return the makespan by the closed form, or None where it does not hold.

        Args:
            K, M: the numbers of devices and micro-batches.
            F, I, W: the ticks of a device for its share of the network; B = I + W.
            c: the ticks of a message, transfer and latency. Its transfer must take no
                longer than a stage's F or I, so that no message waits for another.

        >>> SCHEDULES.load().facts["1f1b"].ticks(K=4, M=8, F=1, I=1, W=1, c=0.5)
        41.0
        """
        if self.makespan is None:
            return None
        costs = {"F": F, "B": I + W, "I": I, "W": W, "c": c if K > 1 else 0}
        needed = [*signature(self.makespan).parameters][2:]  # after K and M
        if costs["c"] and "c" not in needed:
            return None
        return self.makespan(K, M, **{name: costs[name] for name in needed})

    def peaks(self, K: int, M: int) -> list[float] | None:
        """Return each device's most alive micro-batches by the closed form, or None.

        If the form depends on K and M alone, return one number: the fullest device's.

        >>> SCHEDULES.load().facts["1f1b"].peaks(K=4, M=8), SCHEDULES.facts["v-min"].peaks(K=4, M=8)
        ([4, 3, 2, 1], [2])
        """
        if self.alive is None:
            return None
        if "device" in signature(self.alive).parameters:
            peaks = [self.alive(K, M, device) for device in range(K)]
        else:
            peaks = [self.alive(K, M)]
        return None if None in peaks else peaks


SCHEDULES = Registry("minipipe.schedules", ScheduleFacts)  # name -> function (n_devices, n_microbatches)


def names_having(**facts: object) -> list[str]:
    """Return the names of the schedules that have all these `facts`.

    >>> names_having(copies=2)
    ['dualpipe', 'chimera']
    """
    return [
        name for name, of_name in SCHEDULES.load().facts.items()
        if all(getattr(of_name, fact) == value for fact, value in facts.items())
    ]


# A schedule by its name.

def name_of(name: str) -> str:
    """Return the registered name that `name` spells in any case, with " ", "_" or "-".

    Another name from the literature is understood, too. Anything else is a
    `ValueError`, with the nearest name.

    >>> name_of("1F1B"), name_of("ZB_H1"), name_of("DAPPLE")
    ('1f1b', 'zb-h1', '1f1b')
    """
    names = _names()
    if not isinstance(name, str):
        raise ValueError(
            f"schedule={shown(name)} is not a name: pass one of {', '.join(SCHEDULES)}, "
            "or Schedule.from_text(...)"
        )
    found = spelled(name, names)
    if found is None:
        file, colon, function = name.partition(":")
        nearest = get_close_matches(name.lower(), SCHEDULES, n=1, cutoff=0.5)
        if colon and Path(f"{file}.py").is_file():
            nearest = [f"{file}.py:{function}"]
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        raise ValueError(f"unknown schedule {shown(name)}: {hint}there are {', '.join(SCHEDULES)}")
    return names[found]


def title_of(name: str) -> str:
    """Return the title of the schedule `name`, or `name` itself without one."""
    facts = SCHEDULES.load().facts.get(name)
    if facts is not None and facts.title:
        return facts.title
    return "Your order" if name == "custom" else name


def family_of(name: str) -> str:
    """Return the family of the schedule `name`: the name of its file."""
    return SCHEDULES.load()[name].__module__.rpartition(".")[2].replace("_", " ")


def _names():
    """Return {name: registered name}, with the other names in the literature."""
    facts = SCHEDULES.load().facts
    return {name: name for name in facts} | {other: name for name in facts for other in facts[name].also}


def is_name(name: object) -> bool:
    """Tell whether `name`, which may be anything, is understood by `name_of`."""
    return isinstance(name, str) and spelled(name, _names()) is not None
