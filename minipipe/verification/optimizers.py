"""What an optimizer promises, tried on small random parameters and gradients."""

from __future__ import annotations  # so that help() shows names, not what they stand for

from functools import partial

import numpy as np

from ..layers import Linear
from ..optimizers.optimizer import Optimizer
from ..state import state_of_optimizer
from .trial import CannotTry, coarse, private
from .verdicts import are_equal

SMALL_RATE = 1e-3  # at which each step must go downhill


def promises_of_optimizer(optimizer: Optimizer) -> list[tuple]:
    """Return rows (promise in words, function that returns what is wrong or None, whether others need it)."""
    rows = [
        ("step returns what to subtract, and n_memories arrays, in the dtype of the gradient", runs, True),
        ("it writes into no array that it was handed, or has returned", leaves_arrays, True),
        ("what it remembers of a parameter is in what step returns", remembers, False),
        ("it takes each number by itself, or says needs_whole_parameters", takes_parts, False),
        ("from its state it goes on as if it had not stopped", resumes, False),
        ("a change of learning_rate counts from the next step on", follows_rate, False),
        ("small steps go downhill", goes_down, False),
    ]
    return [(words, partial(attempt, optimizer), needed) for words, attempt, needed in rows]


def _numbers(seed, dtype=np.float64):
    """Return an array (3, 4) of multiples of 1/8, none of which is 0."""
    drawn = coarse(np.random.default_rng(seed).standard_normal((3, 4)))
    return (drawn + (drawn == 0)).astype(dtype)


def _fresh(optimizer):
    """Return a copy that has made no update yet, and shares no array."""
    return private(optimizer.fresh())


def _update(optimizer, Ws, seed, part=...):
    """Return the parameters after an update with random gradients. part: of their entries, for vectors."""
    gradients = [_numbers(100 * seed + k) for k in range(len(Ws))]
    given = {
        (k, "W", 0): (Linear(1, 1), W, g if part is ... else g.ravel()[part])
        for k, (W, g) in enumerate(zip(Ws, gradients))
    }
    return list(optimizer.updated(given).values())


def _after(optimizer, n, Ws, part=...):
    """Return the parameters after n updates."""
    for seed in range(1, n + 1):
        Ws = _update(optimizer, Ws, seed, part)
    return Ws


def _step(optimizer, g):
    """Return what the first step returns for a gradient."""
    twin = _fresh(optimizer)
    twin.n_updates = 1
    return twin.step(g, *(np.zeros_like(g) for _ in range(twin.n_memories)))


def runs(optimizer):
    """Compare number, shapes and dtypes of the arrays that a step returns."""
    for dtype in (np.float64, np.float32):
        g, n = _numbers(1, dtype), optimizer.n_memories
        answer = _step(optimizer, g)
        if not isinstance(answer, (tuple, list)) or len(answer) != 1 + n:
            found = f"{len(answer)} arrays" if isinstance(answer, (tuple, list)) else "no tuple"
            return f"step returns {found}: with n_memories={n}, end it with `return step, *memories`"
        for array in answer:
            if np.shape(array) != g.shape or array.dtype != dtype:
                return f"step returns {np.shape(array)} of {array.dtype} for a g {g.shape} of {g.dtype}"
    return None


def leaves_arrays(optimizer):
    """Compare all arrays with copies made before, over two updates."""
    twin, W, g, other = _fresh(optimizer), *map(_numbers, range(3))
    held = {"W": W, "the gradient g": g}
    for gradient in (g, other):
        before = {name: array.copy() for name, array in held.items()}
        (W,) = twin.updated({(0, "W", 0): (Linear(1, 1), W, gradient)}).values()
        for name, array in held.items():
            if not np.array_equal(array, before[name]):
                return f"an update has changed {name}: an operation in place, such as *=, needs a copy first"
        held |= {"the new W": W}
        held |= {f"memory {k}": array for k, array in enumerate(twin.memory[0, "W", 0])}
    return None


def remembers(optimizer):
    """Compare a parameter that is updated alone with one next to another parameter of its shape."""
    twin, W, other = _fresh(optimizer), _numbers(1), _numbers(2)
    before = {name: repr(value) for name, value in vars(twin).items()}
    (alone,) = _after(twin, 3, [W])
    if are_equal(_after(_fresh(optimizer), 3, [W, other])[0], alone, exact=False):
        return None
    known = {"memory", "n_updates", "last_rate"}
    kept = sorted(name for name, value in vars(twin).items() if before.get(name) != repr(value))
    names = ", ".join(f"self.{name}" for name in kept if name not in known) or "something"
    return (
        f"a second parameter of the same shape changes how the first one moves: step keeps {names} from one "
        "call to the next. Return what it remembers, as n_memories arrays; self.n_updates counts the updates"
    )


def takes_parts(optimizer):
    """Compare the updates of a parameter in two parts, as ZeRO makes them, with those of the whole."""
    if why := optimizer.why_no_parts():
        raise CannotTry(f"it {why}")
    W = _numbers(1)
    (whole,) = _after(_fresh(optimizer), 3, [W])
    parts = [_after(_fresh(optimizer), 3, [W.ravel()[part]], part)[0] for part in (slice(5), slice(5, None))]
    if are_equal(np.concatenate(parts), whole.ravel(), exact=False):
        return None
    return (
        "a parameter in two parts moves otherwise than as a whole: where the step of a number depends on "
        "others, as through a norm, write needs_whole_parameters = True in the class"
    )


def resumes(optimizer):
    """Compare the third update of an optimizer with that of a new one that is handed the state of two."""
    twin, heir = _fresh(optimizer), _fresh(optimizer)
    Ws = _after(twin, 2, [_numbers(1)])
    state = state_of_optimizer(twin)
    heir.resume(state.memory, state.n_updates, state.learning_rate, state.last_rate)
    if are_equal(_update(heir, Ws, 3)[0], _update(twin, Ws, 3)[0]):
        return None
    return "after resume, the next step is another one: does it depend on more than memory and n_updates?"


def follows_rate(optimizer):
    """Compare the third update with that of a copy whose learning rate is halved before."""
    twin = _fresh(optimizer)
    Ws = _after(twin, 2, [_numbers(1)])
    slower = private(twin)
    slower.learning_rate = slower.learning_rate / 2
    if not are_equal(_update(slower, Ws, 3)[0], _update(twin, Ws, 3)[0]):
        return None
    return "half the learning_rate gives the same step: read self.learning_rate in step, not in __init__"


def goes_down(optimizer):
    """Follow the cost 1/2 ||W - target||^2, whose gradient is W - target, for five small steps."""
    twin, W, target = _fresh(optimizer), _numbers(1), _numbers(2)
    twin.learning_rate, twin.weight_decay = min(twin.learning_rate, SMALL_RATE), 0
    for k in range(5):
        (new,) = twin.updated({(0, "W", 0): (Linear(1, 1), W, W - target)}).values()
        if not ((new - target) ** 2).sum() < ((W - target) ** 2).sum():
            return f"update {k + 1} goes uphill: what step returns is subtracted from W"
        W = new
    return None
