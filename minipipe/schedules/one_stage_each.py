"""Schedules with one stage on each device, or with the whole network on each.

Rows are devices, time runs to the right.
"""

from itertools import pairwise

from ..order.actions import Action
from ..order.costs import check_sizes
from ..order.names import SCHEDULES
from ..order.schedule import Schedule, make_schedule


def forwards_and_backwards(stage: int, microbatches: int) -> list[list[Action]]:
    """Return two lists: the F of a stage on all `microbatches`, and its B."""
    return [[Action(kind, stage, i) for i in range(microbatches)] for kind in "FB"]


def in_turn(forwards: list[Action], backwards: list[Action], warm_up: int) -> list[Action]:
    """Return `warm_up` forwards; then, in turn, one of `forwards` and of `backwards`.

    >>> print(*in_turn(*forwards_and_backwards(0, 3), warm_up=1))
    0F0 0F1 0B0 0F2 0B1 0B2
    """
    order = forwards[:warm_up]
    for k, backward in enumerate(backwards, warm_up):
        order += [*forwards[k:k + 1], backward]  # the slice is empty once no forward is left
    return order


@SCHEDULES(
    "naive", title="Naive model parallelism",
    makespan=lambda K, M, F, B, c: M * (K * (F + B) + 2 * (K - 1) * c),
    alive=lambda K, M, device: 1,
    source="Huang et al. 2018, arXiv 1811.06965, figure 2(b), which shows it to be improved on",
)
def naive(stages: int, microbatches: int) -> Schedule:
    """One device works at a time: a micro-batch goes up and down before the next.

        F0          B0 F1          B1
           F0    B0       F1    B1
              F0B0           F1B1

    Makespan K M (F + B) ticks for K stages and M `microbatches`; 1 is alive per device.
    """

    def order(r):
        return [Action(kind, r, i) for i in range(microbatches) for kind in "FB"]

    return make_schedule("naive", stages, microbatches, order)


def filled_and_drained(K: int, M: int, F: float, B: float, c: float) -> float:
    """Return the makespan of a pipeline that fills and drains once: M + K - 1 turns.

    A turn takes F + B. It also waits for the messages of one micro-batch, of c ticks
    each, to the last device and back.
    """
    return (M + K - 1) * (F + B) + 2 * (K - 1) * c


def waits_for_gradients(K: int, M: int) -> int:
    """Return how often 1F1B waits for two more messages, one forward and one back.

    Device r begins forward i + K - r after backward i, for i in 0..M - 1. On device 0,
    backward i needs 2 (K - 1) messages, or K - 1 waits, so each K micro-batches start
    K - 1 waits after the K before. Among the first K, device K - 2 does forward 2 after
    backward 0, which is one wait; device K - 3 does forward 3 after backward 0, two
    waits; and so on.
    """
    rounds, place = divmod(M - 1, K)
    return rounds * (K - 1) + max(0, place - 1)


@SCHEDULES(
    "gpipe", title="GPipe",
    makespan=filled_and_drained,
    alive=lambda K, M, device: M,
    source="Huang et al. 2018, arXiv 1811.06965",
    also={"F-then-B": "PaddlePaddle", "AFAB": "nanotron", "all-forward-all-backward": "nanotron"},
)
def gpipe(stages: int, microbatches: int) -> Schedule:
    """All forwards, then all backwards (fill and drain).

        F0 F1 F2             B2 B1 B0
           F0 F1 F2       B2 B1 B0
              F0 F1 F2 B2 B1 B0

    The last micro-batch goes back first, as in the paper's figure. Makespan
    (M + K - 1)(F + B) ticks for K stages; all M `microbatches` are alive on each.
    """

    def order(r):
        forwards, backwards = forwards_and_backwards(r, microbatches)
        return forwards + backwards[::-1]

    return make_schedule("gpipe", stages, microbatches, order)


@SCHEDULES(
    "gpipe-fifo", title="GPipe FIFO",
    makespan=filled_and_drained,
    alive=lambda K, M, device: M,
    source="Huang et al. 2018, arXiv 1811.06965",
)
def gpipe_fifo(stages: int, microbatches: int) -> Schedule:
    """GPipe with the first micro-batch back first.

        F0 F1 F2             B0 B1 B2
           F0 F1 F2       B0 B1 B2
              F0 F1 F2 B0 B1 B2

    Makespan (M + K - 1)(F + B) ticks for K stages; all M `microbatches` are alive.
    """

    def order(r):
        forwards, backwards = forwards_and_backwards(r, microbatches)
        return forwards + backwards

    return make_schedule("gpipe-fifo", stages, microbatches, order)


