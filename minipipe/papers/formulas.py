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


def zero_bubble_span(K, M, T_F, T_B, T_W, T_comm, put_off):
    """A bound: with one stage on each device, no schedule's longest device span is shorter.

    K, M: devices and micro-batches.
    T_F, T_B, T_W, T_comm: the times of a forward, an input gradient, a weight gradient and a message.
    put_off: how many weight gradients the last device can put off until its last input gradient is done: all
        M, if it has the memory for it.

    Each device has its work to do, M (T_F + T_B + T_W). Besides, the last device begins (K - 1)(T_F + T_comm)
    after the first, has M (T_F + T_B) + (M - put_off) T_W to do until its last input gradient is done, and
    (K - 1)(T_comm + T_B) later the first device has a weight gradient left.

    >>> bound = zero_bubble_span(8, 24, 18.522, 18.086, 9.337, 0.601, put_off=24)
    >>> print(f"{1 - 24 * (18.522 + 18.086 + 9.337) / bound:.4f}")     # the paper's searched schedule: 0.0433
    0.0433
    """
    K, M, put_off = whole_number("K", K, 1), whole_number("M", M, 1), whole_number("put_off", put_off, 0)
    there_and_back = (K - 1) * (T_F + T_B + 2 * T_comm)
    return M * (T_F + T_B + T_W) + max(0, there_and_back - (put_off - 1) * T_W)


def zero_bubble_peaks(K):
    """The most micro-batches alive on a device in 1F1B, ZB-H1 and ZB-H2: K, K and 2 K - 1.

    Source: as above.
    """
    K = whole_number("K", K, 1)
    return {"1f1b": K, "zb-h1": K, "zb-h2": 2 * K - 1}


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
