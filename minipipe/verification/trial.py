"""Run a layer or a loss on small random data: its outputs, derivatives and slopes."""

from __future__ import annotations  # so that help() shows names, not what they stand for

import copy
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from typing import Any

import numpy as np

from ..arrays import converted, leaves, one_hot
from ..checks import without_return
from ..exact import rational
from ..layers import Layer, every_layer
from ..layers.through import prepare_forward
from ..losses import LOSSES, Loss

BATCH_SIZE = 5  # samples of the mini-batch


class CannotTry(Exception):
    """Raised with the reason why a claim cannot be tried."""


class Remark(str):
    """A remark on a claim that holds."""


def in_fractions_or_floats(attempt: Callable) -> str | None:
    """Call `attempt(convert, exact)` in fractions, or in floats if that fails.

    Return its message, None if nothing is wrong, or a `Remark` that floats were used.
    """
    try:
        return attempt(rational, True)
    except Exception as error:
        words = f"of {type(error).__name__}: {error}"
        if str(error).startswith("exact arithmetic met"):
            words = str(error).partition(": convert it")[0]  # a right layer has nothing to convert
        why = f"in floats, but for rounding; not tried in fractions, because {words}"
        return attempt(np.float64, False) or Remark(why)


def deep_copy(thing: Any) -> Any:
    """Return a deep copy of `thing`, which shares attributes that cannot be copied."""
    twin = copy.copy(thing)
    memo: dict = {}
    for name, value in vars(thing).items():
        with suppress(TypeError):
            vars(twin)[name] = copy.deepcopy(value, memo)
    return twin


class Trial:
    """A layer whose parameters and data are drawn anew for each check.

    Attributes:
        takes, gives: what errors call the input and the output.
    """

    takes, gives = "A_prev", "A"

    def __init__(self, layer: Layer, shape: tuple) -> None:
        self.layer, self.shape = layer, shape
        self.takes_pair = bool(shape) and isinstance(shape[0], tuple)
        self.takes_tokens = layer.takes == "tokens"

    def drawn(self, convert: Callable = np.float64) -> Any:
        """Return a copy of the layer with random parameters, converted by `convert`.

        They are multiples of 1/8. None is all 1 or all 0, as the initial gamma and b
        are: a derivative that lacks such a factor would look right.
        """
        twin = deep_copy(self.layer.copy())
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
        """Return A_prev, drawn by `seed`: tokens, or multiples of 1/8 by `convert`."""
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
        """Return (A, dZ, {name: derivative}) of a forward and a backward.

        Args:
            layer: a result of `drawn`.
            A_prev: the input.
            dZ: the gradient with respect to A; if None, that of `slopes_of_cost`.
            first_sample: the index of the first sample, for random masks.
        """
        A = forward(layer, A_prev, first_sample)
        dZ = self.slopes_of_cost(A) if dZ is None else dZ
        derivatives = layer.backward(dZ)
        if not (isinstance(derivatives, tuple) and len(derivatives) == 3):
            raise without_return(layer, "backward", "dA_prev, dW, db", derivatives)
        return A, dZ, self.named(*derivatives)

    def slopes_of_cost(self, A: Any, seed: int = 2) -> np.ndarray | tuple:
        """Return dZ in the shapes of A: multiples of 1/8, drawn with `seed`."""
        rng = np.random.default_rng(seed)
        made = [like(coarse(rng.standard_normal(part.shape)), part) for part in leaves(A)]
        return tuple(made) if isinstance(A, tuple) else made[0]

    def named(self, dA_prev: Any, dW: Any, db: Any) -> dict:
        """Return {name: array} of dA_prev, dW, db; "dW[k]" of layer k of a block."""
        found: dict = {}
        for name, tree in ((f"d{self.takes}", dA_prev), ("dW", dW), ("db", db)):
            parts = _with_none(tree)
            found |= {name if len(parts) == 1 else f"{name}[{k}]": part for k, part in enumerate(parts)}
        return {name: part for name, part in found.items() if part is not None}


def _with_none(tree):
    """Return the arrays in nested tuples, and None where one is missing."""
    return [part for parts in tree for part in _with_none(parts)] if isinstance(tree, tuple) else [tree]


class CostLayer(Layer):
    """A loss as a layer: its output is J, in an array (1,), and its dZ is 1.

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
    """A trial of a loss, with the first kind of labels whose derivatives are right.

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
        """Return the loss as a layer that divides by m, with labels by `convert`."""
        return CostLayer(deep_copy(self.loss), converted(self.labels(), convert), m)

    def data(self, convert: Callable = np.float64, seed: int = 1) -> np.ndarray:
        """Return A, drawn with `seed`: multiples of 1/8, converted by `convert`.

        If the loss takes probabilities, they are in 1/8..7/8.
        """
        A = super().data(seed=seed)
        if self.layer.takes == "probabilities":
            A = np.clip(coarse(0.5 + A / 4), 1 / 8, 7 / 8)
        return converted(A, convert)

    def slopes_of_cost(self, A: Any, seed: int = 2) -> np.ndarray:
        """Return 1, the derivative of J = A with respect to itself, for any `seed`."""
        return like(np.ones(1), A)


def forward(layer: Layer, A_prev: Any, first_sample: int = 0) -> Any:
    """Return A of `layer` in training; A_prev, `first_sample`: as for `Trial.run`."""
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
    """Round `array` to multiples of 1/8, which fractions and floats represent."""
    return np.round(8 * np.asarray(array, np.float64)) / 8


