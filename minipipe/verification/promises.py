"""What a layer promises, tried on small random data; and the likely mistake where a promise is broken."""

from __future__ import annotations  # so that help() shows names, not what they stand for

from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np

from ..arrays import even_slices, leaves, shape_of
from ..cluster import bytes_by_kind
from ..exact import rational
from ..layers import Flatten, Layer, Linear, every_layer
from ..layers.through import prepare_forward
from ..losses import MeanSquaredError
from ..parallel import Pipeline
from .verdicts import against_full_batch, against_same_groups, difference_in_words

M = 5  # samples of the mini-batch
MOST_ENTRIES = 30     # of an array whose slopes are tried
STEP = 2.0 ** -17     # of a central difference, whose square and rounding then are both below 1e-9
NEAR = 1e-6           # how near a slope must be, as a share of 1 + |slope|
A_PREV = "dA_prev"


class CannotTry(Exception):
    """A promise that cannot be tried, with the reason."""


class Trial:
    """A layer with parameters and data of its own, made anew for each promise."""

    def __init__(self, layer: Layer, shape: tuple) -> None:
        self.layer, self.shape = layer, shape
        self.takes_pair = bool(shape) and isinstance(shape[0], tuple)

    def drawn(self, convert: Callable = np.float64) -> Layer:
        """Return a copy of the layer whose parameters are drawn, coarse, and converted."""
        twin = self.layer.copy()
        for one in every_layer([twin]):
            one.cache = None
        twin.initialize(np.random.default_rng(0), np.float64)
        return twin.copy(lambda parameter: convert(coarse(parameter)))

    def data(self, convert: Callable = np.float64, m: int = M, seed: int = 1):
        """Return A_prev of m samples, multiples of 1/8; tokens where the layer takes some."""
        rng = np.random.default_rng(seed)
        if self.layer.takes == "tokens":
            n_tokens = next(one.n_tokens for one in every_layer([self.layer]) if hasattr(one, "n_tokens"))
            return rng.integers(0, n_tokens, (*self.shape, m))
        shapes = self.shape if self.takes_pair else (self.shape,)
        found = tuple(convert(coarse(rng.standard_normal((*shape, m)))) for shape in shapes)
        return found if self.takes_pair else found[0]

    def run(self, layer, A_prev, dZ=None, first_sample=0):
        """Return (A, dZ, {name: derivative}) of a forward and a backward."""
        A = forward(layer, A_prev, first_sample)
        dZ = self.slopes_of_cost(A) if dZ is None else dZ
        dA_prev, dW, db = layer.backward(dZ)
        return A, dZ, named(layer, dA_prev, dW, db)

    def slopes_of_cost(self, A, seed=2):
        """Return dZ, multiples of 1/8, in the form of A."""
        rng = np.random.default_rng(seed)
        made = [like(coarse(rng.standard_normal(part.shape)), part) for part in leaves(A)]
        return tuple(made) if isinstance(A, tuple) else made[0]


def forward(layer, A_prev, first_sample=0):
    """Return A of a forward in training, as a network prepares it."""
    prepare_forward(every_layer([layer]), training=True, first_sample=first_sample)
    return layer.forward(A_prev)


def named(layer, dA_prev, dW, db):
    """Return {name: array} of all derivatives that are there."""
    found = {}
    for name, tree in ((A_PREV, dA_prev), ("dW", dW), ("db", db)):
        parts = leaves(tree)
        found |= {name if len(parts) == 1 else f"{name}[{k}]": part for k, part in enumerate(parts)}
    return found


def like(array, other):
    """Return `array` with the kind of numbers of `other`."""
    return rational(array) if other.dtype == object else array.astype(other.dtype)


def promises_of_layer(layer: Layer, shape: tuple) -> list[tuple]:
    """Return rows (promise in words, function that returns what is wrong or None, whether others need it)."""
    trial = Trial(layer, shape)
    rows = [
        ("it runs, and shapes are as they must be", shapes, True),
        ("the same input gives the same output", repeats, True),
        ("float32 in, float32 out", keeps_dtype, False),
        ("it writes into no array that it was handed", leaves_inputs, False),
        ("its derivatives are the slopes of its output", slopes, False),
        ("between the halves of its backward, it has what the second needs", halves, False),
        ("all that backward needs is in cache, which can be taken out and put back", cached, True),
        ("micro-batches of any sizes add up to the full batch", adds_up, False),
        ("pipelines equal the full batch, at each cut, with and without recomputation", pipelined, False),
        ("its gradients are arrays of its own, and what it keeps depends on shapes alone", owns, False),
    ]
    return [(words, partial(attempt, trial), needed) for words, attempt, needed in rows]


