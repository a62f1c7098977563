"""A layer on small random data, as `check` tries it: its data, derivatives and slopes."""

from __future__ import annotations  # so that help() shows names, not what they stand for

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..arrays import converted, leaves
from ..checks import without_return
from ..exact import rational
from ..layers import Layer, every_layer
from ..layers.through import prepare_forward

BATCH_SIZE = 5  # samples of the mini-batch
A_PREV = "dA_prev"


class CannotTry(Exception):
    """A promise that cannot be tried, with the reason."""


class Remark(str):
    """What is worth saying of a promise that is kept."""


def in_floats(error: Exception) -> Remark:
    """Return the remark that a promise was tried in floats. error: what fractions led to."""
    words = f"of {type(error).__name__}: {error}"
    if str(error).startswith("exact arithmetic met"):
        words = str(error).partition(": convert it")[0]  # there is nothing to convert in a right layer
    return Remark(f"in floats, but for rounding; not tried in fractions, because {words}")


class Trial:
    """A layer with parameters and data of its own, made anew for each promise."""

    def __init__(self, layer: Layer, shape: tuple) -> None:
        self.layer, self.shape = layer, shape
        self.takes_pair = bool(shape) and isinstance(shape[0], tuple)
        self.takes_tokens = layer.takes == "tokens"

    def drawn(self, convert: Callable = np.float64) -> Layer:
        """Return a copy of the layer whose parameters are coarse, and converted.

        None of them is 1 or 0 throughout, as the first gamma and b are: a derivative that forgets such a
        factor would look right.
        """
        twin = self.layer.copy()
        for one in every_layer([twin]):
            one.cache = one.tie = None  # the layer that shares its W is not here
        rng = np.random.default_rng(0)
        twin.initialize(rng, np.float64)

        def moved(parameter):
            parameter = np.asarray(parameter, np.float64)
            noise = rng.standard_normal(parameter.shape)
            return converted(coarse(parameter * (1 + np.tanh(noise) / 2) + noise * (parameter == 0)), convert)

        return twin.copy(moved)

    def data(self, convert: Callable = np.float64, seed: int = 1) -> np.ndarray | tuple:
        """Return A_prev of `BATCH_SIZE` samples, multiples of 1/8; tokens where the layer takes some."""
        rng = np.random.default_rng(seed)
        if self.takes_tokens:
            known = [one.n_tokens for one in every_layer([self.layer]) if hasattr(one, "n_tokens")]
            n_tokens = known[0] if known else 2
            return rng.integers(0, n_tokens, (*self.shape, BATCH_SIZE))
        shapes = self.shape if self.takes_pair else (self.shape,)
        drawn = [coarse(rng.standard_normal((*shape, BATCH_SIZE))) for shape in shapes]
        found = tuple(converted(array, convert) for array in drawn)
        return found if self.takes_pair else found[0]

    def run(self, layer: Layer, A_prev, dZ=None, first_sample: int = 0) -> tuple:
        """Return (A, dZ, {name: derivative}) of a forward and a backward."""
        A = forward(layer, A_prev, first_sample)
        dZ = self.slopes_of_cost(A) if dZ is None else dZ
        derivatives = layer.backward(dZ)
        if not (isinstance(derivatives, tuple) and len(derivatives) == 3):
            raise without_return(layer, "backward", "dA_prev, dW, db", derivatives)
        dA_prev, dW, db = derivatives
        return A, dZ, named(layer, dA_prev, dW, db)

    def slopes_of_cost(self, A, seed: int = 2) -> np.ndarray | tuple:
        """Return dZ, multiples of 1/8, in the form of A."""
        rng = np.random.default_rng(seed)
        made = [like(coarse(rng.standard_normal(part.shape)), part) for part in leaves(A)]
        return tuple(made) if isinstance(A, tuple) else made[0]


def forward(layer: Layer, A_prev, first_sample: int = 0):
    """Return A of a forward in training, as a network prepares it."""
    prepare_forward(every_layer([layer]), training=True, first_sample=first_sample)
    A = layer.forward(A_prev)
    if A is None:
        raise without_return(layer, "forward", "A")
    return A


def named(layer: Layer, dA_prev, dW, db) -> dict:
    """Return {name: array} of all derivatives that are there."""
    found = {}
    for name, tree in ((A_PREV, dA_prev), ("dW", dW), ("db", db)):
        parts = leaves(tree)
        found |= {name if len(parts) == 1 else f"{name}[{k}]": part for k, part in enumerate(parts)}
    return found


def part_of(tree, part: slice):
    """Return these samples of an array, or of each array in a tuple."""
    return tuple(array[..., part] for array in tree) if isinstance(tree, tuple) else tree[..., part]


def like(array: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return `array` with the kind of numbers of `other`."""
    return rational(array) if other.dtype == object else array.astype(other.dtype)


def coarse(array) -> np.ndarray:
    """Round to multiples of 1/8, which fractions and floats hold exactly."""
    return np.round(8 * np.asarray(array, np.float64)) / 8


# Are the derivatives of a layer the slopes of its output? By differences.
#
# One entry of A_prev, W or b is moved by a small step up and down, and with it move the entries A[k] of the
# output. The derivative of the cost is sum_k dZ[k] A'[k]. Each A[k] has a slope on the left and one on the
# right, which are equal but for curvature, unless there is a kink. Any derivative between both may be right.

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
