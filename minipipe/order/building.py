"""What builders of schedules share: how sizes are checked, and forwards and backwards in turn."""

from .actions import Action, Overlap
from .costs import check_sizes
from .schedule import Schedule


def make_schedule(name, devices, microbatches, order, v=1, copy_of=(), versions=()):
    """The schedule in which device r does the actions of `order(r)`; `ValueError` for sizes without sense.

    v: stages on each device.
    name, copy_of, versions: as for `Schedule`.
    """
    devices, microbatches, v, _ = check_sizes(devices, microbatches, v)
    orders = tuple(tuple(order(r)) for r in range(devices))
    return Schedule(orders, v * devices, microbatches, name, copy_of, versions)


def forwards_and_backwards(stage, microbatches):
    """Two lists: the stage's F of all micro-batches, and its B."""
    return [[Action(kind, stage, i) for i in range(microbatches)] for kind in "FB"]


def in_turn(forwards, backwards, warm_up):
    """`warm_up` forwards; then in turn a forward, while there is one, and a backward.

    >>> print(*in_turn(*forwards_and_backwards(0, 3), warm_up=1))
    0F0 0F1 0B0 0F2 0B1 0B2
    """
    order = forwards[:warm_up]
    for k, backward in enumerate(backwards, warm_up):
        order += [*forwards[k:k + 1], backward]
    return order


def halved(order, delay):
    """`order` with I in place of each B, and behind it the W that belongs to the B `delay` before.

    >>> print(*halved(in_turn(*forwards_and_backwards(0, 3), warm_up=1), delay=1))
    0F0 0F1 0I0 0F2 0I1 0W0 0I2 0W1 0W2
    """
    actions, waiting = [], []
    for action in order:
        if action.kind == "F":
            actions.append(action)
            continue
        actions.append(action._replace(kind="I"))
        waiting.append(action._replace(kind="W"))
        if len(waiting) > delay:
            actions.append(waiting.pop(0))
    return actions + waiting


# Orders of a device with two stages, in words: F0 is the next forward of its first stage, for instance.

class Turns:
    """The actions of one device so far. Forwards of a stage take the micro-batches in turn; backwards, too.

    A word is F, B or I with 0 or 1 for the stage, F0&B1 for two that overlap, W0 or W1 for the oldest I of
    that stage that has no W yet, and W for the oldest of either. first: the number of the first micro-batch
    of each stage.

    >>> turns = Turns(0, 3)
    >>> turns.do("F0", times=2)
    >>> turns.do("F1 F0&B1 I1 W")
    >>> " ".join(map(str, turns.actions))
    '0F0 0F1 3F0 0F2&3B0 3I1 3W1'
    """

    def __init__(self, *stages, first=(0, 0)):
        self.actions = []
        # for each stage, the micro-batch that is next
        self.forwards, self.backwards = list(first), list(first)
        # each I that has no W yet, as (position of the stage, micro-batch)
        self.halves = []
        self._stages = stages

    def do(self, words, times=1):
        """Append the actions that `words` stand for."""
        for word in words.split() * times:
            parts = [self._next(*part) for part in word.split("&")]
            self.actions.append(Overlap(*parts) if len(parts) == 2 else parts[0])

    def _next(self, kind, position=None):
        if kind == "W":
            half = next(half for half in self.halves if position in (None, str(half[0])))
            self.halves.remove(half)
            return Action("W", self._stages[half[0]], half[1])
        position = int(position)
        counter = self.forwards if kind == "F" else self.backwards
        microbatch = counter[position]
        counter[position] += 1
        if kind == "I":
            self.halves.append((position, microbatch))
        return Action(kind, self._stages[position], microbatch)
