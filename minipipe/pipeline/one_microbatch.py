"""One micro-batch through stages: how long each action takes, and how many bytes it needs."""

import time
from typing import NamedTuple

import numpy as np

from ..cluster import Buffers, bytes_by_kind
from ..functions import leaves
from ..layers import skip_routes
from .batches import MicroBatches
from .partition import cut
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
    """What an action took: seconds, the bytes of its arguments, those held at its end by kind; and what it sends on."""

    seconds: float
    before: int
    held: dict
    sent: object


def stages_of(layers, loss, counts):
    """The `Stage`s of a cut, if what they send each other can be foreseen."""
    parts = cut(layers, counts)
    ends = np.cumsum(counts)
    skips = [np.searchsorted(ends, place, side="right") for place in skip_routes(layers).values()]
    if any(layer.tie for layer in layers) or any(begin != end for begin, end in skips):
        raise ValueError(
            "tied weights and skip connections between stages send messages of their own: these are not foreseen. Cut elsewhere "
            "(recompute='sqrt' cuts within stages, too), or read the trace of a Pipeline that has run"
        )
    return [Stage(s, part, loss if s == len(parts) - 1 else None) for s, part in enumerate(parts)]


def one_micro_batch(stages, pattern, X, Y, A_prev=None, dA=None):
    """{(kind, stage): Performed} of the micro-batch X, Y, with which every stage does the actions of `pattern`.

    A_prev, dA: what arrives from stages before and behind these, if there are any.
    """
    performed = {}
    for stage in stages:
        stage.begin(1, MicroBatches(X, Y, 1, step=0))
    for kind in pattern:
        incoming = {"F": A_prev, "B": dA, "I": dA}.get(kind)
        for stage in stages if kind == "F" else reversed(stages):
            performed[kind, stage.index] = done = _perform(kind, stage, incoming, keep_input_only="R" in pattern)
            incoming = received(done.sent)
    return performed


def _perform(kind, stage, incoming, keep_input_only):
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
    return Performed(seconds, before, held, result[0])


def received(sent):
    """What arrives: copies, in one piece each."""
    if sent is None or isinstance(sent, tuple):
        return sent and tuple(map(received, sent))
    return sent.copy()


def footprint(stage, actions, optimizer=None):
    """The `Footprint` of a stage from {pattern: {(kind, stage): Performed}}; the stage then has its gradients."""
    actions = {pattern: {kind: of[kind, stage.index] for kind in pattern} for pattern, of in actions.items()}
    pattern, performed = next(iter(actions.items()))
    forward, backward, last = performed["F"], performed["B" if "B" in pattern else "I"], performed[pattern[-1]]
    return Footprint(
        parameters=forward.held["parameters"],
        optimizer_state=0 if optimizer is None else _state_of(optimizer.fresh(), stage),
        gradients=last.held["gradients"] - forward.held["gradients"],
        statistics=forward.held["gradients"],
        sent={"F": n_bytes_of(forward.sent), "B": n_bytes_of(backward.sent)},
        actions={
            pattern: {kind: (done.before, done.held["work"], {name: done.held[name] for name in KEPT}) for kind, done in by_kind.items()}
            for pattern, by_kind in actions.items()
        },
    )


def n_bytes_of(sent):
    """The bytes of what a stage sends or receives."""
    return sum(array.nbytes for array in leaves(sent))


def _state_of(optimizer, stage):
    """The bytes that a fresh optimizer keeps for a stage, after an update of a copy of it."""
    optimizer.update([layer.copy() for layer in stage.layers], stage.gradients())
    return sum(Buffers(optimizer.memory_of(range(len(stage.layers)))).values())
