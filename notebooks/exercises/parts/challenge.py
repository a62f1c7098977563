"""What notebook 12 asks for: `needs` that knows the halves of a backward, I and W."""

from ..judging import Part

HALVES = ["F0 F1 I0 W0 I1 W1", "F0 I0 F1 W0 I1 W1"]


def of_needs(my):
    """Yield what each action waits for, on three devices, on two and on one; then two devices in halves."""
    first = my.needs(0, "I", 1, 3)
    if first is not None:
        yield "the type of needs(0, 'I', 1, 3)", type(first).__name__
    for K in (3, 2, 1):
        for device in range(K):
            for kind in "IWFB":
                yield f"needs({device}, {kind!r}, 1, {K})", my.needs(device, kind, 1, K)
    orders = [[(word[0], int(word[1])) for word in line.split()] for line in HALVES]
    yield f"your clock on {' and '.join(HALVES)}", my.clock(orders, {"F": 1, "I": 1, "W": 1})


LATER = '''    if kind == "W":
        return (device, "I", i)
    return (device + 1, kind, i)'''
OWN, NEXT = 'return (device, "I", i)', "return (device + 1, kind, i) if device < K - 1"

NEEDS_MISTAKES = [
    (LATER, '    return (device + 1, "B", i)',
     "That is `needs` of notebook 07, without halves. An I waits for the next device's I, a W for its own."),
    (LATER, "    return (device + 1, kind, i)",
     "Your W waits for the next device's W. What it needs, dZ, its own I has computed: nobody sends it."),
    (OWN, 'return (device, "F", i)', "Your W waits for its own F only. It needs dZ, which its own I brings."),
    (OWN, 'return (device + 1, "I", i) if device < K - 1 else (device, "F", i)',
     "Your W waits for what its I waits for, and might come first. It needs dZ, which its own I computes."),
    (OWN, 'return (device, "B", i)', "Your W waits for a B, but there is none. It needs its own I's dZ."),
    (OWN, 'return (device, "I", i) if device < K - 1 else (device, "F", i)',
     "On the last device your W waits for its F only. There, too, dZ is there after its own I."),
    (OWN, "return None", "Your W waits for nothing. Its own I brings the dZ that it needs."),
    (NEXT, 'return (device + 1, "B", i) if device < K - 1',
     "Your I waits for a whole B of the next device. That does I and W now: wait for its I."),
    (NEXT, 'return (device + 1, "I", i) if device < K - 1',
     "Your B waits for an I of the next device. Where backwards are whole, a B waits for a B, as before."),
    (NEXT, 'return (device + 1, "W" if kind == "I" else "B", i) if device < K - 1',
     "Your I waits for the next device's W, the very wait that the cut is to save. Wait for its I."),
    (NEXT, 'return (device + 1, kind, i) if kind == "I" or device < K - 1',
     "On the last device your I waits for device K, which does not exist. The cost gives its derivative."),
    ('(device, "F", i)', '(None if kind == "I" else (device, "F", i))',
     "On the last device your I waits for nothing. It needs the cost: its own F."),
    (NEXT, 'return (device + 1, kind, i) if kind == "B" and device < K - 1',
     "Your I waits for its own F on all devices. All but the last wait for the I of device + 1."),
]

PARTS = [
    Part("needs", 12, of_needs, NEEDS_MISTAKES,
         "only I sends something back; W waits for its own device.", variant="with halves", kept=True),
]
