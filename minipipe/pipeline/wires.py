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
        self._placements, self._copy_of = schedule.placements, schedule.copy_of
        stages = range(schedule.n_stages)
        self._into = {(kind, stage): [] for kind in RULES for stage in stages}   # rows of (name, kind of message, other stage)
        self._out_of = {(kind, stage): [] for kind in RULES for stage in stages}
        for kind, rule in RULES.items():
            ends = [(MAIN, stage, stage + 1) for stage in stages[:-1]] + list(skips)
            for name, begin, end in ends:
                if rule.way < 0:
                    begin, end = end, begin
                if rule.way:
                    self._out_of[kind, begin].append((name, rule.message, end))
                    self._into[kind, end].append((name, rule.message, begin))

    def device(self, stage, microbatch):
        """The device of the stage in the copy of the network that a micro-batch passes through."""
        return self._placements[self._copy_of[microbatch] if self._copy_of else 0][stage]

    def into(self, part):
        """[(name, label of the message, device that sends it)] of all that an action waits for."""
        kind, stage, i = part
        return [
            (name, _label(name, message, source, i), self.device(source, i))
            for name, message, source in self._into[kind, stage]
        ]

    def out_of(self, part):
        """[(name, label of the message, device that gets it)] of all that an action sends."""
        kind, stage, i = part
        sent = []
        for name, message, target in self._out_of[kind, stage]:
            same = name is MAIN and message == kind  # then the message is called as the action is
            sent.append((name, part if same else _label(name, message, stage, i), self.device(target, i)))
        return sent


def _label(name, message, stage, i):
    """What a message is called: the action that it comes from, whole backward or not; a skip connection adds its name."""
    return Action(message, stage, i) if name is MAIN else f"{stage}{message}{i} {name}"
