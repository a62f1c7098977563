"""The checker of notebook 00, where everybody starts."""

import re

from minipipe import Schedule, simulate
from minipipe.order import alive_microbatches

from . import short

DEVICES, MICROBATCHES, ROOM, FEWEST = 2, 3, 2, 12  # ticks, with F = 1 and B = 2
NAIVE = "F0 B0 F1 B1 F2 B2\nF0 B0 F1 B1 F2 B2"


def check_first_schedule(answer):
    """Judge a schedule for 2 devices and 3 micro-batches with room for 2, as text; print one sentence.

    Returns the text to go on with: the answer if it can run, else the naive order.

    >>> _ = check_first_schedule("F0 F1 B0 B1 F2 B2\\nF0 B0 F1 B1 F2 B2")
    It takes 15 ticks, and 12 are possible. Device 1 does nothing from tick 7 to 10: it waits for F2 of
    device 0. Could that come earlier, or device 1 do something else meanwhile?
    """
    sentence, can_run = _judged(answer)
    print(sentence)
    if not can_run:
        print("(Until it can run, the picture shows the naive order.)")
    return answer if can_run else NAIVE


def _judged(answer):
    """Return (a sentence about the answer, whether it can run)."""
    if not isinstance(answer, str):
        return "Write text with one line for each device, such as 'F0 F1 B1 B0'.", False
    words = answer.replace("...", "").split()
    if not words:
        return "Not solved yet: there is no action in it.", False
    for word in words:
        if not re.fullmatch(r"[FB]\d+", word):
            words = "write F or B and a micro-batch, such as F0 or B0, with blanks between them"
            return f"'{short(word)}' is not an action here: {words}.", False
    schedule = Schedule.from_text(answer.replace("...", ""))
    sentence = _fault(schedule)
    if sentence is not None:
        return _without_stages(sentence), False
    run = simulate(schedule)
    most = max(count for _, count in alive_microbatches(run, 0))  # device 1 never has more
    if most > ROOM:
        return (f"Device 0 has {most} micro-batches at once, and room for {ROOM}: each stays from its F to "
                "its B. Which backward could come earlier?"), True
    if run.makespan > FEWEST:
        return f"It takes {run.makespan} ticks, and {FEWEST} are possible. {_longest_wait(run)}", True
    return f"Right: {FEWEST} ticks, the fewest that are possible, with {ROOM} micro-batches at once.", True


def _fault(schedule):
    """Return why a schedule has another size or cannot run, in a sentence, or None."""
    if len(schedule.devices) != DEVICES:
        return f"Devices (lines) in your schedule: {len(schedule.devices)}; asked were {DEVICES}."
    indices = {part.microbatch for device in range(DEVICES) for part in schedule.parts(device)}
    if indices == set(range(1, MICROBATCHES + 1)):
        return "Micro-batches are counted from 0: here they are 0, 1 and 2."
    if max(indices) != MICROBATCHES - 1:
        return (f"Your micro-batches are {', '.join(map(str, sorted(indices)))}; asked were "
                f"{MICROBATCHES}: 0, 1 and 2.")
    faults = schedule.faults()
    more = f" ({len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"It cannot run: {faults[0]}{more}." if faults else None


def _longest_wait(run):
    """Return which device waits longest between two of its actions, and for what."""
    waits = [idle for idle in run.idle if idle.reason == "wait"]  # device 0 always waits for its last B
    longest = max(waits, key=lambda idle: idle.end - idle.start)
    action = _without_stages(str(longest.message))
    return (f"Device {longest.device} does nothing from tick {longest.start} to {longest.end}: it waits for "
            f"{action} of device {longest.source}. Could that come earlier, or device {longest.device} do "
            "something else meanwhile?")


def _without_stages(sentence):
    """Return a sentence of the package with B0 for 1B0: each device has one stage here, and no halves of B.

    >>> _without_stages("device 0 cannot start 0B0 before 1B0 on device 1")
    'device 0 cannot start B0 before device 1 has done B0'
    >>> _without_stages("device 0 never does 0B2 (missing): every stage needs F and B (or I and W).")
    'device 0 never does B2: each device needs F and B of each micro-batch.'
    """
    sentence = re.sub(r"\b\d+(?=[FB]\d)", "", sentence)
    sentence = re.sub(r"before (\w+) on (device \d+)", r"before \2 has done \1", sentence)
    sentence = re.sub(r" \(missing\): .*", ": each device needs F and B of each micro-batch.", sentence)
    return sentence.replace(" (duplicated)", "").replace("deadlock:", "nobody can go on, a deadlock:")
