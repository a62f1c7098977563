"""The schedules with a name. Rows are devices, time runs to the right, a number is a micro-batch."""

from difflib import get_close_matches

from .schedule import Action, Schedule


def naive(n_stages, n_microbatches):
    """One device works at a time: each micro-batch goes all the way up and down before the next.

        F0          B0 F1          B1
           F0    B0       F1    B1
              F0B0           F1B1

    Makespan K M (F + B) ticks for K stages and M micro-batches; 1 micro-batch is alive per device.
    """
    _check(n_stages, n_microbatches)
    order = [(kind, i) for i in range(n_microbatches) for kind in "FB"]
    return _same_number_of_devices("naive", n_stages, n_microbatches, lambda device: order)


def gpipe(n_stages, n_microbatches, backward_order="lifo"):
    """All forwards, then all backwards (fill and drain).

        F0 F1 F2             B2 B1 B0
           F0 F1 F2       B2 B1 B0
              F0 F1 F2 B2 B1 B0

    backward_order: "lifo" runs the last micro-batch back first, as the paper's figure does, "fifo" the
    first one. Makespan (M + K - 1)(F + B) ticks; M micro-batches are alive on every device, either way.
    Source: Huang et al. 2018, arXiv 1811.06965.
    """
    _check(n_stages, n_microbatches)
    if backward_order not in ("lifo", "fifo"):
        raise ValueError(f"backward_order={backward_order!r} must be 'lifo' or 'fifo'")
    there = range(n_microbatches)
    back = reversed(there) if backward_order == "lifo" else there
    order = [("F", i) for i in there] + [("B", i) for i in back]
    name = "gpipe" if backward_order == "lifo" else "gpipe-fifo"
    return _same_number_of_devices(name, n_stages, n_microbatches, lambda device: order)


def one_f_one_b(n_stages, n_microbatches):
    """Warm up, then one forward and one backward in turn (1F1B, PipeDream-flush, DAPPLE).

        F0 F1 F2       B0 F3 B1    B2    B3
           F0 F1    B0 F2 B1 F3 B2    B3
              F0 B0 F1 B1 F2 B2 F3 B3

    Device r of K warms up with min(K - r - 1, M) forwards. Makespan (M + K - 1)(F + B) ticks, as
    GPipe's; but only min(M, K - r) micro-batches are alive on device r.
    Source: Narayanan et al. 2020, arXiv 2006.09503; Fan et al. 2020, arXiv 2007.01045.
    """
    _check(n_stages, n_microbatches)

    def order(device):
        warm_up = min(n_stages - device - 1, n_microbatches)
        actions = [("F", i) for i in range(warm_up)]
        for i in range(n_microbatches - warm_up):
            actions += [("F", warm_up + i), ("B", i)]
        return actions + [("B", i) for i in range(n_microbatches - warm_up, n_microbatches)]

    return _same_number_of_devices("1f1b", n_stages, n_microbatches, order)


BUILDERS = {
    "naive": naive,
    "gpipe": gpipe,
    "gpipe-fifo": lambda n_stages, n_microbatches: gpipe(n_stages, n_microbatches, backward_order="fifo"),
    "1f1b": one_f_one_b,
}


def build(name, n_stages, n_microbatches):
    """The schedule called `name`, one of `BUILDERS`; `ValueError` with the nearest name for any other.

    >>> build("1f1b", 2, 2) == one_f_one_b(2, 2)
    True
    """
    if not isinstance(name, str):
        raise ValueError(f"schedule={name!r} is no name: pass one of {', '.join(BUILDERS)}, or Schedule.from_text(...)")
    if name not in BUILDERS:
        nearest = get_close_matches(name.lower(), BUILDERS, n=1, cutoff=0.4)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        raise ValueError(f"unknown schedule {name!r}: {hint}there are {', '.join(BUILDERS)}")
    return BUILDERS[name](n_stages, n_microbatches)


def with_recompute(schedule):
    """`schedule` with an `R` before each `B`: the forward again, from the stage's stashed input.

    An R needs no gradient, so a device that waits for one has its R done before it arrives. Source: GPipe,
    section 2.3; Chen et al. 2016, arXiv 1604.06174. A schedule that has an R already is refused.
    """
    if any(action.kind == "R" for order in schedule.devices for action in order):
        raise ValueError(f"the schedule {schedule.name!r} recomputes already: use it as it is, with recompute=False")
    devices = tuple(
        tuple(
            step for action in order
            for step in ([Action("R", action.stage, action.microbatch), action] if action.kind == "B" else [action])
        )
        for order in schedule.devices
    )
    return Schedule(devices, schedule.n_stages, schedule.n_microbatches, schedule.name + "+recompute")


def _check(n_stages, n_microbatches):
    if n_stages < 1 or n_microbatches < 1:
        raise ValueError(f"n_stages={n_stages} and n_microbatches={n_microbatches} must both be at least 1")


def _same_number_of_devices(name, n_stages, n_microbatches, order):
    """Stage s on device s, where `order(device)` is a list of `(kind, microbatch)`."""
    devices = tuple(
        tuple(Action(kind, device, microbatch) for kind, microbatch in order(device)) for device in range(n_stages)
    )
    return Schedule(devices, n_stages, n_microbatches, name)
