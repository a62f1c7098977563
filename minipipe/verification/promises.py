"""What a layer promises, tried on small random data; and the likely mistake where a promise is broken."""

from __future__ import annotations  # so that help() shows names, not what they stand for

from functools import partial
from itertools import product

import numpy as np

from ..arrays import converted, even_slices, leaves, shape_of
from ..exact import rational
from ..layers import Flatten, Layer, Linear, every_layer
from ..layers.through import prepare_forward
from ..losses import MeanSquaredError
from ..parallel import Pipeline
from .trial import (
    A_PREV, BATCH_SIZE, CannotTry, Trial, coarse, forward, in_floats, named, part_of, slopes,
)
from .verdicts import against_full_batch, against_same_groups, are_equal, difference_in_words

LARGE = 1000  # times the data: e^1000 is infinite


def promises_of_layer(layer: Layer, shape: tuple) -> list[tuple]:
    """Return rows (promise in words, function that returns what is wrong or None, whether others need it)."""
    trial = Trial(layer, shape)
    rows = [
        ("it runs, and shapes are as they must be", shapes, True),
        ("it writes into no array that it was handed, or has returned", leaves_arrays, True),
        ("the same input gives the same output", repeats, True),
        ("float32 in, float32 out, and float64 likewise", keeps_dtype, False),
        ("its derivatives are the slopes of its output", slopes, False),
        ("between the halves of its backward, it has what the second needs", halves, False),
        ("all that backward needs is in cache, which can be taken out and put back", cached, True),
        ("micro-batches of any sizes add up to the full batch", adds_up, False),
        ("pipelines equal the full batch, at each cut, with and without recomputation", pipelined, False),
        ("large inputs give numbers, too", large, False),
        ("a prediction for a sample depends on that sample alone", predicts, False),
    ]
    return [(words, partial(attempt, trial), needed) for words, attempt, needed in rows]


def shapes(trial):
    """Run forward and backward, and compare all shapes."""
    layer, A_prev = trial.drawn(), trial.data()
    A, _, found = trial.run(layer, A_prev)
    wanted = named(layer, A_prev, layer.W, layer.b)
    if trial.takes_tokens:
        wanted.pop(A_PREV)
        found.pop(A_PREV, None)
    for name in {**wanted, **found}:
        if name not in found or name not in wanted:
            what = "is missing" if name not in found else "is there, but the layer has no such parameter"
            return f"{name} {what}: return None for dW and db where there is no W and b, and arrays elsewhere"
        if found[name].shape != wanted[name].shape:
            return f"{name} has shape {found[name].shape}: {_words_of_shape(found[name], wanted[name])}"
    if {part.shape[-1] for part in leaves(A)} != {BATCH_SIZE}:
        return f"A has shape {shape_of(A)}: samples are the last axis, here of {BATCH_SIZE}"
    promised = layer.output_shape(shape_of(A_prev))
    if promised != shape_of(A):
        return (
            f"output_shape promises {promised}, but A has shape {shape_of(A)}: write "
            "output_shape(self, shape) in the class"
        )
    finite = all(np.isfinite(part).all() for part in [*leaves(A), *found.values()])
    return None if finite else "A or a derivative is infinite, or not a number, for inputs between -3 and 3"


def _words_of_shape(found, wanted):
    """Return what is likely wrong with a derivative of another shape than its array."""
    if found.shape == wanted.shape[::-1]:
        return f"it is transposed, {wanted.shape} is right; for Z = W @ A_prev, dW = dZ @ A_prev.T"
    if found.size == wanted.size:
        return f"it must be {wanted.shape}; a sum with keepdims=True keeps its axis"
    if found.shape[-1:] == (BATCH_SIZE,):
        return f"it must be {wanted.shape}: is the sum over the samples missing?"
    return f"it must be {wanted.shape}"


def leaves_arrays(trial):
    """Compare arrays that were handed in or returned with copies made before."""
    layer, A_prev = trial.drawn(), trial.data()
    dZ = trial.slopes_of_cost(forward(layer, trial.data()))
    handed = {"A_prev": leaves(A_prev), "dZ": leaves(dZ), "W": leaves(layer.W), "b": leaves(layer.b)}
    before = _copies(handed)
    trial.run(layer, A_prev, dZ)
    if name := _changed(handed, before):
        return f"{name} was changed: an operation in place, such as -= or out=, needs a copy first"
    A, _, derivatives = trial.run(layer, A_prev, dZ)
    returned = {"A": leaves(A)} | {name: [array] for name, array in derivatives.items()}
    before = _copies(returned)
    trial.run(layer, trial.data(seed=3), dZ)
    if name := _changed(returned, before):
        return (
            f"the next micro-batch has changed {name} of this one: return a new array each time, and add "
            "nothing up in the layer; the network adds gradients"
        )
    return None


def _copies(arrays):
    return {name: [part.copy() for part in parts] for name, parts in arrays.items()}


def _changed(arrays, before):
    """Return the name of the first arrays that are not as they were, or None."""
    for name, parts in arrays.items():
        if not all(map(np.array_equal, parts, before[name])):
            return name
    return None


