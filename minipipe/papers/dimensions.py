"""Three dimensions by closed formulas, for a network of equal layers: what a search on paper does.

Source of the formulas: Narayanan et al. 2021, arXiv 2104.04473, section 3.
"""

from fractions import Fraction
from math import inf
from typing import NamedTuple

from ..arguments import argument, arguments


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
    _check(layers)
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
    n_layers = _check(layers).n_layers
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


def _check(layers):
    """Return `layers`; raise `ValueError` unless these are `EqualLayers` with numbers that can be."""
    argument("n_layers", argument("in_dimensions.layers", layers).n_layers)
    for name, number in zip(layers._fields[1:], layers[1:]):
        argument(f"EqualLayers.{name}", number)
    return layers


def _divisors(n):
    return [divisor for divisor in range(1, n + 1) if n % divisor == 0]
