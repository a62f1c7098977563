"""What travels between the stages of a schedule: from where to where, and by which name."""

from ..schedules import Action
from ..schedules.rules import RULES

MAIN = ""  # what goes from stage to neighbouring stage, A or dA on the way back; skip connections have names


class Wires:
    """For each action of a schedule, what it waits for and what it sends.

    schedule: a `Schedule` without faults.
    skips: (name, stage where it begins, stage where it ends) of each skip connection from one stage to
        another: what a Fork puts aside travels to its Join beside A, and the derivative by it travels back
        beside dA.

    `into` is {action: [(name, label of the message, device that sends it)]}, and `out_of` is {action: [(name,
    label of the message, device that gets it)]}. `device(stage, microbatch)` does the work.

    >>> from ..schedules import gpipe
    >>> wires = Wires(gpipe(4, 2), skips=[("s", 0, 2)])
    >>> wires.into[Action("F", 2, 1)]
    [('', Action(kind='F', stage=1, microbatch=1), 1), ('s', '0F1 s', 0)]
    >>> wires.out_of[Action("B", 2, 1)]
    [('', Action(kind='B', stage=2, microbatch=1), 1), ('s', '2B1 s', 0)]
    """

    def __init__(self, schedule, skips=()):
        self.schedule = schedule
        self._placements = schedule.placements
        self._copy_of = schedule.copy_of or bytes(schedule.n_microbatches)
        self.into, self.out_of = {}, {}
        before, behind = _ends(schedule.n_stages, skips)
        for device in range(len(schedule.devices)):
            for part in schedule.parts(device):
                kind, stage, i = part
                message, placement = RULES[kind].message, self._placements[self._copy_of[i]]
                self.into[part] = [
                    (name, _label(name, message, source, i), placement[source])
                    for name, source in before[kind, stage]
                ]
                self.out_of[part] = [
                    (name, _label(name, message, stage, i), placement[to]) for name, to in behind[kind, stage]
                ]

    def device(self, stage, microbatch):
        """The device of the stage in the copy of the network that a micro-batch passes through."""
        return self._placements[self._copy_of[microbatch]][stage]


def _ends(n_stages, skips):
    """For each (kind, stage), [(name, stage)] of what it waits for, and [(name, stage)] of what it sends."""
    before, behind = ({(kind, stage): [] for kind in RULES for stage in range(n_stages)} for _ in range(2))
    connections = [(MAIN, stage, stage + 1) for stage in range(n_stages - 1)] + list(skips)
    for kind, rule in RULES.items():
        for name, begin, end in connections if rule.way else ():
            source, to = (begin, end) if rule.way > 0 else (end, begin)
            before[kind, to].append((name, source))
            behind[kind, source].append((name, to))
    return before, behind


def _label(name, message, stage, i):
    """What a message is called: the action that it comes from, whole backward or not, and its skip's name."""
    return Action(message, stage, i) if name == MAIN else f"{stage}{message}{i} {name}"
