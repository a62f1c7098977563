"""Idle times that papers state in closed form, beside those that are counted in simulations."""

from typing import NamedTuple

from ..arguments import argument, arguments
from ..order import peak_microbatches, simulate
from ..schedules import chimera, gpipe, interleaved_one_f_one_b, one_f_one_b, zero_bubble_h1, zero_bubble_h2
from .formulas import (
    chimera_bubble,
    costs_of,
    gpipe_bubble,
    megatron_bubble,
    zero_bubble_h1_idle,
    zero_bubble_h2_idle,
    zero_bubble_peaks,
)


class Idle(NamedTuple):
    """An idle time that a paper states.

    schedule: whose it is.
    what: which idle time, of what.
    stated: by the paper's formula.
    counted: the same in a simulation.
    """

    schedule: str
    what: str
    stated: float
    counted: float


def idle_times(K, M, v=2, T_F=1, T_B=1, T_W=1):
    """A list of `Idle` for GPipe, Megatron, Chimera and Zero Bubble.

    K, M: devices and micro-batches; K must divide M.
    v: stages on each device in the interleaved schedule.
    T_F, T_B, T_W: the times of a forward, an input gradient and a weight gradient; Chimera has
        T_F = T_B + T_W here, as in its paper.
    """
    K, M, v = arguments(K=K, M=M, v=v)
    costs, equal = costs_of(T_F, T_B, T_W)[0], costs_of(2, 1, 1)[0]
    peaks = zero_bubble_peaks(K)
    rows = [
        Idle("GPipe", "idle / total", gpipe_bubble(K, M), simulate(gpipe(K, M), costs).bubble("total")),
        Idle(
            "1F1B", "idle / ideal", megatron_bubble(K, M), simulate(one_f_one_b(K, M), costs).bubble("ideal")
        ),
        Idle(
            f"1F1B, v = {v}",
            "idle / ideal",
            megatron_bubble(K, M, v),
            simulate(interleaved_one_f_one_b(K, M, v), costs).bubble("ideal"),
        ),
        Idle("Chimera", "idle / total", chimera_bubble(K, M), simulate(chimera(K, M), equal).bubble("total")),
    ]
    for name, builder, formula in [
        ("ZB-H1", zero_bubble_h1, zero_bubble_h1_idle),
        ("ZB-H2", zero_bubble_h2, zero_bubble_h2_idle),
    ]:
        trace = simulate(builder(K, M), costs)
        idle = trace.spans_of(0)[-1].end - trace.busy_ticks()[0]  # it begins at once
        rows += [
            Idle(name, "ticks idle, first device", formula(K, T_F, T_B, T_W), idle),
            Idle(name, "micro-batches alive", peaks[name.lower()], max(peak_microbatches(trace))),
        ]
    return rows


def chimera_table(K):
    """The synchronous rows of Chimera's table 2, for N = K micro-batches.

    A list of (schedule, copies of the weights, bubble, alive).

    bubble: idle / total time with equal forwards and backwards, as an `Idle`.
    alive: micro-batches alive on the device with the fewest and on that with the most, as two `Idle`s.

    Source: Li, Hoefler 2021, arXiv 2107.06925.
    """
    K = argument("K", K)
    costs = costs_of(2, 1, 1)[0]
    rows = []
    for name, builder, copies, bubble, alive in [
        ("GPipe", gpipe, 1, gpipe_bubble(K, K), (K, K)),
        ("DAPPLE", one_f_one_b, 1, gpipe_bubble(K, K), (1, K)),
        ("Chimera", chimera, 2, chimera_bubble(K, K), (K // 2 + 1, K)),
    ]:
        trace = simulate(builder(K, K), costs)
        peaks = peak_microbatches(trace)
        rows.append((
            name, copies,
            Idle(name, "idle / total", bubble, trace.bubble("total")),
            Idle(name, "fewest alive", alive[0], min(peaks)),
            Idle(name, "most alive", alive[1], max(peaks)),
        ))
    return rows
