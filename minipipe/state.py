"""The state of a training as plain data, and changes of several objects or of none."""

from __future__ import annotations  # so that help() shows names, not what they stand for

import signal
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from .checks import LONGEST, Number, real_number, shown, whole_number, whole_numbers

if TYPE_CHECKING:
    import numpy as np

    from .optimizers.optimizer import Optimizer


# Changes of several objects, or of none.

class Lock(type(threading.RLock())):  # type: ignore[misc]  # RLock is a function
    """A re-entrant lock; a copy or a pickle of its owner gets a new lock.

    Code that changes or reads a network and its optimizer holds the network's lock.
    """

    def __reduce__(self) -> tuple:
        return Lock, ()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C until the end of the block; a second Ctrl-C interrupts at once.

    Python raises it in the main thread only; other threads do nothing.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) in (None, signal.SIG_IGN):
        yield
        return
    came = []

    def hold(number, frame):
        came.append(number)
        if len(came) > 1:  # the block may contain an endless loop of the user
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def all_or_nothing(objects: Iterable) -> Iterator[None]:
    """Restore the attributes of `objects` if the block raises an error.

    Ctrl-C waits for the end of the block. The block may change dictionaries in place,
    but not arrays, which are not copied: it must assign new ones.

    >>> from types import SimpleNamespace
    >>> one, other = SimpleNamespace(dollars=5), SimpleNamespace(dollars=0)
    >>> try:
    ...     with all_or_nothing([one, other]):
    ...         one.dollars = 2
    ...         other.dollars = 3 / 0
    ... except ZeroDivisionError:
    ...     print(one.dollars, other.dollars)
    5 0
    """
    def copied(attributes):
        return {name: dict(value) if type(value) is dict else value for name, value in attributes.items()}

    before = [(vars(one), copied(vars(one))) for one in objects]
    with uninterrupted():
        try:
            yield
        except BaseException:
            for attributes, saved in before:
                attributes.update(saved)
                for name in attributes.keys() - saved.keys():
                    del attributes[name]
            raise


# The state of a training, from which it goes on with the same bits.

class Pass(NamedTuple):
    """The last pass over the data that `fit` has begun with an optimizer.

    Args:
        number: the number of the pass, from 1; 0 before the first.
        n_done: the number of its mini-batches after which a step was made.
        n_batches: the number of its mini-batches.
        m, seed: the number of its samples, and the seed of their order.
    """

    number: int = 0
    n_done: int = 0
    n_batches: int = 0
    m: int = 0
    seed: int = 0


class OptimizerState(NamedTuple):
    """The state of an optimizer.

    Args:
        kind: the name of its class.
        n_memories: the number of arrays for each parameter.
        n_updates, learning_rate, last_rate, last_pass: its attributes of these names.
        memory: {(index of the layer, "W" or "b", position in it): arrays}.
    """

    kind: str
    n_memories: int
    n_updates: int
    learning_rate: Number
    last_rate: Number
    last_pass: Pass
    memory: Mapping


class State(NamedTuple):
    """The state of a network, see `Network.state`.

    Args:
        layers: the `repr` of each layer, to check that another network has the same.
        arrays: {name: array} of parameters, running statistics and keys; "2.0/W" is the
            W of the first layer inside layer 2.
        n_steps: the number of updates.
        optimizer: the `OptimizerState` of the optimizer that trains the network, or
            None.
        counts: {name: whole numbers}, the other counters of the network, such as
            rounds.
        source: the name of this state in errors.
    """

    layers: Sequence[str]
    arrays: Mapping[str, Any]
    n_steps: int
    optimizer: OptimizerState | None
    counts: Mapping[str, Any]
    source: str = "this state"


def state_of_optimizer(optimizer: Optimizer) -> OptimizerState:
    """Return the state of an optimizer; its arrays are copies."""
    memory = {key: [array.copy() for array in arrays] for key, arrays in optimizer.memory.items()}
    return OptimizerState(
        type(optimizer).__name__, optimizer.n_memories, optimizer.n_updates, optimizer.learning_rate,
        optimizer.last_rate, optimizer.last_pass, memory,
    )


