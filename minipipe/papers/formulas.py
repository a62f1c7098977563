"""What papers state in closed form, costs from the times that they profile, and a search on paper.

T_F, T_B, T_W: the time of a micro-batch's forward on a device, of its input gradient alone, and of its
    weight gradient.
"""

from fractions import Fraction
from itertools import repeat
from math import inf
from typing import NamedTuple

from ..arguments import argument, arguments
from ..checks import items_of, one_of
from ..cluster import Link
from ..order import Costs


def gpipe_bubble(K, M):
    """Idle / total time of GPipe, and of 1F1B (DAPPLE): (K - 1)/(M + K - 1). Source: GPipe, section 2.3.

    >>> gpipe_bubble(4, 8)
    Fraction(3, 11)
    """
    K, M = arguments(K=K, M=M)
    return Fraction(K - 1, M + K - 1)


def chimera_bubble(K, M):
    """Idle / total time of Chimera with equal forwards and backwards: (K - 2)/(2 M + K - 2).

    Source: arXiv 2107.06925, table 2.
    """
    K, M = arguments(K=K, M=M)
    return Fraction(K - 2, 2 * M + K - 2)


def megatron_bubble(K, M, v=1):
    """Idle / ideal time of 1F1B, interleaved with v stages on a device: (K - 1)/(v M).

    Source: arXiv 2104.04473, section 2.2.
    """
    K, M, v = arguments(K=K, M=M, v=v)
    return Fraction(K - 1, v * M)


def megatron_parameters(n_layers, d, n_tokens, n_places):
    """Parameters of a Transformer: 12 l d^2 (1 + 13/(12 d) + (V + s)/(12 l d)).

    n_layers, d, n_tokens, n_places: l, d, V and s.

    That counts one matrix for all tokens, embedded and predicted, and embedded positions, but no layer norm
    at the end. Source: arXiv 2104.04473, section 5.

    >>> megatron_parameters(96, 12288, 51200, 2048)      # GPT-3
    174615822336
    """
    n_layers, d, n_tokens, n_places = arguments(
        n_layers=n_layers, d=d, n_tokens=n_tokens, n_places=n_places
    )
    return n_layers * (12 * d * d + 13 * d) + (n_tokens + n_places) * d


def megatron_activations(s, b, h, a, t=1, recompute="none"):
    """Bytes that a Transformer layer keeps for its backward, in 16 bits, with dropout masks of a byte.

    s, b, h, a: places, samples of a micro-batch, width and heads.
    t: devices that share the work inside the layer.
    recompute: "none", "selective" (the attention's shares, 5 a s/h of the sum) or "full".

    s b h (34 + 5 a s/h) on one device; s b h (10 + 24/t + 5 a s/(h t)) on each of t; in full, the input
    alone, 2 s b h. Source: arXiv 2205.05198, table 2.

    >>> megatron_activations(2048, 1, 12288, 96)         # GPT-3
    Fraction(2868903936, 1)
    """
    s, b, h, a, t = arguments(s=s, b=b, h=h, a=a, t=t)
    one_of("recompute", recompute, ("none", "selective", "full"))
    if recompute == "full":
        return 2 * s * b * h
    shares = Fraction(5 * a * s, h) if recompute == "none" else 0
    return s * b * h * (10 + Fraction(24 + shares) / t)


def zero_bubble_h1_idle(K, T_F, T_B, T_W):
    """Idle time on each device of ZB-H1: (K - 1)(T_F + T_B - T_W).

    K: devices.
    T_F, T_B, T_W: the times of a forward, an input gradient and a weight gradient.

    In 1F1B T_W is added. Source: arXiv 2401.10241.
    """
    K, T_F, T_B, T_W = arguments(K=K, T_F=T_F, T_B=T_B, T_W=T_W)
    return (K - 1) * (T_F + T_B - T_W)


def zero_bubble_h2_idle(K, T_F, T_B, T_W):
    """Idle time on each device of ZB-H2: (K - 1)(T_F + T_B - 2 T_W).

    K: devices.
    T_F, T_B, T_W: the times of a forward, an input gradient and a weight gradient.

    Source: arXiv 2401.10241.
    """
    K, T_F, T_B, T_W = arguments(K=K, T_F=T_F, T_B=T_B, T_W=T_W)
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
    K, M, put_off = arguments(K=K, M=M, put_off=put_off)
    T_F, T_B, T_W, T_comm = arguments(T_F=T_F, T_B=T_B, T_W=T_W, T_comm=T_comm)
    there_and_back = (K - 1) * (T_F + T_B + 2 * T_comm)
    return M * (T_F + T_B + T_W) + max(0, there_and_back - (put_off - 1) * T_W)


def zero_bubble_peaks(K):
    """The most micro-batches alive on a device in 1F1B, ZB-H1 and ZB-H2: K, K and 2 K - 1.

    Source: as above.
    """
    K = argument("K", K)
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
    T_F, T_B, T_W = _times("T_F", T_F), _times("T_B", T_B), _times("T_W", T_W)
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


