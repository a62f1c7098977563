"""The checks of a layer or a loss on random data; each names the likely mistake."""

from __future__ import annotations  # so that help() shows names, not what they stand for

from collections import defaultdict
from functools import partial
from itertools import product

import numpy as np

from ..arrays import even_slices, leaves, shape_of
from ..layers import Flatten, Layer, Linear, every_layer
from ..layers.through import in_one_piece, prepare_forward
from ..losses import Loss, MeanSquaredError
from ..parallel import TensorParallel
from ..parallel.splitting import is_ours, is_stated, ways_of
from .trial import (
    BATCH_SIZE, CannotTry, LossTrial, Remark, Trial, forward, in_fractions_or_floats, part_of, slopes,
)
from .verdicts import against_full_batch, against_same_groups, are_equal, first_difference

LARGE = 200  # times the data: e^200 is infinite in float32


def checks_of_layer(layer: Layer, shape: tuple) -> list[tuple]:
    """Return the rows of `_report` for `layer` and the `shape` of a sample."""
    kind: type = type(layer)
    says_splits = layer.splits and is_stated(kind, "splits")
    return _rows(Trial(layer, shape), {costs} if says_splits else {costs, splits})


def checks_of_loss(loss: Loss, shape: tuple) -> list[tuple]:
    """Return the rows of `_report` for `loss` and the `shape` of one prediction."""
    return _rows(LossTrial(loss, shape), {shapes, learned, halves, predicts, splits})


def _rows(trial, left_out):
    rows = [
        ("it runs, and all shapes are right", shapes, True),
        ("it runs: dA has the shape of A, and J and dA are divided by the given m", costs, True),
        ("it writes into no array that it was given, or has returned", leaves_arrays, True),
        ("the same input gives the same output", repeats, True),
        ("float32 in, float32 out, and float64 likewise", keeps_dtype, False),
        ("its derivatives are the slopes of its output", slopes, False),
        ("what forward depends on can be learned: it is in W or b", learned, False),
        ("backward_weight needs only dZ and what backward_input leaves in cache", halves, False),
        ("all that backward needs is in cache, which can be taken out and put back", cached, True),
        ("micro-batches of any sizes add up to the full batch", adds_up, False),
        ("large inputs give finite numbers", large, False),
        ("a prediction for a sample depends on that sample alone", predicts, False),
        ("split over devices as its `splits` says, it equals one device", splits, False),
    ]
    return [(claim, partial(attempt, trial), needed) for claim, attempt, needed in rows
            if attempt not in left_out]


def costs(trial: LossTrial) -> str | None:
    """Compare J and dA of `trial` for m samples and for a mini-batch of 2 m."""
    A = trial.data()
    before: dict = {}
    for m in (BATCH_SIZE, 2 * BATCH_SIZE):
        J, _, found = trial.run(trial.drawn(m=m), trial.data())
        found = {"J": J, "dA": np.zeros(0), **found}
        if found["dA"].shape != A.shape:
            return f"dA has shape {found['dA'].shape}, but A has {A.shape}"
        for name, array in found.items():
            if not np.isfinite(array).all():
                return (
                    f"{name} is infinite, or not a number, for predictions between -3 and 3: if they must "
                    "lie between 0 and 1, say takes = 'probabilities' in the class"
                )
            if before and not are_equal(2 * array, before[name], exact=False):
                return (
                    f"{name} is not half as large where the whole mini-batch has twice as many samples: "
                    "divide by the argument m of cost(A, Y, m), not by A.shape[-1]"
                )
        before = found
    return None


def shapes(trial: Trial) -> str | None:
    """Run forward and backward of `trial`, and compare all shapes."""
    layer, A_prev = trial.drawn(), trial.data()
    A, _, found = trial.run(layer, A_prev)
    wanted = trial.named(A_prev, layer.W, layer.b)
    if trial.takes_tokens:
        wanted.pop("dA_prev")
        found.pop("dA_prev", None)
    frozen = [name for name in wanted if name not in found and not name.startswith("dA_prev")
              and not hasattr(type(layer).backward_weight, "is_made")]
    for name in {**wanted, **found}:
        if name in frozen:
            continue
        if name not in found or name not in wanted:
            what = "is missing" if name not in found else "is there, but the layer has no such parameter"
            return f"{name} {what}: return None for dW and db where there is no W and b, and arrays elsewhere"
        if found[name].shape != wanted[name].shape:
            return f"{name} has shape {found[name].shape}: {_mistake_in_shape(found[name], wanted[name])}"
    if {part.shape[-1] for part in leaves(A)} != {BATCH_SIZE}:
        return f"A has shape {shape_of(A)}: samples are the last axis, here of {BATCH_SIZE}"
    stated = layer.output_shape(shape_of(A_prev))
    if stated != shape_of(A):
        return (
            f"output_shape returns {stated}, but A has shape {shape_of(A)}: write "
            "output_shape(self, shape) in the class"
        )
    if not all(np.isfinite(part).all() for part in [*leaves(A), *found.values()]):
        return "A or a derivative is infinite, or not a number, for inputs between -3 and 3"
    names = ", ".join(name[1:] for name in frozen)
    return Remark(f"backward_weight returns None for {names}, which stays as it is") if frozen else None


