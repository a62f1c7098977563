"""The schedules with a name, found in the files of this room, and what each states about itself."""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature

from ..registry import Registry


COSTS = "F", "B", "I", "W"


def check_parameters(name, function, which, allowed):
    """Raise `ValueError` unless a closed form takes K, M and some of the `allowed`, or there is none.

    name: of the fact.
    which: what the allowed ones are.
    """
    if function is None:
        return
    parameters = [*signature(function).parameters]
    if parameters[:2] != ["K", "M"] or not {*parameters[2:]} <= {*allowed}:
        raise ValueError(
            f"{name} takes {', '.join(parameters)}: use K, M, and {which} {', '.join(allowed)}"
        )


@dataclass(frozen=True)
class ScheduleFacts:
    """What a schedule states about itself. Contract tests hold it to every fact.

    makespan: its closed form, or None: by simulation. A function of K devices, M micro-batches and those of
        the ticks F, B, I, W, by these names, that it depends on: a device's share of the network, with free
        links. It returns None for sizes and costs for which it does not hold.
    alive: the most micro-batches whose activations a device keeps: a function of K, M and `device`, or of K
        and M for the fullest device; None as for `makespan`.
    source: the paper, or "no known paper".
    stages_per_device: how many stages each device has.
    copies: how many copies of the network share the devices.
    flush: whether it ends each mini-batch before the next begins; without, gradients are of older weights.
    late_w: whether dW is one wide product of all micro-batches, whose bits are not those of their sum.
    """

    makespan: Callable | None
    alive: Callable | None
    source: str
    stages_per_device: int = 1
    copies: int = 1
    flush: bool = True
    late_w: bool = False

    def __post_init__(self):
        check_parameters("makespan", self.makespan, "of the costs", COSTS)
        check_parameters("alive", self.alive, "of the others", ("device",))

    def ticks(self, K, M, F=1, I=1, W=1):
        """Return the makespan by the closed form, or None if it does not hold. B = I + W.

        >>> SCHEDULES.load().facts["1f1b"].ticks(K=4, M=8, F=1, I=1, W=1)
        33
        """
        if self.makespan is None:
            return None
        costs = dict(zip(COSTS, (F, I + W, I, W), strict=True))
        needed = [*signature(self.makespan).parameters][2:]  # after K and M
        return self.makespan(K, M, **{name: costs[name] for name in needed})

    def peaks(self, K, M):
        """Return the most micro-batches alive on each device by the closed form, or None, as for `ticks`.

        Where only that of the fullest device has a closed form, the list has that one number.

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


def names_having(**facts):
    """Return the names of the schedules that have all these facts, in the order of all lists.

    >>> names_having(copies=2), names_having(late_w=True)
    (['dualpipe', 'chimera'], ['gpipe-late-w', '1f1b-late-w'])
    """
    return [
        name for name, of_name in SCHEDULES.load().facts.items()
        if all(getattr(of_name, fact) == value for fact, value in facts.items())
    ]
