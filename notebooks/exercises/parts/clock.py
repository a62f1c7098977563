"""What notebook 07 asks for: what an action waits for, and the clock; and the naive order, which it gives."""

import re

from ..judging import Part, calls


def of_needs(my):
    """Yield what each action of one, two and three devices waits for."""
    for K in (3, 2, 1):
        for device in range(K):
            for kind in "FB":
                yield f"needs({device}, {kind!r}, 1, {K})", my.needs(device, kind, 1, K)


ORDERS = {
    "F0 F1 B1 B0 on two devices": [[("F", 0), ("F", 1), ("B", 1), ("B", 0)]] * 2,
    "F0 B0 F1 B1 on three devices": [[("F", 0), ("B", 0), ("F", 1), ("B", 1)]] * 3,
    "F0 F1 B0 B1 on device 0, F0 B0 F1 B1 on device 1": [
        [("F", 0), ("F", 1), ("B", 0), ("B", 1)], [("F", 0), ("B", 0), ("F", 1), ("B", 1)],
    ],
}
DEADLOCK = [[("F", 0), ("B", 0), ("F", 1), ("B", 1)], [("F", 0), ("F", 1), ("B", 1), ("B", 0)]]


def of_clock(my):
    """Yield when actions start and end, in three orders with two prices, and what a deadlock does."""
    for words, orders in ORDERS.items():
        for ticks in ({"F": 1, "B": 2}, {"F": 3, "B": 4}):
            given = [list(order) for order in orders]
            actions = my.clock(given, ticks)
            yield ("How many things each action has (device, kind, i, start, end are five)",
                   sorted({len(action) for action in actions}))
            times = {(device, kind, i): [start, end] for device, kind, i, start, end in actions}
            for device, order in enumerate(orders):
                for kind, i in order:
                    yield (f"start and end of {kind}{i} on device {device}, in {words}, ticks={ticks}",
                           times.get((device, kind, i)))
            yield f"the orders after clock(orders, ticks), in {words}", given
            order = [(start, device) for device, _, _, start, _ in actions]
            starts = [start for start, _ in order]
            yield f"whether the actions are sorted by start, in {words}", starts == sorted(starts)
            yield f"whether equal starts are sorted by device, in {words}", order == sorted(order)
            yield f"the number of actions, in {words}", len(actions)
    try:
        my.clock([list(order) for order in DEADLOCK], {"F": 1, "B": 2})
    except RuntimeError:
        yield "F0 B0 F1 B1 against F0 F1 B1 B0", "RuntimeError"
    else:
        yield "F0 B0 F1 B1 against F0 F1 B1 B0", "no error"


RULES = """        return (device - 1, "F", i) if device > 0 else None
    return (device + 1, "B", i) if device < K - 1 else (device, "F", i)"""
F_RULE, B_RULE = ('(device - 1, "F", i) if device > 0 else None',
                  '(device + 1, "B", i) if device < K - 1 else (device, "F", i)')
NEEDS_MISTAKES = [
    (B_RULE, '(device, "F", i)', "Your B waits for its own F. Its derivative comes from device + 1."),
    (B_RULE, '(device + 1, "B", i)',
     "On the last device your B waits for device K, which does not exist. The cost gives its derivative."),
    (B_RULE, '(device + 1, "B", i) if device < K - 1 else None',
     "On the last device your B waits for nothing. The cost has to be there first: after its own F."),
    ('(device + 1, "B", i) if device < K - 1', '(device - 1, "B", i) if device > 0',
     "Your B waits for device - 1. Derivatives come back, from device + 1."),
    (F_RULE, '(device + 1, "F", i) if device < K - 1 else None',
     "Your F waits for device + 1, but activations go up."),
    (F_RULE, '(device - 1, "F", i)', "On device 0 your F waits for device -1. It needs nothing: None."),
    (F_RULE, '(device, "F", i - 1) if i > 0 else None',
     "Your F waits for the micro-batch before it. No rule joins the two: a device's order does that."),
    (RULES, re.sub(r'\((device[-+ 1]*), (".")', r"(\2, \1", RULES),
     "Your needs begin with the kind. Return (device, kind, i), in this order."),
]
CLOCK_MISTAKES = [
    ("max(free[device], done[need])", "free[device]",
     "Your actions start as soon as the device is free, before what they need. Take the later of the two."),
    ("max(free[device], done[need])", "done[need]",
     "Your actions start as soon as what they need is there: a device does two at once. Take the later."),
    ("max(free[device], done[need])", "free[device] + done[need]",
     "You add two moments: take the later one."),
    ("max(free[device], done[need])", "max(free[device], done[need]) + (need is not None)",
     "Your actions start a tick late. A message takes no time: it is there when its sender ends."),
    ("start + ticks[kind]", "start + 1", "All your actions take one tick. A backward takes ticks['B']."),
    ("if len(actions) == before:", "if False:",
     "Your clock goes round for ever in a deadlock. If a whole round starts nothing, raise RuntimeError."),
    ("raise RuntimeError(f\"deadlock: {[(d, *order[0]) for d, order in enumerate(left) if order]} "
     "wait\")", "break", "In a deadlock your clock ends quietly, with actions left. Raise RuntimeError."),
    ("return sorted(actions, key=lambda action: (action[3], action[0]))", "return sorted(actions)",
     "The times are right, but your list is not sorted by start."),
    ("key=lambda action: (action[3], action[0])", "key=lambda action: (action[3], -action[0])",
     "The times are right, but where two actions start together, the lower device comes first."),
    ("[list(order) for order in orders]", "orders", "Your clock empties the lists of its caller: copy them."),
    ("max(free[device], done[need])", "min(free[device], done[need])",
     "Your actions start at the earlier of two moments: wait for both, the device and the need."),
    ("max(free[device], done[need])", "max(*free, done[need], 0)",
     "Your actions wait until all devices are free. Each waits for its own device alone."),
]

PARTS = [
    Part("needs", 7, of_needs, NEEDS_MISTAKES, "two rules decide who waits for whom.", kept=True),
    Part("clock", 7, of_clock, CLOCK_MISTAKES,
         "start = max(device free, need over): that one line is a clock.", kept=True),
    Part("naive", 7, calls("naive", "device K M", [(0, 2, 3), (1, 2, 3)]), [],
         "one micro-batch goes there and back, then the next.", kept=True),
]
