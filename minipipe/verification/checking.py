"""`check`: does a layer, a loss, an optimizer, a network or a schedule keep what it promises?

If a promise is broken, its line says what was found, and names a likely mistake. All
comparisons with the full batch are those of `verdicts`.
"""

from __future__ import annotations  # so that help() shows names, not what they stand for

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..arrays import computing, converted, shape_of
from ..checks import shown, whole_numbers
from ..exact import rational
from ..layers import Layer, Linear
from ..layers.through import forward_through
from ..losses import Loss, MeanSquaredError
from ..network import Network, Sequential
from ..optimizers.optimizer import Optimizer
from ..order import Schedule, ScheduleError, peak_microbatches, simulate
from ..order.reading import build, may_say_a_schedule, registered_name, said_by
from ..parallel import Pipeline
from ..parallel.splitting import is_ours
from ..schedules import SCHEDULES
from .optimizers import promises_of_optimizer
from .promises import LEARNED, promises_of_layer, promises_of_loss
from .trial import CannotTry, LossTrial, Remark, Trial, coarse, forward, in_best_numbers, private
from .verdicts import against_full_batch, against_one_device, against_same_groups, difference_in_words


class Verdict(NamedTuple):
    """What became of one promise.

    Args:
        promise: in words.
        holds: whether it is kept; None where it could not be tried.
        why: what was found, and the likely mistake; or why it could not be tried, or
            was tried in floats only.
    """

    promise: str
    holds: bool | None
    why: str = ""

    def __str__(self) -> str:
        line = f"  {WORDS[self.holds]:4}{self.promise}"
        return f"{line}\n        {self.why}" if self.why else line


WORDS = {True: "yes", False: "NO", None: "-"}


class Report(tuple):
    """The `Verdict`s of a check: true if no promise is broken and some are kept.

    It prints what to know first: the first broken promise, or what is worth saying of
    those that are kept. `details()` has a line for each.
    """

    what: str

    def __new__(cls, what: str, verdicts: Sequence[Verdict]) -> Report:
        report = super().__new__(cls, verdicts)
        report.what = what
        return report

    def __bool__(self) -> bool:
        found = {verdict.holds for verdict in self}
        return True in found and False not in found

    def _lines(self, verdicts):
        tried = [verdict.holds for verdict in self if verdict.holds is not None]
        return "\n".join([f"{self.what}: {sum(tried)} of {len(tried)} promises kept", *map(str, verdicts)])

    def __repr__(self) -> str:
        broken = [verdict for verdict in self if verdict.holds is False]
        if not broken:
            return self._lines(verdict for verdict in self if verdict.why)
        return f"{self._lines(broken[:1])}\n  print(report.details()) shows all {len(self)} promises"

    def details(self) -> str:
        """Return a text with a line for each promise, and what was found."""
        return self._lines(self)


def check(
    what: Any, shape: tuple | None = None, *, devices: int | None = None, microbatches: int | None = None
) -> Report:
    """Return a `Report`: what a layer, a loss, an optimizer, a network or a schedule promises, tried.

    Args:
        what: a layer; a loss; an optimizer; a list of layers, or a network; or whatever
            says a schedule, as for `build`: a name, a `Schedule`, a function (device,
            K, M).
        shape: of one sample, for a layer, a loss or a network: (3,) for A_prev (3, m),
            (2, 8, 8) for images. Where A_prev is a pair of arrays, a pair of shapes.
        devices, microbatches: of a schedule; 4 and 8 are those of a name or a function
            without.

    Of a layer: shapes and dtypes; that it writes into nothing it was handed; its
    derivatives, compared with slopes by differences; that `cache` has all that backward
    needs; that micro-batches of any sizes add up to the full batch, with `==` and in
    fractions where the layer can; and the same in a pipeline, at each cut, with and
    without recomputation; large inputs; predictions; and what `splits` says.

    Of a loss: the same, and that it divides by the m that it is handed. Of a network:
    the same of each layer and the loss, and then pipelines of it. Of an optimizer: that
    it remembers and updates each parameter by itself, goes on from its state, and goes
    downhill. Of a schedule: that it can run; ticks and memory, where a closed form is
    known; and the gradients of a small network.

    A check tries; it does not prove. It changes nothing of what it is handed, nor the
    state of `np.random`. It takes less than a second for most layers, and up to 20
    seconds for a Transformer block in fractions. Raises `ValueError` for what cannot be
    checked.

    >>> from minipipe import Linear
    >>> bool(check(Linear(3, 2), (3,)))
    True
    >>> class PerSample(Linear):
    ...     def backward_weight(self, dZ):
    ...         dW, db = super().backward_weight(dZ)
    ...         return dW / dZ.shape[-1], db
    >>> print(check(PerSample(3, 2), (3,))[4])
      NO  its derivatives are the slopes of its output
            dW is 5 times too small: does backward divide by its own m? The loss has done that
    """
    random_state = np.random.get_state()
    try:
        return _checked(what, shape, devices, microbatches)
    finally:
        np.random.set_state(random_state)


