"""A run that is equal to one before, whose trace it takes over: no clock is needed."""

from collections import deque

from .devices import devices_of
from .errors import check_all_received, sent_twice
from .memory import own
from .requests import Compute, Send
from .trace import Trace


class Repeat:
    """Devices that run programs again, of which a `Cluster` has run equals before.

    programs: as for `Cluster`; each receives from devices that it names, and sends no label again before it
        has had an answer to the first. They may compute with other numbers, but have the same requests, with
        the same labels and as many bytes.
    record: that of the run before.

    When something happens follows from labels, costs, links and bytes, never from the numbers. So the trace
    of the run before is this one's, too, and nobody needs to look at a clock: each program goes on until it
    waits for a message, in whatever order. What it receives does not depend on that order. Source: Kahn
    1974, The semantics of a simple language for parallel programming.

    >>> from .engine import Cluster
    >>> from .requests import Receive
    >>> def left(number):
    ...     yield Compute("work")
    ...     yield Send("news", number, to=1)
    >>> def right():
    ...     print((yield Receive("news", source=0)))
    >>> first = Cluster([left(1), right()])
    >>> trace = first.run()
    1
    >>> Repeat([left(2), right()], first.record).run().spans == trace.spans
    2
    True
    """

    def __init__(self, programs, record):
        self._devices, self._lanes = devices_of(programs)
        self.record = record
        self.failure = None  # the exception that has stopped the run
        self.done = False    # whether all programs have come to their end

    def __getstate__(self):
        """What a copy or a pickle of a run that is over consists of: what has happened."""
        return self.__dict__ | {"_devices": (), "_lanes": ()}

    @property
    def trace(self):
        """The `Trace` of the run before; `RuntimeError` unless this one has come to its end, too."""
        if not self.done:
            raise RuntimeError("this run has not come to its end, and nobody has timed it: start it again")
        return Trace(self.record)

    def run(self):
        """Go on to the end of all programs, and return the trace."""
        ready = deque((lane, None) for lane in self._lanes)
        while ready:
            self._go_on(*ready.popleft(), ready)
        if any(device.waiting for device in self._devices):
            raise RuntimeError("these programs wait for messages that nobody sends: they are no equals")
        check_all_received(dict(enumerate(self._devices)))
        self.done = True
        return self.trace

    def tick(self):
        """Whether there is more to do, as for `Cluster`: not after `run`."""
        return not self.done

    def _go_on(self, lane, answer, ready):
        """Serve the requests of one program, until it waits for a message or comes to its end.

        answer: what it is resumed with.
        ready: (lane, answer) of those that can go on, too.
        """
        here, resume = self._devices[lane.device], lane.resume
        while True:
            try:
                request = resume(answer)
            except StopIteration:
                return
            answer, kind = None, type(request)
            if kind is Compute:
                if request.function is not None:
                    answer = request.function(*request.args)
            elif kind is Send:
                value, key = request.value, (lane.device, request.label)
                if value is not None:
                    value, _ = own(value)
                there = self._devices[request.to]
                if key in there.waiting:
                    ready.append((there.waiting.pop(key), value))
                elif key in there.inbox:
                    raise ValueError(sent_twice(lane.device, request.label, request.to))
                else:
                    there.inbox[key] = value
            else:
                key = request.source, request.label
                if key not in here.inbox:
                    here.waiting[key] = lane
                    return
                answer = here.inbox.pop(key)
