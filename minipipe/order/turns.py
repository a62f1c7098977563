"""Orders of a device with two stages, in words: F0 is the next forward of its first stage, for instance."""

from .actions import Action, Overlap


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