def _checked(what, shape, devices, microbatches):
    if not isinstance(what, (Layer, Network, Loss, Optimizer)) and may_say_a_schedule(what):
        said = said_by(what)
        schedule = build(said, devices, microbatches)
        return _report(repr(schedule), _of_schedule(schedule, registered_name(said)))
    if not isinstance(what, (Layer, Network, Loss, Optimizer, list, tuple)):
        raise ValueError(
            f"what={shown(what)} must be a layer, a list of layers, a network, or what says a schedule; or a "
            "loss, or an optimizer: pass an object, such as Linear(3, 2), or a name, such as '1f1b'"
        )
    if (devices, microbatches) != (None, None):
        raise ValueError("devices and microbatches are those of a schedule: leave them out for layers")
    if isinstance(what, Optimizer):
        return _report(repr(what), promises_of_optimizer(what))
    shape = _checked_shape(shape)
    if isinstance(what, Loss):
        return _report(f"{what!r}, predictions of shape {shape}", promises_of_loss(what, shape))
    if isinstance(what, Layer):
        _check_fit(what, shape)
        return _report(f"{what!r}, samples of shape {shape}", promises_of_layer(what, shape))
    net = what if isinstance(what, Network) else Sequential(what, None)
    promises = _of_network(net.layers, net.loss or MeanSquaredError(), shape)
    return _report(f"a network of {len(net.layers)} layers", promises)


MOST_NUMBERS = 10_000  # of a sample: a derivative takes some sixty forwards


def _checked_shape(shape):
    """Return the shape of a sample, or of a pair of them, as tuples; raise `ValueError` for anything else."""
    if shape is None:
        raise ValueError("shape is missing: pass that of one sample, such as shape=(3,) for A_prev (3, m)")
    if not isinstance(shape, (tuple, list)):
        raise ValueError(f"shape={shown(shape)} must be a tuple, such as (3,) for A_prev (3, m)")
    is_pair = len(shape) == 2 and all(isinstance(one, (tuple, list)) for one in shape)
    shapes = [whole_numbers("shape", one, 1) for one in (shape if is_pair else [shape])]
    n = max(map(math.prod, shapes))
    if n > MOST_NUMBERS:
        raise ValueError(
            f"shape={shown(shape)} has {n:,} numbers in a sample, more than {MOST_NUMBERS:,}: pass a smaller "
            "one; what a layer promises does not depend on its size"
        )
    return tuple(shapes) if is_pair else shapes[0]


def _check_fit(layer, shape):
    """Raise `ValueError` if the shape does not fit a layer of the package, which is known to be right."""
    if not is_ours(type(layer)):
        return
    trial = Trial(layer, shape)
    try:
        forward(trial.drawn(), trial.data())
    except Exception as error:
        if isinstance(error, ValueError) and not trial.takes_pair and layer.join is None:
            raise  # it has both numbers and the remedy
        pair = "a pair of shapes, such as ((3,), (3,))"
        fitting = pair if layer.join else "that of one sample, such as (3,)"
        raise ValueError(
            f"shape={shape} does not fit {layer!r}: pass {fitting}, without the axis of samples ({error})"
        ) from None


