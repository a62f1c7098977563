"""What travels between the stages of a schedule: from where to where, and by which name."""

from itertools import chain

from .rules import RULES

MAIN = ""  # what goes from stage to neighbouring stage, A or dA on the way back; skip connections have names
NOTHING = None, {}  # (outgoing, skips) of what sends nothing; nobody writes into it


class Wires:
    """For each action of a schedule, what it waits for and what it sends.

    schedule: a `Schedule` without faults.
    skips: (name, stage where it begins, stage where it ends) of each skip connection from one stage to
        another: what a Fork puts aside travels to its Join beside A, and the derivative by it travels back
        beside dA.
    ranks: for each device of the schedule, its number on the cluster; left out, the same. Where each stands
        for several devices, which share the work inside its layers, there are several `Wires`.

    >>> from .actions import Action
    >>> from ..schedules import gpipe
    >>> wires = Wires(gpipe(4, 2), skips=[("s", 0, 2)])
    >>> waits_for, _ = wires.ends(Action("F", 2, 1))
    >>> waits_for
    [('', 'F', 1, 1), ('s', 'F', 0, 0)]
    >>> _, sends = wires.ends(Action("I", 2, 1))
    >>> sends
    [('', 'B', 1, 1), ('s', 'B', 0, 0)]
    """

    def __init__(self, schedule, skips=(), ranks=None):
        self.schedule = schedule
        self.ranks = range(len(schedule.devices)) if ranks is None else ranks
        self.placements = [[self.ranks[device] for device in placement] for placement in schedule.placements]
        self._stages_on = {}
        for stage, device in chain(*map(enumerate, self.placements)):
            self._stages_on.setdefault(device, set()).add(stage)
        self._copy_of = schedule.copy_of or bytes(schedule.n_microbatches)
        self._ends = [_ends(placement, skips) for placement in self.placements]  # in each copy of the network

    def ends(self, part):
        """What a part of an action waits for and what it sends, two lists of rows.

        The first are (name, kind of the message, stage and device that send it), the others (name, kind of
        the message, stage and device that get it).
        """
        kind, stage, i = part
        return self._ends[self._copy_of[i]][kind][stage]

    def stages_on(self, device):
        """The stages of which a device on the cluster has a copy, in order."""
        return sorted(self._stages_on.get(device, ()))

    def holders(self, stage):
        """The devices on the cluster that have a copy of the stage, in the order of the copies."""
        return list(dict.fromkeys(placement[stage] for placement in self.placements))

    def device(self, stage, microbatch):
        """The device on the cluster that has the stage, in that copy through which a micro-batch passes."""
        return self.placements[self._copy_of[microbatch]][stage]


def skips_across_stages(skips, places):
    """(name, stage of its Fork, stage of its Join) of the skip connections from one stage to another.

    skips: {name: the indices of its Fork and its Join in the network}.
    places: for each layer of the network its (stage, index there).
    """
    ends = [(name, places[fork][0], places[join][0]) for name, (fork, join) in skips.items()]
    return [(name, begin, end) for name, begin, end in ends if begin != end]


def _ends(placement, skips):
    """What each kind of action on each stage waits for, and what it sends, where stages are on these devices.

    {kind: for each stage, two lists of rows (name, kind of message, other stage, device of that)}.
    """
    stages = range(len(placement))
    ends = {kind: [([], []) for _ in stages] for kind in RULES}
    connections = [(MAIN, stage, stage + 1) for stage in stages[:-1]] + list(skips)
    for kind, rule in RULES.items():
        for name, begin, end in connections if rule.way else ():
            source, to = (begin, end) if rule.way > 0 else (end, begin)
            waits_for, _ = ends[kind][to]
            waits_for.append((name, rule.message, source, placement[source]))
            _, sends = ends[kind][source]
            sends.append((name, rule.message, to, placement[to]))
    return ends
