"""Schedules in which micro-batches enter the pipeline at both ends, or a fold of one.

There are two replicas of the network: replica 0 has stage s on device s, replica 1
has it on device K - 1 - s. The first half of the micro-batches passes replica 0, the
second half replica 1, and their gradients are added. Each device has two stages,
each as long as with one replica, so parameters take twice the memory.
"""

from fractions import Fraction

from ..order.actions import Action
from ..order.costs import check_sizes
from ..order.names import SCHEDULES
from ..order.schedule import Schedule, make_schedule
from .zero_bubble import Turns


@SCHEDULES(
    "dualpipe-v", title="DualPipeV",
    makespan=lambda K, M, F, I, W: (
        M * (F + I + W) + Fraction(K - 1, 2) * (F + 2 * I - W) if F == I >= W else None
    ),
    alive=lambda K, M, device: K + Fraction(1, 2),
    source="Sea AI Lab's and DeepSeek's DualPipeV; the V of Qi et al. 2024, arXiv 2405.15362",
    stages_per_device=2,
)
def dualpipe_v(devices: int, microbatches: int) -> Schedule:
    """DualPipe cut in half: one replica in a V, whose arms are its two directions.

        F0 F1 F2 f0 i0 w0 f1 F3&b1 f2&B0 b2 f3&B1 b3 I2 W2 I3 W3    (device 0 of 2)
        F0 f0 F1 f1 F2 b0 f2&B0 F3&b1 f3&B1 b2 B2 i3 I3 w3 W3       (device 1)

    A large letter is stage r of device r, a small one stage 2K - 1 - r. For F = I >= W,
    with F, B and F&B those of both stages together and F&B between max(F, B) and F + B,
    the device that is idle longest is idle for (K - 1)(F&B + B - 3W) / 2 ticks. K + 1/2
    micro-batches are alive on each of K devices. M `microbatches` must be at least 2K,
    or `ValueError`.
    """
    devices, microbatches, _ = check_sizes(devices, microbatches)
    if microbatches < 2 * devices:
        raise ValueError(
            f"microbatches={microbatches} is too few for dualpipe-v on {devices} devices: use at least "
            f"{2 * devices}"
        )

    def order(r):
        return _eight_steps(Turns(r, 2 * devices - 1 - r), devices, r, microbatches)

    return make_schedule("dualpipe-v", devices, microbatches, order, v=2)


