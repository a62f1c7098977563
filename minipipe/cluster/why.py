"""Why a run took so long: the causes of its idle time, and its critical path.

Each tick of the bubble has one cause, and something that is to blame. The causes:

fill       The device has not worked yet.
exchange   An exchange is in flight: gradients are summed over replicas, parameters
           gathered, or parts of layers summed over shards. A device whose program is
           over waits for its own last exchange, too.
drain      The device's program is over, and programs of other devices are not.
link       The message that the device waits for is in flight; or the device has sent
           a message through a blocking link, and that message is.
wait       The message has not been sent, and some device works on what comes first.
imbalance  The part of a wait that exceeds the time that the waiting device itself
           takes for work of that kind: stages are unequal.

**Who is to blame.** At any instant of a wait, look at the device that is to send the
message. If it computes, that span is to blame. If it waits itself, go on to what it
waits for: the chain ends at a span, or at a message in flight. A fill is blamed in the
same way.

**Imbalance.** The waiting device's own time for a kind of work is the longest of its
spans of that kind. If a span of that kind takes longer on another device, the part
after its start + the own time is imbalance: an equally fast device would have been
ready. A kind that the waiting device does not do, or work without a kind, causes no
imbalance. If a slow device began a span late, that part is a wait. So imbalance is less
than what equal stages would save, which only another simulation can tell.

**Lanes.** What a device does in addition to computing, such as an all-reduce, has a row
of its own in the table, below the sums: these count only the lanes that compute. If a
lane waits for another lane of its device, what that lane does or waits for is the
cause.

Where several causes would do, an exchange of the device itself comes first, then fill.
A send that blocks is always the link's fault.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from .exchanges import AXES, Exchange, call_of, in_common, merged
from .record import COMPUTE, TICKS, Idle, Message, Span, duration, in_a_sentence, lane_name, ticks, way_of

if TYPE_CHECKING:
    from .trace import Trace


# What an idle lane waits for: at each instant, the work or the transfer that is in its way.

def obstacles(trace: "Trace") -> dict[Idle, list[tuple[float, float, Span | Message]]]:
    """Return {`Idle`: [(start, end, obstacle)]} of `trace`, which tile all but drains.

    Once the awaited message was sent, the obstacle is that message. Before, another
    lane has to send it, or to ask for it: the obstacle is the `Span` on which that lane
    works. While that lane is idle, too, its own obstacle counts.
    """
    waiting = {(idle.device, idle.lane, idle.end): idle for idle in trace.awaited}
    doing = defaultdict(list)  # {(device, lane): its (start, end, obstacle), in the order of time}
    found: dict = {}
    spans = [span for span in trace.spans if span.end > span.start]
    # Of spans and waits that end in one tick, spans come first: a wait reads what the other lane did.
    happenings: list[Span | Idle] = [*spans, *trace.awaited]
    for happening in sorted(happenings, key=lambda each: each.end):
        if isinstance(happening, Span):
            doing[happening.device, happening.lane].append((happening.start, happening.end, happening))
            continue
        for idle in reversed(_relay(waiting, happening, trace)):
            lane, ready = _in_charge(trace, idle)
            ready = max(idle.start, ready)
            found[idle] = _between(doing[lane], idle.start, ready)
            if ready < idle.end:
                found[idle].append((ready, idle.end, trace.awaited[idle]))
            doing[idle.device, idle.lane] += found[idle]
    return found


def _in_charge(trace, idle):
    """Return the (device, lane) that must send, or ask for, the message, and when."""
    message = trace.awaited[idle]
    if idle.reason == "rendezvous":
        tick, *lane = trace.asked[message]
        return tuple(lane), tick
    return (message.source, message.lane), message.sent


def _relay(waiting, idle, trace):
    """Return [`idle`, the wait that it depends on, the next one, ...].

    All of these waits ended in the same tick. The last one must be explained first,
    since the cause of each wait is found in the wait after it.
    """
    relay, lane = [], (idle.device, idle.lane)
    while (wait := waiting.pop((*lane, idle.end), None)) is not None:
        relay.append(wait)
        lane, ready = _in_charge(trace, wait)
        if ready != idle.end:
            break
    return relay


def _between(rows, start, end):
    """Return the part of `rows`, (start, end, obstacle), from `start` to `end`."""
    if start == end:
        return []
    by_start = itemgetter(0)
    rows = rows[bisect_right(rows, start, key=by_start) - 1:bisect_left(rows, end, key=by_start)]
    _, first_end, obstacle = rows[0]
    rows[0] = (start, first_end, obstacle)
    return rows


# The causes of all idle time, and their table.

CAUSES = ("fill", "exchange", "wait", "imbalance", "link", "drain")


class IdlePart(NamedTuple):
    """From tick `start` to tick `end`, a lane was idle for one `cause`.

    Args:
        blame: the `Span` or `Message` that was in the way; the `Exchange` that a
            finished program waits for; None for a drain.
    """

    start: float
    end: float
    cause: str
    blame: Span | Message | Exchange | None


@dataclass(frozen=True)
class Explanation:
    """The causes of all idle time in a run; `print` shows it as a table.

    Args:
        trace: the trace of the run; `print` calls its `even`, to tell how long the run
            takes with equal stages.
        parts: {each of `Trace.idle`: its `IdlePart`s}, which tile it in the order of
            time. `minipipe.cluster.why` explains the causes.

    >>> from minipipe import Costs, simulate
    >>> from minipipe.schedules import gpipe
    >>> print(simulate(gpipe(2, 3), Costs(F=[1, 2])).explain())      # doctest: +NORMALIZE_WHITESPACE
    idle ticks          fill     wait imbalance    drain     idle
    device 0               0        4         2        0        6
    device 1               1        0         0        2        3
    all                    1        4         2        2        9
    of 2 x 15 ticks     3.3%    13.3%      6.7%     6.7%    30.0%
    with equal stages: 14 ticks instead of 15, 6.7 % less
    <BLANKLINE>
    the longest waits:
    device 0 waits 6 ticks, from 3 to 9, for 1B2 from device 1: wait 4 (device 1: 1F1
    1F2 1B2), imbalance 2 (device 1: 1F1 1F2)
    """

    trace: "Trace"
    parts: dict[Idle, list[IdlePart]]

    def table(self) -> dict[int, dict[str, float]]:
        """Return {device: {cause: ticks}}, with all causes that occur."""
        table = self._by_lane()
        return {device: table[device, COMPUTE] for device in range(self.trace.n_devices)}

    def _by_lane(self):
        """Return {(device, lane): {cause: ticks}}, compute lanes first."""
        found = {part.cause for part in chain(*self.parts.values())}
        lanes = [(device, COMPUTE) for device in range(self.trace.n_devices)]
        lanes += [(idle.device, idle.lane) for idle in self.parts]
        table: dict = {lane: {cause: 0 for cause in CAUSES if cause in found} for lane in lanes}
        for idle, parts in self.parts.items():
            for part in parts:
                table[idle.device, idle.lane][part.cause] += part.end - part.start
        return table

    def totals(self) -> dict[str, float]:
        """Return {cause: ticks}, summed over the compute lanes of all devices."""
        table = self.table()
        return {cause: sum(row[cause] for row in table.values()) for cause in table[0]} if table else {}

    def exchanges(self) -> dict[str, dict[str, float]]:
        """Return {axis: {"busy": ticks, "hidden": ticks, "exposed": ticks}}.

        The axes in use: "tp", exchanges among shards; "dp", among replicas; "pp",
        messages between stages. The ticks are summed over devices:

        - busy: an exchange in which the device takes part is in flight.
        - hidden: the part of busy in which the device computes.
        - exposed: the part of busy in which the device waits for the exchange. In the
          rest it waits for something else.
        """
        trace = self.trace
        busy: dict[tuple[str, int], list] = defaultdict(list)  # {(axis, device): [(start, end)]}
        exposed: dict[str | None, float] = defaultdict(int)
        for each in trace.exchanges:
            busy[each.axis, each.device].append((each.start, each.end))
        for label, *devices, sent, arrived, _, _, _, _ in trace.messages:
            for device in devices if arrived is not None and call_of(label) is None else ():
                busy["pp", device].append((sent, arrived))
        for idle, parts in self.parts.items():
            for start, end, _, blame in parts if idle.lane == COMPUTE else ():
                axis = getattr(blame, "axis", None)
                if type(blame) is Message and idle.device in (blame.source, blame.to):
                    axis = getattr(call_of(blame.label), "axis", "pp")
                exposed[axis] += end - start
        found: dict[str, dict[str, float]] = {}
        for axis, device in sorted(busy, key=lambda place: [*AXES].index(place[0])):
            of_axis = found.setdefault(axis, {"busy": 0, "hidden": 0, "exposed": exposed[axis]})
            periods = merged(busy[axis, device])
            work = [(span.start, span.end) for span in trace.spans_of(device, COMPUTE)]
            of_axis["busy"] += sum(end - start for start, end in periods)
            of_axis["hidden"] += in_common(periods, work)
        return found

    def blamed(self, idle: Idle) -> list[Span | Message | Exchange]:
        """Return all that is to blame for `idle`, in the order of time."""
        return list(dict.fromkeys(part.blame for part in self.parts[idle] if part.blame is not None))

    def describe(self, idle: Idle) -> str:
        """Return a sentence about `idle`: who waits how long, and for what."""
        name = in_a_sentence(lane_name(idle.device, COMPUTE, self.trace.names))
        subject = name if idle.lane == COMPUTE else f"{name} {idle.lane}"
        verb = "is done and idle for" if idle.reason == "drain" else "waits"
        length = duration(idle.end - idle.start, self.trace.unit)
        words = f"{subject} {verb} {length}, from {ticks(idle.start)} to {ticks(idle.end)}"
        if idle.source is not None:
            words += f", for {call_of(idle.message) or idle.message} {way_of(idle, self.trace.names)}"
        causes: dict[str, list[IdlePart]] = {}
        for part in self.parts[idle]:
            causes.setdefault(part.cause, []).append(part)
        if [*causes] == ["drain"]:
            return words
        sums = {cause: sum(part.end - part.start for part in group) for cause, group in causes.items()}
        most_first = sorted(causes, key=lambda cause: -sums[cause])
        shares = []
        for cause in most_first:
            places: dict[str, dict] = {}  # {where: the names of the work or messages to blame there}
            for part in causes[cause]:
                if part.blame is not None:
                    place, label = _where(part.blame, self.trace.names), part.blame.label
                    places.setdefault(place, {})[str(call_of(label) or label)] = True
            between = ", " if cause == "exchange" else " "
            blamed = [f"{place}: {between.join(_shortened([*labels]))}" for place, labels in places.items()]
            shares.append(f"{cause} {ticks(sums[cause])}")
            if blamed:
                shares[-1] += f" ({'; '.join(_shortened(blamed))})"
        return f"{words}: {', '.join(shares)}"

    def __repr__(self):
        causes = ", ".join(f"{cause} {ticks(total)}" for cause, total in self.totals().items())
        makespan = duration(self.trace.makespan, self.trace.unit)
        return f"<Explanation of {self.trace.n_devices} devices, {makespan}, idle: {causes or 0}>"

    def __str__(self):
        trace, n_devices = self.trace, self.trace.n_devices
        if not trace.makespan:
            return "(nothing has been computed yet)"
        totals, whole = self.totals(), float(n_devices * trace.makespan)
        rows = [[f"idle {trace.unit}", *totals, "idle"]]
        named = [(lane_name(*lane, trace.names), row) for lane, row in self._by_lane().items()]
        named.insert(n_devices, ("all", totals))
        for name, row in named:
            rows.append([name, *map(ticks, [*row.values(), sum(row.values())])])
        shares = [f"{100 * float(share) / whole:.1f}%" for share in [*totals.values(), sum(totals.values())]]
        of_all = f"of {n_devices} x {ticks(trace.makespan)} {trace.unit}"
        rows.insert(n_devices + 2, [of_all, *shares])
        lines = _table(rows)
        if trace.even is not None:
            makespan = trace.even().makespan
            percent = 100 * (float(makespan) / float(trace.makespan) - 1)
            lines.append(
                f"with equal stages: {duration(makespan, trace.unit)} instead of {ticks(trace.makespan)}, "
                f"{abs(percent):.1f} % {'more' if percent > 0 else 'less'}"
            )
        if any(each.end > each.start for each in trace.exchanges):
            found = self.exchanges()
            rows = [[f"exchanges, {trace.unit}", "busy", "hidden", "exposed"]]
            rows += [[AXES[axis], *map(ticks, found[axis].values())] for axis in found]
            lines += ["", *_table(rows)]
        waits = [idle for idle in self.parts if idle.reason not in ("fill", "drain") and idle.lane == COMPUTE]
        if waits:
            longest = sorted(waits, key=lambda idle: idle.start - idle.end)[:3]
            lines += ["", "the longest waits:", *map(self.describe, longest)]
        return "\n".join(lines)


def _table(rows):
    """Return the lines of a table with aligned columns."""
    first, *others = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    widths = [max(8, width) for width in others]
    return [
        name.ljust(first) + "".join(f" {word:>{width}}" for word, width in zip(row, widths))
        for name, *row in rows
    ]


def explain(trace: "Trace") -> Explanation:
    """Return the `Explanation` of the idle spans of `trace`.

    Takes n log n time in the number of spans, and time in proportion to the number of
    parts that come out.

    >>> from minipipe import simulate
    >>> from minipipe.schedules import gpipe
    >>> simulate(gpipe(2, 1)).explain().table()
    {0: {'fill': 0, 'wait': 3, 'drain': 0}, 1: {'fill': 1, 'wait': 0, 'drain': 2}}
    """
    found = obstacles(trace)
    own_ticks: dict = {lane: {} for lane in trace.lanes}  # {lane: {kind of work: the longest span}}
    for span in trace.spans:
        longest, kind = own_ticks[span.device, span.lane], getattr(span.label, "kind", None)
        longest[kind] = max(longest.get(kind, 0), span.end - span.start)
    # floats: the end of a span and its length are each rounded by up to 2**-53 of the makespan
    rounding = trace.makespan * 2.0**-50
    beside = defaultdict(list)  # {device: its exchanges in a lane of their own}
    for exchange in trace.exchanges:
        if exchange.lane != COMPUTE:
            beside[exchange.device].append(exchange)
    parts = {
        idle: _after_the_end(idle, beside[idle.device]) if idle.reason == "drain"
        else _causes(idle, found[idle], own_ticks[idle.device, idle.lane], rounding)
        for idle in trace.idle
    }
    return Explanation(trace, parts)


def _after_the_end(idle, exchanges):
    """Return the `IdlePart`s of a finished lane. exchanges: those of its device."""
    parts, now = [], idle.start
    for exchange in exchanges:
        start, end = max(now, exchange.start), exchange.end
        if end > start:
            parts += [IdlePart(now, start, "drain", None), IdlePart(start, end, "exchange", exchange)]
            now = end
    parts.append(IdlePart(now, idle.end, "drain", None))
    return [part for part in parts if part.end > part.start]


def _causes(idle, found, own_ticks, rounding):
    """Return the `IdlePart`s of `idle`, not a drain. found: its rows of `obstacles`."""
    parts = []
    for start, end, blame in found:
        call = call_of(blame.label) if type(blame) is Message else None
        is_own = call is not None and idle.device in (blame.source, blame.to)
        if idle.reason == "fill" and not is_own:
            parts.append(IdlePart(start, end, "fill", blame))
        elif call is not None:
            parts.append(IdlePart(start, end, "exchange", blame))
        elif type(blame) is Message:
            parts.append(IdlePart(start, end, "link", blame))
        else:
            kind = getattr(blame.label, "kind", None)
            own = own_ticks.get(kind)
            unequal = None not in (kind, own) and blame.end - blame.start - own > rounding
            cut = min(max(start, blame.start + own), end) if unequal else end
            if start < cut:
                parts.append(IdlePart(start, cut, "wait", blame))
            if cut < end:
                parts.append(IdlePart(cut, end, "imbalance", blame))
    return parts


def _where(blame, names=()):
    """Return where `blame` is: '0 -> 1' for a message, else its lane, by `names`."""
    if type(blame) is Message:
        return f"{blame.source} -> {blame.to}"
    return lane_name(blame.device, blame.lane, [name.partition(":")[0] for name in names])


def _shortened(words, most=4):
    return words if len(words) <= most else [*words[:most - 2], "...", words[-1]]


# The critical path: the chain of work and transfers, without a gap, that makes up the time of a run.

class Step(NamedTuple):
    """From tick `start` to tick `end`, the run went on with `what`."""

    what: Span | Message
    start: float
    end: float


def critical_path(trace: "Trace") -> list[Step]:
    """Return the critical path of `trace`: steps without a gap from 0 to the makespan.

    The path is found by walking back from what ends last (a span before an arrival, the
    lower device first):

    - A device that has waited until now went on because a message arrived, or its own
      on a blocking link. The step is the message, and the walk goes on at its sender,
      when it was sent.
    - If that message had queued, its step begins when its link and ports were free. The
      step before is the message in front of it, and so on to the first of the queue.
    - A message that was held until the receiver asked for it was sent then: the walk
      goes on at the receiver.
    - A device that has not waited went on because the span before was over. If the
      message that it needed arrived at that very tick, the path stays on the device.

    A message on a free link is a step of no ticks; a span of no ticks is left out.
    Takes n log n time in the number of spans.

    >>> from minipipe import simulate
    >>> from minipipe.schedules import gpipe
    >>> print(describe_path(critical_path(simulate(gpipe(2, 2)))))
    device 0  0F0          0 to 1
    device 1  1F0 1F1 1B1  1 to 5
    device 0  0B1 0B0      5 to 9
    work 9 + links 0 = 9 ticks
    """
    ends: dict = {}  # (device, lane, tick) -> the span or message that ended there, or the lane that asked
    for idle, message in trace.awaited.items():
        released_by = trace.asked[message][1:] if idle.reason == "rendezvous" else message
        ends[idle.device, idle.lane, idle.end] = released_by
    ends |= {(span.device, span.lane, span.end): span for span in trace.spans if span.end > span.start}
    now = trace.makespan
    last = [(device, lane) for device, lane, end in ends if end == now]
    lane = min(last, key=lambda lane: (type(ends[(*lane, now)]) is Message, lane[0]), default=None)
    steps: list[Step] = []
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
            begin, in_front = trace.queued[what]
            steps.append(Step(what, begin, now))
            what, now = in_front, begin
        asked, *asker = trace.asked.get(what, (what.sent, what.source, what.lane))
        steps.append(Step(what, asked, now))
        lane, now = tuple(asker), asked
    return steps[::-1]


MOST_NAMES = 6    # names shown for consecutive work on a device: of more, the first and the last ones
MOST_LINES = 40   # lines shown of a path: of more, the first and the last ones


def describe_path(path: list[Step], unit: str = TICKS, names: Sequence[str] = ()) -> str:
    """Return the text of a path: a line for each stay on a device and each message.

    Messages without ticks have no line. The middle of a long path is left out.

    Args:
        path: what `critical_path` has returned.
        unit, names: those of the trace.
    """
    def place(step):
        what = step.what
        return f"link {_where(what)}" if type(what) is Message else lane_name(what.device, what.lane, names)

    rows = []
    for where, group in groupby((step for step in path if step.end > step.start), key=place):
        steps = list(group)
        labels = [str(step.what.label) for step in steps]
        if len(labels) > MOST_NAMES:
            shown = MOST_NAMES // 2
            labels = [*labels[:shown], f"... {len(labels) - 2 * shown} more ...", *labels[-shown:]]
        rows.append((where, " ".join(labels), steps[0].start, steps[-1].end))
    if len(rows) > MOST_LINES:
        shown = MOST_LINES // 2
        left_out = rows[shown:-shown]
        rows[shown:-shown] = [("...", f"{len(left_out)} more lines", left_out[0][2], left_out[-1][3])]
    texts = [(where, labels, f"{ticks(start)} to {ticks(end)}") for where, labels, start, end in rows]
    widths = [max((len(text[column]) for text in texts), default=0) for column in (0, 1)]
    work = sum(step.end - step.start for step in path if type(step.what) is Span)
    links = sum(step.end - step.start for step in path if type(step.what) is Message)
    lines = [f"{where:{widths[0]}}  {labels:{widths[1]}}  {when}" for where, labels, when in texts]
    return "\n".join([*lines, f"work {ticks(work)} + links {ticks(links)} = {ticks(work + links)} {unit}"])
