"""What travels between the stages of a schedule: from where to where, and by which name."""

from ..schedules import Action
from ..schedules.rules import RULES

MAIN = "main"  # what goes from stage to neighbouring stage: A on the way there, dA on the way back


class Wires:
    """For each action, what it waits for and what it sends.

    skips: (name, stage where it begins, stage where it ends) of each skip connection from one stage to another: what a Fork
    puts aside travels to its Join beside A, and the derivative by it travels back beside dA.

    >>> from ..schedules import gpipe
    >>> wires = Wires(gpipe(4, 2), skips=[("s", 0, 2)])
    >>> wires.into(Action("F", 2, 1))
    [('main', Action(kind='F', stage=1, microbatch=1), 1), ('s', '0F1 s', 0)]
    >>> wires.out_of(Action("I", 2, 1))
    [('main', Action(kind='B', stage=2, microbatch=1), 1), ('s', '2B1 s', 0)]
    """

    def __init__(self, schedule, skips=()):
        self.schedule = schedule
        self._placements, self._copy_of = schedule.placements, schedule.copy_of or bytes(schedule.n_microbatches)
        ways = [_ways(placement, skips) for placement in self._placements]
        self._into, self._out_of = [into for into, _ in ways], [out_of for _, out_of in ways]  # of each copy

    def device(self, stage, microbatch):
        """The device of the stage in the copy of the network that a micro-batch passes through."""
        return self._placements[self._copy_of[microbatch]][stage]

    def into(self, part):
        """[(name, label of the message, device that sends it)] of all that an action waits for."""
        kind, stage, i = part
        rows = self._into[self._copy_of[i]][kind, stage]
        return [(name, _label(name, message, source, i), device) for name, message, source, device in rows]

    def out_of(self, part):
        """[(name, label of the message, device that gets it)] of all that an action sends."""
        kind, stage, i = part
        sent = []
        for name, message, device in self._out_of[self._copy_of[i]][kind, stage]:
            same = name is MAIN and message == kind  # then the message is called as the action is
            sent.append((name, part if same else _label(name, message, stage, i), device))
        return sent


def _ways(placement, skips):
    """What arrives, {(kind, stage): rows of (name, kind of message, stage and device that send it)}, and what leaves, {...: rows of
    (name, kind of message, device that gets it)}, where the stages are on the devices of `placement`."""
    stages = range(len(placement))
    into, out_of = ({(kind, stage): [] for kind in RULES for stage in stages} for _ in range(2))
    ends = [(MAIN, stage, stage + 1) for stage in stages[:-1]] + list(skips)
    for kind, rule in RULES.items():
        for name, begin, end in ends if rule.way else ():
            source, target = (begin, end) if rule.way > 0 else (end, begin)
            into[kind, target].append((name, rule.message, source, placement[source]))
            out_of[kind, source].append((name, rule.message, placement[target]))
    return into, out_of


def _label(name, message, stage, i):
    """What a message is called: the action that it comes from, whole backward or not; a skip connection adds its name."""
    return Action(message, stage, i) if name is MAIN else f"{stage}{message}{i} {name}"
