"""The training loop, for any network."""

from __future__ import annotations  # so that help() shows names, not what they stand for

import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .checks import function, shown, whole_number
from .arrays import accuracy, computing, even_slices
from .rates import Rate, rates_of
from .state import Pass
from .watching import text_of_duration, watched, with_progress

if TYPE_CHECKING:
    from .network import Network
    from .optimizers.optimizer import Optimizer


class Epoch(NamedTuple):
    """The results of one pass over the data.

    Args:
        number: the number of the pass with this optimizer, from 1.
        J: the mean cost over the mini-batches in this call of `fit`.
        score: the metric on the validation data, or None.
    """

    number: int
    J: float
    score: float | None

    def __str__(self) -> str:
        score = "" if self.score is None else f"   score {100 * self.score:.1f} %"
        return f"J {self.J:.4f}{score}"


def fit(
    model: Network, X: ArrayLike, Y: ArrayLike, optimizer: Optimizer, epochs: int,
    batch_size: int | Callable[[int], int], validation: tuple | None = None,
    metric: Callable = accuracy, seed: int = 0, report: Callable[[str], object] | None = print,
    learning_rate: Rate | None = None, clip: float | None = None, first_epoch: int | None = None,
) -> list[Epoch]:
    """Train `model` for `epochs` more passes over X and Y; return a list of `Epoch`.

    The optimizer counts the epochs; `minipipe.save` and `minipipe.load` keep its state.
    So `fit` for 2 epochs, and for 2 more, has the bits of `fit` for 4. A new optimizer
    begins at epoch 1, and so does one that has trained another network. A pass that was
    interrupted, by Ctrl-C or an error, continues with its next mini-batch as the first
    pass of the next `fit`: call `fit(..., epochs=5 - optimizer.n_epochs)` to finish an
    interrupted `fit(..., epochs=5)`.

    Args:
        model: a `Sequential`, a `Pipeline` or another network.
        X: (n[0], m), the samples.
        Y: (n[L], m), their labels.
        optimizer: such as `SGD(learning_rate=0.1)`.
        epochs: the number of further passes over the data, at least 1.
        batch_size: the largest number of samples in a mini-batch; mini-batches differ
            by at most one sample. Or a function from the number of epochs done, 0, 1,
            ..., to this number.
        validation: None, or a pair `(X, Y)` for the score after each epoch.
        metric: the score is `metric(model.predict(X), Y)`.
        seed: each epoch shuffles the samples with `default_rng([seed, epoch])`.
        report: called with one line per epoch; None for silence. Unless it is None, a
            line on stderr shows the time left, in a terminal or a notebook.
        learning_rate: None, to keep the optimizer's; or a function of t, the passes
            over the data so far, see `minipipe.rates`. It sets the rate before each
            update. If the optimizer has a rational rate, t is a `Fraction`.
        clip: None, or the largest norm of all gradients, as for `Sequential.step`.
        first_epoch: None, to go on after the last epoch of `optimizer`; or the number
            of the first pass, which then starts with its first mini-batch.

    Raises `ValueError` before the first step if data, sizes or a rate do not fit, or if
    samples, mini-batches and seed are not those of an interrupted pass; and
    `FloatingPointError` before a step in which anything overflows. After an error or
    Ctrl-C, parameters and optimizer, with its rate, are those of the last step.
    """
    if isinstance(model, type) or not hasattr(model, "check_fit"):
        raise ValueError(f"model={shown(model)} is not a network: pass one, such as Sequential(layers, loss)")
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
    epochs, seed = whole_number("epochs", epochs, 1), whole_number("seed", seed, 0)
    m = X.shape[-1]
    plan = _plan(model, Pass(m=m, seed=seed), optimizer, epochs, batch_size, learning_rate, first_epoch)
    last, step, history = plan[-1][0], partial(_train_on, model, optimizer, clip), []
    begin = time.perf_counter()
    for number, n_done, batches, rates in plan:
        if not n_done:
            begun = Pass(number, 0, len(batches), m, seed)
            vars(optimizer).update(network=model.token, last_pass=begun)  # one call: safe against Ctrl-C
        order, rest = shuffled(m, seed, number), batches[n_done:]
        J, n_samples = 0.0, m - rest[0].start
        with watched(report is not None), computing():  # once for all steps, rather than once for each
            for batch, rate in zip(with_progress(rest, "mini-batches of this epoch"), rates[n_done:]):
                samples, labels = (np.take(array, order[batch], axis=-1) for array in (X, Y))
                J += step(samples, labels, rate, number) / n_samples
        score = None if validation is None else metric(model.predict(validation[0]), validation[1])
        history.append(Epoch(number, J, score))
        if report is not None:
            seconds = (time.perf_counter() - begin) / len(history) * (epochs - len(history))
            left = text_of_duration(seconds)
            report(f"epoch {number:{len(str(last))}}/{last}   {history[-1]}   {left} left")
    return history


def _plan(model, data, optimizer, epochs, batch_size, learning_rate, first_epoch):
    """Return [(number of an epoch, mini-batches done, mini-batches, their rates)].

    The mini-batches are slices of the samples; only in an interrupted epoch some are
    done. `data` is a `Pass` with the number of samples and the seed.
    """
    first, n_done, last = optimizer.n_epochs + 1, optimizer.last_pass.n_done, optimizer.last_pass
    if optimizer.network not in (None, model.token):
        first, n_done = 1, 0
    if first_epoch is not None:
        first = whole_number("first_epoch", first_epoch, 1)
    if first_epoch is not None or n_done == last.n_batches:
        n_done = 0
    numbers = range(first, first + epochs)
    sizes = [batch_size(number - 1) if callable(batch_size) else batch_size for number in numbers]
    of_epochs = [_checked_batches(model, data.m, size) for size in sizes]
    counts = list(map(len, of_epochs))
    if n_done and last[2:] != (counts[0], data.m, data.seed):
        raise ValueError(
            f"epoch {first} was interrupted after {n_done} of {last.n_batches} mini-batches of {last.m} "
            f"samples with seed={last.seed}, but has {counts[0]} of {data.m} with seed={data.seed} now: use "
            f"the same data, batch_size and seed, or begin it anew with first_epoch={first}"
        )
    rates = [[None] * n for n in counts]
    if learning_rate is not None:
        rates = rates_of(learning_rate, counts, isinstance(optimizer.learning_rate, Fraction), first)
    return list(zip(numbers, [n_done, *[0] * (epochs - 1)], of_epochs, rates))


def shuffled(m: int, seed: int, epoch: int) -> np.ndarray:
    """Return the order of the m samples in `epoch`, from 1; `seed` is that of `fit`.

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
    """Make a step; return J times the samples. rate: its learning rate, or None."""
    before, n_steps = optimizer.learning_rate, model.n_steps
    try:
        optimizer.in_fit = True  # so that the step counts as one of this pass
        if rate is not None:
            optimizer.learning_rate = rate
        if model.has_updates:
            J, = model.train([(X, Y)], optimizer, clip)
        else:
            J = float(model.forward_backward(X, Y))  # if that fails, there is no step
            model.step(optimizer, clip)
    except BaseException as error:
        rate = optimizer.learning_rate
        if model.n_steps == n_steps:  # no step was made, so the rate stays that of the step before
            optimizer.learning_rate = before
        if isinstance(error, (FloatingPointError, OverflowError)):  # J may be a huge fraction
            raise FloatingPointError(
                f"epoch {number}: {error}. The learning_rate was {rate}; "
                "the parameters are those of the step before"
            ) from None
        raise
    finally:
        optimizer.in_fit = False
    return float(J) * X.shape[-1]
