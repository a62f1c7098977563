"""Why a run stopped before its end."""

from .requests import ANY


class DeadlockError(RuntimeError):
    """No device can move, and at least one has not finished. The message says who waits for what from whom."""


class MemoryLimitError(MemoryError):
    """A device held more bytes than its limit. The message lists what it was holding."""


def deadlock_message(waits):
    """waits: `(device, label, other device, asked)` of each lane that waits; the first of a device speaks for it.

    It waits for the message `label` from the other device, or, if `asked` is True, it has sent that message there and waits
    until the other device asks for it.
    """
    first = {}
    for wait in waits:
        first.setdefault(wait[0], wait)
    path = [next(iter(first))]
    while (other := first[path[-1]][2]) in first and other not in path:
        path.append(other)
    if other in path:
        path = path[path.index(other):]
        end = "a cycle, so none of them can ever go on"
        if len(path) == 1:
            end = "it waits for itself: let another lane send that, or send it before"
    elif other == ANY:
        end = "and nobody sends that any more"
    else:
        end = f"and device {other} has finished without {'asking for' if first[path[-1]][3] else 'sending'} it"
    return f"deadlock: {', '.join(_words(*first[device]) for device in path)}: {end}"


def _words(device, label, other, asked):
    other = other if other == ANY else f"device {other}"
    return f"device {device} waits " + (f"until {other} asks for {label}" if asked else f"for {label} from {other}")


def memory_message(device, now, held, limit):
    """held: {kind: bytes} of the device at tick `now`."""
    total = sum(held.values())
    holdings = ", ".join(f"{what} {n_bytes:,}" for what, n_bytes in held.items() if n_bytes)
    return (
        f"device {device} holds {total:,} bytes at tick {now}, above its limit of {limit:,}: {holdings}; "
        f"raise the limit by {total - limit:,} bytes, or give the device less to keep"
    )
