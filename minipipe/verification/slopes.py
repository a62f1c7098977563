"""Are the derivatives of a layer the slopes of its output? By differences, at kinks from both sides.

One entry of A_prev, W or b is moved by a small step up and down, and with it move the entries A[k] of the
output. Each has a slope on the left and one on the right, which are equal unless there is a kink. The
derivative of the cost is sum_k dZ[k] A'[k], and at a kink A'[k] may be any number between both slopes.
"""

from __future__ import annotations  # so that help() shows names, not what they stand for

from typing import NamedTuple

import numpy as np

from ..arrays import leaves
from .trial import A_PREV, BATCH_SIZE, Trial, forward, named

MOST_ENTRIES = 30     # of an array whose slopes are tried
STEP = 2.0 ** -17     # of a difference, whose square and rounding then are both below 1e-9
NEARBY = 2.0 ** -7    # how far from a kink its two sides are looked for
NEAR = 1e-6           # how near a slope must be, as a share of 1 + |slope|
ALL = (...,)          # the index of all entries at once


class Slope(NamedTuple):
    """The least and the largest derivative that an entry may have, and whether it lies at a kink."""

    low: float
    high: float
    at_kink: bool

    @property
    def middle(self) -> float:
        """The slope, or at a kink the mean of both."""
        return (self.low + self.high) / 2

    def allows(self, given: float) -> bool:
        """Tell whether a derivative is right, but for rounding."""
        slack = NEAR * (1 + abs(self.low) + abs(self.high))
        return self.low - slack <= given <= self.high + slack

    def __str__(self) -> str:
        if not self.at_kink:
            return f"the slope is {self.middle:.6g}"
        return f"there is a kink, and the slopes on both sides are {self.low:.6g} and {self.high:.6g}"


def slopes(trial: Trial) -> str | None:
    """Return what is wrong with the derivatives, or None.

    Multiples of 1/8 seldom lie at a kink. Whole numbers often do: 0 is one of ReLU, and equal numbers are one
    of a maximum. A layer that is made of others has kinks of kinks, whose sides say nothing.
    """
    moves = Moves(trial, trial.data())
    wrong = next(filter(None, map(moves.wrong, moves.arrays)), None)
    if wrong or trial.takes_tokens or trial.layer.layers:
        return wrong
    try:
        moves = Moves(trial, trial.data(grain=1))
    except Exception:  # such as a division by 0, which is not a kink
        return None
    return next(filter(None, map(moves.wrong_at_kink, moves.arrays)), None)


