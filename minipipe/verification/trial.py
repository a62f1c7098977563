"""Run a layer or a loss on small random data, for `check`: its data, derivatives and slopes."""

from __future__ import annotations  # so that help() shows names, not what they stand for

import copy
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from ..arrays import converted, leaves, one_hot
from ..checks import without_return
from ..exact import rational
from ..layers import Layer, every_layer
from ..layers.through import prepare_forward
from ..losses import LOSSES, Loss

BATCH_SIZE = 5  # samples of the mini-batch


class CannotTry(Exception):
    """Raised with the reason why a promise cannot be tried."""


class Remark(str):
    """A remark on a promise that is kept."""


def in_best_numbers(attempt: Callable, what: Any) -> str | None:
    """Return the error message of `attempt(what, convert, exact)` in fractions, or in floats if they fail.

    A layer that cannot compute with fractions raises an error, perhaps only for some
    numbers.
    """
    try:
        return attempt(what, rational, True)
    except Exception as error:
        words = f"of {type(error).__name__}: {error}"
        if str(error).startswith("exact arithmetic met"):
            words = str(error).partition(": convert it")[0]  # a right layer has nothing to convert
        why = f"in floats, but for rounding; not tried in fractions, because {words}"
        return attempt(what, np.float64, False) or Remark(why)


def private(thing: Any) -> Any:
    """Return a copy of `thing`, a layer, loss or optimizer, with arrays, lists and generators of its own.

    It shares attributes that cannot be copied, such as a module.
    """
    twin = copy.copy(thing)
    memo: dict = {}
    for name, value in vars(thing).items():
        with suppress(TypeError):
            vars(twin)[name] = copy.deepcopy(value, memo)
    return twin


class Trial:
    """A layer with parameters and data of its own, made anew for each promise.

    Attributes:
        takes, gives: the names of the input and the output in errors.
    """

    takes, gives = "A_prev", "A"

    def __init__(self, layer: Layer, shape: tuple) -> None:
        self.layer, self.shape = layer, shape
        self.takes_pair = bool(shape) and isinstance(shape[0], tuple)
        self.takes_tokens = layer.takes == "tokens"

    def drawn(self, convert: Callable = np.float64) -> Any:
        """Return a copy of the layer whose parameters are multiples of 1/8, converted by `convert`.

        No parameter is all 1 or all 0, as the initial gamma and b are: a derivative
        without such a factor would look right.
        """
        twin = private(self.layer.copy())
        for one in every_layer([twin]):
            one.cache = one.tie = None  # the other layers with its W are not in this trial
        rng = np.random.default_rng(0)
        twin.initialize(rng, np.float64)

        def moved(parameter):
            parameter = np.asarray(parameter, np.float64)
            noise = rng.standard_normal(parameter.shape)
            return converted(coarse(parameter * (1 + np.tanh(noise) / 2) + noise * (parameter == 0)), convert)

        return twin.copy(moved)

    def data(self, convert: Callable = np.float64, seed: int = 1) -> Any:
        """Return A_prev of `BATCH_SIZE` samples from `seed`: multiples of 1/8 by `convert`, or tokens."""
        rng = np.random.default_rng(seed)
        if self.takes_tokens:
            known = [one.n_tokens for one in every_layer([self.layer]) if hasattr(one, "n_tokens")]
            n_tokens = known[0] if known else 2
            return rng.integers(0, n_tokens, (*self.shape, BATCH_SIZE))
        shapes = self.shape if self.takes_pair else (self.shape,)
        drawn = [coarse(rng.standard_normal((*shape, BATCH_SIZE))) for shape in shapes]
        found = tuple(converted(array, convert) for array in drawn)
        return found if self.takes_pair else found[0]

    def run(self, layer: Layer, A_prev: Any, dZ: Any = None, first_sample: int = 0) -> tuple:
        """Return (A, dZ, {name: derivative}) of a forward of `layer` on A_prev and its backward.

        Args:
            layer: a result of `drawn`.
            A_prev: the input.
            dZ: None, for `slopes_of_cost`.
            first_sample: the index of the first sample, for random masks.
        """
        A = forward(layer, A_prev, first_sample)
        dZ = self.slopes_of_cost(A) if dZ is None else dZ
        derivatives = layer.backward(dZ)
        if not (isinstance(derivatives, tuple) and len(derivatives) == 3):
            raise without_return(layer, "backward", "dA_prev, dW, db", derivatives)
        return A, dZ, self.named(*derivatives)

    def slopes_of_cost(self, A: Any, seed: int = 2) -> np.ndarray | tuple:
        """Return dZ, multiples of 1/8 drawn by `seed`, with the shapes of A."""
        rng = np.random.default_rng(seed)
        made = [like(coarse(rng.standard_normal(part.shape)), part) for part in leaves(A)]
        return tuple(made) if isinstance(A, tuple) else made[0]

    def named(self, dA_prev: Any, dW: Any, db: Any) -> dict:
        """Return {name: array} of dA_prev, dW and db; "dW[k]" is that of the k-th layer inside a layer."""
        found: dict = {}
        for name, tree in ((f"d{self.takes}", dA_prev), ("dW", dW), ("db", db)):
            parts = _with_none(tree)
            found |= {name if len(parts) == 1 else f"{name}[{k}]": part for k, part in enumerate(parts)}
        return {name: part for name, part in found.items() if part is not None}


