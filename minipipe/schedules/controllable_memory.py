"""Schedules that repeat a building block: one micro-batch's way through all devices.

The next micro-batch does the same 6 slots later. How long a micro-batch stays on a
device in the block decides how many are alive at once, and with that the memory. Two
stages on each device are placed in a V, as in ZB-V: device r of K has stages r and
2K - 1 - r. A slot is the time of one pass (F, I or W) through one stage.
"""

from fractions import Fraction
from itertools import accumulate

from ..order.actions import Action, before
from ..order.costs import check_sizes
from ..order.names import SCHEDULES
from ..order.schedule import Schedule

PAPER = "Qi et al. 2024, arXiv 2405.15362, Pipeline Parallelism with Controllable Memory"
PERIOD = 6  # slots: F, I and W of two stages


@SCHEDULES(
    "v-half", title="V-Half",
    makespan=lambda K, M, F, I, W: (
        3 * M * F + max(Fraction(3 * K - (4 if K % 2 else 7), 2), Fraction(K - 1, 2)) * F
        if M >= K > 1 and F == I == W else None
    ),
    alive=lambda K, M: min(M, (K + 2) // 2),
    source=PAPER,
    stages_per_device=2,
)
def v_half(devices: int, microbatches: int) -> Schedule:
    """About half of 1F1B's memory: F takes two slots per device, and f takes one.

        F . . . . . . f i . . . . . . . I    (the block of 3 devices: f and i are of
        . . F . . . f . . . i . . . . I .     the second stage; W goes where a slot
        . . . . F f . . . . . . i . I . .     is free)

    With M `microbatches` on K devices, at most min(M, (K + 2) // 2) are alive on one.
    The makespan for F = I = W and M >= K > 2 is M (F + B) + (3K - 7)/2 F ticks for an
    even K and M (F + B) + (3K - 4)/2 F for an odd one, if F is that of both stages
    together.
    """
    devices, microbatches, _ = check_sizes(devices, microbatches)
    block = _block(devices, climb=2, wait=0 if devices % 2 else 3, turn=1)
    return _repeated("v-half", block, microbatches, (devices + 2) // 2, ahead=devices % 2 == 0)


@SCHEDULES(
    "v-min", title="V-Min",
    makespan=lambda K, M, F, I, W: (
        3 * M * F + (Fraction(4 * K - 5, 2) - (K % 3 == 0)) * F
        if K > 1 and (M >= K or K % 3) and F == I == W else None
    ),
    alive=lambda K, M: min(M, (K + 4) // 3),
    source=PAPER,
    stages_per_device=2,
)
def v_min(devices: int, microbatches: int) -> Schedule:
    """About a third of 1F1B's memory, the least in a V: F and f take one slot each.

        F . . f i . . I        (the block of 2 devices)
        . F f . . i I .

    With M `microbatches` on K devices, at most min(M, (K + 4) // 3) are alive on one.
    The makespan for F = I = W and K > 1 is M (F + B) + (4K - 5)/2 F ticks, and F less
    where 3 divides K and M >= K, if F is that of both stages together.
    """
    devices, microbatches, _ = check_sizes(devices, microbatches)
    block = _block(devices, climb=1, wait=0 if devices % 3 else 2, turn=0)
    return _repeated("v-min", block, microbatches, (devices + 4) // 3, ahead=devices % 3 == 0)


def _block(K, climb, wait, turn):
    """Return for each device r the slots (F, f, i, I) of a micro-batch.

    F and i go from device 0 to device K - 1, and take `climb` slots from one to the
    next; f and I come back, in one slot each. f, i and I begin in the slot after the
    end of F, f and i; but i waits for `wait` slots more, and I for `turn` more:

        F on device r   climb r                            F on the last: top
        f on device r   top + 1 + (K - 1 - r)              f on device 0: end = top + K
        i on device r   end + 1 + wait + climb r
        I on device r   end + 1 + wait + top + 1 + turn + (K - 1 - r)

    where top = climb (K - 1). The next micro-batch comes 6 slots later, so on a device
    no two of the four may be equal modulo 6. For V-Half, turn = 1 keeps I off F, and
    wait = 3 keeps it off f, where K is even. For V-Min, i would meet F, and I would
    meet f, where 2K + wait is a multiple of 6: wait = 2 prevents it where 3 divides K.
    """
    top = climb * (K - 1)
    end = top + K
    gradient = end + 1 + wait
    return [
        (climb * r, top + 1 + (K - 1 - r), gradient + climb * r, gradient + top + 1 + turn + (K - 1 - r))
        for r in range(K)
    ]


def _repeated(name, offsets, n_microbatches, most, ahead):
    """Return the schedule that repeats the block, each action as early as possible.

    Args:
        name: the name of the schedule.
        offsets: the result of `_block`.
        n_microbatches: how often the block is repeated.
        most: the micro-batches that may be alive on a device.
        ahead: whether a forward may come before actions that the block has before it,
            which helps if the block itself waits.
    """
    n_stages = 2 * len(offsets)
    devices = [
        _Device((r, n_stages - 1 - r), slots, n_microbatches, 2 * most, ahead)
        for r, slots in enumerate(offsets)
    ]
    done = {(kind, stage, i) for kind, stage in (("F", -1), ("I", n_stages)) for i in range(n_microbatches)}
    while any(device.left or device.weights for device in devices):
        done.update([action for device in devices if (action := device.next(done))])  # one slot
    return Schedule(tuple(tuple(device.actions) for device in devices), n_stages, n_microbatches, name)


class _Device:
    """One device: its actions so far, those left of its blocks, and the W to do."""

    def __init__(self, stages, offsets, microbatches, most, ahead):
        passes = [("F", stages[0]), ("F", stages[1]), ("I", stages[1]), ("I", stages[0])]
        slots = [
            (offset + PERIOD * i, Action(*work, i))
            for offset, work in zip(offsets, passes) for i in range(microbatches)
        ]
        self.left = [action for _, action in sorted(slots)]
        self.needs = {action: set(before(*action, "FIW")) for action in self.left}
        self.actions, self.weights = [], []
        self.alive, self.most, self.ahead = 0, most, ahead

    def next(self, done):
        """Do one action in a slot, and return it, or None if there is nothing to do.

        It is the first action in the block's order that can be done, or else the oldest
        W. If a forward finds no room, a W comes first. `done` is what all devices have
        done before this slot.
        """
        seen = set()
        for position, action in enumerate(self.left):
            if action[:2] not in seen and self.needs[action] <= done and self._fits(position):
                if self.alive + action.alive > self.most:
                    break
                return self._do(self.left.pop(position))
            seen.add(action[:2])
            if len(seen) == 4:
                break
        return self._do(self.weights.pop(0)) if self.weights else None

    def _fits(self, position):
        """Tell whether the action at `position` leaves room for those before it."""
        if position == 0 or self.left[position].kind == "I":
            return True
        alive = self.alive - len(self.weights) + 1
        changes = [1 if action.kind == "F" else -1 for action in self.left[:position]]  # an I with its W
        return self.ahead and max(accumulate(changes, initial=alive)) <= self.most

    def _do(self, action):
        self.alive += action.alive
        if action.kind == "I":
            self.weights.append(action._replace(kind="W"))
        self.actions.append(action)
        return action
