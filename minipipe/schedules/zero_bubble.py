"""Schedules with the backward in halves: I at once, and W where it fills a bubble."""

from collections.abc import Sequence
from fractions import Fraction

from ..order.actions import Action, Overlap
from ..order.names import SCHEDULES
from ..order.schedule import Schedule, make_schedule
from .interleaved import group_of, in_groups
from .one_stage_each import forwards_and_backwards, in_turn, waits_for_gradients

PAPER = "Qi et al. 2023, arXiv 2401.10241"


def halved(order: list[Action], delay: int) -> list[Action]:
    """Return `order` with an I for each B; its W follows `delay` backwards later."""
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


def _of_zb_h1(K, M, F, I, W, c):
    """Return the makespan of ZB-H1.

    Each device works M (F + I + W), and waits (K - 1)(F + I) while one micro-batch goes
    up and down on the others. Meanwhile it does n - 1 = min(M, K) - 1 passes of other
    micro-batches: device 0 forwards before its first gradient arrives, the last device
    input gradients before its last one, and any of them a W in between. The shortest
    pass decides, since a longer one fits only in part.

    With messages, each of the waits of 1F1B is 2 c long; from the K-th on, W ticks of
    it are filled. This holds if W is the shortest pass.
    """
    shortest, n_waits = min(F, I, W), waits_for_gradients(K, M)
    if c and W > shortest:
        return None
    alone = M * (F + I + W) + (K - 1) * (F + I) - (min(M, K) - 1) * shortest
    first, filled = min(n_waits, K - 1), max(0, n_waits - (K - 1))
    return alone + 2 * (K - 1 + first) * c + filled * max(0, 2 * c - W)


@SCHEDULES(
    "zb-h1", title="Zero Bubble ZB-H1",
    makespan=_of_zb_h1,
    alive=lambda K, M, device: min(M, K),
    source=PAPER,
)
def zero_bubble_h1(devices: int, microbatches: int) -> Schedule:
    """1F1B with I where it has B, and W delayed by r on device r: a smaller bubble.

        F0 F1 F2    I0 W0 F3 I1 W1    I2 W2 I3 W3        (device 0 of 3, M = 4)
           F0 F1 I0    F2 I1 W0 F3 I2 W1 I3 W2 W3
              F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3

    Makespan M (F + B) + (K - 1)(F + I - min(F, I, W)) ticks on K devices, with B = I +
    W, if M >= K; messages that take up to W/2 ticks add 4 (K - 1) of them, if M > K and
    W is the shortest of the three. min(M, K) of M `microbatches` are alive on every
    device, as on 1F1B's first. Where a stage keeps c bytes of each from F to I and w
    from I to W, device r holds (K - r) c + r w after an F and (K - r - 1) c + (r + 1) w
    after an I, hence K max(c, w) on the fullest device, K c in 1F1B.
    """

    def order(r):
        whole = in_turn(*forwards_and_backwards(r, microbatches), warm_up=devices - r - 1)
        return halved(whole, delay=r)

    return make_schedule("zb-h1", devices, microbatches, order)


@SCHEDULES(
    "zb-h2", title="Zero Bubble ZB-H2",
    makespan=lambda K, M, F, I, W: 3 * M * F + (K - 1) * F if M >= 2 * K - 1 and F == I == W else None,
    alive=lambda K, M, device: min(M, 2 * K - 1),
    source=PAPER,
)
def zero_bubble_h2(devices: int, microbatches: int) -> Schedule:
    """Enough early forwards that no device waits between its first and last action.

    Device r of K devices has the order of eager 1F1B, with I where that has B, and
    delays its W by 2r. Makespan M (F + B) + (K - 1) F ticks for F = I = W and
    M >= 2K - 1 `microbatches`; 2K - 1 are alive, twice 1F1B's.
    """

    def order(r):
        whole = in_turn(*forwards_and_backwards(r, microbatches), warm_up=2 * (devices - r - 1))
        return halved(whole, delay=2 * r)

    return make_schedule("zb-h2", devices, microbatches, order)


# Orders of a device with two stages, in words: for instance, F0 is the next forward of its first stage.

