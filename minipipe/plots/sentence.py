"""What the picture of a run shows, in one to three sentences."""

from collections import Counter

from ..cluster import COMPUTE, SHOWS, Message, Trace, duration, lane_name, ticks
from ..cluster.exchanges import call_of
from ..cluster.record import in_a_sentence
from ..cluster.trace import check_trace
from ..order import peak_microbatches
from ..order.actions import FORWARD, RULES


@SHOWS()
def sentence(trace: Trace, rival: Trace | None = None, longer: Trace | None = None) -> str:
    """Return what `trace` shows, as `Trace.sentence` does.

    Args:
        trace: a run.
        rival: another run, with which its makespan is compared.
        longer: the same run with more micro-batches.
    """
    for name, other in (("rival", rival), ("longer", longer)):
        if other is not None:
            check_trace(other)
            if other.unit != trace.unit or other.stop is not None:
                raise ValueError(
                    f"{name} is {other!r}, beside {trace!r}: pass a finished run in {trace.unit}"
                )
    title = trace.title or "The run"
    takes = duration(trace.makespan, trace.unit)
    if trace.stop is not None:
        return f"{title} stops after {takes}: {trace.stop}."
    if not any(trace.busy_ticks()):
        return f"{title} has not computed for any time."
    found = [f"{title} takes {takes}{_beside(trace, rival)} and is idle {_idle(trace)} of the time."]
    if rival is not None and trace.makespan == rival.makespan:
        ours, theirs = (max(peak_microbatches(one)) for one in (trace, rival))
        if ours != theirs:
            kept = f"{ticks(ours)} micro-batch{'es' * (ours != 1)}"
            found.append(f"It keeps {kept} at once, and {_title(rival)} keeps {ticks(theirs)}.")
    found += _largest_cause(trace)
    if longer is not None:
        n = _n_microbatches(longer)
        found.append(f"With {n} micro-batches it would be idle {_idle(longer)} of the time.")
    return " ".join(found)


def _title(rival):
    return rival.title or "the other run"


def _idle(trace):
    return f"{100 * float(trace.bubble()):.0f} %"


def _n_microbatches(trace):
    parts = (part for span in trace.spans for part in getattr(span.label, "parts", ()))
    return len({part.microbatch for part in parts if part.alive > 0})


def _beside(trace, rival):
    """Return how the makespan compares with that of `rival`, between commas."""
    if rival is None:
        return ""
    name, more = _title(rival), trace.makespan - rival.makespan
    if not more:
        return f", as many as {name},"
    return f", {ticks(abs(more))} {'more' if more > 0 else 'fewer'} than {name},"


def _largest_cause(trace):
    """Return [a sentence about the main cause of idle time], or [] without any."""
    why, unit = trace.explain(), trace.unit
    totals = Counter(why.totals())
    totals["ramp"] = totals.pop("fill", 0) + totals.pop("drain", 0)
    cause, total = max(totals.items(), key=lambda item: (item[1], item[0] != "ramp"))
    if not total:
        return []
    if cause == "ramp":
        return [
            f"Devices are idle for {duration(total, unit)} before their first work and after their last: the "
            "pipeline fills and drains."
        ]
    of_cause = {}  # {idle span of a lane that computes: the ticks of this cause}
    blamed = Counter()
    for idle, parts in why.parts.items():
        for part in parts if idle.lane == COMPUTE else ():
            if part.cause == cause:
                of_cause[idle] = of_cause.get(idle, 0) + part.end - part.start
                blamed[part.blame] += part.end - part.start
    if cause == "wait":
        return [_longest_wait(trace, why, max(of_cause, key=lambda idle: (of_cause[idle], -idle.start)))]
    places = Counter()
    for blame, length in blamed.items():
        places[_place(blame, trace)] += length
    place, most = places.most_common(1)[0]
    words = {"imbalance": "work that takes longer than their own", "link": "messages that are under way"}
    share = "" if most == total else f", {ticks(most)} of them"
    what = words.get(cause, "exchanges")
    return [f"Devices wait {duration(total, unit)} in all for {what}{share} {place}."]


def _place(blame, trace):
    """Return where something to blame is, as the end of a sentence."""
    if call := call_of(blame.label):
        return f"for {call}"
    if type(blame) is Message:
        return f"from device {blame.source} to device {blame.to}"
    return f"on {_name(blame.device, trace)}"


def _name(device, trace):
    return in_a_sentence(lane_name(device, COMPUTE, trace.names))


def _longest_wait(trace, why, idle):
    """Return a sentence: which device waits, how long, for what, and what delays it."""
    name, label = _name(idle.device, trace), idle.message
    words = f"{name[0].upper()}{name[1:]} waits {duration(idle.end - idle.start, trace.unit)} for {label}"
    if type(label) is str or not hasattr(label, "microbatch"):
        return f"{words}."
    what = "output" if RULES[label.kind].adds & FORWARD else "gradient"
    passed = [
        blame.device for blame in why.blamed(idle)
        if any(part.microbatch == label.microbatch for part in getattr(blame.label, "parts", ()))
        and type(blame) is not Message
    ]
    words += f", the {what} of micro-batch {label.microbatch}"
    if not passed:
        return f"{words}."
    # a forward may have passed there on its way up: the last visit of each device counts
    *others, last = map(str, reversed(dict.fromkeys(reversed(passed))))
    through = f"devices {', '.join(others)} and {last}" if others else f"device {last}"
    return f"{words}, which first passes through {through}."