def _report(name, promises):
    """Try promises, rows (words, function, whether the ones after it need it), one after another."""
    verdicts, broken = [], None
    for words, attempt, is_needed in promises:
        if broken is not None:
            verdicts.append(Verdict(words, None, f"not tried: {broken} comes first"))
            continue
        verdict = _tried(words, attempt)
        verdicts.append(verdict)
        if is_needed and verdict.holds is False:
            broken = f'"{words}"'
    return Report(name, verdicts)


def _tried(words, attempt):
    """Return the `Verdict` of an attempt, which returns None or what is wrong, or raises `CannotTry`."""
    try:
        with computing(), np.errstate(all="ignore"):  # what overflows is a finding
            wrong = attempt()
    except CannotTry as reason:
        return Verdict(words, None, str(reason))
    except Exception as error:  # of a layer from elsewhere
        wrong = f"{type(error).__name__}: {error}"
    return Verdict(words, wrong is None or isinstance(wrong, Remark), wrong or "")


def _of_network(layers, loss, shape):
    """Return the promises of a network: those of each layer and its loss, then its gradients in pipelines."""
    trial = NetworkTrial(layers, loss, shape)
    rows = [
        (f"layer {index}, {layer!r}", partial(trial.of_layer, layer, of_sample), False)
        for index, (layer, of_sample) in enumerate(trial.met)
    ]
    rows.append((f"loss, {loss!r}", trial.of_loss, False))
    for recompute in ("never", "always"):
        words = f"in pipelines it equals the full batch, recompute={recompute!r}"
        rows.append((words, partial(trial.in_pipelines, recompute), False))
    return rows


class NetworkTrial:
    """A network with parameters of its own, whose layers are tried before the whole.

    Attributes:
        met: [(layer, shape of a sample that it takes)], up to the first that does not
            run.
    """

    def __init__(self, layers: Sequence[Layer], loss: Loss, shape: tuple) -> None:
        self.first, self.loss, self.broken = Trial(layers[0], shape), loss, False
        self.met: list[tuple] = []
        self.layers = [private(layer.copy()) for layer in layers]
        self.alone_per_sample = all(layer.alone_per_sample for layer in layers)
        for index, layer in enumerate(self.layers):
            layer.initialize(np.random.default_rng(index))
        try:
            self.output_shape = forward_through(self.layers, self.first.data(), {}, self._meet).shape
        except Exception as error:  # of a layer from elsewhere; ours say what does not fit
            if not self.met or is_ours(type(self.met[-1][0])):
                raise ValueError(f"shape={shape} does not fit the network: {error}") from None
        else:
            self.labels = LossTrial(loss, self.output_shape[:-1]).labels()

    def _meet(self, layer, A_prev):
        """Note a layer with the shape of its A_prev, and return its A."""
        full = shape_of(A_prev)
        is_pair = isinstance(full[0], tuple)
        self.met.append((layer, tuple(part[:-1] for part in full) if is_pair else full[:-1]))
        return forward(layer, A_prev)

    def of_layer(self, layer: Layer, shape: tuple) -> str | None:
        """Return what is wrong with one layer, or what it does not learn."""
        return self._first_of(_report(repr(layer), promises_of_layer(layer, shape)))

    def of_loss(self) -> str | None:
        """Return what is wrong with the loss."""
        if len(self.met) < len(self.layers):
            raise CannotTry("not tried: a layer with a NO comes first")
        return self._first_of(_report(repr(self.loss), promises_of_loss(self.loss, self.output_shape[:-1])))

    def _first_of(self, report):
        """Return the first verdict that says NO, in words; else a remark on what is not learned."""
        for one in report:
            if one.holds is False:
                self.broken = True
                return f"{one.promise}: NO. {one.why}"
        return next((one.why for one in report if one.promise == LEARNED and one.why), None)

    def in_pipelines(self, recompute: str) -> str | None:
        """Compare pipelines of 2 stages, and of one layer a stage, with the full batch."""
        if self.broken:
            raise CannotTry("not tried: a layer, or the loss, with a NO comes first")
        return in_best_numbers(self._compared, recompute)

    def _compared(self, recompute, convert, exact):
        """Return what is wrong with pipelines of these numbers."""
        n, most = len(self.layers), 3 if self.alone_per_sample else 2  # batch norm needs two samples
        compare = against_full_batch if self.alone_per_sample else against_same_groups
        for K, M, schedule in ((2, 2, "gpipe"), (n, most, "1f1b"), (n, most, "zb-h1")):
            layers = [layer.copy(coarse).copy(convert) for layer in self.layers]
            X, Y, K = self.first.data(convert), converted(self.labels, convert), min(K, n)
            pipe = Pipeline(layers, private(self.loss), K, M, schedule=schedule, recompute=recompute)
            wrong = difference_in_words(*compare(pipe, X, Y), exact=exact)
            if wrong:
                return f"{wrong}, in {K} stages, {M} micro-batches, {schedule}"
        return None


