"""Schedules with one stage on each device. Rows are devices, time runs to the right."""

from ..checks import shown
from ..order.actions import Action
from ..order.building import forwards_and_backwards, in_turn, make_schedule
from ..order.names import SCHEDULES


@SCHEDULES(
    "naive",
    makespan=lambda K, M, F, B: K * M * (F + B),
    alive=lambda K, M, device: 1,
    source="Huang et al. 2018, arXiv 1811.06965, figure 2(b), which shows it to be improved on",
)
def naive(stages, microbatches):
    """One device works at a time: each micro-batch goes all the way up and down before the next.

        F0          B0 F1          B1
           F0    B0       F1    B1
              F0B0           F1B1

    Makespan K M (F + B) ticks for K stages and M micro-batches; 1 micro-batch is alive per device.
    """

    def order(r):
        return [Action(kind, r, i) for i in range(microbatches) for kind in "FB"]

    return make_schedule("naive", stages, microbatches, order)


def _filled_and_drained(K, M, F, B):
    """Return the makespan of a pipeline that fills once and drains once: K - 1 turns more than M."""
    return (M + K - 1) * (F + B)


@SCHEDULES(
    "gpipe",
    makespan=_filled_and_drained,
    alive=lambda K, M, device: M,
    source="Huang et al. 2018, arXiv 1811.06965",
    also={"F-then-B": "PaddlePaddle", "AFAB": "nanotron", "all-forward-all-backward": "nanotron"},
)
def gpipe(stages, microbatches, backward_order="lifo"):
    """All forwards, then all backwards (fill and drain).

        F0 F1 F2             B2 B1 B0
           F0 F1 F2       B2 B1 B0
              F0 F1 F2 B2 B1 B0

    backward_order: "lifo" runs the last micro-batch back first, as the paper's figure does, "fifo" the
    first one. Makespan (M + K - 1)(F + B) ticks; M micro-batches are alive on every device, either way.
    """
    if not isinstance(backward_order, str) or backward_order not in ("lifo", "fifo"):
        raise ValueError(f"backward_order={shown(backward_order)} must be 'lifo' or 'fifo'")
    name, step = ("gpipe", -1) if backward_order == "lifo" else ("gpipe-fifo", 1)

    def order(r):
        forwards, backwards = forwards_and_backwards(r, microbatches)
        return forwards + backwards[::step]

    return make_schedule(name, stages, microbatches, order)


@SCHEDULES(
    "gpipe-fifo",
    makespan=_filled_and_drained,
    alive=lambda K, M, device: M,
    source="Huang et al. 2018, arXiv 1811.06965",
)
def gpipe_fifo(stages, microbatches):
    """GPipe with the first micro-batch back first.

        F0 F1 F2             B0 B1 B2
           F0 F1 F2       B0 B1 B2
              F0 F1 F2 B0 B1 B2

    Makespan (M + K - 1)(F + B) ticks; M micro-batches are alive on every device.
    """
    return gpipe(stages, microbatches, backward_order="fifo")


@SCHEDULES(
    "1f1b",
    makespan=_filled_and_drained,
    alive=lambda K, M, device: min(M, K - device),
    source="Narayanan et al. 2020, arXiv 2006.09503; Fan et al. 2020, arXiv 2007.01045",
    also={
        "PipeDream-Flush": "Narayanan et al. 2020, arXiv 2006.09503",
        "DAPPLE": "Fan et al. 2020, arXiv 2007.01045",
    },
)
def one_f_one_b(stages, microbatches):
    """Warm up, then one forward and one backward in turn (1F1B, PipeDream-flush, DAPPLE).

        F0 F1 F2       B0 F3 B1    B2    B3
           F0 F1    B0 F2 B1 F3 B2    B3
              F0 B0 F1 B1 F2 B2 F3 B3

    Device r of K warms up with min(K - r - 1, M) forwards. Makespan (M + K - 1)(F + B) ticks, as
    GPipe's; but only min(M, K - r) micro-batches are alive on device r.
    """

    def order(r):
        return in_turn(*forwards_and_backwards(r, microbatches), warm_up=stages - r - 1)

    return make_schedule("1f1b", stages, microbatches, order)


@SCHEDULES(
    "eager-1f1b",
    makespan=_filled_and_drained,
    alive=lambda K, M, device: min(M, 2 * (K - device) - 1),
    source="Fan et al. 2020, arXiv 2007.01045, where it is schedule B",
)
def eager_one_f_one_b(stages, microbatches):
    """1F1B with as many forwards ahead as a gradient takes to come back: for links that are slow.

        F0 F1 F2 F3    B0       B1    B2    B3
           F0 F1 F2 B0    F3 B1    B2    B3
              F0 B0 F1 B1 F2 B2 F3 B3

    Device r of K warms up with min(2(K - r - 1), M) forwards. Makespan (M + K - 1)(F + B) ticks, as 1F1B's,
    with min(M, 2(K - r) - 1) micro-batches alive on device r; but a message that takes time delays fewer
    actions.
    """

    def order(r):
        return in_turn(*forwards_and_backwards(r, microbatches), warm_up=2 * (stages - r - 1))

    return make_schedule("eager-1f1b", stages, microbatches, order)
