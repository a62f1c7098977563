"""Stages cut into units, each of which is recomputed, gathered or summed by itself."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from math import isqrt

from ..arrays import floats
from ..description import parameters_of_layers
from ..layers import Layer
from ..layers.recomputing import SELECTIVE
from ..order import (
    Costs, Schedule, costs_in_segments, in_segments, with_all_reduce, with_recompute, with_updates, with_zero,
)
from ..order.rules import MEETING
from ..partitioning.solvers import equal_counts
from .buckets import CAPS, in_buckets
from .options import DDP, EVERY_SQRT, LAYER, Memory, Sums


def units_of(layers: Sequence[Layer], memory: Memory, sums: Sums, dtype="float64") -> list[int]:
    """Return how many layers there are in each unit of a stage, one after another.

    The options say what a unit is:

    buckets: a bucket.
    zero=3: without buckets, a layer with parameters and those without before it, so that a device gathers
        the parameters of one layer at a time.
    recompute="sqrt": about sqrt(L) units of L layers, whose inputs are kept; with buckets, of each bucket's
        (Chen et al. 2016, arXiv 1604.06174, section 4).

    layers: of the stage.
    memory, sums: the options.
    dtype: of the parameters.

    >>> from ..layers import Linear, ReLU
    >>> layers = [Linear(1, 1), ReLU(), Linear(1, 1), ReLU(), Linear(1, 1)]
    >>> units_of(layers, Memory(zero=3), Sums()), units_of(layers, Memory("sqrt"), Sums())
    ([1, 2, 2], [3, 2])
    """
    buckets, by_sqrt = sums.buckets, memory.recompute == EVERY_SQRT
    if buckets is None and memory.zero == 3 and not by_sqrt:
        buckets = LAYER
    units = [len(layers)]
    if buckets is not None:
        sizes = [floats(dtype).itemsize * n for n in parameters_of_layers(layers)]
        caps = CAPS if buckets == DDP else [1 if buckets == LAYER else buckets] * 2
        units = [len(places) for places in reversed(in_buckets(sizes, caps))]
    return list(chain(*map(sqrt_units, units))) if by_sqrt else units


def sqrt_units(n_layers: int) -> list[int]:
    """Return how many layers each of about sqrt(L) units of L layers has.

    >>> sqrt_units(9), sqrt_units(5)
    ([3, 3, 3], [3, 2])
    """
    return equal_counts(n_layers, _nearest_root(n_layers))


def in_units(order: Schedule, units: Sequence[Sequence[int]], costs: Costs) -> tuple:
    """Return (order, counts, costs) in which each unit is a stage on its device.

    order: of the stages.
    units: for each stage, how many layers each of its units has.
    costs: the `Costs` of the stages, which the units share.

    >>> from ..schedules import gpipe
    >>> order, counts, costs = in_units(gpipe(2, 1), [[3, 3, 3], [2, 2]], Costs(F=6, B=12))
    >>> counts, costs.F
    ([3, 3, 3, 2, 2], [2, 2, 2, 3, 3])
    """
    n, counts = list(map(len, units)), list(chain(*units))
    if max(n) == 1:
        return order, counts, costs
    return in_segments(order, n), counts, costs_in_segments(costs, order, n)


def changed(order: Schedule, memory: Memory, sums: Sums) -> Schedule:
    """Return an order of all copies, the stages of which are units, with what the options add to it."""
    in_order = {EVERY_SQRT: "always", SELECTIVE: "never"}  # the other modes have the same name there
    order = with_recompute(order, in_order.get(memory.recompute, memory.recompute))
    if memory.zero and order.has_copied_stages:
        return with_zero(order, memory.zero).validate()
    if memory.zero:
        return _updates_last(with_updates(order))
    if sums.buckets is not None and order.has_copied_stages and not order.kinds & (MEETING | {"U"}):
        return with_all_reduce(order)
    return order


def _updates_last(order):
    """The order with all updates of a device behind its other actions, as ZeRO has them: for tied layers."""
    devices = [sorted(actions, key=lambda action: action.kind == "U") for actions in order.devices]
    return replace(order, devices=tuple(map(tuple, devices)))


def recomputed(order: Schedule, counts: Sequence[int], costs: Costs, mode: str) -> tuple:
    """Return (order, counts, costs) of the stages that a network with `Memory(recompute=mode)` runs.

    order: of one copy, without recomputation.
    counts, costs: of its stages, as for `in_units`.

    >>> from ..schedules import gpipe
    >>> order, counts, _ = recomputed(gpipe(1, 1), [9], Costs(), "sqrt")
    >>> print(counts, order)
    [3, 3, 3] device 0: 0F0 1F0 2F0 2R0 2B0 1R0 1B0 0R0 0B0
    """
    units = [sqrt_units(n) if mode == EVERY_SQRT else [n] for n in counts]
    order, counts, costs = in_units(order, units, costs)
    return changed(order, Memory(mode), Sums()), counts, costs


def _nearest_root(n: int) -> int:
    """The whole number nearest to sqrt(n).

    >>> [_nearest_root(n) for n in (1, 2, 3, 6, 7, 12, 13)]
    [1, 1, 2, 2, 3, 3, 4]
    """
    root = isqrt(n)
    return root + (n > root * (root + 1))