class Moves:
    """A layer after a forward and a backward, and what becomes of A when an entry moves."""

    def __init__(self, trial: Trial, A_prev) -> None:
        self.layer, self.A_prev, self.trial = trial.drawn(), A_prev, trial
        _, self.dZ, self.found = trial.run(self.layer, A_prev)
        self.arrays = named(self.layer, A_prev, self.layer.W, self.layer.b)
        if trial.takes_tokens:
            self.arrays.pop(A_PREV)
        self.flat_dZ = _flat(self.dZ)

    def output(self) -> np.ndarray:
        """Return all entries of A in a row."""
        return _flat(forward(self.layer, self.A_prev))

    def sides(self, array: np.ndarray, index: tuple) -> tuple[np.ndarray, np.ndarray]:
        """Return the slopes of all entries of A on the left and on the right, as those at `index` move."""
        kept, A = array.copy(), self.output()
        array[index] = kept[index] + STEP
        above = self.output()
        array[index] = kept[index] - STEP
        below = self.output()
        array[...] = kept
        return (A - below) / STEP, (above - A) / STEP

    def slope(self, array: np.ndarray, index: tuple) -> Slope:
        """Return the slope of the cost, as the entries at `index` move."""
        left, right = self.sides(array, index)
        kinks = abs(right - left) > 1e-3 * (1 + abs(left) + abs(right))
        middle = (left + right) / 2
        sides = [self.flat_dZ * np.where(kinks, side, middle) for side in (left, right)]
        return Slope(float(np.minimum(*sides).sum()), float(np.maximum(*sides).sum()), bool(kinks.any()))

    def is_wrong(self, array: np.ndarray, index: tuple, slope: Slope, given: float) -> bool:
        """Tell whether a derivative is wrong. Where kinks fall together, more than two slopes may be right.

        An example is a sum of units that all bend where A_prev is 0. At a single kink only two slopes meet:
        near it, each entry of A has the one or the other.
        """
        if slope.allows(given):
            return False
        if not slope.at_kink:
            return True
        (left, right), kept, rng = self.sides(array, index), array.copy(), np.random.default_rng(7)
        far = 0.05 * (1 + abs(left) + abs(right))
        for _ in range(10):
            array += NEARBY * rng.standard_normal(array.shape)
            others = self.sides(array, index)
            array[...] = kept
            if any((np.minimum(abs(one - left), abs(one - right)) > far).any() for one in others):
                return False
        return True

    def wrong(self, name: str) -> str | None:
        """Return what is wrong with the derivatives of one array, or None."""
        array, found = self.arrays[name], self.found[name]
        tried = {index: self.slope(array, index) for index in _some_indices(array)}
        given = {index: float(found[index]) for index in tried}
        wrong = [index for index, slope in tried.items() if self.is_wrong(array, index, slope, given[index])]
        if not wrong:
            return None
        smooth = {index: slope for index, slope in tried.items() if not slope.at_kink}
        first = next((index for index in wrong if index in smooth), None)
        if first is None:
            return _words_of_entry(name, wrong[0], given[wrong[0]], tried[wrong[0]])
        words = _words_of_entry(name, first, given[first], tried[first])
        return self._likely_mistake(name, given, smooth, words) or words

    def wrong_at_kink(self, name: str) -> str | None:
        """Return what is wrong with the derivatives of one array at kinks, or None.

        Of equal numbers a maximum may choose any one. So each may have its whole derivative, but not several
        at once: then all of them are moved together.
        """
        array, found = self.arrays[name], self.found[name]
        tried = {index: self.slope(array, index) for index in _some_indices(array)}
        tried = {index: slope for index, slope in tried.items() if slope.at_kink}
        for index, slope in tried.items():
            if self.is_wrong(array, index, slope, float(found[index])):
                return _words_of_entry(name, index, float(found[index]), slope)
        together, total = self.slope(array, ALL), float(found.sum())
        if tried and self.is_wrong(array, ALL, together, total):
            return (
                f"{name} adds up to {total:.6g}, but if all its entries move together, {together}: "
                "where entries are equal, does each of them get the whole dZ?"
            )
        return None

    def _likely_mistake(self, name, given, smooth, words):
        """Return the mistake that explains all entries that do not lie at a kink, or None.

        given: {index: derivative}. smooth: {index: its `Slope`}. words: what is wrong with the first of them.
        """
        slopes = {index: slope.middle for index, slope in smooth.items()}
        ratios = {round(given[index] / slope, 4) for index, slope in slopes.items() if abs(slope) > NEAR}
        if len(ratios) == 1:
            return f"{name} {_words_of_ratio(ratios.pop())}"
        if all(index[::-1] in slopes and _near(given[index], slopes[index[::-1]]) for index in slopes):
            return f"{name} is transposed: for Z = W @ A_prev, dW = dZ @ A_prev.T"
        if self.trial.takes_tokens:
            return (
                f"{words}: does a token that occurs twice count twice? np.add.at(dW, ids, ...) adds, and "
                "dW[ids] += keeps one"
            )
        if name != A_PREV or np.shape(self.dZ) != self.arrays[name].shape:
            return None
        if all(_near(given[index], self.dZ[index]) for index in slopes):
            return f"{name} is dZ itself: the derivative of what forward computes is missing"
        if all(_near(slope - given[index], self.dZ[index]) for index, slope in slopes.items()):
            return f"{name} lacks the summand dZ: is a path past the layer, such as a skip, forgotten?"
        return None


def _words_of_ratio(ratio):
    """Return what it means if all derivatives are `ratio` times the slopes."""
    if ratio == round(1 / BATCH_SIZE, 4):
        return f"is {BATCH_SIZE} times too small: does backward divide by its own m? The loss has done that"
    if ratio == BATCH_SIZE:
        return f"is {BATCH_SIZE} times too large: is it summed over the samples twice, or multiplied by m?"
    if ratio == -1:
        return "has the wrong sign"
    if ratio == 0:
        return "is 0: is a term missing, or a cache overwritten?"
    return f"is {ratio:g} times the slope, at each entry: is a factor of forward missing in backward?"


def _near(one, other):
    return abs(one - other) <= NEAR * (1 + abs(other))


def _words_of_entry(name, index, given, slope):
    return f"{name}[{', '.join(map(str, index))}] = {given:.6g}, but {slope}"


def _flat(tree):
    """Return a new array of all numbers of an array, or of a tuple of arrays."""
    return np.concatenate([np.ravel(part) for part in leaves(tree)])


def _some_indices(array):
    """Return indices of at most `MOST_ENTRIES` entries, spread over the array."""
    flat = np.linspace(0, array.size - 1, min(array.size, MOST_ENTRIES)).astype(int)
    return [tuple(map(int, np.unravel_index(place, array.shape))) for place in flat]
