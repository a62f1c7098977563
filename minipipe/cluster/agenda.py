"""What is to happen, tick by tick."""

from heapq import heappop, heappush


class Due:
    """What happens in one tick, in this order; a lane is named by its number.

    resuming: a heap of the lanes whose programs go on, after what they have finished, up to their next
        Compute or wait.
    starting: a heap of the lanes that have come to a Compute: they start it when no program goes on any more.
    ports: the tick, if messages enter the links and ports that are free then; else None.
    choosing: {lane that waits for anybody: the tick at which it takes what has come first}.
    """

    __slots__ = ("choosing", "ports", "resuming", "starting", "tick")

    def __init__(self, tick):
        self.tick, self.resuming, self.starting, self.ports, self.choosing = tick, [], [], None, {}

    @property
    def is_over(self):
        """Whether nothing more happens in this tick."""
        return not (self.resuming or self.starting or self.choosing) and self.ports is None


class Agenda:
    """The ticks at which something is due.

    Of two numbers that are equal, such as 2 and 2.0, the first that came stands for the tick of both; what is
    due keeps its own, with which it goes on counting.
    """

    def __init__(self):
        self._ticks, self._due = [], {}  # a heap; {tick: its `Due`}

    @property
    def first(self):
        """The earliest `Due`, or None."""
        return self._due[self._ticks[0]] if self._ticks else None

    def drop_first(self):
        """The earliest tick is over."""
        del self._due[heappop(self._ticks)]

    def go_on(self, lane, tick):
        """The program of `lane` goes on at this tick."""
        lane.since = tick
        heappush((self._due.get(tick) or self._add(tick)).resuming, lane.number)

    def let_through(self, tick):
        """Messages enter the ports that are free at this tick."""
        due = self._due.get(tick) or self._add(tick)
        if due.ports is None:
            due.ports = tick

    def choose(self, lane, tick):
        """A lane that waits for anybody looks at what has come at this tick."""
        due = self._due.get(tick) or self._add(tick)
        due.choosing.setdefault(lane.number, tick)

    def _add(self, tick):
        heappush(self._ticks, tick)
        due = self._due[tick] = Due(tick)
        return due
