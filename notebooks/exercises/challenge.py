"""Schedules as texts, for notebook 12: how they become orders for one's own clock, and who judges them.

A checker prints one sentence. It returns what to go on with: the learner's schedule if it can run in the room
that there is, right or not; else 1F1B with both halves of each backward.
"""

from functools import cache
from math import inf

from minipipe import Costs, Schedule, simulate
from minipipe.cluster import Trace
from minipipe.order import Found, best_schedule
from minipipe.schedules import build

from .judging import module_of, part_named
from .start import alive, counts_after_forwards, fault_of, longest_wait, read

TICKS = {"F": 1, "B": 2, "I": 1, "W": 1}
COSTS = Costs(**TICKS)
IN_TWO, FINAL = (3, 4, 2), (4, 8, 3)    # devices, micro-batches, room on each device


def spelled(orders: list[list[tuple[str, int]]]) -> str:
    """Return the text of some orders, a line for each device."""
    return "\n".join(" ".join(f"{kind}{i}" for kind, i in order) for order in orders)


def halved(text: str) -> str:
    """Return a text with `I0 W0` in the place of `B0`, and so on.

    >>> halved("F0 B0")
    'F0 I0 W0'
    """
    halves = {"F": "F", "B": "IW", "I": "I", "W": "W"}
    return spelled([[(half, i) for kind, i in order for half in halves[kind]] for order in read(text)])


@cache
def best(K: int, M: int, room: int | tuple[int, ...], halves: bool = True) -> Found:
    """Return the best schedule that exists, with the proof, from `minipipe.order.best_schedule`."""
    return best_schedule(K, M, COSTS, room if isinstance(room, int) else list(room), halves=halves)


def check_in_two(answer: object) -> str:
    """Judge a schedule for 3 devices and 4 micro-batches with room for 2 on each device.

    >>> _ = check_in_two("F0 F1 B0 F2 B1 F3 B2 B3\\n" * 3)
    in_two: 'B0' is not an action here: write F, I or W and a micro-batch, such as F0 or I0, with blanks
    between them.
    (Until it can run, this notebook goes on with 1F1B.)
    """
    return _checked("in_two", answer, *IN_TWO)


def check_final(answer: object) -> str:
    """Judge a schedule for 4 devices and 8 micro-batches with room for 3 on each device."""
    return _checked("final", answer, *FINAL)


def _checked(name, answer, K, M, room):
    """Print the sentence about an answer; return it, or 1F1B in halves if it cannot run."""
    fault = fault_of(answer, "FIW", K, M)
    answer = answer.replace("...", "") if isinstance(answer, str) else ""
    fault = fault or _without_room(answer, room)
    if fault is not None:
        print(f"{name}: {fault}\n(Until it can run, this notebook goes on with 1F1B.)")
        return halved(one_f_one_b(K, M))
    trace, fewest, whole = trace_of(answer), best(K, M, room).makespan, trace_of(one_f_one_b(K, M)).makespan
    if trace.makespan == fewest:
        print(f"Right: {name} takes {fewest} ticks. 1F1B takes {whole}, and keeps {K} on device 0. "
              "No schedule is faster than yours: a search proves it.")
        return answer
    start = f"{trace.makespan} ticks: {trace.makespan - fewest} more than the best, {fewest}."
    if trace.makespan < whole:
        start = f"{trace.makespan} ticks, below the {whole} of 1F1B! The best takes {fewest}."
    print(f"{name}: {start} {_advice(read(answer), trace, room)}")
    return answer


def _without_room(text, room):
    """Return which device keeps more micro-batches than there is room for, in a sentence, or None."""
    for device, most in enumerate(alive(text)):
        if most > room:
            return f"Device {device} keeps {most} micro-batches, and has room for {room}: do a W earlier."
    return None


def _advice(orders, trace, room):
    """Return where to look next in a run that could be shorter: at one device."""
    saved = {}
    for device, order in enumerate(orders):
        others = [[*orders[:device], moved, *orders[device + 1:]] for moved in _moved(order, room)]
        saved[device] = trace.makespan - min(map(_ticks, others), default=trace.makespan)
    device = max(saved, key=saved.get)
    if saved[device] > 0:
        most = max(counts_after_forwards(orders[device]))
        spare = f" It has room for {room}, and keeps {most} at most." if most < room else ""
        return f"One action of device {device}, moved to another place, saves {saved[device]}.{spare}"
    wait = longest_wait(trace).replace("for B", "for I")    # an I sends what a B would
    return f"No single action in another place helps now: several move at once, as the hint says. {wait}"


def _moved(order, room):
    """Yield an order with one action moved up to 8 places, for each action and place, if there is room."""
    for old in range(len(order)):
        rest = [*order[:old], *order[old + 1:]]
        for new in range(max(0, old - 8), min(len(order), old + 9)):
            moved = [*rest[:new], order[old], *rest[new:]]
            if max(counts_after_forwards(moved)) <= room:
                yield moved


def _ticks(orders):
    """Return the makespan of orders of F, I and W by the course's clock; infinite if they cannot run."""
    part = part_named("needs with halves")
    try:
        return _course(part).clock(orders, TICKS)[-1][-1]
    except RuntimeError:
        return inf


@cache
def _course(part):
    """Return the course's own pipeline, up to a part."""
    return module_of(part, part.solution)


def one_f_one_b(K: int, M: int) -> str:
    """Return 1F1B as a text."""
    orders = build("1f1b", K, M).devices
    return spelled([[(action.kind, action.microbatch) for action in order] for order in orders])


def trace_of(text: str) -> Trace:
    """Return the run of a text in the package, without numbers."""
    return simulate(Schedule.from_text(text), COSTS)
