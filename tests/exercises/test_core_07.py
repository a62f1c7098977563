"""What notebook 07 says to rules and clocks that are not written as its solutions are, right and wrong."""

import pytest

from exercises.judging import judged, part_named

NEEDS, CLOCK = part_named("needs"), part_named("clock")

RIGHT_NEEDS = [
    """def needs(device, kind, i, K):
    before = {"F": device - 1, "B": device + 1}[kind]
    if before in range(K):
        return before, kind, i
    return None if kind == "F" else (K - 1, "F", i)
""",
    """def needs(device, kind, i, K):
    last = K - 1
    if kind == "B" and device == last:
        return (last, "F", i)
    if kind == "B":
        return (device + 1, "B", i)
    if device != 0:
        return (device - 1, "F", i)
""",
]
WRONG_NEEDS = {
    "and then starts without a derivative": """def needs(device, kind, i, K):
    if kind == "B":
        return (device, "F", i)
    if device:
        return (device - 1, "F", i)
""",
    "a device that does not exist": """def needs(device, kind, i, K):
    step = -1 if kind == "F" else 1
    if kind == "F" and device == 0:
        return None
    return (device + step, kind, i)
""",
    "waits for nothing. The cost": """def needs(device, kind, i, K):
    other = device - 1 if kind == "F" else device + 1
    return (other, kind, i) if 0 <= other < K else None
""",
    "Derivatives come back": """def needs(device, kind, i, K):
    if device > 0:
        return (device - 1, kind, i)
    return None if kind == "F" else (device, "F", i)
""",
    "Activations come from device - 1": """def needs(device, kind, i, K):
    if kind == "F":
        return None if device == K - 1 else (device + 1, "F", i)
    return (device, "F", i) if device == K - 1 else (device + 1, "B", i)
""",
    "device -1": """def needs(device, kind, i, K):
    if kind == "F":
        return (device - 1, kind, i)
    return (device, "F", i) if device == K - 1 else (device + 1, "B", i)
""",
    "No rule joins two micro-batches": """def needs(device, kind, i, K):
    if kind == "F":
        return None if i == 0 else (device, "F", i - 1)
    return (device + 1, "B", i) if device + 1 < K else (device, "F", i)
""",
    "it must be None": """def needs(device, kind, i, K):
    if kind == "F":
        return (device - 1, "F", i) if device > 0 else ()
    return (device + 1, "B", i) if device < K - 1 else (device, "F", i)
""",
    "stopped with TypeError": "def needs(device, kind):\n    return (device - 1, kind, 0)\n",
}

TICK_BY_TICK = """def clock(orders, ticks):
    left, ends, free, found, now = [list(o) for o in orders], {{}}, [0] * len(orders), [], 0
    while any(left):
        for d, order in enumerate(left):
            if order and {free} and ends.get(needs(d, *order[0], len(orders)), {unknown}) <= now:
                kind, i = order.pop(0)
                ends[d, kind, i] = free[d] = now + {price}
                found.append((d, kind, i, now, free[d]))
        now += 1
        if now > 1000:
            {late}
    return {found}
"""
RULES = {"free": "free[d] <= now", "unknown": "0 if needs(d, *order[0], len(orders)) is None else 10**6",
         "price": "ticks[kind]", "late": "raise RuntimeError('nothing can start')", "found": "found"}
WRONG_CLOCKS = {
    "it must be [7, 9]": {"free": "True"},
    "All your actions take one tick": {"price": "1"},
    "it must be [5, 7]": {"unknown": "0"},
    "ends quietly": {"late": "break"},
    "your list is not sorted by start": {"found": "sorted(found)"},
    "goes round for ever": {"late": "pass"},
    "the lower device comes first": {"found": "sorted(found, key=lambda action: (action[3], -action[0]))"},
    "The number of actions": {"found": "sorted(found * 2, key=lambda action: (action[3], action[0]))"},
}


@pytest.mark.parametrize("code", RIGHT_NEEDS)
def test_other_right_rules(code):
    assert judged(NEEDS, code) == f"Right: {NEEDS.right}"


def test_a_clock_that_looks_at_each_tick_is_right():
    assert judged(CLOCK, TICK_BY_TICK.format(**RULES)) == f"Right: {CLOCK.right}"


@pytest.mark.parametrize("words", WRONG_NEEDS)
def test_wrong_rules_are_named(words):
    assert words in judged(NEEDS, WRONG_NEEDS[words])


@pytest.mark.parametrize("words", WRONG_CLOCKS)
def test_wrong_clocks_are_named(words):
    assert words in judged(CLOCK, TICK_BY_TICK.format(**RULES | WRONG_CLOCKS[words]))
