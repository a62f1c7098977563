"""Schedules with several stages on each device: stage s is on device s mod K.

Each stage is v times as short, so filling and draining the pipeline takes v times less;
in return, there are v times as many messages. Rows are devices, time runs to the right;
`F` is a forward of a device's first stage, `f` one of its second.
"""

from fractions import Fraction

from ..order.actions import Action
from ..order.costs import check_sizes
from ..order.names import SCHEDULES
from ..order.schedule import Schedule, make_schedule
from .one_stage_each import in_turn


@SCHEDULES(
    "interleaved", title="Interleaved 1F1B",
    makespan=lambda K, M, F, B, I, c: (
        (M + Fraction(K - 1, 2)) * (F + B) + 2 * (2 * K - 1) * c
        if M % K == 0 and c <= min(F, I) / 2 else None
    ),
    alive=lambda K, M, device: Fraction(min(2 * M, 3 * K - 1 - 2 * device), 2) if M % K == 0 else None,
    source="Narayanan et al. 2021, arXiv 2104.04473",
    also={"Interleaved1F1B": "PyTorch"},
    stages_per_device=2,
)
def interleaved_one_f_one_b(devices: int, microbatches: int, v: int = 2) -> Schedule:
    """1F1B over v stages on each device, in groups of g micro-batches.

        F0 F1 f0 f1 F2 b0 F3 b1 f2 B0 f3 B1    b2    b3    B2    B3    (device 0 of 2)
           F0 F1 f0 b0 f1 b1 F2 B0 F3 B1 f2 b2 f3 b3    B2    B3

    The k-th forward of a device is of its stage (k // g) mod v, the k-th backward of
    its stage v - 1 - (k // g) mod v. Device r of K devices warms up with
    2(K - r - 1) + (v - 1) g forwards, so that the group has passed all stages. If K
    divides M, the `microbatches`, g = K, and the makespan is (M + (K - 1)/v)(F + B)
    ticks, if F and B are those of all the device's stages together; and 2 (K v - 1) c
    more if v > 1 and a message takes c ticks, no longer than F or I of a stage. In
    general, there are M // K rounds of g = M / (M // K); `ValueError` if that is not a
    whole number.
    """
    group = group_of(devices, microbatches, v)

    def order(r):
        warm_up = 2 * (devices - r - 1) + (v - 1) * group
        return in_turn(*in_groups(devices, microbatches, v, group, r), warm_up)

    return make_schedule("interleaved", devices, microbatches, order, v)


@SCHEDULES(
    "looped", title="Looped BFS",
    makespan=lambda K, M, F, B: (M + Fraction(K - 1, 2)) * (F + B) if M >= K else None,
    alive=lambda K, M, device: M,
    source="Lamy-Poirier 2022, arXiv 2211.05953",
    also={"LoopedBFS": "PyTorch", "breadth-first": "Lamy-Poirier 2022, arXiv 2211.05953"},
    stages_per_device=2,
)
def looped_breadth_first(devices: int, microbatches: int, v: int = 2) -> Schedule:
    """All micro-batches pass a device's first stage, then its second, ...; and back.

        F0 F1 F2 F3 f0 f1 f2 f3    b3 b2 b1 b0 B3 B2 B1 B0        (device 0 of 2)
           F0 F1 F2 F3 f0 f1 f2 f3 b3 b2 b1 b0 B3 B2 B1 B0

    For K devices with v stages each, and M >= K, the makespan is (M + (K - 1)/v)(F + B)
    ticks; all M `microbatches` are alive. A stage's gradients are complete, and can be
    sent, long before the end.
    """

    def order(r):
        forwards = [Action("F", c * devices + r, i) for c in range(v) for i in range(microbatches)]
        return forwards + [Action("B", stage, i) for _, stage, i in reversed(forwards)]

    return make_schedule("looped", devices, microbatches, order, v)


def in_groups(
    devices: int, microbatches: int, v: int, group: int, r: int
) -> tuple[list[Action], list[Action]]:
    """Return the forwards of device r in order, and its backwards.

    For devices, microbatches, v and group see `interleaved_one_f_one_b`.
    """
    turns = [((k // group) % v, k // (group * v) * group + k % group) for k in range(microbatches * v)]
    forwards = [Action("F", c * devices + r, i) for c, i in turns]
    return forwards, [Action("B", (v - 1 - c) * devices + r, i) for c, i in turns]


def group_of(devices: int, microbatches: int, v: int) -> int:
    """Return the number of micro-batches in a group.

    It is M / (M // K), for K devices with v stages and M `microbatches`; `ValueError`
    if that is not a whole number.
    """
    devices, microbatches, v = check_sizes(devices, microbatches, v)
    rounds = max(1, microbatches // devices)
    if microbatches % rounds:
        raise ValueError(
            f"microbatches={microbatches} makes {rounds} rounds on {devices} devices, which do not "
            f"divide it: use {rounds * devices}, or another multiple of {devices}"
        )
    return microbatches // rounds