def repeats(trial):
    """Run the same forward and backward twice, with another mini-batch in between."""
    layer = trial.drawn()
    A, dZ, first = trial.run(layer, trial.data())
    trial.run(layer, trial.data(seed=3))
    A_again, _, again = trial.run(layer, trial.data(), dZ)
    if not all(map(np.array_equal, leaves(A), leaves(A_again))):
        return (
            "A is another one the second time: does a forward use what an earlier one has left, or draw "
            "random numbers from a generator of its own? They must follow from step, index and first_sample"
        )
    for name in first:
        if not np.array_equal(first[name], again[name]):
            return (
                f"{name} is another one the second time: does backward add to what an earlier one has left, "
                "or draw random numbers again?"
            )
    return None


def keeps_dtype(trial):
    """Compare all dtypes of a run in float32, and of one in float64."""
    for dtype in (np.float32, np.float64):
        layer = trial.drawn(dtype)
        A, _, found = trial.run(layer, trial.data(dtype))
        for name, array in {"A": leaves(A)[0], **found}.items():
            if array.dtype != dtype:
                return (
                    f"{name} is {array.dtype} in a run in {dtype.__name__}: a constant or an array made on "
                    "the way has another dtype; make it with constant(value, A_prev) or np.zeros_like(A_prev)"
                )
    return None


def halves(trial):
    """Compare a whole backward with its two halves, between which another micro-batch passes."""
    layer, A_prev = trial.drawn(), trial.data()
    _, dZ, whole = trial.run(layer, A_prev)
    forward(layer, A_prev)
    dA_prev = layer.backward_input(dZ)
    if not layer.has_parameters:
        found = named(layer, dA_prev, None, None)
    else:
        cache = layer.cache
        forward(layer, trial.data(seed=3))
        layer.backward_input(trial.slopes_of_cost(dZ, seed=4))
        layer.cache = cache
        try:
            found = named(layer, dA_prev, *layer.backward_weight(None if layer.weight_after_input else dZ))
        except Exception as error:
            return f"{_words(error)}. {BETWEEN_HALVES}"
    for name in whole:
        if name not in found or not np.array_equal(found[name], whole[name]):
            return f"{name} of the two halves is not that of the whole backward: {BETWEEN_HALVES}"
    return None


BETWEEN_HALVES = (
    "backward_weight may read dZ, and what backward_input has left in cache, and nothing else; and both "
    "compute what backward does, by one formula"
)


def cached(trial):
    """Let another micro-batch pass between a forward and its backward, as a stage does."""
    layer = trial.drawn()
    _, dZ, alone = trial.run(layer, trial.data())
    forward(layer, trial.data())
    before = {name: id(value) for name, value in vars(layer).items()}
    cache, layer.cache = layer.cache, None
    arrays = {"cache": _arrays_in(cache)}
    copies = _copies(arrays)
    forward(layer, trial.data(seed=3))
    if _changed(arrays, copies):
        return "the next forward has written into the arrays in cache: put new ones there each time"
    changed = [name for name, value in vars(layer).items() if before.get(name) != id(value)]
    layer.cache = cache
    try:
        found = named(layer, *layer.backward(dZ))
    except Exception as error:
        return f"{_words(error)}. Put all that backward needs into self.cache"
    wrong = [name for name in alone if not np.array_equal(found[name], alone[name])]
    if not wrong:
        return None
    kept = sorted({*changed} - {"cache", "training", "step", "first_sample", "statistics"})
    where = f" It keeps {', '.join(kept)} of the last forward." if kept else ""
    return f"{wrong[0]} is that of another micro-batch.{where} Put all that backward needs into self.cache"


def _arrays_in(tree):
    return [one for one in leaves(tree) if isinstance(one, np.ndarray)]


def adds_up(trial):
    """Compare sums over micro-batches with the full batch, for m to 2 of them, and ragged ones."""
    if not trial.layer.alone_per_sample:
        raise CannotTry("a sample depends on the others here (alone_per_sample = False)")
    convert, note = _numbers_for(trial)
    layer, A_prev = trial.drawn(convert), trial.data(convert)
    A, dZ, whole = trial.run(layer, A_prev)
    ragged = [slice(0, 1), slice(1, BATCH_SIZE)]
    for parts in (*(even_slices(BATCH_SIZE, n) for n in range(BATCH_SIZE, 1, -1)), ragged):
        total = {}
        for part in parts:
            try:
                _add_part(trial, layer, total, part, (A_prev, dZ))
            except Exception as error:
                size = f"on a micro-batch of {part.stop - part.start} of {BATCH_SIZE} samples"
                return f"{size}, {_words(error)}: take m from A_prev.shape[-1]"
        for name, wanted in {"A": leaves(A)[0], **whole}.items():
            if not are_equal(total[name], wanted, exact=not note):
                return _words_of_sum(trial, name, total[name], wanted, len(parts), note)
    return note


