"""A layer on small random data, as `check` tries it: copies, inputs and derivatives."""

from __future__ import annotations  # so that help() shows names, not what they stand for

from collections.abc import Callable

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
