"""Schedules as texts, for notebook 12: how they become orders for one's own clock, and who judges them.

A checker prints one sentence. It returns what to go on with: the learner's schedule if it can run in the room
that there is, right or not; else 1F1B with both halves of each backward.
"""

import re
from functools import cache
from math import inf

from minipipe import Costs, Schedule, simulate
from minipipe.cluster import Trace
from minipipe.order import Found, best_schedule
from minipipe.schedules import build

from . import called

TICKS = {"F": 1, "B": 2, "I": 1, "W": 1}
COSTS = Costs(**TICKS)
IN_TWO, FINAL = (3, 4, 2), (4, 8, 3)    # devices, micro-batches, room on each device
WORD = re.compile(r"[FBIW]\d+")
ALL_MOVED = "No single action in another place helps now: several have to move at once, as the hint says."


def read(text: str) -> list[list[tuple[str, int]]]:
    """Return the orders that a text spells, one for each of its lines.

    >>> read("F0 F1 B0 B1\\nF0 B0 F1 B1")[0]
    [('F', 0), ('F', 1), ('B', 0), ('B', 1)]
    """
    lines = [line.split() for line in text.strip().splitlines()]
    return [[(word[0], int(word[1:])) for word in line] for line in lines]


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


def alive(text: str) -> list[int]:
    """Return how many micro-batches each device keeps at most: each from its F to its B, or to its W.

    >>> alive("F0 F1 I0 W0 I1 W1\\nF0 I0 F1 W0 I1 W1")
    [2, 2]
    """
    return [max(count for count, _ in _counted(order)) for order in read(text)]


def _counted(order):
    """Yield (how many micro-batches are kept, the forward) after each forward of an order."""
    count = 0
    for kind, i in order:
        count += (kind == "F") - (kind in "BW")
        if kind == "F":
            yield count, f"F{i}"


@cache
def best(K: int, M: int, room: int | tuple[int, ...], halves: bool = True) -> Found:
    """Return the best schedule that exists, with the proof, from `minipipe.order.best_schedule`."""
    return best_schedule(K, M, COSTS, room if isinstance(room, int) else list(room), halves=halves)


def check_in_two(answer: object) -> str:
    """Judge a schedule for 3 devices and 4 micro-batches with room for 2 on each device.

    >>> _ = check_in_two("F0 F1 B0 F2 B1 F3 B2 B3\\n" * 3)
    in_two: Device 0 does B0 in one piece: write I0 and W0, which need not stand side by side.
    (Until it can run, this notebook goes on with 1F1B.)
    """
    return _checked("in_two", answer, *IN_TWO)


def check_final(answer: object) -> str:
    """Judge a schedule for 4 devices and 8 micro-batches with room for 3 on each device."""
    return _checked("final", answer, *FINAL)


def _checked(name, answer, K, M, room):
    """Print the sentence about an answer; return it as a text, or 1F1B in halves if it cannot run."""
    if answer is None or (isinstance(answer, str) and not answer.replace(".", "").strip()):
        schedule, sentence = None, f"Not solved yet: there is no action in {name}."
    else:
        schedule, sentence = _possible(answer, K, M, room)
        sentence = sentence and f"{name}: {sentence}"
    if sentence is not None:
        print(f"{sentence}\n(Until it can run, this notebook goes on with 1F1B.)")
        return halved(one_f_one_b(K, M))
    trace, fewest, text = simulate(schedule, COSTS), best(K, M, room).makespan, _text_of(schedule)
    whole = trace_of(one_f_one_b(K, M)).makespan
    if trace.makespan == fewest:
        print(f"Right: {name} takes {fewest} ticks. 1F1B takes {whole}, and keeps {K} on device 0. "
              "No schedule is faster than yours: a search proves it.")
        return text
    if trace.makespan < whole:
        start = f"{trace.makespan} ticks, below the {whole} of 1F1B! The best takes {fewest}."
    else:
        start = f"{trace.makespan} ticks: {trace.makespan - fewest} more than the best, {fewest}."
    print(f"{name}: {start} {_advice(text, trace, room)}")
    return text


def _text_of(schedule):
    """Return a schedule with one stage on each device as a text."""
    return spelled([[(action.kind, action.microbatch) for action in order] for order in schedule.devices])


def _possible(answer, K, M, room):
    """Return (the schedule, None) if an answer runs in halves in that room, else (None, a sentence)."""
    if callable(answer):
        orders = []
        for device in range(K):
            order, sentence = called(answer, device, K, M)
            if sentence is not None:
                return None, sentence
            orders.append(order)
        try:
            answer = spelled(orders)
        except (TypeError, ValueError):
            return None, 'A schedule returns a list of pairs such as ("F", 0), for one device.'
    if isinstance(answer, (list, tuple)):
        answer = "\n".join(map(str, answer))
    text = _text_of(answer) if isinstance(answer, Schedule) else answer
    if not isinstance(text, str):
        return None, "Write text with one line for each device, such as 'F0 F1 I0 W0'."
    sentence = _fault(text, K, M)
    if sentence is not None:
        return None, sentence
    schedule = Schedule.from_text(text)
    for device, order in enumerate(schedule.devices):
        for count, forward in _counted([(action.kind, action.microbatch) for action in order]):
            if count > room:
                return None, (f"Device {device} keeps {count} micro-batches from {forward} on, and has room "
                              f"for {room}. A W before {forward} makes room.")
    return schedule, None