def _times(name, times):
    """Return one time, or a list with one per stage, as Python's numbers."""
    items = items_of(times)
    return argument(name, times) if items is None else [argument(name, time) for time in items]


# Three dimensions by closed formulas, for a network of equal layers: what a search on paper does.
#
# Source of the formulas: Narayanan et al. 2021, arXiv 2104.04473, section 3.

class EqualLayers(NamedTuple):
    """A network of layers that are alike, in any units.

    n_layers: L.
    work: time of the forward and backward of one sample in one layer.
    exchanged: what tensor parallelism's all-reduces of one sample add up in one layer; in a Transformer's
        layer four times its output, or six times with recomputation.
    gradients: what data parallelism's all-reduce adds up for one layer.
    state: bytes of one layer beside activations: parameters, gradients, what an optimizer keeps.
    whole, parted: bytes that one layer keeps of one sample; the second are divided by tensor parallelism.
    again: bytes of one sample in the one layer that is recomputed; they are divided, too.
    """

    n_layers: int
    work: float
    exchanged: float
    gradients: float
    state: float
    whole: float
    parted: float = 0
    again: float = 0


class Dimensions(NamedTuple):
    """D copies, T shards, P stages, M micro-batches of b samples for each copy, and what they take."""

    D: int
    T: int
    P: int
    M: int
    b: int
    time: float
    n_bytes: float


def in_dimensions(layers, D, T, P, M, b, node_size, inside, between):
    """What a mini-batch takes in D copies, T shards, P stages and M micro-batches of b samples: `Dimensions`.

    layers: `EqualLayers`.
    node_size: the devices of a node. Groups of T, and of T D devices, have the fast links if they fit in one.
    inside, between: the time in which a link inside a node, or between two, carries one unit.

    With n = L / P layers in a stage, a micro-batch takes in each of them

        t = b work / T + 2 (T - 1) / T b exchanged link(T),

    the pipeline with its flush (M + P - 1) n t, and the copies' exchange at the end

        2 (D - 1) / D n gradients / T link(T D).

    On the fullest device are n (state / T + min(M, P) b (whole + parted / T)) + b again / T bytes, as with
    1F1B. Layers are not cut, messages between stages are free, and nothing overlaps; `plan` simulates all
    that. Whole numbers and fractions stay exact.
    """
    _checked_layers(layers)
    D, T, P, M, b, node_size = arguments(D=D, T=T, P=P, M=M, b=b, node_size=node_size)
    inside = argument("in_dimensions.inside", inside)
    between = argument("in_dimensions.between", between)
    n, per_shard = Fraction(layers.n_layers, P), Fraction(1, T)
    of_shards, of_copies = (inside if group <= node_size else between for group in (T, T * D))
    t = b * per_shard * layers.work + 2 * (T - 1) * b * per_shard * layers.exchanged * of_shards
    exchange = Fraction(2 * (D - 1), D) * n * per_shard * layers.gradients * of_copies
    kept = min(M, P) * b * (layers.whole + per_shard * layers.parted)
    n_bytes = n * (per_shard * layers.state + kept) + b * per_shard * layers.again
    return Dimensions(D, T, P, M, b, (M + P - 1) * n * t + exchange, n_bytes)


def all_dimensions(layers, batch_size, n_devices, node_size, inside, between, memory_limit=inf):
    """Every `Dimensions` with D T P = n_devices that fits, the fastest first; of equals, the smallest.

    batch_size: the samples of a mini-batch; D b divides it.
    memory_limit: the bytes of a device.
    The other arguments are as for `in_dimensions`.

    >>> layers = EqualLayers(8, work=3, exchanged=4, gradients=8, state=32, whole=0.5, parted=0.5)
    >>> found = all_dimensions(layers, 16, n_devices=8, node_size=4, inside=1 / 16, between=1 / 2)
    >>> len(found), found[0]
    (40, Dimensions(D=4, T=1, P=2, M=4, b=1, time=63.0, n_bytes=136.0))
    """
    n_layers = _checked_layers(layers).n_layers
    batch_size = argument("all_dimensions.batch_size", batch_size)
    memory_limit = argument("memory_limit", memory_limit)
    found = []
    for T in _divisors(argument("all_dimensions.n_devices", n_devices)):
        for D in _divisors(n_devices // T):
            P = n_devices // (T * D)
            if n_layers % P == 0 and batch_size % D == 0:
                found += [
                    in_dimensions(layers, D, T, P, batch_size // (D * b), b, node_size, inside, between)
                    for b in _divisors(batch_size // D)
                ]
    found = [one for one in found if one.n_bytes <= memory_limit]
    return sorted(found, key=lambda one: (one.time, one.n_bytes))


def _checked_layers(layers):
    """Return `layers`; raise `ValueError` unless these are `EqualLayers` with numbers that can be."""
    argument("n_layers", argument("in_dimensions.layers", layers).n_layers)
    for name, number in zip(layers._fields[1:], layers[1:]):
        argument(f"EqualLayers.{name}", number)
    return layers


def _divisors(n):
    return [divisor for divisor in range(1, n + 1) if n % divisor == 0]
