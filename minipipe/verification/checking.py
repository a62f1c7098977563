"""`check`: test a layer, a loss, an optimizer or a schedule of your own."""

from __future__ import annotations  # so that help() shows names, not what they stand for

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..arrays import computing, converted
from ..checks import shown, whole_numbers
from ..exact import rational
from ..layers import Layer, Linear
from ..losses import Loss, MeanSquaredError
from ..optimizers.optimizer import Optimizer
from ..order import peak_microbatches, simulate
from ..order.actions import listing
from ..order.reading import build, may_say_a_schedule, registered_name, said_by
from ..parallel import Pipeline
from ..schedules import SCHEDULES
from .layers import checks_of_layer, checks_of_loss
from .optimizers import checks_of_optimizer
from .trial import CannotTry, Remark, coarse
from .verdicts import against_full_batch, against_one_device, first_difference


class Verdict(NamedTuple):
    """The result of one check.

    Args:
        claim: what must hold, in words.
        holds: whether it does; None if it could not be tried.
        why: what was found, and the likely mistake; or why it could not be tried, or
            was tried in floats only.
    """

    claim: str
    holds: bool | None
    why: str = ""

    def __str__(self) -> str:
        line = f"  {WORDS[self.holds]:4}{self.claim}"
        return f"{line}\n        {self.why}" if self.why else line


WORDS = {True: "yes", False: "NO", None: "-"}


