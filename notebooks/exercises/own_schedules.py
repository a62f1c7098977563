"""Checkers for notebook 25, schedules of one's own."""

from itertools import pairwise

from minipipe import Costs, Schedule, simulate
from minipipe.order import Overlap, best_schedule, peak_microbatches

from .schedules import runnable

COSTS = Costs(F=1, B=2, I=1, W=1)
BROKEN = """
F0 F1 F2 B0 B1 B2
F0 B0 F1 B1 F2 B2
F0 F1 B0 B1 F2 B2
"""


def check_repaired(schedule):
    """Judge the schedule `BROKEN` after two neighbours on one device have been exchanged, so that it runs.

    >>> check_repaired(BROKEN)
    'Not solved yet: that is the broken schedule, unchanged.'
    """
    broken = Schedule.from_text(BROKEN)
    repaired, sentence = runnable(schedule, 3, 3)
    if sentence is not None:
        unchanged = _same_orders(schedule, broken)
        return "Not solved yet: that is the broken schedule, unchanged." if unchanged else sentence
    changed = [(before, after) for before, after in zip(broken.devices, repaired.devices) if before != after]
    n_ticks = simulate(repaired, COSTS).makespan
    if len(changed) > 1:
        return (f"It runs, in {n_ticks} ticks, but you changed {len(changed)} devices: one exchange on "
                "one device is enough.")
    if not any(_exchanged(changed[0][0], place) == changed[0][1] for place in range(5)):
        return (f"It runs, in {n_ticks} ticks, but more than two neighbours have changed places: "
                "one exchange is enough.")
    device = next(r for r in range(3) if broken.devices[r] != repaired.devices[r])
    fastest = min(simulate(other, COSTS).makespan for other in _repairs(broken))
    more = " No other is faster."
    if fastest < n_ticks:
        more = f" Another one makes it {n_ticks - fastest} ticks faster."
    return (f"Right: one exchange on device {device} breaks the circle, and the schedule takes "
            f"{n_ticks} ticks.{more}")


def _repairs(broken):
    """All schedules that run, and differ from `broken` by two neighbours on one device."""
    for device, order in enumerate(broken.devices):
        for place in range(len(order) - 1):
            orders = (*broken.devices[:device], _exchanged(order, place), *broken.devices[device + 1:])
            schedule = Schedule(orders, broken.n_stages, broken.n_microbatches)
            if not schedule.faults():
                yield schedule


def _same_orders(answer, broken):
    try:
        return Schedule.from_text(answer).devices == broken.devices
    except (ValueError, TypeError, AttributeError):
        return getattr(answer, "devices", None) == broken.devices


def _exchanged(order, place):
    """`order` with the actions at `place` and behind it exchanged."""
    return (*order[:place], order[place + 1], order[place], *order[place + 2:])


def check_beats_1f1b(schedule):
    """Judge a schedule for 3 devices and 4 micro-batches with at most 3, 2 and 1 of them alive, as in 1F1B.

    >>> check_beats_1f1b(best_schedule(3, 4, COSTS, [3, 2, 1]).schedule)
    'It takes 18 ticks, as 1F1B does, and with whole backwards none is shorter in this memory: split
    each B into I and W.'
    """
    return _judge(schedule, [3, 2, 1], "Right: 16 ticks, 2 fewer than 1F1B in the same memory: "
                                       "at the end, no gradient on its way down waits for a W.")


def check_best_with_three(schedule):
    """Judge a schedule for 3 devices and 4 micro-batches with at most 3 of them alive on each: the best is
    that of ZB-H1.

    >>> check_best_with_three("F0 F1 F2 F3 B0 B1 B2 B3\\n" * 3)[:53]
    'Micro-batches alive on device 0: 4; allowed are 3. Pu'
    """
    return _judge(schedule, [3, 3, 3],
                  "Right: 14 ticks, as ZB-H1 takes, and with one stage a device none is "
                  "shorter in this memory.")


def _judge(answer, limits, praise):
    schedule, sentence = runnable(answer, 3, 4)
    if sentence is None:
        sentence = _foreign(schedule)
    if sentence is not None:
        return sentence
    trace = simulate(schedule, COSTS)
    for device, (peak, limit) in enumerate(zip(peak_microbatches(trace), limits)):
        if peak > limit:
            return (f"Micro-batches alive on device {device}: {peak}; allowed are {limit}. Put a B, or a W, "
                    f"before one of its forwards. ({trace.makespan} ticks.)")
    best = best_schedule(3, 4, COSTS, limits, halves=True).makespan
    return praise if trace.makespan == best else _too_long(schedule, trace, best)


def _foreign(schedule):
    """A sentence about an action that nobody asked for, or None."""
    for action in (action for order in schedule.devices for action in order):
        if isinstance(action, Overlap) or action.kind not in "FBIW":
            return f"There is {action} in it: asked were F, B, I and W, one at a time."
    return None


def _too_long(schedule, trace, best):
    """What makes the run longer than `best` ticks, in words."""
    n_whole = sum(action.kind == "B" for order in schedule.devices for action in order)
    if n_whole == 12 and trace.makespan == 18:
        return ("It takes 18 ticks, as 1F1B does, and with whole backwards none is shorter in this memory: "
                "split each B into I and W.")
    start = f"It takes {trace.makespan} ticks, the best is {best}."
    if n_whole == 12:
        return (f"{start} All backwards are whole. Begin with 1F1B, which takes 18, then split "
                "each B into I and W.")
    path = [step.what for step in trace.critical_path() if hasattr(step.what, "device")]
    for span, after in pairwise(path):
        if span.label.kind == "B" and after.device != span.device:
            return (f"{start} Device {after.device} waits for all of {span.label}, but needs only "
                    "its half I: split it.")
    hasty = next((span for place, span in enumerate(path) if span.label.kind == "W"
                  and _delays(span, path[place + 1:])), None)
    if hasty is not None:
        return (f"{start} {hasty.label} is on the critical path, before work that another device waits for: "
                "can it be done later?")
    longest = max((idle for idle in trace.idle if idle.reason != "drain"),
                  key=lambda idle: idle.end - idle.start)
    return f"{start} The longest wait: {longest}."


def _delays(span, path):
    """Whether the rest of the critical path goes on where `span` was, and then to another device."""
    return bool(path) and path[0].device == span.device and any(after.device != span.device for after in path)
