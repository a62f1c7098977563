"""What builders of schedules share: how sizes are checked, and forwards and backwards in turn."""

from .actions import Action
from .limits import check_sizes
from .schedule import Schedule


def schedule_of(name, n_devices, n_microbatches, order, v=1, copy_of=(), versions=()):
    """The schedule in which device r does the actions of `order(r)`; `ValueError` for sizes without sense.

    v: stages on each device.
    name, copy_of, versions: as for `Schedule`.
    """
    n_devices, n_microbatches, v, _ = check_sizes(n_devices, n_microbatches, v)
    devices = tuple(tuple(order(r)) for r in range(n_devices))
    return Schedule(devices, v * n_devices, n_microbatches, name, copy_of, versions)


def forwards_and_backwards(stage, n_microbatches):
    """Two lists: the stage's F of all micro-batches, and its B."""
    return [[Action(kind, stage, i) for i in range(n_microbatches)] for kind in "FB"]


def in_turn(forwards, backwards, warm_up):
    """`warm_up` forwards; then in turn a forward, while there is one, and a backward.

    >>> print(*in_turn(*forwards_and_backwards(0, 3), warm_up=1))
    0F0 0F1 0B0 0F2 0B1 0B2
    """
    order = forwards[:warm_up]
    for k, backward in enumerate(backwards, warm_up):
        order += [*forwards[k:k + 1], backward]
    return order


def halved(order, delay):
    """`order` with I in place of each B, and behind it the W that belongs to the B `delay` before.

    >>> print(*halved(in_turn(*forwards_and_backwards(0, 3), warm_up=1), delay=1))
    0F0 0F1 0I0 0F2 0I1 0W0 0I2 0W1 0W2
    """
    actions, waiting = [], []
    for action in order:
        if action.kind == "F":
            actions.append(action)
            continue
        actions.append(action._replace(kind="I"))
        waiting.append(action._replace(kind="W"))
        if len(waiting) > delay:
            actions.append(waiting.pop(0))
    return actions + waiting