class Report(tuple):
    """The `Verdict`s of `check`: true if some checks passed, and none failed.

    It prints the first check that failed, or the remarks on those that passed.
    `details()` has a line for each.
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
        return "\n".join([f"{self.what}: {sum(tried)} of {len(tried)} checks passed", *map(str, verdicts)])

    def __repr__(self) -> str:
        failed = [verdict for verdict in self if verdict.holds is False]
        if not failed:
            return self._lines(verdict for verdict in self if verdict.why)
        return f"{self._lines(failed[:1])}\n  print(report.details()) shows all {len(self)} checks"

    def details(self) -> str:
        """Return a text with a line for each check, and what was found."""
        return self._lines(self)


def check(
    what: Any, shape: tuple | None = None, *, devices: int | None = None, microbatches: int | None = None
) -> Report:
    """Test what a layer, a loss, an optimizer or a schedule must do.

    Args:
        what: a layer; a loss; an optimizer; or a schedule, as for `build`: a name, a
            `Schedule`, a function (device, K, M).
        shape: the shape of one sample, for a layer or a loss: (3,) for A_prev (3, m),
            (2, 8, 8) for images. If A_prev is a pair of arrays, a pair of shapes.
        devices, microbatches: for a schedule; by default 4 and 8, if a name or a
            function leaves them open.

    Returns a `Report`. A layer must keep shapes and dtypes, and not write into its
    arguments; its derivatives must equal slopes by finite differences, its `cache` have
    all that backward needs, and its micro-batches add up to the full batch, with `==`
    and in fractions if it can compute with them. Large inputs, predictions and its
    `splits` are tried, too.

    A loss must also divide by the given m. An optimizer must keep state for each
    parameter separately, resume from its state, and go downhill. A schedule must run,
    have the ticks and the memory of its closed forms, if any, and give a small network
    the gradients of one device.

    A check is a test, not a proof. It changes neither its arguments nor the state of
    `np.random`. It takes less than a second for most layers.

    Raises:
        ValueError: if `what` or `shape` cannot be checked.

    >>> from minipipe import Linear
    >>> bool(check(Linear(3, 2), (3,)))
    True
    >>> class PerSample(Linear):
    ...     def backward_weight(self, dZ):
    ...         dW, db = super().backward_weight(dZ)
    ...         return dW / dZ.shape[-1], db
    >>> print(check(PerSample(3, 2), (3,))[4])  # doctest: +ELLIPSIS
      NO  its derivatives are the slopes of its output
            dW is 5 times too small: does backward divide by its own m? ...
    """
    random_state = np.random.get_state()
    try:
        return _checked(what, shape, devices, microbatches)
    finally:
        np.random.set_state(random_state)


def _checked(what, shape, devices, microbatches):
    if not isinstance(what, (Layer, Loss, Optimizer)) and may_say_a_schedule(what):
        said = said_by(what)
        schedule = build(said, devices, microbatches)
        return _report(repr(schedule), _of_schedule(schedule, registered_name(said)))
    if not isinstance(what, (Layer, Loss, Optimizer)):
        raise ValueError(
            f"what={shown(what)} must be a layer, a loss or an optimizer: pass an object, such as "
            "Linear(3, 2); or a schedule, such as '1f1b'. Of a network, check each layer, and "
            "compare it by verification.equals_full_batch(pipe, X, Y)"
        )
    if (devices, microbatches) != (None, None):
        raise ValueError("devices and microbatches are those of a schedule: leave them out for layers")
    if isinstance(what, Optimizer):
        return _report(repr(what), checks_of_optimizer(what))
    shape = _checked_shape(shape)
    if isinstance(what, Loss):
        return _report(f"{what!r}, predictions of shape {shape}", checks_of_loss(what, shape))
    return _report(f"{what!r}, samples of shape {shape}", checks_of_layer(what, shape))


MOST_NUMBERS = 10_000  # numbers in a sample: a derivative takes some sixty forwards


def _checked_shape(shape):
    """Return the shape of a sample, or of a pair, as tuples; refuse anything else."""
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
            "one; what a layer must do does not depend on its size"
        )
    return tuple(shapes) if is_pair else shapes[0]


def _report(name, rows):
    """Return a `Report`.

    `rows` are (claim, function -> error message or None, whether later rows need it).
    """
    verdicts, broken = [], None
    for claim, attempt, is_needed in rows:
        if broken is not None:
            verdicts.append(Verdict(claim, None, f"not tried: {broken} comes first"))
            continue
        verdict = _tried(claim, attempt)
        verdicts.append(verdict)
        if is_needed and verdict.holds is False:
            broken = f'"{claim}"'
    return Report(name, verdicts)


def _tried(claim, attempt):
    """Return the `Verdict` of `attempt()`, which returns an error message or None."""
    try:
        with computing(), np.errstate(all="ignore"):  # what overflows is a finding
            wrong = attempt()
    except CannotTry as reason:
        return Verdict(claim, None, str(reason))
    except Exception as error:  # raised by a user's layer
        wrong = f"{type(error).__name__}: {error}"
    return Verdict(claim, wrong is None or isinstance(wrong, Remark), wrong or "")


def _of_schedule(schedule, name):
    """Return the checks of a schedule. name: its name in `SCHEDULES`, or None."""
    facts, K, M = SCHEDULES.facts.get(name or ""), len(schedule.devices), schedule.n_microbatches

    def faults():
        found = schedule.faults()
        return f"it cannot run:\n{listing(found)}" if found else None

    def compared(counted, fact, unit):
        formula = None if facts is None else getattr(facts, fact)(K=K, M=M)
        if formula is None:
            raise CannotTry("no closed form is known for it")
        formula = formula if isinstance(formula, list) else [formula]
        counted = counted if len(formula) > 1 else [max(counted)]
        found, given = (" ".join(f"{float(one):g}" for one in numbers) for numbers in (counted, formula))
        kind = Remark if counted == formula else str
        return kind(f"counted {found} {unit}, the formula gives {given}")

    def gradients(compare, convert):
        if "U" in schedule.kinds:
            raise CannotTry("it updates the weights on the way: compare trainings, see `Pipeline`")
        rng, layers = np.random.default_rng(6), [Linear(2, 2) for _ in range(schedule.n_stages)]
        for layer in layers:
            layer.initialize(rng)
        layers = [layer.copy(coarse).copy(convert) for layer in layers]
        X, Y = (converted(coarse(rng.standard_normal((2, M + 1))), convert) for _ in range(2))
        pipe = Pipeline(layers, MeanSquaredError(), schedule.n_stages, M, schedule=schedule)
        return first_difference(*compare(pipe, X, Y))

    return [
        ("it has no faults: each action has what it needs, and no device waits forever", faults, True),
        ("its run takes as many ticks as its formula says",
         lambda: compared([simulate(schedule).makespan], "ticks", "ticks"), False),
        ("as many micro-batches are alive on each device as its formula says",
         lambda: compared(peak_microbatches(simulate(schedule)), "peaks", "micro-batches"), False),
        ("its gradients are the full batch's, in fractions (==)",
         partial(gradients, against_full_batch, rational), False),
        ("its gradients have the bits of one device, in floats",
         partial(gradients, against_one_device, np.float64), False),
    ]
