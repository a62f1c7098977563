"""The critical path: the chain of work and transfers, without a gap, of which the time of a run consists."""

from itertools import groupby
from typing import NamedTuple

from .record import TICKS, Message, Span, lane_name


class Step(NamedTuple):
    """From tick `start` to tick `end`, the run went on with `what`: a `Span`, or a `Message` on its link."""

    what: Span | Message
    start: float
    end: float


def critical_path(trace):
    """A list of `Step`s in the order of time, each of which begins where the one before it ends.

    The first begins at tick 0 and the last ends at the makespan, so their durations add up to the makespan.
    Found by walking back from what ends last (a span before an arrival, the lower device first):

    - A device that has waited until now for a message, or for a message of its own on a blocking link, went
      on because that message arrived. The step is the message, and the walk goes on at the device that sent
      it, when it sent it.
    - If that message had queued for its link or for a port, its step begins when its way was free. The step
      before is the message in front of it, for as long as that held the way, and so on to the first of the
      queue.
    - A message that its link held back until it was asked for set out when the receiver asked: the walk goes
      on there.
    - A device that has not waited went on because the span before was over. If the message that it needed
      arrived at that very tick, either would do, and the path stays on the device.

    A message on a free link is a step of no ticks; a span of no ticks is left out. Takes n log n time in the
    number of spans.

    >>> from minipipe import simulate
    >>> from minipipe.schedules import gpipe
    >>> print(describe_path(critical_path(simulate(gpipe(2, 2)))))
    device 0  0F0          0 to 1
    device 1  1F0 1F1 1B1  1 to 5
    device 0  0B1 0B0      5 to 9
    work 9 + links 0 = 9 ticks
    """
    ends = {}  # (device, lane, tick) -> the span or message that ended there, or the lane that asked for one
    for idle, message in trace.awaited.items():
        released_by = trace.asked[message][1:] if idle.reason == "rendezvous" else message
        ends[idle.device, idle.lane, idle.end] = released_by
    ends |= {(span.device, span.lane, span.end): span for span in trace.spans if span.end > span.start}
    now = trace.makespan
    last = [(device, lane) for device, lane, end in ends if end == now]
    lane = min(last, key=lambda lane: (type(ends[(*lane, now)]) is Message, lane[0]), default=None)
    steps = []
    while lane is not None and now > 0:
        what = ends.get((*lane, now))
        if what is None:  # a trace that was not recorded by a cluster need not know why
            break
        if type(what) is tuple:
            lane = what
            continue
        if type(what) is Span:
            steps.append(Step(what, what.start, now))
            now = what.start
            continue
        while what in trace.queued:
            begin = trace.queued[what]
            steps.append(Step(what, begin, now))
            what, now = trace.in_front[what], begin
        asked, *asker = trace.asked.get(what, (what.sent, what.source, what.lane))
        steps.append(Step(what, asked, now))
        lane, now = tuple(asker), asked
    return steps[::-1]


MOST_NAMES = 6  # of a stay on a device; one of more spans is shortened to its first and last ones


def describe_path(path, unit=TICKS):
    """The path in words: a line for each stay on a device and each message that takes time, and the sums.

    path: what `critical_path` has returned.
    unit: that of the trace.
    """
    rows = []
    for where, steps in groupby((step for step in path if step.end > step.start), key=_where):
        steps = list(steps)
        names = [str(step.what.label) for step in steps]
        if len(names) > MOST_NAMES:
            shown = MOST_NAMES // 2
            names = [*names[:shown], f"... {len(names) - 2 * shown} more ...", *names[-shown:]]
        rows.append((where, " ".join(names), f"{ticks(steps[0].start)} to {ticks(steps[-1].end)}"))
    widths = [max((len(row[column]) for row in rows), default=0) for column in (0, 1)]
    work = sum(step.end - step.start for step in path if type(step.what) is Span)
    links = sum(step.end - step.start for step in path if type(step.what) is Message)
    lines = [f"{where:{widths[0]}}  {names:{widths[1]}}  {when}" for where, names, when in rows]
    return "\n".join([*lines, f"work {ticks(work)} + links {ticks(links)} = {ticks(work + links)} {unit}"])


def _where(step):
    if type(step.what) is Message:
        return f"link {step.what.source} -> {step.what.to}"
    return lane_name(step.what.device, step.what.lane)


def ticks(number):
    """A number of ticks for a reader: fractions as they are, floats with six digits."""
    return f"{number:.6g}" if isinstance(number, float) else str(number)


def duration(number, unit):
    """A time with its unit.

    >>> duration(1, "ticks"), duration(0.00123456789, "seconds")
    ('1 tick', '0.00123457 seconds')
    """
    return f"{ticks(number)} {unit[:-1] if number == 1 else unit}"