def shapes(trial):
    """Run forward and backward, and compare all shapes."""
    layer, A_prev = trial.drawn(), trial.data()
    try:
        A, _, found = trial.run(layer, A_prev)
    except Exception as error:  # whatever a user's layer raises is the finding
        return f"{type(error).__name__}: {error}"
    wanted = named(layer, A_prev, layer.W, layer.b)
    if trial.layer.takes == "tokens":
        wanted.pop(A_PREV)
        found.pop(A_PREV, None)
    for name in {**wanted, **found}:
        if name not in found or name not in wanted:
            what = "is missing" if name not in found else "is there, but the layer has no such parameter"
            return f"{name} {what}: return None for dW and db where there is no W and b, and arrays elsewhere"
        if found[name].shape != wanted[name].shape:
            turned = found[name].shape == wanted[name].shape[::-1]
            hint = "it is transposed; dW = dZ @ A_prev.T" if turned else f"it must be {wanted[name].shape}"
            return f"{name} has shape {found[name].shape}: {hint}"
    m = {part.shape[-1] for part in leaves(A)}
    return None if m == {M} else f"A has shape {shape_of(A)}: samples are the last axis, here of {M}"


def repeats(trial):
    """Run the same forward twice, with another mini-batch in between."""
    layer = trial.drawn()
    first = forward(layer, trial.data())
    forward(layer, trial.data(seed=3))
    again = forward(layer, trial.data())
    if all(map(np.array_equal, leaves(first), leaves(again))):
        return None
    return (
        "A is another one the second time: does a forward use what an earlier one has left, or draw random "
        "numbers from a generator of its own? They must follow from step, index and first_sample"
    )


def keeps_dtype(trial):
    """Compare all dtypes of a run in float32."""
    layer = trial.drawn(np.float32)
    A, _, found = trial.run(layer, trial.data(np.float32))
    for name, array in {"A": leaves(A)[0], **found}.items():
        if array.dtype != np.float32:
            return (
                f"{name} is {array.dtype}: a constant or an array made on the way has another dtype; "
                "make it with constant(value, A_prev) or np.zeros_like(A_prev)"
            )
    return None


def leaves_inputs(trial):
    """Compare A_prev, dZ and the parameters with copies made before."""
    layer, A_prev = trial.drawn(), trial.data()
    dZ = trial.slopes_of_cost(forward(layer, A_prev))
    handed = {"A_prev": leaves(A_prev), "dZ": leaves(dZ), "W": leaves(layer.W), "b": leaves(layer.b)}
    before = {name: [array.copy() for array in arrays] for name, arrays in handed.items()}
    trial.run(layer, A_prev, dZ)
    for name, arrays in handed.items():
        if not all(map(np.array_equal, arrays, before[name])):
            return f"{name} was changed: an operation in place, such as -= or out=, needs a copy first"
    return None


def slopes(trial):
    """Compare the derivatives with central differences; where there is a kink, with both sides of it."""
    layer, A_prev = trial.drawn(), trial.data()
    _, dZ, found = trial.run(layer, A_prev)
    arrays = named(layer, A_prev, layer.W, layer.b)
    if trial.layer.takes == "tokens":
        arrays.pop(A_PREV)

    def cost():
        return float(sum((part * d).sum() for part, d in zip(leaves(forward(layer, A_prev)), leaves(dZ))))

    middle = cost()
    for name, array in arrays.items():
        right_ones, wrong = [], None
        for index in _some_indices(array):
            low, high = _slopes_at(array, index, cost, middle)
            given, slack = float(found[name][index]), NEAR * (1 + abs(low) + abs(high))
            right_ones.append((given, (low + high) / 2))
            if not min(low, high) - slack <= given <= max(low, high) + slack:
                wrong = wrong or (index, given, low, high)
        if wrong is not None:
            return _words_of_slopes(name, wrong, right_ones)
    return None


def _slopes_at(array, index, cost, middle):
    """Return the slopes of the cost to the left and to the right of an entry; equal, if there is no kink."""
    value = array[index]
    array[index] = value + STEP
    above = cost()
    array[index] = value - STEP
    below = cost()
    array[index] = value
    left, right = (middle - below) / STEP, (above - middle) / STEP
    is_kink = abs(right - left) > 1e-3 * (1 + abs(left) + abs(right))
    return (left, right) if is_kink else ((above - below) / (2 * STEP),) * 2