def _mistake_in_shape(found, wanted):
    """Return the likely mistake if a derivative has another shape than its array."""
    if found.shape == wanted.shape[::-1]:
        return f"it is transposed, {wanted.shape} is right; for Z = W @ A_prev, dW = dZ @ A_prev.T"
    if found.size == wanted.size:
        return f"it must be {wanted.shape}; a sum with keepdims=True keeps its axis"
    if found.shape[-1:] == (BATCH_SIZE,):
        return f"it must be {wanted.shape}: is the sum over the samples missing?"
    return f"it must be {wanted.shape}"


def leaves_arrays(trial: Trial) -> str | None:
    """Compare arrays that `trial` was given or has returned with copies made before.

    Where samples do not interact, one sample is tried, too: slices of it may be views.
    """
    for n in (BATCH_SIZE, 1) if trial.layer.alone_per_sample else (BATCH_SIZE,):
        layer, of_samples = trial.drawn(), "" if n > 1 else " of one sample"
        A_prev, other = (in_one_piece(part_of(trial.data(seed=seed), slice(n))) for seed in (1, 3))
        try:
            dZ = trial.slopes_of_cost(forward(trial.drawn(), part_of(trial.data(), slice(n))))
        except Exception:
            break  # another check names a layer that cannot take one sample
        arrays = {
            trial.takes: leaves(A_prev), "dZ": leaves(dZ), "W": leaves(layer.W), "b": leaves(layer.b),
            "Y": leaves(getattr(layer, "labels", None)),
        }
        before = _copies(arrays)
        A, _, derivatives = trial.run(layer, A_prev, dZ)
        if name := _changed(arrays, before):
            return f"{name}{of_samples} was changed: an operation in place, such as -=, needs a copy first"
        arrays |= {trial.gives: leaves(A)} | {name: [array] for name, array in derivatives.items()}
        before = _copies(arrays)
        trial.run(layer, other)
        if name := _changed(arrays, before):
            return (
                f"the next micro-batch{of_samples} has changed {name} of this one: return a new array each "
                "time, and add nothing up in the layer; the network adds gradients"
            )
    return None


def _copies(arrays):
    return {name: [part.copy() for part in parts] for name, parts in arrays.items()}


def _changed(arrays, before):
    """Return the name of the first arrays that have changed, or None."""
    for name, parts in arrays.items():
        if not all(map(np.array_equal, parts, before[name])):
            return name
    return None


def repeats(trial: Trial) -> str | None:
    """Run `trial` twice on one mini-batch, with another mini-batch in between."""
    layer = trial.drawn()
    A, dZ, first = trial.run(layer, trial.data())
    trial.run(layer, trial.data(seed=3))
    A_again, _, again = trial.run(layer, trial.data(), dZ)
    if not all(map(np.array_equal, leaves(A), leaves(A_again))):
        return (
            f"{trial.gives} differs in a second run: does forward use what an earlier one has left, "
            "or draw random numbers from a generator of its own? They must follow from step, index and "
            "first_sample"
        )
    for name in first:
        if not np.array_equal(first[name], again[name]):
            return (
                f"{name} differs in a second run: does backward add to what an earlier one has left, "
                "or draw random numbers again?"
            )
    return None


def keeps_dtype(trial: Trial) -> str | None:
    """Check the dtypes of all results of `trial` in float32 and in float64."""
    for dtype in (np.float32, np.float64):
        layer = trial.drawn(dtype)
        A, _, found = trial.run(layer, trial.data(dtype))
        for name, array in {trial.gives: leaves(A)[0], **found}.items():
            if array.dtype != dtype:
                return (
                    f"{name} is {array.dtype} in a run in {dtype.__name__}: a constant or an array made on "
                    "the way has another dtype; make it with constant(value, A_prev) or np.zeros_like(A_prev)"
                )
    return None


