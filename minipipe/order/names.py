"""The schedules with a name, and their facts. They are found in the files of `minipipe.schedules`."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from difflib import get_close_matches
from inspect import currentframe, signature
from pathlib import Path

from ..checks import shown, spelled
from ..registry import Registry
from .actions import ScheduleWarning

COSTS = "F", "B", "I", "W", "c"


@dataclass(frozen=True)
class ScheduleFacts:
    """The facts of a schedule with a name. Contract tests check every one.

    Args:
        makespan: its closed form; None if only a simulation tells it. A function of K
            devices, M micro-batches and those of the ticks F, B, I, W, c, by these
            names, that it depends on, as for `ticks`: of a device's share of the
            network, and of a message. It returns None where it does not hold; without c
            it holds for free links.
        alive: the most micro-batches whose activations a device keeps: a function of K,
            M and `device`, or of K and M for the fullest device; None as for
            `makespan`.
        source: the paper, or "no known paper".
        title: what a sentence calls it, such as "Zero Bubble ZB-H1"; left out, its
            name.
        also: {another name of it in the literature: where that is used}. The name is
            understood, with a warning.
        stages_per_device: how many stages each device has.
        copies: how many copies of the network share the devices.
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

    def __post_init__(self):
        for name, may_have in (("makespan", COSTS), ("alive", ("device",))):
            form = getattr(self, name)
            parameters = ["K", "M"] if form is None else [*signature(form).parameters]
            if parameters[:2] != ["K", "M"] or not {*parameters[2:]} <= {*may_have}:
                raise ValueError(
                    f"{name} takes {', '.join(parameters)}: use K, M, and of the others {', '.join(may_have)}"
                )

    def ticks(
        self, K: int, M: int, F: float = 1, I: float = 1, W: float = 1, c: float = 0
    ) -> float | None:
        """Return the makespan by the closed form, or None if it does not hold. B = I + W.

        Args:
            K, M: the numbers of devices and micro-batches.
            F, I, W: the ticks of a device for its share of the network.
            c: the ticks of a message, transfer and latency, provided that no message
                waits for another: its transfer takes no longer than a stage's F or I.

        >>> SCHEDULES.load().facts["1f1b"].ticks(K=4, M=8, F=1, I=1, W=1, c=0.5)
        41.0
        """
        if self.makespan is None:
            return None
        costs = dict(zip(COSTS, (F, I + W, I, W, c if K > 1 else 0), strict=True))
        needed = [*signature(self.makespan).parameters][2:]  # after K and M
        if costs["c"] and "c" not in needed:
            return None
        return self.makespan(K, M, **{name: costs[name] for name in needed})

    def peaks(self, K: int, M: int) -> list[float] | None:
        """Return the most micro-batches alive on each device by the closed form, or None, as for `ticks`.

        If only the fullest device has a closed form, the list has that one number.

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
    """Return the names of the schedules that have all these facts, in the order of all lists.

    >>> names_having(copies=2)
    ['dualpipe', 'chimera']
    """
    return [
        name for name, of_name in SCHEDULES.load().facts.items()
        if all(getattr(of_name, fact) == value for fact, value in facts.items())
    ]


# A schedule by its name.

def name_of(name: str) -> str:
    """Return the name in `SCHEDULES` that a text spells: case, spaces, "_" and "-" do not matter.

    For another name in the literature, such as "DAPPLE", a `ScheduleWarning` tells the
    name here. Raises `ValueError` for anything else, with the nearest name.

    >>> name_of("1F1B"), name_of("ZB_H1")
    ('1f1b', 'zb-h1')
    """
    SCHEDULES.load()
    if not isinstance(name, str):
        raise ValueError(
            f"schedule={shown(name)} is not a name: pass one of {', '.join(SCHEDULES)}, "
            "or Schedule.from_text(...)"
        )
    found = spelled(name, SCHEDULES) or _with_note(name)
    if found is None:
        file, colon, function = name.partition(":")
        nearest = get_close_matches(name.lower(), SCHEDULES, n=1, cutoff=0.5)
        if colon and Path(f"{file}.py").is_file():
            nearest = [f"{file}.py:{function}"]
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        raise ValueError(f"unknown schedule {shown(name)}: {hint}there are {', '.join(SCHEDULES)}")
    return found


def title_of(name: str) -> str:
    """Return what a sentence calls the schedule of this name; a name that is not in `SCHEDULES` is unchanged.

    >>> title_of("zb-h1"), title_of("mine"), title_of("custom")
    ('Zero Bubble ZB-H1', 'mine', 'Your order')
    """
    facts = SCHEDULES.load().facts.get(name)
    if facts is not None and facts.title:
        return facts.title
    return "Your order" if name == "custom" else name


def family_of(name: str) -> str:
    """Return the family of a schedule with a name: the name of its file.

    >>> family_of("zb-h1")
    'zero bubble'
    """
    return SCHEDULES.load()[name].__module__.rpartition(".")[2].replace("_", " ")


def _other_names():
    """Return {other name of a schedule in the literature: its name here}."""
    return {other: name for name, facts in SCHEDULES.load().facts.items() for other in facts.also}


def _with_note(name):
    """Return the name here of a schedule that the literature calls `name`, with a warning; or None."""
    others = _other_names()
    other = spelled(name, others)
    if other is None:
        return None
    ours = others[other]
    level, frame, package = 1, currentframe(), __name__.partition(".")[0]
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        level, frame = level + 1, frame.f_back  # the warning points to the user's line, however far that is
    warnings.warn(
        f"the schedule {name!r} is called {ours!r} here (that name is from "
        f"{SCHEDULES.facts[ours].also[other]})",
        ScheduleWarning, stacklevel=level,
    )
    return ours


def is_name(name: object) -> bool:
    """Tell whether a schedule is called `name`, as `name_of` reads it; it may be anything.

    >>> is_name("1F1B"), is_name("dapple"), is_name("1f2b"), is_name(7)
    (True, True, False, False)
    """
    return isinstance(name, str) and spelled(name, [*SCHEDULES.load(), *_other_names()]) is not None
