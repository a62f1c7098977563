"""The bubbles that papers state, in closed form or as rates, beside simulated ones.

T_F, T_B, T_W: the time of a micro-batch's forward on a device, of its input gradient alone, and of its
    weight gradient.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ..checks import whole_number
from ..cluster import Link
from ..order import Costs, greedy_schedule, simulate
from ..schedules import build
from .tables import ZERO_BUBBLE, Profile


def gpipe_bubble(K: int, M: int) -> Fraction:
    """Return idle / total time of GPipe, and of 1F1B (DAPPLE): (K - 1)/(M + K - 1).

    Source: GPipe, section 2.3.

    >>> gpipe_bubble(4, 8)
    Fraction(3, 11)
    """
    K, M = whole_number("K", K, 1), whole_number("M", M, 1)
    return Fraction(K - 1, M + K - 1)


def chimera_bubble(K: int, M: int) -> Fraction:
    """Return idle / total time of Chimera: (K - 2)/(2 M + K - 2).

    Forwards and backwards take the same time.

    Source: arXiv 2107.06925, table 2.
    """
    K, M = whole_number("K", K, 1), whole_number("M", M, 1)
    return Fraction(K - 2, 2 * M + K - 2)


def megatron_bubble(K: int, M: int, v: int = 1) -> Fraction:
    """Return idle / ideal time of 1F1B, interleaved with v stages on a device: (K - 1)/(v M).

    Source: arXiv 2104.04473, section 2.2.
    """
    K, M, v = whole_number("K", K, 1), whole_number("M", M, 1), whole_number("v", v, 1)
    return Fraction(K - 1, v * M)


def zero_bubble_h1_idle(K: int, T_F: float, T_B: float, T_W: float) -> float:
    """Return the idle time on each device of ZB-H1, if M >= K: (K - 1)(T_F + T_B - min(T_F, T_B, T_W)).

    K: devices.
    T_F, T_B, T_W: the times of a forward, an input gradient and a weight gradient.

    In 1F1B T_W is added. Source: arXiv 2401.10241, with T_W in the place of the minimum: a weight gradient
    that takes longer than the two other passes does not fit into the bubble.
    """
    K = whole_number("K", K, 1)
    return (K - 1) * (T_F + T_B - min(T_F, T_B, T_W))


def zero_bubble_h2_idle(K: int, T_F: float, T_B: float, T_W: float) -> float:
    """Return the idle time between the first and last action of ZB-H2's first device, which idles most.

    (K - 1) max(T_F + T_B - 2 T_W, T_B - T_F, 0), if M >= 2K - 1.

    K: devices.
    T_F, T_B, T_W: the times of a forward, an input gradient and a weight gradient.

    Source: arXiv 2401.10241, with the first of the three alone, which is less than 0 where T_W is long.
    """
    K = whole_number("K", K, 1)
    return (K - 1) * max(T_F + T_B - 2 * T_W, T_B - T_F, 0)


def costs_of(
    T_F: float | Sequence, T_B: float | Sequence, T_W: float | Sequence, T_comm: float = 0
) -> tuple[Costs, Link]:
    """Return (costs, link) for `simulate`, of a profile such as papers print.

    Args:
        T_F, T_B, T_W: the times of a forward, an input gradient and a weight gradient; each is a
            number, of a device's share of the network, or a list with one per stage.
        T_comm: how long a message travels, in the same unit.

    >>> costs, link = costs_of(T_F=3, T_B=[2, 4], T_W=1, T_comm=0.5)
    >>> costs.F, costs.B, costs.I, costs.W, link.latency
    (3, [3, 5], [2, 4], 1, 0.5)
    """
    B = np.array(np.asarray(T_B) + np.asarray(T_W)).tolist()  # the sum of two Fractions is no array yet
    return Costs(F=T_F, B=B, I=T_B, W=T_W), Link(latency=T_comm)


# Zero Bubble's tables of bubble rates.

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


# column -> (room for how many times p micro-batches, whether there are two stages on each device, in a V)
SEARCHED = {"ZB-1p": (1, False), "ZB-2p": (2, False), "ZB-V": (1, True)}


def zero_bubble_table(profiles: Sequence[Profile] = ZERO_BUBBLE) -> list[Rate]:
    """Return a list of `Rate`, for each of the `profiles` and each of its columns.

    Searched columns are searched here by `greedy_schedule`, with the longest device span as the objective, in
    the paper's memory: what is kept of a micro-batch counts 1 from F to I, and `Profile.kept_for_W` from I to
    W; ZB-1p and ZB-V have room for p micro-batches, ZB-2p for 2p.
    """
    rates = []
    for profile in profiles:
        F, I, W = (profile.v * time for time in (profile.T_F, profile.T_B, profile.T_W))  # of a whole device
        costs, link = costs_of(F, I, W, profile.T_comm)
        there = range(profile.p)
        for column, published in profile.rates.items():
            if column in SEARCHED:
                room, in_a_v = SEARCHED[column]
                schedule = greedy_schedule(
                    profile.p, profile.m, costs, room * profile.p, halves=True,
                    placement=[*there, *reversed(there)] if in_a_v else None, latency=profile.T_comm,
                    kept_for_W=profile.kept_for_W, objective="span",
                )
            else:
                schedule = build(column.lower(), profile.p, profile.m)
            found = simulate(schedule, costs, link).bubble("worst")
            rates.append(Rate(profile, column, published, found, schedule.name))
    return rates