def _fault(text, K, M):
    """Return why a text is no schedule of F, I and W that can run, in the notebook's words, or None."""
    lines = text.strip().splitlines()
    if len(lines) != K:
        return f"Lines in it: {len(lines)}. Write {K}, one for each device."
    for device, line in enumerate(lines):
        for word in line.split():
            if not WORD.fullmatch(word):
                return (f"Device {device} has {word!r} in its line. Write F, I or W and a number, such as "
                        "F0, and only blanks between them.")
            if int(word[1:]) >= M:
                return f"Device {device} has {word} in its line, but the last micro-batch is {M - 1}."
            if word[0] == "B":
                i = word[1:]
                return (f"Device {device} does B{i} in one piece: write I{i} and W{i}, which need not stand "
                        "side by side.")
    orders = read(text)
    for device, order in enumerate(orders):
        for i in range(M):
            for kind in "FIW":
                if (times := order.count((kind, i))) != 1:
                    often = f"does {kind}{i} {times} times" if times else f"never does {kind}{i}"
                    return f"Device {device} {often}: once is right."
            for first, second in ("FI", "IW"):
                if order.index((first, i)) > order.index((second, i)):
                    return f"Device {device} does {second}{i} before {first}{i}, and needs it for that."
    waiting = _played(orders)[1]
    if waiting:
        whose = [f"device {device} is at {kind}{i}, which waits for {need[1]}{need[2]} of device {need[0]}"
                 for (device, kind, i), need in waiting]
        return f"Nobody can go on, a deadlock: {'; '.join(whose)}."
    return None


def _advice(text, trace, room):
    """Return where to look next in a run that could be shorter: at one device."""
    orders, most, saved = read(text), alive(text), {}
    for device, order in enumerate(orders):
        others = [[*orders[:device], moved, *orders[device + 1:]] for moved in _moved(order, room)]
        saved[device] = trace.makespan - min(map(_ticks, others), default=trace.makespan)
    device = max(saved, key=saved.get)
    spare = [f" It has room for {room}, and keeps {count} at most." if count < room else "" for count in most]
    if saved[device] > 0:
        return f"One action of device {device}, moved to another place, saves {saved[device]}.{spare[device]}"
    waits = [idle for idle in trace.idle if idle.reason == "wait"]
    waits = [idle for idle in waits if spare[idle.device]] or waits
    if not waits:
        return ALL_MOVED
    longest = max(waits, key=lambda idle: idle.end - idle.start)
    where = f"Device {longest.device} waits long, from tick {longest.start} to {longest.end}."
    if spare[longest.device]:
        return f"{where}{spare[longest.device]} Can an F come earlier there, or a W later?"
    return f"{where} {ALL_MOVED}"


def _moved(order, room):
    """Yield an order with one action moved up to 8 places, for each action and place, if there is room."""
    for old in range(len(order)):
        rest = [*order[:old], *order[old + 1:]]
        for new in range(max(0, old - 8), min(len(order), old + 9)):
            moved = [*rest[:new], order[old], *rest[new:]]
            if all(count <= room for count, _ in _counted(moved)):
                yield moved


def _ticks(orders):
    """Return the makespan of orders of F, I and W; infinite if they cannot run."""
    makespan, waiting = _played(orders)
    return inf if waiting else makespan


def _played(orders):
    """Run orders of F, I and W; return (ticks, [(an action that never starts, what it waits for)])."""
    K, done, free, places = len(orders), {}, [0] * len(orders), [0] * len(orders)
    going = True
    while going:
        going, waiting = False, []
        for device, order in enumerate(orders):
            while places[device] < len(order):
                kind, i = order[places[device]]
                own, source = (device, "F", i), device - 1 if kind == "F" else device + 1
                needed = (device, "I", i) if kind == "W" else (source, kind, i) if 0 <= source < K else own
                if needed not in done and not (kind == "F" and device == 0):
                    waiting.append(((device, kind, i), needed))
                    break
                free[device] = done[device, kind, i] = max(free[device], done.get(needed, 0)) + 1
                places[device] += 1
                going = True
    return max(free), waiting


def one_f_one_b(K: int, M: int) -> str:
    """Return 1F1B as a text."""
    return _text_of(build("1f1b", K, M))


def trace_of(text: str) -> Trace:
    """Return the run of a text in the package, without numbers."""
    return simulate(Schedule.from_text(text), COSTS)