def learned(trial: Trial) -> str | None:
    """Remark if A of `trial` depends on an array of floats that is neither W nor b."""
    for index, owner in enumerate(every_layer([trial.drawn()])):
        known = {*owner.arrays, *owner.drawn, "cache"}
        for name in [] if is_ours(type(owner)) else sorted(vars(owner).keys() - known):
            layer, A_prev = trial.drawn(), trial.data()
            A, changed = forward(layer, A_prev), [*every_layer([layer])][index]
            for array in _arrays_in(getattr(changed, name)):
                if array.dtype.kind == "f":
                    array += 0.125
            if not all(map(np.array_equal, leaves(A), leaves(forward(layer, A_prev)))):
                return Remark(
                    f"A depends on self.{name}, which is neither W nor b, so no optimizer changes it: call "
                    "it W or b, and return its gradient; if it is constant, list it in `drawn`"
                )
    return None


def halves(trial: Trial) -> str | None:
    """Compare the halves of `trial`, with a micro-batch in between, with backward."""
    layer, A_prev = trial.drawn(), trial.data()
    _, dZ, whole = trial.run(layer, A_prev)
    forward(layer, A_prev)
    dA_prev = layer.backward_input(dZ)
    if not layer.has_parameters:
        found = trial.named(dA_prev, None, None)
    else:
        cache = layer.cache
        forward(layer, trial.data(seed=3))
        layer.backward_input(trial.slopes_of_cost(dZ, seed=4))
        layer.cache = cache
        try:
            found = trial.named(dA_prev, *layer.backward_weight(None if layer.weight_after_input else dZ))
        except Exception as error:
            return f"{_text_of(error)}. {BETWEEN_HALVES}"
    for name in whole:
        if name not in found or not np.array_equal(found[name], whole[name]):
            return f"{name} of the two halves differs from that of the whole backward: {BETWEEN_HALVES}"
    return None


BETWEEN_HALVES = (
    "backward_weight may read dZ, and what backward_input has left in cache, and nothing else; and both "
    "compute what backward does, by one formula"
)


def cached(trial: Trial) -> str | None:
    """Check the gradients of `trial` with a second forward before the backward."""
    for n in (BATCH_SIZE, 3):
        layer = trial.drawn()
        _, dZ, alone = trial.run(layer, trial.data())
        forward(layer, trial.data())
        owner = getattr(layer, "loss", layer)
        before = {name: repr(value) for name, value in vars(owner).items()}
        cache, layer.cache = layer.cache, None
        arrays = {"cache": _arrays_in(cache)}
        copies = _copies(arrays)
        try:
            forward(layer, part_of(trial.data(seed=3), slice(n)))
        except Exception:
            if n == BATCH_SIZE:
                raise
            continue  # the layer takes no other number of samples, which another check names
        if _changed(arrays, copies):
            return "the next forward has written into the arrays in cache: put new ones there each time"
        kept = {name for name, value in vars(owner).items() if before.get(name) != repr(value)}
        layer.cache = cache
        try:
            found = trial.named(*layer.backward(dZ))
        except Exception as error:
            wrong = _text_of(error)
        else:
            names = [name for name in alone if not np.array_equal(found[name], alone[name])]
            if not names:
                continue
            wrong = f"{names[0]} is that of another micro-batch"
        others = sorted(kept - {"cache", "training", "step", "first_sample", "statistics"})
        where = f" It keeps {', '.join(others)} of the last forward." if others else ""
        return f"{wrong}.{where} Put all that backward needs into self.cache"
    return None


def _arrays_in(tree):
    parts = leaves(list(tree.values()) if isinstance(tree, dict) else tree)
    return [one for one in parts if isinstance(one, np.ndarray)]


def adds_up(trial: Trial) -> str | None:
    """Compare sums over micro-batches of `trial` with the full batch."""
    if not trial.layer.alone_per_sample:
        raise CannotTry("a sample depends on the others here (alone_per_sample = False)")
    return in_fractions_or_floats(partial(_adds_up, trial))


