"""Late W: the weight gradients of all micro-batches in one wide product, where it fills the drain."""

from dataclasses import replace

from ..order.actions import Action
from ..order.changes import refuse
from ..order.names import SCHEDULES
from .one_stage_each import gpipe, one_f_one_b


def with_late_W(schedule):
    """Return `schedule` with a `W*` for each stage, behind all else that its device does, and no W before it.

        device 0: 0F0 0F1 0B1 0B0    becomes    0F0 0F1 0I1 0I0 0W*1

    Each B becomes an I. Until its last I a device makes what others wait for; after it come the W*, those of
    later stages first. Its product is as wide as the mini-batch: faster than M narrow ones, with one pass
    over dW instead of M. For that, a stage keeps what W reads of all M micro-batches: every A_prev and dZ.
    With recomputation, only its other caches are saved.

    Given the same A_prev and dZ, dW has the same bits for any M, any cut and any order of the rest; they are
    not those of a sum over micro-batches. Which layers have such a product, and what others do, is in
    `minipipe.parallel.totals`.

    Overlaps are taken apart. A schedule with several copies of the network is refused, and so is one that has
    W*, A or U already.

    >>> print(with_late_W(gpipe(1, 2)))
    device 0: 0F0 0F1 0I1 0I0 0W*1
    """
    refuse(schedule, "W*", "has late W already: use it as it is")
    for kind in "ASUG":
        refuse(schedule, kind, f"has {kind}, which takes in gradients that a late W makes later: add it last")
    if schedule.n_copies > 1:
        raise ValueError(
            f"the schedule {schedule.name!r} has {schedule.n_copies} copies of the network, and a late W "
            "takes in all micro-batches of one: use W instead"
        )
    last, devices = schedule.n_microbatches - 1, []
    for device in range(len(schedule.devices)):
        parts = [part for part in schedule.parts(device) if part.kind != "W"]
        order = [part._replace(kind="I") if part.kind == "B" else part for part in parts]
        stages = sorted({part.stage for part in parts}, reverse=True)
        devices.append((*order, *(Action("W*", stage, last) for stage in stages)))
    return replace(schedule, devices=tuple(devices), name=f"{schedule.name}-late-w")


def _of_late_w(K, M, F, I, W):
    return (M + K - 1) * (F + I) + M * W


@SCHEDULES(
    "gpipe-late-w", makespan=_of_late_w, alive=lambda K, M, device: M, source="no known paper", late_w=True
)
def gpipe_late_w(stages, microbatches):
    """GPipe with late W: what goes back are input gradients alone, and W* fills the drain.

        F0 F1 F2             I2 I1 I0 W*------
           F0 F1 F2       I2 I1 I0 W*------
              F0 F1 F2 I2 I1 I0 W*------

    Makespan (M + K - 1)(F + I) + M late_W ticks, with late_W for each micro-batch of a W*: (K - 1) W less
    than GPipe if late_W = W. M micro-batches are alive on every device, from their I on as what W reads.
    """
    return with_late_W(gpipe(stages, microbatches))


@SCHEDULES(
    "1f1b-late-w", makespan=_of_late_w, alive=lambda K, M, device: M, source="no known paper", late_w=True
)
def one_f_one_b_late_w(stages, microbatches):
    """1F1B with late W: the makespan of `gpipe_late_w`, with fewer caches.

        F0 F1 F2       I0    I1    I2 W*------
           F0 F1    I0 F2 I1    I2 W*------
              F0 I0 F1 I1 F2 I2 W*------

    Makespan (M + K - 1)(F + I) + M late_W ticks. M micro-batches are alive on every device; but of those on
    device r only min(M, K - r) have more than what W reads.
    """
    return with_late_W(one_f_one_b(stages, microbatches))
