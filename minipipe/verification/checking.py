"""`check`: test a layer, a loss, an optimizer, a network or a schedule of your own.

The report has a line for each promise. If one is broken, its line says what was found,
and names a likely mistake. `verdicts` has the comparisons with the full batch.
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
    """The result for one promise.

    Args:
        promise: its text.
        holds: whether it is kept; None if it could not be tried.
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

    It prints the first broken promise, or the remarks on those that are kept.
    `details()` has a line for each promise.
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
    """Test what a layer, a loss, an optimizer, a network or a schedule must do; return a `Report`.

    Args:
        what: a layer; a loss; an optimizer; a list of layers, or a network; or a
            schedule, as for `build`: a name, a `Schedule`, a function (device, K, M).
        shape: the shape of one sample, for a layer, a loss or a network: (3,) for
            A_prev (3, m), (2, 8, 8) for images. If A_prev is a pair of arrays, a pair
            of shapes.
        devices, microbatches: for a schedule; by default 4 and 8, if a name or a
            function leaves them open.

    A layer is tested for shapes and dtypes; for not writing into its arguments; for
    derivatives that equal slopes by finite differences; for a `cache` that has all that
    backward needs; for micro-batches of any sizes that add up to the full batch, with
    `==` and in fractions if the layer can compute with them; for the same in pipelines,
    with several cuts, with and without recomputation; and for large inputs, predictions
    and `splits`.

    A loss is tested likewise, and for dividing by the given m. In a network, each layer
    and the loss are tested, and then pipelines of it. An optimizer must keep state and
    update for each parameter separately, resume from its state, and go downhill. A
    schedule must run, have the ticks and the memory of its closed forms, if any, and
    give a small network the gradients of one device.

    A check is a test, not a proof. It changes neither its arguments nor the state of
    `np.random`. It takes less than a second for most layers, and up to 20 seconds for a
    Transformer block in fractions.

    Raises:
        ValueError: if `what` cannot be checked, or `shape` does not fit it.

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
    """Raise `ValueError` if the shape does not fit a layer of this package, whose code is tested."""
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
    """Try promises in order; return a `Report`. Rows: (promise, function, whether later rows need it)."""
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
    """Return the `Verdict` of `attempt`, which returns an error message or None, or raises `CannotTry`."""
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
        """Record `layer` with the shape of its A_prev, and return its A."""
        full = shape_of(A_prev)
        is_pair = isinstance(full[0], tuple)
        self.met.append((layer, tuple(part[:-1] for part in full) if is_pair else full[:-1]))
        return forward(layer, A_prev)

    def of_layer(self, layer: Layer, shape: tuple) -> str | None:
        """Return the error message or remark of one layer, or None."""
        return self._first_of(_report(repr(layer), promises_of_layer(layer, shape)))

    def of_loss(self) -> str | None:
        """Return the error message of the loss, or None."""
        if len(self.met) < len(self.layers):
            raise CannotTry("not tried: a layer with a NO comes first")
        return self._first_of(_report(repr(self.loss), promises_of_loss(self.loss, self.output_shape[:-1])))

    def _first_of(self, report):
        """Return the message of the first broken promise; else a remark on arrays that are not learned."""
        for one in report:
            if one.holds is False:
                self.broken = True
                return f"{one.promise}: NO. {one.why}"
        return next((one.why for one in report if one.promise == LEARNED and one.why), None)

    def in_pipelines(self, recompute: str) -> str | None:
        """Compare pipelines of 2 stages, and of one stage per layer, with the full batch."""
        if self.broken:
            raise CannotTry("not tried: a layer, or the loss, with a NO comes first")
        return in_best_numbers(self._compared, recompute)

    def _compared(self, recompute, convert, exact):
        """Return the error message of pipelines in the numbers of `convert`, or None."""
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
    """Return the promises of a schedule. name: its name in `SCHEDULES`, or None."""
    trial = ScheduleTrial(schedule, name)
    return [
        ("it has no faults: each action has what it needs, and no device waits for ever", trial.faults, True),
        ("its run takes as many ticks as its formula says", trial.ticks, False),
        ("as many micro-batches are alive on each device as its formula says", trial.peaks, False),
        ("its gradients are the full batch's, in fractions (==)", trial.gradients, False),
        ("its gradients have the bits of one device, in floats", trial.bits, False),
    ]


def _side_by_side(counted, formula, unit):
    """Return a message with the counted numbers and those of the formula; a `Remark` if they agree."""
    kind = Remark if counted == formula else str
    found, given = (" ".join(f"{float(number):g}" for number in numbers) for numbers in (counted, formula))
    return kind(f"counted {found} {unit}, the formula gives {given}")


class ScheduleTrial:
    """A schedule, and a network of one small layer for each of its stages."""

    def __init__(self, schedule: Schedule, name: str | None) -> None:
        self.schedule, self.facts = schedule, SCHEDULES.facts.get(name or "")

    def faults(self) -> str | None:
        """Return the text of the schedule's faults, or None."""
        try:
            self.schedule.validate()
        except ScheduleError as error:
            return str(error)
        return None

    def ticks(self) -> str:
        """Compare the makespan of a simulation with the closed form; return a message with both."""
        formula = self._fact("ticks")
        counted = simulate(self.schedule).makespan
        return _side_by_side([counted], [formula], "ticks")

    def peaks(self) -> str:
        """Compare the peak of micro-batches alive with the closed form; return a message with both."""
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
        """Return the value of the closed form `name` for the sizes of this schedule."""
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
