"""Schedules with the backward in halves: the stage before waits for I only, so W can fill a bubble.

Source of all: Qi et al. 2023, arXiv 2401.10241.
"""

from .actions import Action
from .interleaved import halves_in_turn
from .limits import check_sizes
from .schedule import Schedule
from .turns import Turns


def zero_bubble_h1(n_devices, n_microbatches):
    """1F1B's order, with I where it has B and W delayed by r on device r: less bubble in 1F1B's memory.

        F0 F1 F2    I0 W0 F3 I1 W1    I2 W2 I3 W3        (device 0 of 3, M = 4)
           F0 F1 I0    F2 I1 W0 F3 I2 W1 I3 W2 W3
              F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3

    Makespan M (F + B) + (K - 1)(F + I - W) ticks, with B = I + W, if W is no longer than F and I, and M >= K;
    min(M, K) micro-batches are alive on every device.
    """
    check_sizes(n_devices, n_microbatches)

    def order(r):
        forwards, backwards = ([Action(kind, r, i) for i in range(n_microbatches)] for kind in "FB")
        return halves_in_turn(forwards, backwards, min(n_devices - r - 1, n_microbatches), delay=r)

    return _schedule("zb-h1", n_devices, n_microbatches, order)


def zero_bubble_h2(n_devices, n_microbatches):
    """So many forwards ahead that, with W to fill in, no device waits between its first and last action.

    Device r of K warms up with 2(K - r) - 1 forwards and delays its W by 2r. Makespan M (F + B) + (K - 1) F
    ticks for F = I = W and M >= 2K - 1; 2K - 1 micro-batches are alive, twice 1F1B's.
    """
    check_sizes(n_devices, n_microbatches)

    def order(r):
        warm_up = min(n_microbatches, 2 * (n_devices - r) - 1)
        actions, waiting = [Action("F", r, i) for i in range(warm_up)], []
        for i in range(n_microbatches):
            actions.append(Action("I", r, i))
            waiting.append(Action("W", r, i))
            if i >= 2 * r:
                actions.append(waiting.pop(0))
            if warm_up + i < n_microbatches:
                actions.append(Action("F", r, warm_up + i))
        return actions + waiting

    return _schedule("zb-h2", n_devices, n_microbatches, order)


def zero_bubble_v(n_devices, n_microbatches):
    """Two stages on each device, placed in a V: device r has stage r and, on the way back, stage 2K - 1 - r.

    The last device has both middle stages, the first one the first and the last: a micro-batch's backward
    begins where its forward has ended, on device 0. Makespan M (F + B) + (K - 1) F / 2 ticks for F = I = W
    and M >= 2K - 1, if F is that of both stages together; K micro-batches are alive on every device, as on
    1F1B's first. Section 6 of the paper.

    Built for at least 2K - 1 micro-batches; what is too much is left out.
    """
    check_sizes(n_devices, n_microbatches)
    enough = max(2 * n_devices - 1, n_microbatches)

    def order(r):
        turns = Turns(r, 2 * n_devices - 1 - r)
        turns.do("F0", times=2 * (n_devices - r) - 1)
        turns.do("F1 F0", times=r)
        turns.do("F1 I1 W1", times=n_devices - r)
        while turns.forwards[1] < turns.forwards[0] or turns.forwards[0] < enough:
            if turns.forwards[0] < enough:
                turns.do("F0")
            turns.do("I0 W0 F1 I1 W1")
        turns.do("I0 I1", times=r)
        turns.do("I0 W0", times=n_devices - r)
        turns.do(" ".join(sorted((f"W{position}" for position, _ in turns.halves), reverse=True)))
        return [action for action in turns.actions if action.microbatch < n_microbatches]

    devices = tuple(tuple(order(r)) for r in range(n_devices))
    return Schedule(devices, 2 * n_devices, n_microbatches, "zb-v")


def _schedule(name, n_devices, n_microbatches, order):
    return Schedule(tuple(tuple(order(r)) for r in range(n_devices)), n_devices, n_microbatches, name)
