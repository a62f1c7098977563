"""The checker for notebook 00, where everybody starts."""

from minipipe import Schedule, simulate
from .schedules import runnable

GIVEN = Schedule.from_text("F0 B0 F1 B1 F2 B2\nF0 B0 F1 B1 F2 B2")
FEWEST = 12  # ticks, with F = 1 and B = 2


def check_first_schedule(schedule):
    """Judge a schedule for 2 devices and 3 micro-batches, as a `Schedule` or as text: asked are 12 ticks.

    >>> check_first_schedule("F0 F1 B0 B1 F2 B2\\nF0 B0 F1 B1 F2 B2")
    'It takes 15 ticks, and 12 are possible: look for a gap of device 1 in the picture, and ask it what
    it waits for.'
    """
    schedule, sentence = runnable(schedule, 2, 3)
    if sentence is not None:
        return sentence
    if schedule.devices == GIVEN.devices:
        return "Not solved yet: that is the schedule that you were given."
    ticks = simulate(schedule).makespan
    if ticks > FEWEST:
        return (f"It takes {ticks} ticks, and {FEWEST} are possible: look for a gap of device 1 in the "
                "picture, and ask it what it waits for.")
    return f"Right: {ticks} ticks. Device 1 never pauses, and device 0 is always one micro-batch ahead."
