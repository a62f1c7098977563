"""What a tick of a run is, and how runs whose ticks differ come onto one axis."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from ..checks import shown


class OneTick(NamedTuple):
    """What a device works through in one tick of a run, so that the ticks of two runs can be compared.

    share: of the forward of the whole network, a Fraction: with F = 1, 1/K for a pipeline of K devices, 1 for
        a copy of the network, 1/T for T shards, as if none of their layers were whole on each.
    samples: of a micro-batch; their mean where micro-batches are ragged, since an action of each takes the
        same ticks. None for a simulation, which has no data.
    F: the ticks of a device's forward, from which the share follows; None where the costs state the share, or
        where the times were multiplied to bring several runs to one unit.

    >>> from minipipe import Costs, simulate
    >>> from minipipe.schedules import gpipe
    >>> print(simulate(gpipe(4, 8)).tick_is)
    1 tick: the forward of 1/4 of the network for a micro-batch
    >>> print(OneTick(Fraction(1, 2), 16), OneTick(Fraction(1), Fraction(5, 2)), sep="\\n")
    1 tick: the forward of 1/2 of the network for 16 samples
    1 tick: the forward of the network for 5/2 samples on average
    """

    share: Fraction
    samples: Fraction | int | None = None
    F: Fraction | None = None

    def __str__(self) -> str:
        share, samples = self.share, "a micro-batch"
        if self.samples is not None:
            samples = f"{self.samples} sample{'s' * (self.samples != 1)}"
            samples += " on average" * (Fraction(self.samples).denominator > 1)
        forward = "the forward" if share <= 1 else f"{share} forwards"
        part = "" if share >= 1 else f"{share} of "
        return f"1 tick: {forward} of {part}the network for {samples}"

    @property
    def work(self) -> Fraction:
        """The forwards of the whole network for one sample, or one micro-batch, that a tick works through."""
        return self.share * (1 if self.samples is None else self.samples)


def in_one_unit(traces: Mapping[str, Any]) -> tuple[dict, OneTick | None]:
    """Return ({name: trace}, what one tick of all of them is) for one axis, or one table.

    traces: {name: `Trace`}.

    If the ticks of two traces stand for different work, times are multiplied, those of messages, too, so that
    all ticks stand for the least of it. These traces stay as they are:

    - Those whose ticks all stand for the same work.
    - Those that do not say what their tick is, such as programs of your own; beside them, any of one tick.
    - Those with different costs for the same forward: it is the costs that they compare.

    A micro-batch is as large in one simulation as in another, whichever M they have, and as in the runs of
    networks beside them.

    The second result is None if it is unknown, or if it need not be said, since all are simulations that had
    one tick to begin with. Raise `ValueError` for ticks beside seconds, and for other ticks without a common
    unit, with the costs that would give them one.
    """
    _check_traces(traces)
    known = {name: trace.tick_is for name, trace in traces.items() if trace.tick_is is not None}
    sizes = {tick.samples for tick in known.values()} - {None}
    if len(sizes) == 1:
        known = {name: tick._replace(samples=max(sizes)) for name, tick in known.items()}
    least = min(known.values(), key=lambda tick: (tick.work, tick.share), default=None)
    are_comparable = len(sizes) < 2 or all(tick.samples is not None for tick in known.values())
    if are_comparable and all(tick.work == least.work for tick in known.values()):
        need_not_be_said = not sizes and all(tick.F is not None for tick in known.values())
        return dict(traces), None if need_not_be_said or len(known) < len(traces) else least
    if are_comparable and _differ_in_costs_alone(known):
        return dict(traces), None
    _check_unit(known, traces, are_comparable, least)
    unit = least._replace(F=None)
    factors = {name: tick.work / unit.work for name, tick in known.items()}
    return {name: trace.stretched(factors[name], unit) for name, trace in traces.items()}, unit


def _check_traces(traces):
    """Raise `ValueError` for anything but {name: `Trace`}, and for ticks beside seconds."""
    if not isinstance(traces, Mapping):
        raise ValueError(
            f"traces={shown(traces)} must be {{name: trace}}, such as {{'gpipe': trace, '1f1b': other_trace}}"
        )
    if len({trace.unit for trace in traces.values()}) > 1:
        words = ", ".join(f"{name} is in {trace.unit}" for name, trace in traces.items())
        raise ValueError(f"{words}: simulate with the costs of minipipe.measure, which are seconds, too")


def _differ_in_costs_alone(ticks):
    """Return whether a device's forward is the same work in all runs, but takes other ticks."""
    return None not in [tick.F for tick in ticks.values()] and len(set(map(_forward, ticks.values()))) == 1


def _forward(tick):
    """Return what a device's forward works through: (its share of the network, samples)."""
    return tick.share * tick.F, tick.samples


def _check_unit(ticks, names, are_comparable, unit):
    """Raise `ValueError` unless all traces can be brought to this unit. names: of all traces."""
    words = "; ".join(f"{name} has {ticks.get(name, 'ticks that it does not explain')}" for name in names)
    if not are_comparable:
        raise ValueError(
            f"these ticks have no common unit, since a simulation knows no samples: {words}. "
            "Leave the simulation out, or run a network on samples instead"
        )
    factors = {name: tick.work / unit.work for name, tick in ticks.items() if tick.work != unit.work}
    remedy = " and ".join(f"multiply the costs of {name} by {factor}" for name, factor in factors.items())
    if len(ticks) < len(names):
        raise ValueError(f"the ticks of these runs differ, and one is unknown: {words}. To compare, {remedy}")
    costs = {}
    for tick in ticks.values():
        if tick.F is not None:
            costs.setdefault(_forward(tick), set()).add(tick.F)
    if any(len(found) > 1 for found in costs.values()):
        raise ValueError(
            f"the ticks of these runs differ, and so do the costs of the same forward: {words}. "
            f"If their devices are equally fast, {remedy}; otherwise compare them two by two"
        )
