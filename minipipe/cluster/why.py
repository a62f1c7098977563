"""Why devices were idle: each tick of the bubble has one cause, and something that is to blame.

The causes of an idle device:

fill           It has not worked yet.
drain          Its program is over, and the others' are not.
link           The message that it waits for is on its way; or it has sent one through a blocking link, and
               that is on its way.
wait           The message has not been sent yet, and somewhere a device works on what must come first.
imbalance      The same, past the time that the waiting device itself takes for work of that kind: stages are
               unequal.

**Who is to blame.** At any instant of a wait, look at the device that is to send the message. If it computes,
that span is to blame. If it waits itself, go on to what it waits for: the chain ends at a span, or at a
message on its way. So the bubble of a device is blamed on work far away, if all between only wait for it. A
fill is blamed in this way, too.

**Imbalance.** The waiting device's own time for a kind of work is the longest of its spans of that kind. If a
span takes longer than this on another device, then what lies past its start + the own time is imbalance: an
equally fast device would have been ready. A kind that the waiting device does not do, or work without a kind,
causes no imbalance. Only the span under way counts: if a slow device began it late, that part is a wait.

**Lanes.** What a device does beside its computing, such as an all-reduce, has a row of its own in the table,
below the sums: these are of the lanes that compute. A lane that waits for another lane of its device waits
for what that one does.

Where several causes would do, fill comes before link, wait and imbalance; a send that blocks is always the
link's fault.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from .critical_path import duration, ticks
from .record import COMPUTE, TICKS, Idle, Message, Span, lane_name, way_of


# What an idle lane waits for: at each instant, the work or the transfer that is in its way.

def obstacles(trace):
    """{`Idle`: list of (start, end, obstacle)}, which tile it, for all idle spans of `trace` but the drains.

    Once the awaited message has set out, the obstacle is that message. Before, another lane has to send it,
    or to ask for it: the obstacle is the `Span` on which that lane works. While that lane is idle, too, its
    own obstacle counts.
    """
    waiting = {(idle.device, idle.lane, idle.end): idle for idle in trace.awaited}
    doing = defaultdict(lambda: ([], []))  # of each lane, the starts of its (start, end, obstacle), and these
    found = {}
    spans = [span for span in trace.spans if span.end > span.start]
    for happening in sorted([*spans, *trace.awaited], key=lambda each: each.end):  # at one tick, spans first
        if type(happening) is Span:
            _append(*doing[happening.device, happening.lane], [(happening.start, happening.end, happening)])
            continue
        for idle in reversed(_relay(waiting, happening, trace)):
            message = trace.awaited[idle]
            lane, ready = _in_charge(trace, idle)
            ready = max(idle.start, ready)
            found[idle] = _between(*doing[lane], idle.start, ready)
            if ready < idle.end:
                found[idle].append((ready, idle.end, message))
            _append(*doing[idle.device, idle.lane], found[idle])
    return found


def _in_charge(trace, idle):
    """((device, lane) on which an idle span depends, the tick from which on it is only the message)."""
    message = trace.awaited[idle]
    if idle.reason == "rendezvous":
        tick, *lane = trace.asked[message]
        return tuple(lane), tick
    return (message.source, message.lane), message.sent


def _relay(waiting, idle, trace):
    """`idle`, the wait of the lane that it depends on, if that ended in the same tick, and so on.

    The last of them must be explained first.
    """
    relay, lane = [], (idle.device, idle.lane)
    while (wait := waiting.pop((*lane, idle.end), None)) is not None:
        relay.append(wait)
        lane, ready = _in_charge(trace, wait)
        if ready != idle.end:
            break
    return relay


def _append(starts, rows, pieces):
    starts += [start for start, _, _ in pieces]
    rows += pieces


def _between(starts, rows, start, end):
    """The rows of (start, end, obstacle) from tick `start`, the first cut to fit, up to `end`."""
    if start == end:
        return []
    rows = rows[bisect_right(starts, start) - 1:bisect_left(starts, end)]
    _, first_end, obstacle = rows[0]
    rows[0] = (start, first_end, obstacle)
    return rows


# The causes of all that was idle, and the table of them.

CAUSES = ("fill", "wait", "imbalance", "link", "drain")


class IdlePart(NamedTuple):
    """From tick `start` to tick `end`, a lane was idle for one `cause`.

    blame: the `Span` or `Message` that was in the way; None for a drain.
    """

    start: float
    end: float
    cause: str
    blame: Span | Message | None


@dataclass(frozen=True)
class Explanation:
    """The causes of all that is idle in a run; `Trace.explain` makes one, and `print` shows it as a table.

    parts: {each of `Trace.idle`: its `IdlePart`s}, which tile it in the order of time. What the causes mean
        is said in `minipipe.cluster.why`.
    unit: of the times, that of the trace.

    >>> from minipipe import Costs, simulate
    >>> from minipipe.schedules import gpipe
    >>> print(simulate(gpipe(2, 3), Costs(F=[1, 2])).explain())      # doctest: +NORMALIZE_WHITESPACE
    idle ticks          fill     wait imbalance    drain     idle
    device 0               0        4         2        0        6
    device 1               1        0         0        2        3
    all                    1        4         2        2        9
    of 2 x 15 ticks     3.3%    13.3%      6.7%     6.7%    30.0%
    <BLANKLINE>
    the longest waits:
    device 0 waits 6 ticks, from 3 to 9, for 1B2 from device 1: wait 4 (device 1: 1F1 1F2 1B2),
    imbalance 2 (device 1: 1F1 1F2)
    """

    n_devices: int
    makespan: float
    parts: dict[Idle, list[IdlePart]]
    unit: str = TICKS

    def table(self):
        """{device: {cause: ticks}}, with the causes that occur on any device, in the order of `CAUSES`."""
        table = self._by_lane()
        return {device: table[device, COMPUTE] for device in range(self.n_devices)}

    def _by_lane(self):
        """Return {(device, lane): {cause: ticks}}, the lanes that compute first."""
        found = {part.cause for part in chain(*self.parts.values())}
        lanes = [(device, COMPUTE) for device in range(self.n_devices)]
        lanes += [(idle.device, idle.lane) for idle in self.parts]
        table = {lane: {cause: 0 for cause in CAUSES if cause in found} for lane in lanes}
        for idle, parts in self.parts.items():
            for part in parts:
                table[idle.device, idle.lane][part.cause] += part.end - part.start
        return table

    def totals(self):
        """{cause: ticks} over all devices, where they compute."""
        table = self.table()
        return {cause: sum(row[cause] for row in table.values()) for cause in table[0]} if table else {}

    def longest_waits(self, most=3):
        """The longest of `Trace.idle`, of lanes that compute, without fills and drains."""
        waits = [idle for idle in self.parts if idle.reason not in ("fill", "drain") and idle.lane == COMPUTE]
        return sorted(waits, key=lambda idle: idle.start - idle.end)[:most]

    def describe(self, idle):
        """Return one of `Trace.idle` in words: who waits how long, for what, and what was to blame."""
        return f"{lane_name(idle.device, idle.lane)} {self.predicate(idle)}"

    def predicate(self, idle):
        """Return the sentence of `describe` without its subject: 'waits 6 ticks, from 3 to 9, ...'."""
        verb = "is done and idle for" if idle.reason == "drain" else "waits"
        length = duration(idle.end - idle.start, self.unit)
        words = f"{verb} {length}, from {ticks(idle.start)} to {ticks(idle.end)}"
        if idle.source is not None:
            words += f", for {idle.message} {way_of(idle)}"
        if idle.reason == "drain":
            return words
        causes = {}
        for part in self.parts[idle]:
            causes.setdefault(part.cause, []).append(part)
        sums = {cause: sum(part.end - part.start for part in group) for cause, group in causes.items()}
        most_first = sorted(causes, key=lambda cause: -sums[cause])
        shares = [f"{cause} {ticks(sums[cause])} ({_blamed(causes[cause])})" for cause in most_first]
        return f"{words}: {', '.join(shares)}"

    def __repr__(self):
        causes = ", ".join(f"{cause} {ticks(total)}" for cause, total in self.totals().items())
        makespan = duration(self.makespan, self.unit)
        return f"<Explanation of {self.n_devices} devices, {makespan}, idle: {causes or 0}>"

    def __str__(self):
        if not self.makespan:
            return "(nothing has been computed yet)"
        totals, whole = self.totals(), float(self.n_devices * self.makespan)
        rows = [[f"idle {self.unit}", *totals, "idle"]]
        named = [(lane_name(*lane), row) for lane, row in self._by_lane().items()]
        named.insert(self.n_devices, ("all", totals))
        for name, row in named:
            rows.append([name, *map(ticks, [*row.values(), sum(row.values())])])
        shares = [f"{100 * float(share) / whole:.1f}%" for share in [*totals.values(), sum(totals.values())]]
        of_all = f"of {self.n_devices} x {ticks(self.makespan)} {self.unit}"
        rows.insert(self.n_devices + 2, [of_all, *shares])
        first, *others = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        widths = [max(8, width) for width in others]
        lines = []
        for name, *row in rows:
            lines.append(name.ljust(first) + "".join(f" {word:>{width}}" for word, width in zip(row, widths)))
        waits = self.longest_waits()
        if waits:
            lines += ["", "the longest waits:", *map(self.describe, waits)]
        return "\n".join(lines)


def explain(trace):
    """The `Explanation` of the idle spans of `trace`, by the rules of `minipipe.cluster.why`.

    Takes n log n time in the number of spans, and time in proportion to the number of parts that come out.

    >>> from minipipe import simulate
    >>> from minipipe.schedules import gpipe
    >>> simulate(gpipe(2, 1)).explain().table()
    {0: {'fill': 0, 'wait': 3, 'drain': 0}, 1: {'fill': 1, 'wait': 0, 'drain': 2}}
    """
    found = obstacles(trace)
    own_ticks = {lane: _own_ticks(trace.spans_of(*lane)) for lane in trace.lanes}
    # floats: the end of a span and its length are each rounded by up to 2**-53 of the makespan
    rounding = trace.makespan * 2.0**-50
    parts = {
        idle: _causes(idle, found.get(idle), own_ticks[idle.device, idle.lane], rounding)
        for idle in trace.idle
    }
    return Explanation(trace.n_devices, trace.makespan, parts, trace.unit)


def _own_ticks(spans):
    """Return {kind: the most ticks that a device takes for work of that kind}."""
    longest = {}
    for span in spans:
        kind = getattr(span.label, "kind", None)
        if kind is not None:
            longest[kind] = max(longest.get(kind, 0), span.end - span.start)
    return longest


def _causes(idle, found, own_ticks, rounding):
    """Return the `IdlePart`s that tile `idle`. found: its rows of `obstacles`."""
    if idle.reason == "drain":
        return [IdlePart(idle.start, idle.end, "drain", None)]
    parts = []
    for start, end, blame in found:
        if idle.reason == "fill":
            parts.append(IdlePart(start, end, "fill", blame))
        elif type(blame) is Message:
            parts.append(IdlePart(start, end, "link", blame))
        else:
            own = own_ticks.get(getattr(blame.label, "kind", None))
            unequal = own is not None and blame.end - blame.start - own > rounding
            cut = min(max(start, blame.start + own), end) if unequal else end
            if start < cut:
                parts.append(IdlePart(start, cut, "wait", blame))
            if cut < end:
                parts.append(IdlePart(cut, end, "imbalance", blame))
    return parts


def _where(blame):
    """Return where `blame` is: '0 -> 1' for a message, else its lane."""
    return f"{blame.source} -> {blame.to}" if type(blame) is Message else lane_name(blame.device, blame.lane)


def _blamed(parts):
    """Return what is to blame for `parts`: for each place, the names of the work or of the messages."""
    places = {}
    for part in parts:
        places.setdefault(_where(part.blame), {})[str(part.blame.label)] = True
    words = [f"{place}: {' '.join(_shortened([*labels]))}" for place, labels in places.items()]
    return "; ".join(_shortened(words))


def _shortened(words, most=4):
    return words if len(words) <= most else [*words[:most - 2], "...", words[-1]]