@SCHEDULES(
    "1f1b", title="1F1B",
    makespan=lambda K, M, F, B, c: filled_and_drained(K, M, F, B, c) + 2 * waits_for_gradients(K, M) * c,
    alive=lambda K, M, device: min(M, K - device),
    source="Narayanan et al. 2020, arXiv 2006.09503; Fan et al. 2020, arXiv 2007.01045",
    also={
        "PipeDream-Flush": "Narayanan et al. 2020, arXiv 2006.09503",
        "DAPPLE": "Fan et al. 2020, arXiv 2007.01045",
    },
)
def one_f_one_b(stages: int, microbatches: int) -> Schedule:
    """Warm up, then a forward and a backward in turn (1F1B, PipeDream-flush, DAPPLE).

        F0 F1 F2       B0 F3 B1    B2    B3
           F0 F1    B0 F2 B1 F3 B2    B3
              F0 B0 F1 B1 F2 B2 F3 B3

    Device r of K warms up with min(K - r - 1, M) forwards. Makespan (M + K - 1)(F + B)
    ticks for K stages, as GPipe's; but only min(M, K - r) of M `microbatches` are alive
    on device r. If a message takes c ticks, GPipe waits for 2 (K - 1) messages in all,
    and 1F1B also for 2 (K - 1)/K c with each micro-batch, see `waits_for_gradients`.
    """

    def order(r):
        return in_turn(*forwards_and_backwards(r, microbatches), warm_up=stages - r - 1)

    return make_schedule("1f1b", stages, microbatches, order)


@SCHEDULES(
    "eager-1f1b", title="Eager 1F1B",
    makespan=lambda K, M, F, B, c: filled_and_drained(K, M, F, B, c) if 2 * c <= F + B else None,
    alive=lambda K, M, device: min(M, 2 * (K - device) - 1),
    source="Fan et al. 2020, arXiv 2007.01045, where it is schedule B",
)
def eager_one_f_one_b(stages: int, microbatches: int) -> Schedule:
    """1F1B for slow links: forwards fill the time until the first gradient comes back.

        F0 F1 F2 F3    B0       B1    B2    B3
           F0 F1 F2 B0    F3 B1    B2    B3
              F0 B0 F1 B1 F2 B2 F3 B3

    Device r of K warms up with min(2(K - r - 1), M) forwards. Makespan
    (M + K - 1)(F + B) ticks for K stages, as 1F1B's, with min(M, 2(K - r) - 1) of M
    `microbatches` alive; but a message that takes time delays fewer actions.
    """

    def order(r):
        return in_turn(*forwards_and_backwards(r, microbatches), warm_up=2 * (stages - r - 1))

    return make_schedule("eager-1f1b", stages, microbatches, order)


def data_parallel(devices: int, microbatches: int, stages: int = 1) -> Schedule:
    """Each device has the whole network, and takes consecutive micro-batches in turn.

        0F0 1F0 1B0 0B0 0F1 1F1 1B1 0B1
        0F2 1F2 1B2 0B2

    Args:
        devices: D, the replicas; at most as many as there are micro-batches.
        microbatches: M, of the whole mini-batch. The replicas get equal numbers, or the
            first ones one more.
        stages: into how many stages each replica is cut, so that their gradients can
            travel one after the other, see `with_all_reduce`.
    """
    devices, microbatches, stages = check_sizes(devices, microbatches, stages)
    if devices > microbatches:
        raise ValueError(
            f"{devices} copies of the network, but {microbatches} micro-batches: "
            "each copy needs at least one"
        )
    size, longer = divmod(microbatches, devices)
    begins = [copy * size + min(copy, longer) for copy in range(devices + 1)]
    runs = [range(*run) for run in pairwise(begins)]
    places = range(stages)
    orders = tuple(
        tuple(
            Action(kind, stage, i)
            for i in run for kind, way in (("F", places), ("B", reversed(places))) for stage in way
        )
        for run in runs
    )
    copy_of = tuple(copy for copy, run in enumerate(runs) for _ in run) if devices > 1 else ()
    return Schedule(orders, stages, microbatches, "data-parallel", copy_of)
