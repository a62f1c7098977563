"""The checker of notebook 00, where everybody starts, and what it shares with that of notebook 12."""

import re

from minipipe import Schedule, simulate
from minipipe.cluster import Trace

from . import short

DEVICES, MICROBATCHES, ROOM, FEWEST = 2, 3, 2, 12  # ticks, with F = 1 and B = 2
NAIVE = "F0 B0 F1 B1 F2 B2\nF0 B0 F1 B1 F2 B2"


def check_first_schedule(answer: object) -> str:
    """Judge a schedule for 2 devices and 3 micro-batches with room for 2, as text; print one sentence.

    Returns the text to go on with: the answer if it can run, else the naive order.

    >>> _ = check_first_schedule("F0 F1 B0 B1 F2 B2\\nF0 B0 F1 B1 F2 B2")
    It takes 15 ticks, and 12 are possible. Device 1 does nothing from tick 7 to 10: it waits for F2 of
    device 0. Could that come earlier, or device 1 do something else meanwhile?
    """
    fault = fault_of(answer, "FB", DEVICES, MICROBATCHES)
    if fault is not None:
        print(f"{fault}\n(Until it can run, the picture shows the naive order.)")
        return NAIVE
    answer = answer.replace("...", "")
    run, most = simulate(Schedule.from_text(answer)), max(alive(answer))
    if most > ROOM:
        print(f"Device 0 has {most} micro-batches at once, and room for {ROOM}: each stays from its F to "
              "its B. Which backward could come earlier?")
    elif run.makespan > FEWEST:
        print(f"It takes {run.makespan} ticks, and {FEWEST} are possible. {longest_wait(run)}")
    else:
        print(f"Right: {FEWEST} ticks, the fewest that are possible, with {ROOM} micro-batches at once.")
    return answer


def fault_of(answer: object, kinds: str, K: int, M: int) -> str | None:
    """Return why an answer is not a schedule that can run on K devices, in a sentence, or None.

    kinds: of the actions that each device does with each of M micro-batches, such as "FB".
    """
    if not isinstance(answer, str):
        return f"Write text with one line for each device, such as 'F0 F1 {kinds[1]}0'."
    words = answer.replace("...", "").split()
    if not words:
        return "Not solved yet: there is no action in it."
    for word in words:
        if not re.fullmatch(rf"[{kinds}]\d+", word):
            allowed = f"{', '.join(kinds[:-1])} or {kinds[-1]}"
            return (f"'{short(word)}' is not an action here: write {allowed} and a micro-batch, such as F0 "
                    f"or {kinds[1]}0, with blanks between them.")
    schedule = Schedule.from_text(answer.replace("...", ""))
    found = sorted({int(word[1:]) for word in words})
    if len(schedule.devices) != K:
        return f"Devices (lines) in your schedule: {len(schedule.devices)}; asked were {K}."
    if found[0] != 0 or found[-1] != M - 1:
        return f"Your micro-batches are {', '.join(map(str, found))}; asked were {M}, counted from 0."
    faults = schedule.faults()
    return f"It cannot run: {_without_stages(faults[0])}." if faults else None


def read(text: str) -> list[list[tuple[str, int]]]:
    """Return the orders that a text spells, one for each of its lines.

    >>> read("F0 F1 B0 B1\\nF0 B0 F1 B1")[0]
    [('F', 0), ('F', 1), ('B', 0), ('B', 1)]
    """
    lines = [line.split() for line in text.strip().splitlines()]
    return [[(word[0], int(word[1:])) for word in line] for line in lines]


def alive(text: str) -> list[int]:
    """Return how many micro-batches each device keeps at most: each from its F to its B, or to its W.

    >>> alive("F0 F1 I0 W0 I1 W1\\nF0 I0 F1 W0 I1 W1")
    [2, 2]
    """
    return [max(counts_after_forwards(order)) for order in read(text)]


def counts_after_forwards(order: list[tuple[str, int]]) -> list[int]:
    """Return how many micro-batches are kept after each forward of an order."""
    count, found = 0, []
    for kind, _ in order:
        count += (kind == "F") - (kind in "BW")
        found += [count] * (kind == "F")
    return found


def longest_wait(run: Trace) -> str:
    """Return which device waits longest between two of its actions, and for what; "" if none waits."""
    waits = [idle for idle in run.idle if idle.reason == "wait"]
    if not waits:
        return ""
    longest = max(waits, key=lambda idle: idle.end - idle.start)
    action = _without_stages(str(longest.message))
    return (f"Device {longest.device} does nothing from tick {longest.start} to {longest.end}: it waits for "
            f"{action} of device {longest.source}. Could that come earlier, or device {longest.device} do "
            "something else meanwhile?")


def _without_stages(sentence):
    """Return a sentence of the package with B0 for 1B0, since each device has one stage here.

    >>> _without_stages("device 0 cannot start 0B0 before 1B0 on device 1")
    'device 0 cannot start B0 before device 1 has done B0'
    """
    sentence = re.sub(r"\b\d+(?=[FBIW]\d)", "", sentence)
    sentence = re.sub(r"before (\w+) on (device \d+)", r"before \2 has done \1", sentence)
    sentence = re.sub(r" \(missing\): .*|, as B, or as I and W", "", sentence)
    return sentence.replace(" (duplicated)", "").replace("deadlock:", "nobody can go on, a deadlock:")
