"""The bytes that a stage needs for one micro-batch, counted in arrays with numbers or in arrays without."""

import copy
import time
from typing import NamedTuple

import numpy as np

from ..cluster import Buffers, bytes_by_kind
from ..description import describe
from ..functions import leaves, whole_number
from ..layers import Embedding, every_layer, skip_routes
from ..meta import MetaArray
from .batches import MicroBatches
from .partition import counts_of, cut
from .stage import Stage

PATTERNS = ("FB", "FIW", "FRB", "FRIW")  # what can happen to a micro-batch on a stage
KEPT = ("stashed inputs", "caches")      # what a stage keeps of a micro-batch


class Footprint(NamedTuple):
    """The bytes that a stage needs for micro-batches of one size.

    parameters, optimizer_state: of the stage. gradients, statistics: of each sum over micro-batches that is kept.
    sent: {"F": of the message to the next stage, "B": of the one back}.
    actions: {pattern: {kind: (before, after, kept)}}: what an action holds at its start and at its end beside what the stage
    keeps (arguments and results), and what the stage keeps of the micro-batch after it.
    """

    parameters: int
    optimizer_state: int
    gradients: int
    statistics: int
    sent: dict
    actions: dict


class Performed(NamedTuple):
    """What an action took: seconds, the bytes of its arguments, the bytes held at its end by kind, those of its message."""

    seconds: float
    before: int
    held: dict
    sent: int


def footprints(layers, loss, n_stages, input_shape, m, partition=None, dtype=np.float64, optimizer=None, patterns=PATTERNS):
    """The `Footprint` of each stage for micro-batches of m samples, without any numbers: a list for `simulate`.

    input_shape: of one sample, such as (64,) or (3, 32, 32). dtype: of the parameters and of X. partition: as for `Pipeline`, but
    "time". optimizer: what it keeps for each parameter counts, too, as it does from its first update on. patterns: the orders
    of actions that a micro-batch may go through on a stage; fewer take less time.

    The bytes are those that `measure` finds, but no parameter is drawn and no array made, so the network may be larger than
    this computer: the layers' own forward and backward work with arrays that have a shape and no numbers, see
    `minipipe.meta`. Raises `ValueError` for what does not fit, and for tied weights or skip connections between stages:
    what these send is not foreseen.

    >>> from minipipe.layers import Linear
    >>> from minipipe.losses import MeanSquaredError
    >>> huge = footprints([Linear(10**6, 10**6), Linear(10**6, 1)], MeanSquaredError(), 2, (10**6,), m=8, dtype=np.float32)
    >>> [footprint.parameters / 1e12 for footprint in huge]                   # terabytes: 4 * (10**12 + 10**6)
    [4.000004, 4.000004e-06]
    """
    for name, value in (("n_stages", n_stages), ("m", m)):
        if whole_number(name, value) < 1:
            raise ValueError(f"{name}={value} must be at least 1")
    if not hasattr(loss, "backward"):
        raise ValueError(f"loss is {loss!r}, but a backward begins at the loss: pass one, such as MeanSquaredError()")
    if isinstance(partition, str) and partition == "time":
        raise ValueError("partition='time' measures, which takes numbers: use 'macs', or the list that `partition` has found")
    output_shape = describe(layers, input_shape, dtype).rows[-1].output_shape
    layers = [layer.copy() for layer in layers]
    X, Y = MetaArray((*input_shape, m), dtype), MetaArray((*output_shape, m), dtype)
    if isinstance(next(layer for layer in every_layer(layers) if not layer.layers), Embedding):
        X = np.zeros(X.shape)  # tokens are looked at
    stages = stages_of(layers, loss, counts_of(partition, layers, n_stages, (X, Y), loss))
    for layer in layers:
        layer.initialize(_NoNumbers(), dtype)
    actions = {pattern: one_micro_batch(stages, pattern, X, Y) for pattern in patterns}
    return [footprint(stage, actions, optimizer) for stage in stages]


class _NoNumbers:
    """A generator of random numbers that draws none."""

    def standard_normal(self, shape):
        return MetaArray(shape)

    def __getattr__(self, name):
        return getattr(np.random.default_rng(0), name)


def stages_of(layers, loss, counts):
    """The `Stage`s of a cut, if what they send each other can be foreseen."""
    parts = cut(layers, counts)
    ends = np.cumsum(counts)
    skips = [np.searchsorted(ends, place, side="right") for place in skip_routes(layers).values()]
    if any(layer.tie for layer in layers) or any(begin != end for begin, end in skips):
        raise ValueError("tied weights and skip connections between stages send messages of their own: these are not foreseen")
    return [Stage(s, part, loss if s == len(parts) - 1 else None) for s, part in enumerate(parts)]


def one_micro_batch(stages, pattern, X, Y):
    """{(kind, stage): Performed} of the micro-batch X, Y, with which every stage does the actions of `pattern`."""
    performed = {}
    for stage in stages:
        stage.begin(1, MicroBatches(X, Y, 1, step=0))
    for kind in pattern:
        incoming = None
        for stage in stages if kind == "F" else reversed(stages):
            performed[kind, stage.index], result = _perform(kind, stage, incoming, keep_input_only="R" in pattern)
            incoming = _received(result)
    return performed


def _perform(kind, stage, incoming, keep_input_only):
    """(Performed, what the stage sends on)"""
    before = bytes_by_kind(stage.holdings() | {"work": incoming})["work"]
    begin = time.perf_counter()
    if kind == "F":
        result = stage.forward(0, incoming, {}, keep_input_only)
    elif kind in "BI":
        result = (stage.backward if kind == "B" else stage.backward_input)(0, incoming, {})
    else:
        result = (stage.recompute if kind == "R" else stage.backward_weight)(0), {}
    seconds = time.perf_counter() - begin
    held = bytes_by_kind(stage.holdings() | {"work": (incoming, result)})
    sent, _ = result
    return Performed(seconds, before, held, sum(array.nbytes for array in leaves(sent))), sent


def _received(sent):
    """What arrives: copies, in one piece each."""
    if sent is None or isinstance(sent, tuple):
        return sent and tuple(map(_received, sent))
    return sent.copy()


def footprint(stage, actions, optimizer=None):
    """The `Footprint` of a stage from {pattern: {(kind, stage): Performed}}; the stage then has its gradients."""
    actions = {pattern: {kind: of[kind, stage.index] for kind in pattern} for pattern, of in actions.items()}
    pattern, performed = next(iter(actions.items()))
    forward, backward, last = performed["F"], performed["B" if "B" in pattern else "I"], performed[pattern[-1]]
    return Footprint(
        parameters=forward.held["parameters"],
        optimizer_state=0 if optimizer is None else _state_of(copy.deepcopy(optimizer), stage),
        gradients=last.held["gradients"] - forward.held["gradients"],
        statistics=forward.held["gradients"],
        sent={"F": forward.sent, "B": backward.sent},
        actions={
            pattern: {kind: (done.before, done.held["work"], {name: done.held[name] for name in KEPT}) for kind, done in by_kind.items()}
            for pattern, by_kind in actions.items()
        },
    )


def _state_of(optimizer, stage):
    """The bytes that an optimizer keeps for a stage, after an update of a copy of it."""
    optimizer.update([layer.copy() for layer in stage.layers], stage.gradients())
    return sum(Buffers(optimizer.memory_of(range(len(stage.layers)))).values())