def _add_part(trial, layer, total, part, trees):
    """Run a micro-batch. Add its gradients to those in `total`, and put A and dA_prev side by side there."""
    A, _, found = trial.run(layer, *(part_of(tree, part) for tree in trees), first_sample=part.start)
    for name, array in {"A": leaves(A)[0], **found}.items():
        is_per_sample = name == "A" or name.startswith(A_PREV)
        if is_per_sample and array.shape[-1:] != (part.stop - part.start,):
            raise ValueError(f"{name} has shape {array.shape}")
        add = _side_by_side if is_per_sample else np.add
        total[name] = add(total[name], array) if name in total else array


def _side_by_side(left, right):
    return np.concatenate([left, right], axis=-1)


def _numbers_for(trial):
    """Return (fractions, None), or (float64, a remark why) for a layer that cannot compute with fractions."""
    try:
        trial.run(trial.drawn(rational), trial.data(rational))
    except Exception as error:
        return np.float64, in_floats(error)
    return rational, None


def _words(error):
    return f"{type(error).__name__}: {error}"


def _words_of_sum(trial, name, found, wanted, n_parts, note):
    """Return what is wrong with what micro-batches have for the full batch."""
    if name == "A":
        if _depends_on_others(trial):
            return (
                "A of a sample depends on the other samples of its micro-batch: if that is meant, say "
                "alone_per_sample = False in the class"
            )
        return (
            "A of a sample depends on its place in the micro-batch, or on how many samples there are: random "
            "numbers must follow from step, index and first_sample"
        )
    of_parts = f"{name} of {n_parts} micro-batches is"
    if are_equal(found, wanted * n_parts, exact=not note):
        return f"{of_parts} {n_parts} times too large: does backward divide by its own m?"
    return f"{of_parts} not that of the full batch: is it a sum over the samples, without a factor of m?"


def _depends_on_others(trial):
    """Tell whether the first sample's A is another one among other samples."""
    layer, A_prev, others = trial.drawn(), trial.data(), trial.data(seed=3)
    first = part_of(A_prev, slice(0, 1))
    rest = part_of(others, slice(1, BATCH_SIZE))
    mixed = [_side_by_side(*pair) for pair in zip(leaves(first), leaves(rest))]
    A = forward(layer, A_prev)
    among_others = forward(layer, tuple(mixed) if trial.takes_pair else mixed[0])
    pairs = zip(leaves(A), leaves(among_others))
    return not all(np.array_equal(one[..., 0], other[..., 0]) for one, other in pairs)


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
    layers = [*below, layer, *(one.copy(coarse).copy(convert) for one in above)]
    X, Y = trial.data(convert), converted(coarse(rng.standard_normal((2, BATCH_SIZE))), convert)
    compare = against_full_batch if trial.layer.alone_per_sample else against_same_groups
    n = len(layers)
    cuts = [(2, "gpipe"), (n, "1f1b"), (n, "zb-h1"), (n, "gpipe-late-w")]
    for (K, schedule), recompute in product(cuts, ("never", "always")):
        pipe = Pipeline(layers, MeanSquaredError(), K, 2, schedule=schedule, recompute=recompute)
        try:
            wrong = difference_in_words(*compare(pipe, X, Y), exact=not note)
        except Exception as error:
            wrong = _words(error)
        if wrong:
            joins = schedule == "gpipe-late-w" and layer.joins_samples
            hint = "; is cache an array with the samples last, as joins_samples = True says?" if joins else ""
            return f"{wrong}, in {K} stages, 2 micro-batches, {schedule}, recompute={recompute!r}{hint}"
    return note


def large(trial):
    """Look for results that are no numbers where A_prev is large."""
    if trial.takes_tokens:
        raise CannotTry("it takes tokens, which are never large")
    layer, A_prev = trial.drawn(), trial.data()
    A_prev = tuple(LARGE * part for part in A_prev) if trial.takes_pair else LARGE * A_prev
    A, _, found = trial.run(layer, A_prev)
    infinite = any(np.isinf(part).any() for part in leaves(A))
    for name, array in [*(("A", part) for part in leaves(A)), *({} if infinite else found).items()]:
        if np.isnan(array).any():
            return f"{name} {NO_NUMBERS}"
    if infinite and not layer.can_overflow:
        return "A is infinite for large inputs, but the class says can_overflow = False"
    return None


NO_NUMBERS = (
    f"has entries that are not a number for inputs of about {LARGE:,}: does an exponential overflow? Shift "
    "it by the largest entry, or take it of -abs(Z)"
)


def predicts(trial):
    """Compare predictions for a mini-batch with those for its samples one by one, after another update."""
    layer, A_prev = trial.drawn(), trial.data()
    parts = every_layer([layer])
    prepare_forward(parts, training=False)
    together = leaves(layer.forward(A_prev))
    for k in range(BATCH_SIZE):
        prepare_forward(parts, training=False, step=1, first_sample=k + 1)
        alone = leaves(layer.forward(part_of(A_prev, slice(k, k + 1))))
        for one, other in zip(alone, together):
            if not are_equal(one, other[..., k:k + 1], exact=False):
                return (
                    "where training is False, A still depends on the other samples, on step or on "
                    "first_sample: does forward look at self.training?"
                )
    return None