def _with_none(tree):
    """Return the arrays in nested tuples, in order, and None where one is missing."""
    return [part for parts in tree for part in _with_none(parts)] if isinstance(tree, tuple) else [tree]


class CostLayer(Layer):
    """A loss as a layer, whose output is J (1,) of its samples, with dZ = 1.

    Args:
        loss: the loss.
        labels: the labels of all `BATCH_SIZE` samples.
        m: the number that the loss divides by.
    """

    cache = property(lambda self: self.loss.cache, lambda self, value: setattr(self.loss, "cache", value))

    def __init__(self, loss: Loss, labels: Any, m: int) -> None:
        self.loss, self.labels, self.m = loss, labels, m
        self.takes = getattr(loss, "takes", "numbers")

    def forward(self, A: Any) -> Any:
        run = slice(self.first_sample, self.first_sample + A.shape[-1])
        J: Any = self.loss.forward(A, self.labels[..., run], self.m)
        return np.reshape(J, 1)

    def backward(self, dZ: Any) -> tuple:
        return self.loss.backward(), None, None


class LossTrial(Trial):
    """A loss, tried as a layer, with labels of the first kind for which its derivative is right.

    Args:
        loss: the loss.
        shape: the shape of the predictions for one sample.
    """

    takes, gives = "A", "J"

    def __init__(self, loss: Loss, shape: tuple) -> None:
        super().__init__(CostLayer(loss, None, BATCH_SIZE), shape)
        self.loss = loss
        kinds = ["numbers", "bits", "classes", "shares"]
        if LOSSES.get(type(loss).__name__) is type(loss):
            kinds = [kind for _, kind in LOSSES.facts[type(loss).__name__].examples()]
        for must_be_right, self.kind in product((True, False), kinds):
            with suppress(Exception), np.errstate(all="ignore"):
                J = forward(self.drawn(), self.data())
                if np.isfinite(J).all() and not (must_be_right and slopes(self)):
                    break
        else:
            self.kind = kinds[0]

    def labels(self) -> np.ndarray:
        """Return Y of all samples."""
        rng, shape = np.random.default_rng(5), (*self.shape, BATCH_SIZE)
        if self.kind == "classes":
            return one_hot(rng.integers(0, shape[0], shape[1:]), shape[0])
        if self.kind == "bits":
            return rng.integers(0, 2, shape).astype(float)
        Y = coarse(rng.standard_normal(shape))
        return (abs(Y) + 1) / (abs(Y) + 1).sum(axis=0) if self.kind == "shares" else Y

    def drawn(self, convert: Callable = np.float64, m: int = BATCH_SIZE) -> CostLayer:
        """Return a copy of the loss as a layer that divides by m, with labels converted by `convert`."""
        return CostLayer(private(self.loss), converted(self.labels(), convert), m)

    def data(self, convert: Callable = np.float64, seed: int = 1) -> np.ndarray:
        """Return A by `seed` and `convert`, multiples of 1/8; for probabilities between 0 and 1."""
        A = super().data(seed=seed)
        if self.layer.takes == "probabilities":
            A = np.clip(coarse(0.5 + A / 4), 1 / 8, 7 / 8)
        return converted(A, convert)

    def slopes_of_cost(self, A: Any, seed: int = 2) -> np.ndarray:
        """Return 1, the derivative of J = A with respect to itself, for any `seed`."""
        return like(np.ones(1), A)


def forward(layer: Layer, A_prev: Any, first_sample: int = 0) -> Any:
    """Return A of a forward of `layer` in training. A_prev, first_sample: see `Trial.run`."""
    prepare_forward(every_layer([layer]), training=True, first_sample=first_sample)
    A = layer.forward(A_prev)
    if A is None:
        raise without_return(layer, "forward", "A")
    return A