def _words_of_slopes(name, wrong, pairs):
    """Return what is wrong with the derivatives of an array.

    wrong: (index, derivative, slope on the left, slope on the right) of an entry.
    pairs: (derivative, slope) of the entries tried.
    """
    ratios = {round(given / slope, 4) for given, slope in pairs if abs(slope) > NEAR}
    if len(ratios) == 1:
        ratio = ratios.pop()
        if ratio == round(1 / M, 4):
            return f"{name} is {M} times too small: does backward divide by its own m? The loss has done that"
        if ratio == M:
            return f"{name} is {M} times too large: is it summed over the samples twice, or multiplied by m?"
        if ratio == -1:
            return f"{name} has the wrong sign"
        if ratio == 0:
            return f"{name} is 0: is a term missing, or a cache overwritten?"
        return f"{name} is {ratio:g} times the slope, at each entry"
    index, given, low, high = wrong
    slope = f"the slope is {low:.6g}"
    if low != high:
        slope = f"the slopes on both sides are {low:.6g} and {high:.6g}"
    place = ", ".join(map(str, index))
    return f"{name}[{place}] = {given:.6g}, but {slope}"


def _some_indices(array):
    """Return indices of at most `MOST_ENTRIES` entries, spread over the array."""
    flat = np.linspace(0, array.size - 1, min(array.size, MOST_ENTRIES)).astype(int)
    return [np.unravel_index(place, array.shape) for place in flat]


def halves(trial):
    """Compare a whole backward with its two halves, the cache taken out in between."""
    layer, A_prev = trial.drawn(), trial.data()
    _, dZ, whole = trial.run(layer, A_prev)
    forward(layer, A_prev)
    dA_prev = layer.backward_input(dZ)
    cache, layer.cache = layer.cache, None
    if not layer.has_parameters:
        found = named(layer, dA_prev, None, None)
    else:
        layer.cache = cache
        found = named(layer, dA_prev, *layer.backward_weight(None if layer.weight_after_input else dZ))
    for name in whole:
        if name not in found or not np.array_equal(found[name], whole[name]):
            return f"{name} of the two halves is not that of the whole backward: write both by one formula"
    return None


def cached(trial):
    """Let another micro-batch pass between a forward and its backward, as a stage does."""
    layer = trial.drawn()
    _, dZ, alone = trial.run(layer, trial.data())
    forward(layer, trial.data())
    before = {name: id(value) for name, value in vars(layer).items()}
    cache, layer.cache = layer.cache, None
    forward(layer, trial.data(seed=3))
    changed = [name for name, value in vars(layer).items() if before.get(name) != id(value)]
    layer.cache = cache
    try:
        found = named(layer, *layer.backward(dZ))
    except Exception as error:
        return f"{type(error).__name__}: {error}. Put all that backward needs into self.cache"
    wrong = [name for name in alone if not np.array_equal(found[name], alone[name])]
    if not wrong:
        return None
    kept = sorted({*changed} - {"cache", "training", "step", "first_sample", "statistics"})
    where = f" It keeps {', '.join(kept)} of the last forward." if kept else ""
    return f"{wrong[0]} is that of another micro-batch.{where} Put all that backward needs into self.cache"


def adds_up(trial):
    """Compare sums over micro-batches with the full batch, for 2 to m of them, and ragged ones."""
    if not trial.layer.alone_per_sample:
        raise CannotTry("a sample depends on the others here (alone_per_sample = False)")
    convert, note = _numbers_for(trial)
    layer, A_prev = trial.drawn(convert), trial.data(convert)
    A, dZ, whole = trial.run(layer, A_prev)
    ragged = [slice(0, 1), slice(1, M)]
    for parts in (*(even_slices(M, n) for n in range(2, M + 1)), ragged):
        total = {}
        for part in parts:
            of_part = [_cut(tree, part) for tree in (A_prev, dZ)]
            A_part, _, found = trial.run(layer, *of_part, first_sample=part.start)
            for name, array in {"A": leaves(A_part)[0], **found}.items():
                is_per_sample = name == "A" or name.startswith(A_PREV)
                add = _side_by_side if is_per_sample else np.add
                total[name] = add(total[name], array) if name in total else array
        for name, wanted in {"A": leaves(A)[0], **whole}.items():
            wrong = _differ(name, total[name], wanted, len(parts), note)
            if wrong:
                return wrong
    return None


def _side_by_side(left, right):
    return np.concatenate([left, right], axis=-1)