def _of_schedule(schedule, name):
    """Return the promises of a schedule. name: in `SCHEDULES`, or None."""
    trial = ScheduleTrial(schedule, name)
    return [
        ("it has no faults: each action has what it needs, and no device waits for ever", trial.faults, True),
        ("its run takes as many ticks as its formula says", trial.ticks, False),
        ("as many micro-batches are alive on each device as its formula says", trial.peaks, False),
        ("its gradients are the full batch's, in fractions (==)", trial.gradients, False),
        ("its gradients have the bits of one device, in floats", trial.bits, False),
    ]


def _side_by_side(counted, formula, unit):
    """Return what was counted next to what the formula gives: a `Remark` where they agree."""
    kind = Remark if counted == formula else str
    found, given = (" ".join(f"{float(number):g}" for number in numbers) for numbers in (counted, formula))
    return kind(f"counted {found} {unit}, the formula gives {given}")


class ScheduleTrial:
    """A schedule, and a network of one small layer for each of its stages."""

    def __init__(self, schedule: Schedule, name: str | None) -> None:
        self.schedule, self.facts = schedule, SCHEDULES.facts.get(name or "")

    def faults(self) -> str | None:
        """Return the faults in words, or None."""
        try:
            self.schedule.validate()
        except ScheduleError as error:
            return str(error)
        return None

    def ticks(self) -> str:
        """Compare the makespan of a simulation with the closed form; say both."""
        formula = self._fact("ticks")
        counted = simulate(self.schedule).makespan
        return _side_by_side([counted], [formula], "ticks")

    def peaks(self) -> str:
        """Compare the most micro-batches alive in a simulation with the closed form; say both."""
        formula, counted = self._fact("peaks"), peak_microbatches(simulate(self.schedule))
        counted = counted if len(formula) > 1 else [max(counted)]
        return _side_by_side(counted, formula, "on each device" if len(formula) > 1 else "at most")

    def gradients(self) -> str | None:
        """Compare the gradients with those of one full-width batch."""
        return difference_in_words(*against_full_batch(*self._network(rational)))

    def bits(self) -> str | None:
        """Compare the gradients with those of the same micro-batches on one device."""
        return difference_in_words(*against_one_device(*self._network(np.float64)))

    def _fact(self, name):
        """Return what the closed form called `name` gives for these sizes."""
        K, M = len(self.schedule.devices), self.schedule.n_microbatches
        found = None if self.facts is None else getattr(self.facts, name)(K=K, M=M)
        if found is None:
            raise CannotTry("no closed form is known for it")
        return found

    def _network(self, convert):
        """Return (pipeline, X, Y) of small layers, with one sample more than there are micro-batches."""
        if "U" in self.schedule.kinds:
            raise CannotTry("it updates the weights on the way: compare trainings, see `Pipeline`")
        rng, K, M = np.random.default_rng(6), self.schedule.n_stages, self.schedule.n_microbatches
        layers = [Linear(2, 2) for _ in range(K)]
        for layer in layers:
            layer.initialize(rng)
        layers = [layer.copy(coarse).copy(convert) for layer in layers]
        X, Y = (converted(coarse(rng.standard_normal((2, M + 1))), convert) for _ in range(2))
        return Pipeline(layers, MeanSquaredError(), K, M, schedule=self.schedule), X, Y
