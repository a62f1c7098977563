"""The training loop, for a `Sequential` and a `Pipeline` alike."""

import time
from fractions import Fraction
from functools import partial
from itertools import repeat
from typing import NamedTuple

import numpy as np

from .checks import function, shown, whole_number
from .arrays import accuracy, computing, even_slices
from .rates import rates_of
from .watching import text_of_duration, watched, with_progress


class Epoch(NamedTuple):
    """What a pass over the data came to.

    number: of the pass, from 1.
    J: the mean cost.
    score: that on the validation data, or None.
    """

    number: int
    J: float
    score: float | None

    def __str__(self):
        score = "" if self.score is None else f"   score {100 * self.score:.1f} %"
        return f"J {self.J:.4f}{score}"


def fit(
    model, X, Y, optimizer, epochs, batch_size, validation=None, metric=accuracy, seed=0, report=print,
    learning_rate=None, clip=None,
):
    """Train `model` for `epochs` passes over X and Y, and return a list of `Epoch`.

    model: a `Sequential` or a `Pipeline`.
    X: (n[0], m), the samples.
    Y: (n[L], m), their labels.
    optimizer: such as `SGD(learning_rate=0.1)`.
    epochs: passes over the data, at least 1.
    batch_size: the most samples of a mini-batch; the mini-batches are as equal as can be. Or a function that
        gives this number for the epochs done so far, 0, 1, ..., such as one of `minipipe.rates`.
    validation: a pair `(X, Y)` on which the metric is taken after each epoch.
    metric: the score is `metric(model.predict(X), Y)`.
    seed: each epoch shuffles the samples with `default_rng([seed, epoch])`.
    report: called with one line per epoch, which ends with the seconds left; None for silence. Otherwise a
        line on stderr says how long the epoch still takes, in a terminal and in a notebook.
    learning_rate: None, to leave the optimizer's as it is; or a function of t, the passes over the data so
        far, which the optimizer's is set to before each update, see `minipipe.rates`. If the optimizer has a
        rational rate, t is a `Fraction`.
    clip: None, or the largest norm of all gradients together, as for `Sequential.step`.

    Raises `ValueError` before the first step if the data, the sizes or a rate do not fit, and
    `FloatingPointError` before a step in which anything overflows; the parameters then are those of the step
    before.
    """
    if isinstance(model, type) or not hasattr(model, "check_fit"):
        raise ValueError(f"model={shown(model)} is no network: pass one, such as Sequential(layers, loss)")
    model.check_fit(optimizer, clip)
    X, Y = model.checked_batch(X, Y)
    function("metric", metric)
    if report is not None:
        function("report", report)
    if validation is not None:
        if not isinstance(validation, (tuple, list)) or len(validation) != 2:
            raise ValueError(f"validation={shown(validation)} must be a pair (X, Y)")
        validation = model.checked_batch(*validation)
        metric(model.predict(validation[0]), validation[1])
    m = X.shape[-1]
    epochs, seed = whole_number("epochs", epochs, 1), whole_number("seed", seed, 0)
    sizes = [batch_size(epoch) if callable(batch_size) else batch_size for epoch in range(epochs)]
    of_epochs = [_checked_batches(model, m, size) for size in sizes]  # for each epoch, its slices
    step, rates = partial(_train_on, model, optimizer, clip), repeat(repeat(None))
    if learning_rate is not None:
        exact = isinstance(optimizer.learning_rate, Fraction)
        rates = rates_of(learning_rate, list(map(len, of_epochs)), exact)
    history = []
    begin = time.perf_counter()
    for number, (batches, of_epoch) in enumerate(zip(of_epochs, rates), 1):
        order = shuffled(m, seed, number)
        J = 0.0
        with watched(report is not None), computing():  # once for all steps, rather than once for each
            for batch, rate in zip(with_progress(batches, "mini-batches of this epoch"), of_epoch):
                mini_batch = (np.take(array, order[batch], axis=-1) for array in (X, Y))
                J += step(*mini_batch, rate, number) / m
        score = None if validation is None else metric(model.predict(validation[0]), validation[1])
        history.append(Epoch(number, J, score))
        if report is not None:
            left = text_of_duration((time.perf_counter() - begin) / number * (epochs - number))
            report(f"epoch {number:{len(str(epochs))}}/{epochs}   {history[-1]}   {left} left")
    return history


def shuffled(m, seed, epoch):
    """Return the order of the m samples in an epoch, counted from 1.

    All workers have the same, since they share each mini-batch.

    >>> shuffled(5, seed=0, epoch=1), shuffled(5, seed=0, epoch=2)
    (array([1, 4, 3, 0, 2]), array([4, 2, 1, 0, 3]))
    """
    return np.random.default_rng([seed, epoch]).permutation(m)


def _checked_batches(model, m, batch_size):
    batch_size = whole_number("batch_size", batch_size, 1)
    batches = even_slices(m, -(-m // batch_size))
    smallest = batches[-1].stop - batches[-1].start
    n_microbatches = getattr(model, "n_microbatches", 1)
    if smallest < n_microbatches:
        raise ValueError(
            f"m={m} samples in mini-batches of at most {batch_size} leave one of {smallest}, too few for "
            f"microbatches={n_microbatches}: use a larger batch_size or fewer micro-batches"
        )
    return batches


def _train_on(model, optimizer, clip, X, Y, rate, number):
    """Make one step, with learning rate `rate` unless that is None; return m times the mean of the costs."""
    if rate is not None:
        optimizer.learning_rate = rate
    try:
        if model.has_updates:
            J, = model.train([(X, Y)], optimizer, clip)
        else:
            J = _as_float(model.forward_backward(X, Y))  # if that fails, there is no step
            model.step(optimizer, clip)
    except FloatingPointError as error:
        raise FloatingPointError(
            f"epoch {number}: {error}. The learning_rate is {optimizer.learning_rate}; "
            "the parameters are those of the step before"
        ) from None
    return _as_float(J) * X.shape[-1]


def _as_float(J):
    """Return a cost as a float; raise `FloatingPointError` for a fraction beyond all floats."""
    try:
        return float(J)
    except OverflowError:
        raise FloatingPointError("the cost is a rational number beyond all floats") from None