def _numbers_for(trial):
    """Return (fractions, ""), or (float64, why) for a layer that cannot compute with fractions."""
    try:
        trial.run(trial.drawn(rational), trial.data(rational))
    except Exception as error:
        return np.float64, f"{type(error).__name__}: {error}"
    return rational, ""


def _differ(name, found, wanted, n_parts, note):
    """Return what is wrong with a sum over micro-batches, or None."""
    equal = np.array_equal(found, wanted)
    if note:  # floats: in another order they round otherwise
        equal = np.allclose(found, wanted, rtol=1e-9, atol=1e-9 * (1 + float(abs(wanted).max(initial=0))))
    if equal:
        return None
    if name == "A":
        return (
            "A of a sample depends on the other samples of its micro-batch: if that is meant, say "
            "alone_per_sample = False in the class"
        )
    if np.array_equal(found, n_parts * wanted):
        times = f"is {n_parts} times too large"
        return f"{name} of {n_parts} micro-batches {times}: does backward divide by its own m?"
    return f"{name} of {n_parts} micro-batches is not that of the full batch: is it a sum over the samples?"


def _cut(tree, part):
    return tuple(array[..., part] for array in tree) if isinstance(tree, tuple) else tree[..., part]


class _Scale(Layer):
    """A = W A_prev, one number for all: so that a network has a parameter below the layer."""

    def __init__(self):
        self.W = np.full((1, 1), 1.5)

    def forward(self, A_prev):
        self.cache = A_prev
        return self.W[0, 0] * A_prev

    def backward(self, dZ):
        return self.W[0, 0] * dZ, (dZ * self.cache).sum(keepdims=True).reshape(1, 1), None


def pipelined(trial):
    """Compare pipelines with the full batch: each cut, some schedules, sizes and ways to recompute."""
    if trial.takes_pair:
        raise CannotTry("it takes a pair of arrays: put it between a Fork and its end, and check the network")
    if not trial.shape:
        raise CannotTry("a sample without axes is nothing that a network takes")
    convert, note = _numbers_for(trial)
    layer = trial.drawn(convert)
    A = forward(layer, trial.data(convert))
    if isinstance(A, tuple):
        raise CannotTry("it returns a pair of arrays: check a network of both ends")
    layer.cache = None
    below = [] if trial.layer.takes == "tokens" else [_Scale().copy(convert)]
    above = ([Flatten()] if A.ndim > 2 else []) + [Linear(int(np.prod(A.shape[:-1])), 2)]
    rng = np.random.default_rng(4)
    above[-1].initialize(rng)
    layers = [*below, layer, *(one.copy(lambda parameter: convert(coarse(parameter))) for one in above)]
    X, Y = trial.data(convert), convert(coarse(rng.standard_normal((2, M))))
    compare = against_full_batch if trial.layer.alone_per_sample else against_same_groups
    n = len(layers)
    cuts = [(2, "gpipe"), (n, "1f1b"), (n, "zb-h1")]
    for (K, schedule), recompute in product(cuts, ("never", "always")):
        pipe = Pipeline(layers, MeanSquaredError(), K, 2, schedule, recompute)
        wrong = difference_in_words(*compare(pipe, X, Y), exact=not note)
        if wrong:
            return f"{wrong}, in {K} stages, 2 micro-batches, {schedule}, recompute={recompute!r}"
    return None


def owns(trial):
    """Look for gradients that are views of other arrays, and for caches whose bytes follow from numbers."""
    layer, A_prev = trial.drawn(), trial.data()
    forward(layer, A_prev)
    cache = layer.cache
    _, dZ, found = trial.run(layer, A_prev)
    others = {"A_prev": A_prev, "dZ": dZ, "cache": [layer.cache, cache], "W": layer.W, "b": layer.b}
    for name in ("dW", "db"):
        for other, tree in others.items():
            arrays = [one for one in leaves(tree) if isinstance(one, np.ndarray)]
            if name in found and any(np.shares_memory(found[name], one) for one in arrays):
                return f"{name} shares memory with {other}: return a new array, {name}.copy() for instance"
    sizes = []
    for seed in (1, 3):
        forward(layer, trial.data(seed=seed))
        sizes.append(bytes_by_kind({"cache": [layer.cache]})["cache"])
    if sizes[0] != sizes[1]:
        return f"cache has {sizes[0]} bytes for one mini-batch and {sizes[1]} for another of the same shape"
    return None


def coarse(array):
    """Round to multiples of 1/8, which fractions and floats hold exactly."""
    return np.round(8 * np.asarray(array, np.float64)) / 8