def _adds_up(trial, convert, exact):
    layer, A_prev = trial.drawn(convert), trial.data(convert)
    A, dZ, derivatives = trial.run(layer, A_prev)
    whole, ragged = {trial.gives: leaves(A)[0], **derivatives}, [slice(0, 1), slice(1, BATCH_SIZE)]
    for parts in (*(even_slices(BATCH_SIZE, n) for n in range(BATCH_SIZE, 1, -1)), ragged):
        found = defaultdict(list)
        for part in parts:
            dZ_part = dZ if trial.gives == "J" else part_of(dZ, part)
            try:
                A, _, derivatives = trial.run(layer, part_of(A_prev, part), dZ_part, part.start)
                if trial.gives == "A" and leaves(A)[0].shape[-1] != part.stop - part.start:
                    raise ValueError(f"A has shape {shape_of(A)}")
            except Exception as error:
                if exact:
                    raise
                size = f"on a micro-batch of {part.stop - part.start} of {BATCH_SIZE} samples"
                return f"{size}, {_text_of(error)}: take m from {trial.takes}.shape[-1]"
            for name, array in {trial.gives: leaves(A)[0], **derivatives}.items():
                found[name].append(array)
        for name, wanted in whole.items():
            is_per_sample = name == "A" or name.startswith(f"d{trial.takes}")
            total = np.concatenate(found[name], axis=-1) if is_per_sample else sum(found[name])
            if not are_equal(total, wanted, exact):
                return _mistake_in_sum(name, total, wanted, len(parts), exact)
    return None


def _text_of(error):
    return f"{type(error).__name__}: {error}"


def _mistake_in_sum(name, found, wanted, n_parts, exact):
    """Return the likely mistake if `name` differs from that of the full batch."""
    if name == "A":
        return (
            "A of a sample depends on the other samples of its micro-batch, or on its place there. If that "
            "is meant, say alone_per_sample = False in the class; random numbers must follow from step, "
            "index and first_sample"
        )
    of_parts = f"{name} of {n_parts} micro-batches is"
    if are_equal(found, wanted * n_parts, exact):
        return f"{of_parts} {n_parts} times too large: does backward divide by its own m?"
    return f"{of_parts} not that of the full batch: is it a sum over the samples, without a factor of m?"


def large(trial: Trial) -> str | None:
    """Look for results of `trial` that are finite for large A_prev only in float64."""
    if trial.layer.takes != "numbers":
        raise CannotTry(f"it takes {trial.layer.takes}, which are never large")

    def run(dtype):
        data = tuple(LARGE * part for part in leaves(trial.data(dtype)))
        A, _, found = trial.run(trial.drawn(dtype), data if trial.takes_pair else data[0])
        return [(trial.gives, part) for part in leaves(A)], [*found.items()]

    (A, found), (A_wide, found_wide) = run(np.float32), run(np.float64)
    infinite = any(np.isinf(part).any() for _, part in A)
    for (name, array), (_, wide) in zip(A if infinite else A + found, A_wide + found_wide):
        # infinite is right where float64 says that the number is too large
        wrong = np.isnan(array) | np.isinf(array) & (abs(wide) < np.finfo(np.float32).max)
        if wrong.any():
            return (
                f"{name} is {array[wrong][0]} in float32 for inputs of about {LARGE}, where float64 gives "
                f"{wide[wrong][0]:.6g}: does an exponential overflow? Shift it by the largest entry, or take "
                "it of -abs(Z)"
            )
    if infinite and not trial.layer.can_overflow:
        return "A is infinite for large inputs, but the class says can_overflow = False"
    return None


def predicts(trial: Trial) -> str | None:
    """Compare predictions of `trial` for a mini-batch with those for single samples."""
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


def splits(trial: Trial) -> str | None:
    """Compare the layer of `trial` on one device with each way of its `splits`."""
    A = forward(trial.drawn(), trial.data())
    if trial.takes_pair or isinstance(A, tuple) or not trial.shape:
        raise CannotTry("no network begins with such samples, or ends with such an output")
    was_tried, Y = False, np.random.default_rng(0).standard_normal((2, BATCH_SIZE))
    after = [*([Flatten()] if A.ndim > 2 else []), Linear(int(np.prod(A.shape[:-1])), 2)]
    for (how, axes), T in product(ways_of(trial.layer).items(), (2, 3)):
        layer = trial.drawn()
        # a layer that is split by units or inputs follows one that is split by outputs
        before = [Linear(trial.shape[0], trial.shape[0])] if how in ("units", "inputs") else []
        layers = [*before, layer, *after]
        try:
            net = TensorParallel(layers, MeanSquaredError(), T)
        except ValueError:  # T devices cannot share it, such as 3 heads
            continue
        was_tried |= net.ways[len(before)] != "whole"
        compare = against_full_batch if layer.alone_per_sample else against_same_groups
        try:
            wrong = first_difference(*compare(net, trial.data(), Y), exact=False)
        except Exception as error:
            wrong = _text_of(error)
        if wrong:
            cuts = [f"{name} along axis {axis}" for name, axis in axes.items()]
            return f"splits[{how!r}] cuts {', '.join(cuts) or 'A along axis 0'}, but on {T} devices {wrong}"
    if not was_tried:
        raise CannotTry("neither 2 nor 3 devices can share a layer of this size")
    return None