def named_arrays(layers: Sequence) -> list[tuple]:
    """Return [(name in a `State`, layer, name of its array)] for all `layers`."""
    return [
        (f"{path}/{array}", layer, array)
        for path, layer in _paths(layers)
        for array in (*layer.arrays, *layer.drawn)
        if getattr(layer, array) is not None
    ]


def _paths(layers, above="") -> Iterator[tuple]:
    """Yield (path, layer): "2" for layer 2, "2.0" for the first layer inside it."""
    for index, layer in enumerate(layers):
        yield f"{above}{index}", layer
        yield from _paths(layer.layers, f"{above}{index}.")


def check_layers(state: State, layers: Sequence) -> None:
    """Raise `ValueError` unless `state` is of layers equal to `layers`."""
    ours = list(map(repr, layers))
    if len(state.layers) != len(ours):
        raise ValueError(
            f"{state.source} holds {len(state.layers)} layers, the network has {len(ours)}: make them equal"
        )
    for index, (theirs, own) in enumerate(zip(state.layers, ours, strict=True)):
        if theirs != own:
            raise ValueError(
                f"{state.source} holds {theirs[:len(own) + LONGEST]} as layer {index}, the network has "
                f"{own}: make them equal"
            )


def checked_array(state: State, name: str, own: np.ndarray) -> np.ndarray:
    """Return a copy of array `name` of `state`, which must have the form of `own`."""
    array = state.arrays.get(name)
    if array is None or array.shape != own.shape or array.dtype != own.dtype:
        theirs, ours = ("nothing" if a is None else f"{a.dtype} of shape {a.shape}" for a in (array, own))
        raise ValueError(f"{state.source} holds {theirs} for {name}, the network has {ours}: make them equal")
    return array.copy()


def check_optimizer_state(state: State, optimizer: Optimizer, parameters: Mapping) -> None:
    """Raise `ValueError` unless `optimizer` can resume from `state`.

    `parameters` is {(index of a layer, "W" or "b"): its arrays of this name}.
    """
    found = state.optimizer
    if found is None:
        raise ValueError(
            f"{state.source} was saved without an optimizer: load it without one, or save one, too"
        )
    if found.kind != type(optimizer).__name__:
        raise ValueError(
            f"{state.source} holds the state of {str(found.kind)[:LONGEST]}, the optimizer is "
            f"{type(optimizer).__name__}: make them equal"
        )
    if found.n_memories != optimizer.n_memories:
        raise ValueError(
            f"{state.source} holds {shown(found.n_memories)} arrays for each parameter, the optimizer has "
            f"{optimizer.n_memories}: make them equal"
        )
    whole_number(f"{state.source}: n_updates", found.n_updates, 0)
    real_number(f"{state.source}: learning_rate", found.learning_rate, above=0)
    real_number(f"{state.source}: last_rate", found.last_rate, above=0)
    name = f"{state.source}: last_pass"
    numbers = whole_numbers(name, found.last_pass, 0)
    if len(numbers) != 5 or numbers[1] > numbers[2] or (numbers[1] < numbers[2] and not numbers[0]):
        met = shown(list(numbers))
        raise ValueError(f"{name}={met} must be [number, n_done, n_batches, m, seed] of a pass of fit")
    for key, arrays in found.memory.items():
        # positions skip frozen parameters, so a position alone does not identify a parameter
        own = parameters.get(key[:2], [])
        fits = any(all(a.shape == W.shape and W.dtype <= a.dtype for a in arrays) for W in own)
        if len(arrays) != found.n_memories or not fits:
            theirs, ours = ([f"{a.dtype} of shape {a.shape}" for a in some] for some in (arrays, own))
            raise ValueError(
                f"{state.source} remembers {shown(theirs)} for parameter {shown(key)}, where this network "
                f"needs {found.n_memories} like {ours}: pass the optimizer that trains it"
            )


def checked_state(state: Any) -> State:
    """Return `state` if it is a `State`; raise `ValueError` for anything else."""
    if not isinstance(state, State):
        raise ValueError(f"state={shown(state)} is not a State: pass what net.state(optimizer) returns")
    return state
