"""The checker of notebook 00, where everybody starts."""

import re

from minipipe import simulate

from . import short
from .schedules import runnable

DEVICES, MICROBATCHES, FEWEST = 2, 3, 12  # ticks, with F = 1 and B = 2
NAIVE = "F0 B0 F1 B1 F2 B2\nF0 B0 F1 B1 F2 B2"


def check_first_schedule(answer):
    """Judge a schedule for 2 devices and 3 micro-batches, as text; print one sentence.

    Returns the text to go on with: the answer if it can run, else the naive order.

    >>> _ = check_first_schedule("F0 F1 B0 B1 F2 B2\\nF0 B0 F1 B1 F2 B2")
    It takes 15 ticks, and 12 are possible: look for a gap of device 1 in the picture, and ask what it
    waits for.
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
            words = "write F or B and a micro-batch, such as F0 or B0"
            return f"'{short(word)}' is not an action here: {words}.", False
    schedule, sentence = runnable(answer, DEVICES, MICROBATCHES)
    if sentence is not None:
        return sentence, False
    ticks = simulate(schedule).makespan
    if ticks > FEWEST:
        return (f"It takes {ticks} ticks, and {FEWEST} are possible: look for a gap of device 1 in the "
                "picture, and ask what it waits for."), True
    return f"Right: {ticks} ticks, the fewest that are possible. Device 1 never pauses.", True