@SCHEDULES(
    "dualpipe", title="DualPipe",
    # if F&B takes F + B, all devices are idle equally long
    makespan=lambda K, M, F, I, W: (
        M * (F + I + W) + Fraction(K - 2, 2) * (F + 2 * I - W) if F == I >= W else None
    ),
    alive=lambda K, M, device: K + 1,
    source="DeepSeek-V3, arXiv 2412.19437, section 3.2.1",
    copies=2,
)
def dualpipe(devices: int, microbatches: int) -> Schedule:
    """A forward runs together with a backward in the other direction, to hide messages.

        F0 f2 F1 b2 f3&B0 b3 I1 W1        (device 0 of 2; small letters are replica 1)
        f2 F0 f3 B0 F1&b2 B1 i3 w3        (device 1)

    The forward and backward that overlap, F&B, take FB ticks. For F = I >= W and F&B
    between max(F, B) and F + B, the device that is idle longest is idle for
    (K/2 - 1)(F&B + B - 3W) ticks, and with F&B = F + B, all are; then the makespan is
    that much more than M (F + B). K + 1 micro-batches are alive on each of K devices. K
    and M, the `microbatches`, must be even and M >= 2K, or `ValueError`.
    """
    K, microbatches = _checked_both_ways("dualpipe", devices, microbatches, 2)
    half = microbatches // 2

    def order(r):
        if r < K // 2:
            return _eight_steps(Turns(r, K - 1 - r, first=(0, half)), K // 2, r, half)
        return _eight_steps(Turns(K - 1 - r, r, first=(half, 0)), K // 2, K - 1 - r, half)

    return make_schedule("dualpipe", K, microbatches, order, copy_of=(0,) * half + (1,) * half)


def _of_chimera(K, M, F, B):
    x, y = min(F, B), max(F, B)
    if M <= K:
        return K * x + (K + M - 2) * y
    if M % K == 0:
        return K * x + (2 * K - 2) * y + (M // K - 1) * (2 * x + (2 * K - 2) * y)
    return (2 * K * -(-M // K) + M % K - 2) * x if x == y else None


def _alive_in_chimera(K, M, device):
    n = min(M, K) // 2  # micro-batches in each direction
    return min(n, K - device) + min(n, device + 1)


@SCHEDULES(
    "chimera", title="Chimera",
    makespan=_of_chimera,
    alive=_alive_in_chimera,
    source="Li and Hoefler 2021, arXiv 2107.06925, sections 3.1 and 3.5",
    copies=2,
)
def chimera(devices: int, microbatches: int) -> Schedule:
    """Two 1F1B pipelines in opposite directions; each works in the gaps of the other.

        F0    F1 f2 b2 f3 b3 B0    B1    (device 0 of 4; small letters are replica 1)
           F0 f2 F1 f3 b2 B0 b3 B1
           f2 F0 f3 F1 B0 b2 B1 b3
        f2    f3 F0 B0 F1 B1 b2    b3

    A unit is K micro-batches, half of them in each direction. On stage s, micro-batch
    i = 0, 1, ... of a half has F in slot s + 2i and B in slot 2K - 1 - s + 2i, so that
    for an even K no device has two actions in a slot. The next unit begins 2K slots
    later ("direct concatenation"); the last one is smaller where K does not divide M.
    From K/2 + 1 micro-batches, on the outer devices, to K, on the inner ones, are alive
    if M >= K. K and M, the `microbatches`, must be even, or `ValueError`.

    For F = B = 1 the makespan is 2M + K - 2 ticks if K divides M. For other costs, let
    x be the shorter of F and B, and y the longer: M <= K takes K x + (K + M - 2) y
    ticks; and where K divides M, each further unit another 2x + (2K - 2) y.
    """
    devices, microbatches = _checked_both_ways("chimera", devices, microbatches, 0)
    K, half = devices, microbatches // 2

    def order(r):
        slots = {}
        for copy, s in enumerate((r, K - 1 - r)):
            for j in range(half):
                unit, i = divmod(j, K // 2)
                begin = 2 * K * unit + 2 * i
                slots[begin + s] = Action("F", s, copy * half + j)
                slots[begin + 2 * K - 1 - s] = Action("B", s, copy * half + j)
        return [action for _, action in sorted(slots.items())]

    return make_schedule("chimera", K, microbatches, order, copy_of=(0,) * half + (1,) * half)


def _eight_steps(turns, K, r, M):
    """Return a device's actions on M micro-batches after r others, in DualPipe's steps.

    Their gradients come back to it after 2K - 1 - r stages.
    """
    inner = K - 1 - r
    backwards = ["B1", "B0"] * (r + 1)
    steps = [
        ("F0", 2 * inner),
        ("F0 F1", r + 1),
        ("I1 W F1", inner),
        ("F0&B1 F1&B0" if inner else "F0 B1 F1&B0", 1),
        ("F0&B1 F1&B0", M - 2 * K + r),
        ("B1 F1&B0", inner),
        (" ".join(backwards[:r + 1]), 1),
        (" ".join(backwards[r + 1:]).replace("B", "I"), 1),
        ("W I0", inner),
        ("W", r + 1),
    ]
    for words, times in steps:
        turns.do(words, times)
    return turns.actions


def _checked_both_ways(name, devices, microbatches, per_device):
    """Return (devices, microbatches); raise `ValueError` unless both fit `name`.

    Each device needs `per_device` micro-batches.
    """
    devices, microbatches, _ = check_sizes(devices, microbatches)
    least = max(2, per_device * devices)
    if devices % 2:
        raise ValueError(
            f"{name} needs an even number of devices, devices={devices} is not: use {devices + 1}"
        )
    if microbatches % 2 or microbatches < least:
        raise ValueError(
            f"microbatches={microbatches} does not fit {name} on {devices} devices, which takes an "
            f"even number of at least {least}: use {max(least, microbatches + microbatches % 2)}"
        )
    return devices, microbatches
