"""How long a program may wait on real hardware before the run gives up."""

import os

from ..checks import real_number
from ..cluster.errors import Wait

PATIENCE = "MINIPIPE_PATIENCE"  # the variable of the environment with the seconds
SECONDS = 600


def patience():
    """The seconds that a wait may take: those of the variable `MINIPIPE_PATIENCE`, or 600."""
    text = os.environ.get(PATIENCE)
    if text is None:
        return SECONDS
    try:
        return real_number(PATIENCE, float(text), above=0)
    except ValueError:
        raise ValueError(f"{PATIENCE}={text!r} must be seconds, a number above 0, such as 60") from None


def out_of_patience(lanes, seconds):
    """A `TimeoutError` that says who has waited too long for what, and what the others do.

    lanes: `Lane`s that are not over; `starts` of one that computes is its Compute.
    """
    waits = [str(Wait(lane.device, lane.name, *lane.waits_for)) for lane in lanes if lane.waits_for]
    works = [f"device {lane.device} works on {lane.starts.label}" for lane in lanes if lane.starts]
    return TimeoutError(
        f"{', '.join(waits + works)}: for more than {seconds:g} seconds. "
        f"If that is no mistake, set {PATIENCE} to more seconds"
    )
