"""One micro-batch through stages: how long each action takes, and how many bytes it needs."""

import time
from itertools import accumulate
from typing import NamedTuple

from ..cluster import Buffers, bytes_by_kind
from ..functions import leaves
from ..partitioning.partition import cut
from ..pipeline.batches import MicroBatches
from ..pipeline.holdings import KEPT, Holdings
from ..pipeline.stage import Stage
from ..schedules.rules import RULES

PATTERNS = ("FB", "FIW", "FRB", "FRIW")  # what can happen to a micro-batch on a stage


class Footprint(NamedTuple):
    """The bytes that a stage needs for micro-batches of one size.

    parameters, optimizer_state: of the stage. gradients, statistics: of each sum over micro-batches that is kept.
    sent: {"F": of the message to the next stage, "B": of the one back}. skips: {("F", name): of what a Fork sends to its Join in
    another stage, ("B", name): of what that Join sends back}. tied: {(name, place of a tied layer in the network): of its dW}.
    actions: {pattern: {kind: (before, after, kept)}}: what an action holds at its start and at its end beside what the stage
    keeps (arguments and results), and what the stage keeps of the micro-batch after it.
    """

    parameters: int
    optimizer_state: int
    gradients: int
    statistics: int
    sent: dict
    skips: dict
    tied: dict
    actions: dict


class Performed(NamedTuple):
    """What an action took: seconds, the bytes of its arguments, those held at its end by kind; and what it sends on.

    skips: {name: what it sends beside, to the other end of a skip connection}.
    """

    seconds: float
    before: int
    held: dict
    sent: object
    skips: dict


def stages_of(layers, loss, counts):
    """The `Stage`s of a cut."""
    parts = cut(layers, counts)
    return [Stage(s, part, loss if s == len(parts) - 1 else None) for s, part in enumerate(parts)]


def skips_across(layers):
    """(names of the Forks whose Join is not among these layers, names of the Joins whose Fork is not)"""
    forks, joins = [layer.fork for layer in layers if layer.fork], [layer.join for layer in layers if layer.join]
    return [name for name in forks if name not in joins], [name for name in joins if name not in forks]


def one_micro_batch(stages, pattern, X, Y, A_prev=None, dA=None, skips=()):
    """{(kind, stage): Performed} of the micro-batch X, Y, with which every stage does the actions of `pattern`.

    A_prev, dA: what arrives from stages before and behind these, if there are any; skips: {(message, name): what arrives from there by
    skip connections}.
    """
    performed, on_the_way = {}, dict(skips)
    line = MicroBatches([(X, Y)], 1, step=0)
    for stage in stages:
        stage.begin(1)
    for kind in pattern:
        way, message = RULES[kind].way, RULES[kind].message
        incoming = {"F": A_prev, "B": dA}.get(message)
        for stage in stages if way > 0 else reversed(stages):
            forks, joins = skips_across(stage.layers)
            arriving, leaving = {1: (joins, forks), -1: (forks, joins), 0: ((), ())}[way]
            entering = {name: on_the_way.pop((message, name)) for name in arriving}
            done = _perform(kind, stage, line, incoming, entering, leaving, keep_input_only="R" in pattern)
            performed[kind, stage.index], incoming = done, received(done.sent)
            on_the_way |= {(message, name): received(array) for name, array in done.skips.items()}
    return performed


def _perform(kind, stage, line, incoming, entering, leaving, keep_input_only):
    before = bytes_by_kind(Holdings(stage)() | {"work": (incoming, entering)})["work"]
    labels = None if stage.loss is None else line.labels[0]
    begin = time.perf_counter()
    if kind == "F":
        A_prev = line.inputs[0] if stage.index == 0 else incoming
        result = stage.forward(0, A_prev, entering, line.origins[0], labels, keep_input_only)
    elif kind in "BI":
        result = (stage.backward if kind == "B" else stage.backward_input)(0, incoming, entering)
    elif kind == "R":
        result = stage.recompute(0, line.origins[0], labels), {}
    else:
        result = stage.backward_weight(0), {}
    seconds = time.perf_counter() - begin
    held = bytes_by_kind(Holdings(stage)() | {"work": (incoming, entering, result)})
    sent, skips = result
    return Performed(seconds, before, held, sent, {name: skips.get(name) for name in leaving})


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
        skips={(way, name): n_bytes_of(array) for way, done in (("F", forward), ("B", backward)) for name, array in done.skips.items()},
        tied={(layer.tie, place): dW.nbytes for place, (layer, (dW, _)) in enumerate(zip(stage.layers, stage.gradients())) if layer.tie},
        actions={
            pattern: {kind: (done.before, done.held["work"], {name: done.held[name] for name in KEPT}) for kind, done in by_kind.items()}
            for pattern, by_kind in actions.items()
        },
    )


def in_network(of_stages, counts):
    """The footprints of all stages, with the places that tied layers have in the network, not in their stage."""
    starts = accumulate([0, *counts])
    return [
        of_stage._replace(tied={(name, start + place): n_bytes for (name, place), n_bytes in of_stage.tied.items()})
        for start, of_stage in zip(starts, of_stages)
    ]


def n_bytes_of(sent):
    """The bytes of what a stage sends or receives."""
    return sum(array.nbytes for array in leaves(sent))


def _state_of(optimizer, stage):
    """The bytes that a fresh optimizer keeps for a stage, after an update of a copy of it."""
    optimizer.update([layer.copy() for layer in stage.layers], stage.gradients())
    return sum(Buffers(optimizer.memory_of(range(len(stage.layers)))).values())
