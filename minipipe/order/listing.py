"""A list of faults that somebody can read."""

import re

MOST = 20  # faults that a message shows


def listing(faults):
    """`faults`, one a line; of more than 20, some of each kind, and how many more there are.

    Faults are of one kind if they differ only in their numbers and actions.

    >>> print(listing(["device 0 is slow", "device 1 is slow"]))
    - device 0 is slow
    - device 1 is slow
    >>> print(listing([*(f"device {r} is slow" for r in range(1000)), "stage 1 is lost"])[-66:])
    device 18 is slow
    - stage 1 is lost
    - and 981 more, of these kinds
    """
    if len(faults) > MOST:
        kinds = {}
        for place, fault in enumerate(faults):
            kinds.setdefault(re.sub(r"\d+[A-Z]\d+|\d+", "#", fault), place)
        first = list(kinds.values())[:MOST]
        others = [place for place in range(len(faults)) if place not in first]
        shown = sorted(first + others[:MOST - len(first)])
        like = "of these kinds" if len(kinds) <= MOST else "of these kinds and others"
        faults = [*(faults[place] for place in shown), f"and {len(faults) - MOST} more, {like}"]
    return "\n".join(f"- {fault}" for fault in faults)
