"""Are the derivatives of a layer the slopes of its output? By differences.

One entry of A_prev, W or b is moved by a small step up and down, and with it move the entries A[k] of the
output. The derivative of the cost is sum_k dZ[k] A'[k]. Each A[k] has a slope on the left and one on the
right, which are equal but for curvature, unless there is a kink. Any derivative between both may be right.
"""

from __future__ import annotations  # so that help() shows names, not what they stand for

from typing import NamedTuple

import numpy as np

from ..arrays import leaves
from .trial import A_PREV, BATCH_SIZE, Trial, forward, named

MOST_ENTRIES = 30     # of an array whose slopes are tried
STEP = 2.0 ** -17     # of a difference, whose square and rounding then are both below 1e-9
NEAR = 4 * STEP       # how near a slope must be, as a share of 1 + |slope|: curvature may jump


class Slope(NamedTuple):
    """The least and the largest slope of the cost, on the left and on the right of an entry."""

    low: float
    high: float

    @property
    def middle(self):
        return (self.low + self.high) / 2

    @property
    def at_kink(self):
        return self.high - self.low > 1e-3 * (1 + abs(self.low) + abs(self.high))

    def allows(self, given):
        """Tell whether a derivative is right, but for rounding.

        Where kinks fall together, as in a sum of units that all bend at 0, more than two slopes may be right:
        so at a kink a derivative may be as far outside as both sides are apart.
        """
        slack = NEAR * (1 + abs(self.low) + abs(self.high)) + self.at_kink * (self.high - self.low)
        return self.low - slack <= given <= self.high + slack


def slopes(trial: Trial) -> str | None:
    """Return what is wrong with the derivatives, or None."""
    layer, A_prev = trial.drawn(), trial.data()
    _, dZ, found = trial.run(layer, A_prev)
    arrays = named(layer, A_prev, layer.W, layer.b)
    if trial.takes_tokens:
        arrays.pop(A_PREV)
    for name, array in arrays.items():
        tried = {index: _slope(layer, A_prev, dZ, array, index) for index in _some_indices(array)}
        tried = {index: slope for index, slope in tried.items() if not slope.at_kink}
        given = {index: float(found[name][index]) for index in tried}
        wrong = [index for index, slope in tried.items() if not slope.allows(given[index])]
        if wrong:
            index, place = wrong[0], ", ".join(map(str, wrong[0]))
            words = f"{name}[{place}] = {given[index]:.6g}, but the slope is {tried[index].middle:.6g}"
            if trial.takes_tokens:
                words += ": does a token that occurs twice count twice? np.add.at(dW, ids, ...) adds, and "
                words += "dW[ids] += keeps one"
            same_shape = name == A_PREV and np.shape(dZ) == array.shape
            middles = {index: slope.middle for index, slope in tried.items()}
            return _likely_mistake(name, given, middles, dZ if same_shape else None) or words
    # a layer that is made of others has kinks of kinks
    return None if trial.takes_tokens or trial.layer.layers else _wrong_at_kinks(trial)


def _wrong_at_kinks(trial):
    """Return what is wrong with the derivatives where whole numbers lie at kinks, or None.

    0 is a kink of ReLU, and equal numbers are one of a maximum. A maximum may give dZ to any of its equals,
    but to one of them: if all entries move together, it moves once.
    """
    layer, A_prev = trial.drawn(), trial.data()
    for part in leaves(A_prev):
        part[...] = np.round(part)
    try:
        _, dZ, found = trial.run(layer, A_prev)
    except Exception:  # such as a division by 0, which is not a kink
        return None
    for name, array in named(layer, A_prev, layer.W, layer.b).items():
        tried = {index: _slope(layer, A_prev, dZ, array, index) for index in _some_indices(array)}
        kinks = {index: slope for index, slope in tried.items() if slope.at_kink}
        for index, slope in kinks.items():
            given, place = float(found[name][index]), ", ".join(map(str, index))
            if not slope.allows(given):
                return (
                    f"{name}[{place}] = {given:.6g}, but there is a kink, and the slopes on both sides are "
                    f"{slope.low:.6g} and {slope.high:.6g}"
                )
        together, total = _slope(layer, A_prev, dZ, array, ...), float(found[name].sum())
        if kinks and not together.at_kink and not together.allows(total):
            return (
                f"{name} adds up to {total:.6g}, but if all its entries move together, the slope is "
                f"{together.middle:.6g}: where entries are equal, does each of them get the whole dZ?"
            )
    return None


def _slope(layer, A_prev, dZ, array, index):
    """Return the `Slope` of the cost as entries of an array move. index: of these entries."""
    kept, A = array[index].copy(), _flat(forward(layer, A_prev))
    array[index] = kept + STEP
    right = (_flat(forward(layer, A_prev)) - A) / STEP
    array[index] = kept - STEP
    left = (A - _flat(forward(layer, A_prev))) / STEP
    array[index] = kept
    left, right = _flat(dZ) * left, _flat(dZ) * right
    return Slope(float(np.minimum(left, right).sum()), float(np.maximum(left, right).sum()))


def _likely_mistake(name, given, slopes, dZ):
    """Return the mistake that explains all entries, or None.

    given, slopes: {index: derivative}, {index: slope}. dZ: None where its entries are not those of the array.
    """
    ratios = {round(given[index] / slope, 4) for index, slope in slopes.items() if abs(slope) > NEAR}
    if len(ratios) == 1:
        return f"{name} {_words_of_ratio(ratios.pop())}"
    if all(index[::-1] in slopes and _near(given[index], slopes[index[::-1]]) for index in slopes):
        return f"{name} is transposed: for Z = W @ A_prev, dW = dZ @ A_prev.T"
    if dZ is None:
        return None
    if all(_near(given[index], dZ[index]) for index in slopes):
        return f"{name} is dZ itself: the derivative of what forward computes is missing"
    if all(_near(slope - given[index], dZ[index]) for index, slope in slopes.items()):
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


def _flat(tree):
    """Return a new array of all numbers of an array, or of a tuple of arrays."""
    return np.concatenate([np.ravel(part) for part in leaves(tree)])


def _some_indices(array):
    """Return indices of at most `MOST_ENTRIES` entries, spread over the array."""
    flat = np.linspace(0, array.size - 1, min(array.size, MOST_ENTRIES)).astype(int)
    return [tuple(map(int, np.unravel_index(place, array.shape))) for place in flat]
