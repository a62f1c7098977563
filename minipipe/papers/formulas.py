"""The bubbles that papers state in closed form, and costs from the times that they profile.

T_F, T_B, T_W: the time of a micro-batch's forward on a device, of its input gradient alone, and of its
    weight gradient.
"""

from fractions import Fraction
from itertools import repeat

from ..checks import items_of, whole_number
from ..cluster import Link
from ..order import Costs


def gpipe_bubble(K, M):
    """Idle / total time of GPipe, and of 1F1B (DAPPLE): (K - 1)/(M + K - 1). Source: GPipe, section 2.3.

    >>> gpipe_bubble(4, 8)
    Fraction(3, 11)
    """
    K, M = whole_number("K", K, 1), whole_number("M", M, 1)
    return Fraction(K - 1, M + K - 1)


def chimera_bubble(K, M):
    """Idle / total time of Chimera with equal forwards and backwards: (K - 2)/(2 M + K - 2).

    Source: arXiv 2107.06925, table 2.
    """
    K, M = whole_number("K", K, 1), whole_number("M", M, 1)
    return Fraction(K - 2, 2 * M + K - 2)


def megatron_bubble(K, M, v=1):
    """Idle / ideal time of 1F1B, interleaved with v stages on a device: (K - 1)/(v M).

    Source: arXiv 2104.04473, section 2.2.
    """
    K, M, v = whole_number("K", K, 1), whole_number("M", M, 1), whole_number("v", v, 1)
    return Fraction(K - 1, v * M)


def zero_bubble_h1_idle(K, T_F, T_B, T_W):
    """Idle time on each device of ZB-H1: (K - 1)(T_F + T_B - T_W).

    K: devices.
    T_F, T_B, T_W: the times of a forward, an input gradient and a weight gradient.

    In 1F1B T_W is added. Source: arXiv 2401.10241.
    """
    K = whole_number("K", K, 1)
    return (K - 1) * (T_F + T_B - T_W)


def zero_bubble_h2_idle(K, T_F, T_B, T_W):
    """Idle time on each device of ZB-H2: (K - 1)(T_F + T_B - 2 T_W).

    K: devices.
    T_F, T_B, T_W: the times of a forward, an input gradient and a weight gradient.

    Source: arXiv 2401.10241.
    """
    K = whole_number("K", K, 1)
    return (K - 1) * (T_F + T_B - 2 * T_W)


def costs_of(T_F, T_B, T_W, T_comm=0):
    """(costs, link) for `simulate`, of a profile such as papers print.

    T_F, T_B, T_W: the times of a forward, an input gradient and a weight gradient; each is a number, of a
        device's share of the network, or a list with one per stage.
    T_comm: how long a message travels, in the same unit.

    >>> costs, link = costs_of(T_F=3, T_B=[2, 4], T_W=1, T_comm=0.5)
    >>> costs.F, costs.B, costs.I, costs.W, link.latency
    (3, [3, 5], [2, 4], 1, 0.5)
    """
    T_F, T_B, T_W = (times if items_of(times) is None else list(times) for times in (T_F, T_B, T_W))
    are_lists = isinstance(T_B, list), isinstance(T_W, list)
    if all(are_lists) and len(T_B) != len(T_W):
        raise ValueError(
            f"T_B has {len(T_B)} times and T_W {len(T_W)}: give each one number, or one per stage"
        )
    if any(are_lists):
        both = (times if isinstance(times, list) else repeat(times) for times in (T_B, T_W))
        B = [I + W for I, W in zip(*both)]
    else:
        B = T_B + T_W
    return Costs(F=T_F, B=B, I=T_B, W=T_W), Link(latency=T_comm)