class Turns:
    """The actions of one device so far, which are added in words.

    Forwards of a stage take the micro-batches in turn; so do backwards. A word is F, B
    or I with 0 or 1 for the stage, F0&B1 for two that overlap, W0 or W1 for the W of
    the oldest I of that stage without one, and W for that of either stage.

    Args:
        stages: the two stages of the device.
        first: the number of the first micro-batch of each stage.

    >>> turns = Turns(0, 3)
    >>> turns.do("F0", times=2)
    >>> turns.do("F1 F0&B1 I1 W")
    >>> " ".join(map(str, turns.actions))
    '0F0 0F1 3F0 0F2&3B0 3I1 3W1'
    """

    def __init__(self, *stages: int, first: Sequence[int] = (0, 0)):
        self.actions: list[Action | Overlap] = []
        # for each stage, the next micro-batch
        self.forwards, self.backwards = list(first), list(first)
        # each I without a W so far, as (position of the stage, micro-batch)
        self.halves: list[tuple[int, int]] = []
        self._stages = stages

    def do(self, words: str, times: int = 1) -> None:
        """Append the actions that `words` stand for, several `times`."""
        for word in words.split() * times:
            parts = [self._next(*part) for part in word.split("&")]
            self.actions.append(Overlap(*parts) if len(parts) == 2 else parts[0])

    def _next(self, kind, position=None):
        if kind == "W":
            half = next(half for half in self.halves if position in (None, str(half[0])))
            self.halves.remove(half)
            return Action("W", self._stages[half[0]], half[1])
        position = int(position)
        counter = self.forwards if kind == "F" else self.backwards
        microbatch = counter[position]
        counter[position] += 1
        if kind == "I":
            self.halves.append((position, microbatch))
        return Action(kind, self._stages[position], microbatch)


@SCHEDULES(
    "zb-v", title="Zero Bubble ZB-V",
    makespan=lambda K, M, F, I, W: (
        3 * M * F + Fraction(K - 1, 2) * F if M >= 2 * K - 1 and F == I == W else None
    ),
    alive=lambda K, M, device: K if M >= 2 * K - 1 else None,
    source=f"{PAPER}, section 6",
    also={"ZBVZeroBubble": "PyTorch"},
    stages_per_device=2,
)
def zero_bubble_v(devices: int, microbatches: int) -> Schedule:
    """Two stages on each device, in a V: device r has the stages r and 2K - 1 - r.

    The last device has both middle stages, device 0 the first and the last stage, so
    that the backward of a micro-batch begins on the device where its forward has ended.
    Makespan M (F + B) + (K - 1) F / 2 ticks for F = I = W and M >= 2K - 1
    `microbatches`, if F is that of both stages together; K micro-batches are alive on
    each of K devices, as on 1F1B's first. Fewer micro-batches have the order of 2K - 1,
    less the others.
    """

    def order(r):
        enough = max(2 * devices - 1, microbatches)
        turns = Turns(r, 2 * devices - 1 - r)
        turns.do("F0", times=2 * (devices - r) - 1)
        turns.do("F1 F0", times=r)
        turns.do("F1 I1 W1", times=devices - r)
        while turns.forwards[1] < turns.forwards[0] or turns.forwards[0] < enough:
            if turns.forwards[0] < enough:
                turns.do("F0")
            turns.do("I0 W0 F1 I1 W1")
        turns.do("I0 I1", times=r)
        turns.do("I0 W0", times=devices - r)
        turns.do(" ".join(sorted((f"W{position}" for position, _ in turns.halves), reverse=True)))
        return [action for action in turns.actions if action.microbatch < microbatches]

    return make_schedule("zb-v", devices, microbatches, order, v=2)


@SCHEDULES(
    "interleaved-zb", title="Interleaved Zero Bubble",
    makespan=lambda K, M, F, I, W: 3 * M * F + Fraction(K - 1, 2) * F if M % K == 0 and F == I == W else None,
    alive=lambda K, M, device: K if M % K == 0 else None,
    source=f"PyTorch's ScheduleInterleavedZeroBubble; {PAPER}",
    also={"InterleavedZeroBubble": "PyTorch"},
    stages_per_device=2,
)
def interleaved_zero_bubble(devices: int, microbatches: int, v: int = 2) -> Schedule:
    """Interleaved 1F1B in halves: I at once, since the stage before waits, and W later.

    Device r of K devices warms up with (K - r - 1) + (v - 1) g forwards, and does its W
    with a delay of r, to fill the bubble. Makespan M (F + B) + (K - 1)/2 (F + I - W)
    ticks for M `microbatches`, v = 2 and F = I = W if K divides M; then K of them are
    alive on every device.
    """
    group = group_of(devices, microbatches, v)

    def order(r):
        warm_up = (devices - r - 1) + (v - 1) * group
        return halved(in_turn(*in_groups(devices, microbatches, v, group, r), warm_up), delay=r)

    return make_schedule("interleaved-zb", devices, microbatches, order, v)