# Compare the derivatives of a layer with slopes of its output, by central differences.
#
# One entry of A_prev, W or b is moved up and down by STEP, which moves the entries A[k] of the output. The
# derivative of the cost is sum_k dZ[k] A'[k]. Random offsets keep all numbers away from kinks, such as that
# of ReLU at 0, where there is no slope.

MOST_ENTRIES = 30     # entries of an array whose slopes are compared
STEP = 2.0 ** -17     # its square, and the rounding error of a slope, are both below 1e-9
NEAR = 4 * STEP       # the tolerance of a slope, as a share of 1 + |slope|


def slopes(trial: Trial) -> str | None:
    """Compare the derivatives of `trial` with slopes; return an error or None.

    Some of a layer's inputs are large, for bounds such as the 6 of ReLU6.
    """
    layer, A_prev, rng = trial.drawn(), trial.data(), np.random.default_rng(8)
    if trial.gives == "A" and trial.layer.takes == "numbers":
        for part in leaves(A_prev):
            part *= np.where(np.arange(BATCH_SIZE) < 3, 1, 8)
    for part in leaves((A_prev, layer.W, layer.b)):
        if part.dtype.kind == "f":
            part += (rng.random(part.shape) - 0.5) / 16
    _, dZ, found = trial.run(layer, A_prev)
    arrays = trial.named(A_prev, layer.W, layer.b)
    if trial.takes_tokens:
        arrays.pop(f"d{trial.takes}")
    for name, array in arrays.items():
        if name not in found:
            continue  # a parameter that stays as it is
        given = {index: float(found[name][index]) for index in _some_indices(array)}
        measured = {index: _slope(layer, A_prev, dZ, array, index) for index in given}
        wrong = [index for index, (slope, near) in measured.items() if not abs(given[index] - slope) <= near]
        if wrong:
            index, place = wrong[0], ", ".join(map(str, wrong[0]))
            words = (
                f"{name}[{place}] = {given[index]:.6g}, but the slope is {measured[index][0]:.6g}, where "
                f"{name[1:]}[{place}] = {array[index]:.3g}"
            )
            if trial.takes_tokens:
                words += ": does a token that occurs twice count twice? np.add.at(dW, ids, ...) adds, and "
                words += "dW[ids] += keeps one"
            same_shape = name == f"d{trial.takes}" and np.shape(dZ) == array.shape
            of_entries = {index: slope for index, (slope, _) in measured.items()}
            return _likely_mistake(name, given, of_entries, dZ if same_shape else None) or words
    return _wrong_sum(trial) if trial.gives == "A" and not trial.takes_tokens else None


def _wrong_sum(trial):
    """Compare the sum of dA_prev with the slope as all entries of A_prev move.

    The entries of each sample are equal, as the zeros after a ReLU are: a maximum may
    pass dZ to any of them, or divide it, but not pass it to each.
    """
    layer, A_prev = trial.drawn(), trial.data()
    for part in leaves(A_prev):
        part[...] = np.arange(BATCH_SIZE) - 1.3
    _, dZ, found = trial.run(layer, A_prev)
    for name, array in trial.named(A_prev, None, None).items():
        given, (slope, near) = float(found[name].sum()), _slope(layer, A_prev, dZ, array, ...)
        if abs(given - slope) > near:
            return (
                f"{name} adds up to {given:.6g}, but if all its entries move together, the slope is "
                f"{slope:.6g}: where entries are equal, does each of them get the whole dZ?"
            )
    return None


def _slope(layer, A_prev, dZ, array, index):
    """Return (slope of the cost, its tolerance) as entries of `array` move together.

    Args:
        layer, A_prev, dZ: those of a run.
        array: A_prev, W or b.
        index: the index of the entries in `array`.
    """
    kept, outputs = array[index].copy(), []
    for step in (STEP, -STEP):
        array[index] = kept + step
        outputs.append(_flat(forward(layer, A_prev)))
    array[index] = kept
    (up, down), dZ = outputs, _flat(dZ)
    slope = float((dZ * (up - down)).sum() / (2 * STEP))
    rounding = 4 * np.finfo(float).eps * abs(dZ * up)[up != down].sum() / STEP
    return slope, NEAR * (1 + abs(slope)) + rounding


def _likely_mistake(name, given, slopes, dZ):
    """Return the mistake that explains all entries, or None.

    Args:
        name: the name of the array in the message.
        given: {index: derivative}.
        slopes: {index: slope}.
        dZ: the layer's dZ, or None if its shape is not that of the array.
    """
    ratios = {round(given[index] / slope, 4) for index, slope in slopes.items() if abs(slope) > NEAR}
    if len(ratios) == 1 and ratios != {1}:  # else it is wrong where the slope is 0
        return f"{name} {_mistake_in_ratio(ratios.pop())}"
    if all(index[::-1] in slopes and _near(given[index], slopes[index[::-1]]) for index in slopes):
        return f"{name} is transposed: for Z = W @ A_prev, dW = dZ @ A_prev.T"
    if dZ is None:
        return None
    if all(_near(given[index], dZ[index]) for index in slopes):
        return f"{name} is dZ itself: the derivative of what forward computes is missing"
    if all(_near(slope - given[index], dZ[index]) for index, slope in slopes.items()):
        return f"{name} lacks the summand dZ: is a path past the layer, such as a skip, forgotten?"
    return None


def _mistake_in_ratio(ratio):
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