def part_of(tree: Any, part: slice) -> Any:
    """Return the samples `part` of `tree`, an array or a tuple of arrays."""
    return tuple(array[..., part] for array in tree) if isinstance(tree, tuple) else tree[..., part]


def like(array: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return `array` with the dtype of `other`; fractions, if that is object."""
    return rational(array) if other.dtype == object else array.astype(other.dtype)


def coarse(array: Any) -> np.ndarray:
    """Round `array` to multiples of 1/8, which fractions and floats represent exactly."""
    return np.round(8 * np.asarray(array, np.float64)) / 8


# Compare the derivatives of a layer with slopes of its output, by finite differences.
#
# One entry of A_prev, W or b is moved up and down by a small step, which moves the entries A[k] of the
# output. The derivative of the cost is sum_k dZ[k] A'[k]. Each A[k] has a slope on the left and one on the
# right, which are equal up to curvature, unless there is a kink, where any derivative between both is right.
#
# A slope with a step h has an error of about c h^p: p = 1 where A is curved, and 1/2 at the 0 of z^1.5. Where
# a derivative seems wrong, two more steps, each a sixteenth of the one before, estimate the error
# (Richardson): for p >= 1/4, the error of the last slope is at most its difference from the one before.

MOST_ENTRIES = 30     # entries of an array whose slopes are compared
STEP = 2.0 ** -17     # the step of a difference: its square and its rounding error are both below 1e-9
NEAR = 4 * STEP       # the tolerance of a slope, as a share of 1 + |slope|: curvature may jump
ASIDE = 2.0 ** -12    # the distance from a kink at which other kinks are looked for


class Slope(NamedTuple):
    """The smaller and the larger of the slopes of the cost to the left and to the right of an entry."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        """The mean of both slopes."""
        return (self.low + self.high) / 2

    @property
    def slack(self) -> float:
        """The tolerance of a derivative."""
        return NEAR * (1 + abs(self.low) + abs(self.high))

    @property
    def at_kink(self) -> bool:
        """Whether both slopes differ by more than curvature explains."""
        return self.high - self.low > 1e-3 * (1 + abs(self.low) + abs(self.high))

    def allows(self, given: float) -> bool:
        """Tell whether the derivative `given` is between both slopes, up to the tolerance."""
        return self.low - self.slack <= given <= self.high + self.slack


def slopes(trial: Trial) -> str | None:
    """Compare the derivatives of `trial` with slopes; return an error message, or None.

    The data are random numbers, where kinks are rare; then whole numbers, some of them
    large, with 0, a kink of ReLU, and 6, a kink of ReLU6; then samples of equal
    numbers, a kink of a maximum.
    """
    ways = [lambda part: part, _whole_numbers, _equal_numbers]
    # a layer that is made of others has kinks of kinks
    for way in ways[:1] if trial.takes_tokens or trial.layer.layers else ways:
        layer, A_prev = trial.drawn(), trial.data()
        for part in leaves(A_prev):
            part[...] = way(part)
        try:
            _, dZ, found = trial.run(layer, A_prev)
        except Exception:
            if way is ways[0]:
                raise
            continue  # such as a division by 0, or a probability outside 0..1
        if way is ways[0]:
            wrong = _wrong_slope(trial, layer, A_prev, dZ, found)
        else:
            wrong = _wrong_at_kinks(trial, layer, A_prev, dZ, found)
        if wrong:
            return wrong
    return None


def _whole_numbers(part):
    return np.round(part * np.where(np.arange(BATCH_SIZE) < 3, 1, 8))


def _equal_numbers(part):
    return part * 0 + np.arange(BATCH_SIZE) - 1


def _wrong_slope(trial, layer, A_prev, dZ, found):
    """Compare derivatives at random numbers, without kinks; return an error message, or None."""
    arrays = trial.named(A_prev, layer.W, layer.b)
    if trial.takes_tokens:
        arrays.pop(f"d{trial.takes}")
    for name, array in arrays.items():
        if name not in found:
            continue  # of a parameter that stays as it is
        given = {index: float(found[name][index]) for index in _some_indices(array)}
        tried = {index: _measured(layer, A_prev, dZ, array, index, given[index]) for index in given}
        tried = {index: slope for index, slope in tried.items() if not slope.at_kink}
        wrong = [index for index, slope in tried.items() if not slope.allows(given[index])]
        if wrong:
            index, place = wrong[0], ", ".join(map(str, wrong[0]))
            words = f"{name}[{place}] = {given[index]:.6g}, but the slope is {tried[index].middle:.6g}"
            if trial.takes_tokens:
                words += ": does a token that occurs twice count twice? np.add.at(dW, ids, ...) adds, and "
                words += "dW[ids] += keeps one"
            same_shape = name == f"d{trial.takes}" and np.shape(dZ) == array.shape
            middles = {index: slope.middle for index, slope in tried.items()}
            return _likely_mistake(name, given, middles, dZ if same_shape else None) or words
    return None


def _wrong_at_kinks(trial, layer, A_prev, dZ, found):
    """Compare derivatives where many numbers are at kinks; return an error message, or None.

    A maximum may pass dZ to any of several equal entries, or divide it among them; the
    sum of these derivatives is tested by moving all entries together.
    """
    for name, array in trial.named(A_prev, None, None).items():
        for index in [*_some_indices(array), ...]:
            given = float(found[name][index].sum())
            slope = _measured(layer, A_prev, dZ, array, index, given, are_close=True)
            if slope.allows(given) or not np.isfinite(given):
                continue
            if index is ...:
                return (
                    f"{name} adds up to {given:.6g}, but if all its entries move together, the slope is "
                    f"{slope.middle:.6g}: where entries are equal, does each of them get the whole dZ?"
                )
            place = f"[{', '.join(map(str, index))}]"
            words = f"the slope is {slope.middle:.6g}"
            if slope.at_kink:
                sides = f"{slope.low:.6g} and {slope.high:.6g}"
                words = f"there is a kink, and the slopes on both sides are {sides}"
            return f"{name}{place} = {given:.6g}, but {words}, where {trial.takes}{place} = {array[index]:g}"
    return None


def _measured(layer, A_prev, dZ, array, index, given, are_close=False):
    """Return the `Slope` of the cost as entries of an array move, as precisely as is needed.

    Args:
        layer, A_prev, dZ: of a run.
        array: A_prev, W or b.
        index: of these entries.
        given: their derivative; it is returned as the slope where none can be measured.
        are_close: whether kinks may fall together, as among three equal numbers that are sorted. Then any
            slope nearby is right.
    """
    def by(step):
        kept, A = array[index].copy(), _flat(forward(layer, A_prev))
        array[index] = kept + step
        right = _flat(dZ) * (_flat(forward(layer, A_prev)) - A) / step
        array[index] = kept - step
        left = _flat(dZ) * (A - _flat(forward(layer, A_prev))) / step
        array[index] = kept
        return np.array([np.minimum(left, right).sum(), np.maximum(left, right).sum()], float)

    slope = Slope(*by(STEP))
    if slope.allows(given):
        return slope
    finer, finest = by(STEP / 16), by(STEP / 256)
    error, before = abs(finest - finer).max(), abs(finer - slope).max()
    if not error <= max(slope.slack, before / 1.5):
        return Slope(given, given)
    slope = Slope(*finest + [-2 * error, 2 * error])
    if slope.allows(given) or not are_close:
        return slope
    rng, parts = np.random.default_rng(8), leaves(A_prev)
    kept, nearby = [part.copy() for part in parts], []
    for _ in range(16):
        for part, numbers in zip(parts, kept):
            part[...] = numbers + ASIDE * rng.standard_normal(part.shape)
        nearby.append(by(STEP / 16))
    for part, numbers in zip(parts, kept):
        part[...] = numbers
    low, high = np.min(nearby) - 1e-3, np.max(nearby) + 1e-3
    # units of W A_prev with a common kink may have a derivative that is not a slope in any direction
    may_be_any = high - low > 3e-3 and leaves((layer.W, layer.b))
    return Slope(given, given) if may_be_any or low <= given <= high else slope


def _likely_mistake(name, given, slopes, dZ):
    """Return the mistake that explains all entries, or None.

    Args:
        name: the name of the array in the message.
        given: {index: derivative}.
        slopes: {index: slope}.
        dZ: the layer's dZ; None, if it has another shape than the array.
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
    """Return the message for derivatives that all are `ratio` times the slopes."""
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
    """Return a new flat array of all entries of an array, or of a tuple of arrays."""
    return np.concatenate([np.ravel(part) for part in leaves(tree)])


def _some_indices(array):
    """Return indices of at most `MOST_ENTRIES` entries, spread over the array."""
    flat = np.linspace(0, array.size - 1, min(array.size, MOST_ENTRIES)).astype(int)
    return [tuple(map(int, np.unravel_index(place, array.shape))) for place in flat]
