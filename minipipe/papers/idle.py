"""Idle times that papers state, in closed form or in tables, beside those that are counted in simulations."""

from typing import NamedTuple

from ..arguments import argument, arguments
from ..order import greedy_schedule, peak_microbatches, simulate
from ..schedules import (
    build, chimera, gpipe, interleaved_one_f_one_b, one_f_one_b, zero_bubble_h1, zero_bubble_h2,
)
from .formulas import (
    chimera_bubble, costs_of, gpipe_bubble, megatron_bubble, zero_bubble_h1_idle, zero_bubble_h2_idle,
    zero_bubble_peaks,
)
from .tables import ZERO_BUBBLE, Profile


class IdleTime(NamedTuple):
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
    """A list of `IdleTime` for GPipe, Megatron, Chimera and Zero Bubble.

    K, M: devices and micro-batches; K must divide M.
    v: stages on each device in the interleaved schedule.
    T_F, T_B, T_W: the times of a forward, an input gradient and a weight gradient; Chimera has
        T_F = T_B + T_W here, as in its paper.
    """
    K, M, v = arguments(K=K, M=M, v=v)
    costs, equal = costs_of(T_F, T_B, T_W)[0], costs_of(2, 1, 1)[0]
    peaks = zero_bubble_peaks(K)
    rows = [
        IdleTime("GPipe", "idle / total", gpipe_bubble(K, M), simulate(gpipe(K, M), costs).bubble("total")),
        IdleTime(
            "1F1B", "idle / ideal", megatron_bubble(K, M), simulate(one_f_one_b(K, M), costs).bubble("ideal")
        ),
        IdleTime(
            f"1F1B, v = {v}",
            "idle / ideal",
            megatron_bubble(K, M, v),
            simulate(interleaved_one_f_one_b(K, M, v), costs).bubble("ideal"),
        ),
        IdleTime(
            "Chimera", "idle / total", chimera_bubble(K, M), simulate(chimera(K, M), equal).bubble("total")
        ),
    ]
    for name, builder, formula in [
        ("ZB-H1", zero_bubble_h1, zero_bubble_h1_idle),
        ("ZB-H2", zero_bubble_h2, zero_bubble_h2_idle),
    ]:
        trace = simulate(builder(K, M), costs)
        idle = trace.spans_of(0)[-1].end - trace.busy_ticks()[0]  # it begins at once
        rows += [
            IdleTime(name, "ticks idle, first device", formula(K, T_F, T_B, T_W), idle),
            IdleTime(name, "micro-batches alive", peaks[name.lower()], max(peak_microbatches(trace))),
        ]
    return rows


def chimera_table(K):
    """The synchronous rows of Chimera's table 2, for N = K micro-batches.

    A list of (schedule, copies of the weights, bubble, alive).

    bubble: idle / total time with equal forwards and backwards, as an `IdleTime`.
    alive: micro-batches alive on the device with the fewest and on that with the most, as two `IdleTime`s.

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
            IdleTime(name, "idle / total", bubble, trace.bubble("total")),
            IdleTime(name, "fewest alive", alive[0], min(peaks)),
            IdleTime(name, "most alive", alive[1], max(peaks)),
        ))
    return rows


# Zero Bubble's tables of bubble rates: each published number beside that of a schedule simulated here.

class Rate(NamedTuple):
    """A bubble rate, `Trace.bubble("worst")`: (T - work) / T, with T the longest device span.

    profile: the row of the table, a `Profile`.
    column: of the table: a schedule with a name, or one that was searched in a given memory.
    published: by the paper.
    found: by simulation, of the schedule with that name, or of the one that is found here.
    schedule: what that one is called.
    """

    profile: Profile
    column: str
    published: float
    found: float
    schedule: str

    @property
    def difference(self):
        """By how much what is found here is above what is published."""
        return self.found - self.published


def zero_bubble_table(profiles=ZERO_BUBBLE):
    """A list of `Rate`, for each of the `profiles` and each of its columns.

    Searched columns are searched here by `greedy_schedule`, with the longest device span as the objective, in
    the paper's memory: what is kept of a micro-batch counts 1 from F to I, and `Profile.kept_for_W` from I to
    W; ZB-1p and ZB-V have room for p micro-batches, ZB-2p for 2p.
    """
    profiles = argument("profiles", profiles)
    return [_rate(profile, column) for profile in profiles for column in profile.rates]


def _rate(profile, column):
    F, I, W = (profile.v * time for time in (profile.T_F, profile.T_B, profile.T_W))  # of a whole device
    costs, link = costs_of(F, I, W, profile.T_comm)
    if column in SEARCHED:
        schedule = _searched(profile, costs, *SEARCHED[column])
    else:
        schedule = build(column.lower(), profile.p, profile.m)
    found = simulate(schedule, costs, link).bubble("worst")
    return Rate(profile, column, profile.rates[column], found, schedule.name)


def _searched(profile, costs, room, in_a_v):
    there = range(profile.p)
    return greedy_schedule(
        profile.p, profile.m, costs, room * profile.p, halves=True,
        placement=[*there, *reversed(there)] if in_a_v else None, latency=profile.T_comm,
        kept_for_W=profile.kept_for_W, objective="span",
    )


# column -> (room for how many times p micro-batches, whether there are two stages on each device, in a V)
SEARCHED = {"ZB-1p": (1, False), "ZB-2p": (2, False), "ZB-V": (1, True)}
