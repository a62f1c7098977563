"""Learning rates that change: functions of the time t, in passes over the data.

t = 2.5 is the middle of the third epoch. A rate that is given in epochs, not in
updates, is the same for any size of mini-batch and any number of workers. Epochs
count from the start of the training, not from the end of a warm-up.

Any function of t can be used. Those here can be combined, since each takes a number
or a function. They can also give the size of mini-batches that grow.

>>> rate = GradualWarmUp(StepDecay(3.2, at=[30, 60, 80]), start=0.1, epochs=5)
>>> [round(rate(t), 4) for t in (0, 2.5, 5, 29, 30, 60, 80)]
[0.1, 1.65, 3.2, 3.2, 0.32, 0.032, 0.0032]

Source: Goyal et al. 2017, arXiv 1706.02677, sections 2 and 5.1.
"""

from __future__ import annotations  # so that help() shows names, not what they stand for

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import ClassVar, TypeAlias

from .checks import Number, function, listed, real_number, whole_number, whole_numbers

__all__ = [
    "ConstantWarmUp", "GradualWarmUp", "StepDecay", "linear_scaled", "rates_of",
    "square_root_scaled",
]

Rate: TypeAlias = Number | Callable[[Number], Number]  # a number, or a function of t


def linear_scaled(base: Number, batch: int, reference: int = 256) -> Number:
    """Return base * batch / reference: k times the samples, k times the rate.

    Args:
        base: the rate for `reference` samples.
        batch: the samples of a mini-batch on all workers together.
        reference: the size of mini-batch that `base` is for; k = batch / reference.

    >>> linear_scaled(0.125, 8192)
    4.0
    """
    rate = real_number("base", base, above=0) * _ratio(batch, reference)
    return rate if isinstance(base, Fraction) else float(rate)


def square_root_scaled(base: Number, batch: int, reference: int = 256) -> float:
    """Return base * sqrt(batch / reference), which keeps the variance of a step.

    It is used with Adam. Source: Krizhevsky 2014, arXiv 1404.5997.

    Args:
        base, batch, reference: as for `linear_scaled`.
    """
    return float(real_number("base", base, above=0)) * math.sqrt(_ratio(batch, reference))


@dataclass(frozen=True)
class StepDecay:
    """`rate`, multiplied by `factor` at each of the times `at`.

    Args:
        rate: a number, or a function of t.
        at: times in epochs.
        factor: above 0; above 1 for mini-batches that grow.

    >>> sizes = StepDecay(16, at=[10, 20], factor=5)
    >>> sizes(9), sizes(10), sizes(25)
    (16, 80, 400)
    """

    rate: Rate
    at: Sequence[float]
    factor: float = 0.1

    def __post_init__(self) -> None:
        _check_rate("rate", self.rate)
        real_number("factor", self.factor, above=0)
        times = [real_number("at", time, least=0) for time in listed("at", self.at)]
        object.__setattr__(self, "at", tuple(times))

    def __call__(self, t: Number) -> Number:
        return value_at(self.rate, t) * self.factor ** sum(time <= t for time in self.at)


@dataclass(frozen=True)
class WarmUp:
    """The base of both warm-ups: from t = epochs on, the rate is `then`.

    Args:
        then: a number, or a function of t.
        start: the rate at t = 0, such as that of the small mini-batch.
        epochs: the time when the warm-up ends, above 0.
    """

    then: Rate
    start: Number
    epochs: float = 5
    before: ClassVar[Callable[..., Number]]  # the rate at t < epochs

    def __post_init__(self) -> None:
        _check_rate("then", self.then)
        real_number("start", self.start, above=0)
        real_number("epochs", self.epochs, above=0)

    def __call__(self, t: Number) -> Number:
        return value_at(self.then, t) if t >= self.epochs else self.before(t)


class ConstantWarmUp(WarmUp):
    """`start` until t = epochs, then `then`. The jump can undo what has been learned.

    >>> rate = ConstantWarmUp(3.2, start=0.1, epochs=5)
    >>> rate(0), rate(4.99), rate(5)
    (0.1, 0.1, 3.2)
    """

    def before(self, t: Number) -> Number:
        return self.start


class GradualWarmUp(WarmUp):
    """A linear increase from `start` to the rate of `then` at t = epochs.

    After i of the W updates in the warm-up, the rate is start + (then - start) i / W:
    the first update has `start`, and update W, counted from 0, is the first with
    `then`.
    """

    def before(self, t: Number) -> Number:
        return self.start + (value_at(self.then, self.epochs) - self.start) * (t / self.epochs)


def value_at(rate: Rate, t: Number) -> Number:
    """Return the value at time `t` of `rate`, a number or a function."""
    return rate(t) if callable(rate) else rate


def rates_of(rate: Rate, n_updates: Sequence[int], exact: bool = False, first: int = 1) -> list[list]:
    """Return for each epoch the list of the rates of its updates, all checked before.

    Args:
        rate: a number, or a function of t.
        n_updates: the number of updates of each epoch. Update i of n, from 0, in epoch
            e, from 1, has the rate at t = e - 1 + i / n.
        exact: whether t is a `Fraction`, for rates of rational numbers.
        first: the number of the first of these epochs, from 1.

    Raises `ValueError` for a rate that is not above 0 and finite, with its update.

    >>> rates_of(GradualWarmUp(1.25, start=0.25, epochs=2), [2, 2, 2])
    [[0.25, 0.5], [0.75, 1.0], [1.25, 1.25]]
    """
    if not isinstance(rate, Real):
        function("learning_rate", rate)
    n_updates = whole_numbers("n_updates", n_updates, 0)
    found: list[list] = []
    for epoch, n in enumerate(n_updates, first):
        found.append([])
        for i in range(n):
            t = epoch - 1 + (Fraction(i, n) if exact else i / n)
            name = f"learning_rate at update {i + 1} of epoch {epoch}, t={float(t):g},"
            found[-1].append(real_number(name, value_at(rate, t), above=0))
    return found


def _ratio(batch, reference):
    return Fraction(whole_number("batch", batch, 1), whole_number("reference", reference, 1))


def _check_rate(name, value):
    """Raise `ValueError`, with `name`, unless `value` is above 0, or a function."""
    if not callable(value):
        real_number(name, value, above=0, note=", or a function of t")
