"""The checks of an optimizer, on small random parameters and gradients."""

from __future__ import annotations  # so that help() shows names, not what they stand for

from fractions import Fraction
from functools import partial

import numpy as np

from ..layers import Linear
from ..optimizers.optimizer import Optimizer
from ..state import state_of_optimizer
from .trial import CannotTry, coarse, deep_copy
from .verdicts import are_equal

SMALL_RATE = 1e-3  # at which updates must go downhill


def checks_of_optimizer(optimizer: Optimizer) -> list[tuple]:
    """Return the rows of `_report` for `optimizer`."""
    rows = [
        ("step returns what to subtract, and n_memories arrays, all in the shape of g", runs, True),
        ("it writes into no array that it was given, or has returned", leaves_arrays, True),
        ("its state of a parameter is in what step returns", keeps_state, False),
        ("it updates each number by itself, or says needs_whole_parameters", takes_parts, False),
        ("after `resume`, the next step is the same", resumes, False),
        ("a new learning_rate has an effect from the next step on", follows_rate, False),
        ("small steps go downhill", goes_down, False),
    ]
    return [(claim, partial(attempt, optimizer), needed) for claim, attempt, needed in rows]


def _numbers(seed):
    """Return an array (3, 4) of multiples of 1/8, none of which is 0."""
    drawn = coarse(np.random.default_rng(seed).standard_normal((3, 4)))
    return drawn + (drawn == 0)


def _fresh(optimizer):
    """Return a new optimizer with these options; fractions become floats."""
    twin = deep_copy(optimizer.fresh())
    options = {name: float(value) for name, value in vars(twin).items() if isinstance(value, Fraction)}
    vars(twin).update(options)  # a Fraction times floats is an array of objects
    return twin


def _update(optimizer, Ws, gradients):
    """Return the parameters, a list of arrays, after an update."""
    layers = [Linear(4, len(W), bias=False) for W in Ws]
    for layer, W in zip(layers, Ws):
        layer.W = W
    optimizer.update(layers, [(g, None) for g in gradients])
    return [layer.W for layer in layers]


def _after_three(optimizer, n=1, part=..., before_last=lambda twin: twin):
    """Return (the optimizer, the first parameter) after three updates.

    Args:
        optimizer: a new one with its options makes the updates.
        n: the number of parameters.
        part: the rows of the parameters that are updated.
        before_last: a function that returns the optimizer of the third update.
    """
    twin, Ws = _fresh(optimizer), [_numbers(k)[part] for k in range(n)]
    for update in range(1, 4):
        twin = before_last(twin) if update == 3 else twin
        Ws = _update(twin, Ws, [_numbers(10 * update + k)[part] for k in range(n)])
    return twin, Ws[0]


def runs(optimizer: Optimizer) -> str | None:
    """Check the number and the shapes of the arrays that `optimizer.step` returns."""
    twin, g, n, answers = _fresh(optimizer), _numbers(1), optimizer.n_memories, []

    def step(*given):
        answers.append(type(twin).step(twin, *given))
        return answers[-1]

    twin.step = step
    try:
        _update(twin, [_numbers(0)], [g])
    except Exception:  # a wrong answer explains more than the error that it has caused
        if not answers:
            raise
    for answer in answers:
        if not isinstance(answer, (tuple, list)) or len(answer) != 1 + n:
            found = f"{len(answer)} arrays" if isinstance(answer, (tuple, list)) else "no tuple"
            return f"step returns {found}: with n_memories={n}, end it with `return step, *memories`"
        for array in answer:
            if np.shape(array) != g.shape:
                return f"step returns an array of shape {np.shape(array)} for a g of shape {g.shape}"
    return None


def leaves_arrays(optimizer: Optimizer) -> str | None:
    """Compare arrays with copies made before each of two updates of `optimizer`."""
    twin, W, g, other = _fresh(optimizer), *map(_numbers, range(3))
    held = {"W": W, "the gradient g": g}
    for gradient in (g, other):
        before = {name: array.copy() for name, array in held.items()}
        (W,) = _update(twin, [W], [gradient])
        for name, array in held.items():
            if not np.array_equal(array, before[name]):
                return f"an update has changed {name}: an operation in place, such as *=, needs a copy first"
        held |= {"the new W": W}
        held |= {f"memory {k}": array for k, array in enumerate(twin.memory.get((0, "W", 0), ()))}
    return None


def keeps_state(optimizer: Optimizer) -> str | None:
    """Check that `optimizer` updates a parameter alone as it does with another one."""
    (twin, alone), (_, one_of_two) = _after_three(optimizer), _after_three(optimizer, n=2)
    if are_equal(one_of_two, alone, exact=False):
        return None
    before, counted = vars(_fresh(optimizer)), {"memory", "n_updates"}
    kept = sorted(f"self.{name}" for name in vars(twin).keys() - counted
                  if repr(vars(twin)[name]) != repr(before.get(name)))
    return (
        "a second parameter of the same shape changes how the first one moves: step keeps "
        f"{', '.join(kept) or 'something'} from one call to the next. Return what it remembers as n_memories "
        "arrays; self.n_updates counts updates"
    )


def takes_parts(optimizer: Optimizer) -> str | None:
    """Check that `optimizer` updates a parameter in two shards as it does in one."""
    if why := optimizer.why_no_parts():
        raise CannotTry(f"it {why}")
    parts = [_after_three(optimizer, part=part)[1] for part in (slice(1), slice(1, None))]
    if are_equal(np.concatenate(parts), _after_three(optimizer)[1], exact=False):
        return None
    return (
        "a parameter in two parts moves otherwise than as a whole: where the step of a number depends on "
        "others, as through a norm, write needs_whole_parameters = True in the class"
    )


def resumes(optimizer: Optimizer) -> str | None:
    """Compare the third update with that of an `optimizer` that resumes its state."""
    def heir(twin):
        new = _fresh(optimizer)
        new.resume(state_of_optimizer(twin), None)
        return new

    if are_equal(_after_three(optimizer, before_last=heir)[1], _after_three(optimizer)[1]):
        return None
    return "after resume, the next step is another one: does it depend on more than memory and n_updates?"


def follows_rate(optimizer: Optimizer) -> str | None:
    """Check that the third update of `optimizer` changes with its learning rate."""
    def slower(twin):
        twin.learning_rate = twin.learning_rate / 2
        return twin

    if not are_equal(_after_three(optimizer, before_last=slower)[1], _after_three(optimizer)[1]):
        return None
    return "half the learning_rate gives the same step: read self.learning_rate in step, not in __init__"


def goes_down(optimizer: Optimizer) -> str | None:
    """Check that five small steps of `optimizer` reduce 1/2 ||W - target||^2."""
    twin, first, target = _fresh(optimizer), _numbers(1), _numbers(2)
    twin.learning_rate, twin.weight_decay = min(twin.learning_rate, SMALL_RATE), 0
    W = first
    for _ in range(5):
        (W,) = _update(twin, [W], [W - target])
    if ((W - target) ** 2).sum() < ((first - target) ** 2).sum():
        return None
    return "five small updates go uphill, or nowhere: is the sign wrong? What step returns is subtracted"
