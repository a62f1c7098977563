"""Why a run stopped before its end."""


class DeadlockError(RuntimeError):
    """No device can move, and at least one has not finished. The message says who waits for what from whom."""


class MemoryLimitError(MemoryError):
    """A device held more bytes than its limit. The message lists what it was holding."""


def deadlock_message(waiting):
    """waiting: for each blocked device, the `(source, label)` of the message that it waits for."""
    path = [next(iter(waiting))]
    while waiting[path[-1]][0] in waiting and waiting[path[-1]][0] not in path:
        path.append(waiting[path[-1]][0])
    last = waiting[path[-1]][0]
    if last in path:
        path, end = path[path.index(last):], "a cycle, so none of them can ever go on"
    else:
        end = f"and device {last} has finished without sending it"
    links = [f"device {device} waits for {waiting[device][1]} from device {waiting[device][0]}" for device in path]
    return f"deadlock: {', '.join(links)}: {end}"


def memory_message(device, now, held, limit):
    """held: {kind: bytes} of the device at tick `now`."""
    total = sum(held.values())
    holdings = ", ".join(f"{what} {n_bytes:,}" for what, n_bytes in held.items() if n_bytes)
    return (
        f"device {device} holds {total:,} bytes at tick {now}, above its limit of {limit:,}: {holdings}; "
        f"raise the limit by {total - limit:,} bytes, or give the device less to keep"
    )
