"""Are the derivatives of a layer the slopes of its output? By differences.

One entry of A_prev, W or b is moved by a small step up and down, and with it move the entries A[k] of the
output. The derivative of the cost is sum_k dZ[k] A'[k]. Where the slopes on the left and on the right differ,
the entry lies at a kink: any derivative between both may be right, and none is judged.
"""

from __future__ import annotations  # so that help() shows names, not what they stand for

import numpy as np

from ..arrays import leaves
from .trial import A_PREV, BATCH_SIZE, Trial, forward, named

MOST_ENTRIES = 30     # of an array whose slopes are tried
STEP = 2.0 ** -17     # of a difference, whose square and rounding then are both below 1e-9
NEAR = 1e-6           # how near a slope must be, as a share of 1 + |slope|


def slopes(trial: Trial) -> str | None:
    """Return what is wrong with the derivatives, or None."""
    layer, A_prev = trial.drawn(), trial.data()
    _, dZ, found = trial.run(layer, A_prev)
    arrays = named(layer, A_prev, layer.W, layer.b)
    if trial.takes_tokens:
        arrays.pop(A_PREV)

    def output():
        return _flat(forward(layer, A_prev))

    for name, array in arrays.items():
        tried = {index: _slope(output, _flat(dZ), array, index) for index in _some_indices(array)}
        tried = {index: slope for index, slope in tried.items() if slope is not None}
        given = {index: float(found[name][index]) for index in tried}
        wrong = [index for index, slope in tried.items() if not _near(given[index], slope)]
        if wrong:
            index, place = wrong[0], ", ".join(map(str, wrong[0]))
            words = f"{name}[{place}] = {given[index]:.6g}, but the slope is {tried[index]:.6g}"
            if trial.takes_tokens:
                words += ": does a token that occurs twice count twice? np.add.at(dW, ids, ...) adds, and "
                words += "dW[ids] += keeps one"
            same_shape = name == A_PREV and np.shape(dZ) == array.shape
            return _likely_mistake(name, given, tried, dZ if same_shape else None) or words
    return None


def _slope(output, dZ, array, index):
    """Return the slope of the cost as the entry at `index` moves; None at a kink.

    output: a function that returns all entries of A in a row; dZ has one for each of them.
    """
    kept, A = array[index], output()
    array[index] = kept + STEP
    right = (output() - A) / STEP
    array[index] = kept - STEP
    left = (A - output()) / STEP
    array[index] = kept
    if (abs(right - left) > 1e-3 * (1 + abs(left) + abs(right))).any():
        return None
    return float((dZ * (left + right) / 2).sum())


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
