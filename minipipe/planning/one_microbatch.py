"""One micro-batch through stages: how long each action takes, and how many bytes it needs."""

import time
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import NamedTuple


from ..checks import whole_number
from ..arrays import leaves
from ..cluster import Buffers
from ..order import Action
from ..order.actions import RULES
from ..parallel.batches import MicroBatches
from ..parallel.options import Cut
from ..parallel.stage import KEPT, Holdings, Stage
from ..partitioning.partition import counts_of, cut_into_stages

PATTERNS = ("FB", "FIW", "FRB", "FRIW")  # what can happen to a micro-batch on a stage


class Footprint(NamedTuple):
    """The bytes that a stage needs for micro-batches of one size.

    parameters, optimizer_state: of the stage, all in all.
    gradients, statistics: of each sum over micro-batches that is kept.
    sent: {"F": of the message to the next stage, "B": of the one back}.
    skips: {("F", name): of what a Fork sends to its Join in another stage, ("B", name): of what that Join
        sends back}.
    tied: {(name, place of a tied layer in the network): of its dW}.
    actions: {pattern: {kind: (before, after, kept)}}: what an action works with at its start and at its end
        (arguments and results), and what the stage keeps of the micro-batch after it, by kind.
    itemsize: the bytes of one number among the gradients.
    accumulate: how the sums over micro-batches are made, "tree" or "running", as for `Sums`.
    """

    parameters: int
    optimizer_state: int
    gradients: int
    statistics: int
    sent: dict
    skips: dict
    tied: dict
    actions: dict
    itemsize: int = 8
    accumulate: str = "tree"


class Performed(NamedTuple):
    """What an action took, and what it sends on.

    seconds: from its start to its end.
    before: the bytes of its arguments.
    held: {kind: bytes held at its end}, its arguments and results as "work".
    sent: to the neighbouring stage.
    skips: {name: what it sends to the other end of a skip connection}.
    """

    seconds: float
    before: int
    held: dict
    sent: object
    skips: dict


def counts_for(stages, layers, loss, sample):
    """Return the number of layers of each stage.

    stages: K; or a `Cut`.
    sample: a micro-batch (X, Y), for a `Cut` without one.
    """
    cut = stages if isinstance(stages, Cut) else Cut(whole_number("stages", stages, 1))
    return counts_of(replace(cut, sample=sample) if cut.sample is None else cut, layers, loss)


def stages_of(layers, loss, counts):
    """The `Stage`s of a cut."""
    parts = cut_into_stages(layers, counts)
    return [Stage(s, part, loss if s == len(parts) - 1 else None) for s, part in enumerate(parts)]


def skips_across(layers):
    """(names of the Forks whose Join is not among these layers, names of the Joins whose Fork is not)"""
    forks = [layer.fork for layer in layers if layer.fork]
    joins = [layer.join for layer in layers if layer.join]
    return [name for name in forks if name not in joins], [name for name in joins if name not in forks]


def sends_back(pattern):
    """The kind of action in `pattern` whose result goes back to the stage before.

    >>> sends_back("FRB"), sends_back("FIW")
    ('B', 'I')
    """
    return next(kind for kind in pattern if RULES[kind].way < 0)


def one_micro_batch(stages, pattern, X, Y, A_prev=None, dA=None, skips=()):
    """{(kind, stage): Performed} of a micro-batch, with which every stage does the actions of `pattern`.

    stages: consecutive `Stage`s, all or some.
    pattern: the kinds of their actions in order.
    X, Y: the samples, for stage 0, and their labels, for the last stage.
    A_prev, dA: what arrives from the stages before and behind these, if there are any.
    skips: {(message, name): what arrives from there by skip connections}.
    """
    performed, on_the_way = {}, dict(skips)
    line = MicroBatches([(X, Y)], 1, step=0)
    for stage in stages:
        stage.begin(line, recomputed=[(stage.index, 0)] if "R" in pattern else ())
    for kind in pattern:
        rule = RULES[kind]
        incoming = {"F": A_prev, "B": dA}.get(rule.message)
        for stage in stages if rule.way > 0 else reversed(stages):
            arriving, leaving = _skips(stage, rule.way)
            entering = {name: on_the_way.pop((rule.message, name)) for name in arriving}
            work = partial(stage.act, Action(kind, stage.index, 0), incoming, entering)
            done = _performed(stage, work, (incoming, entering), leaving)
            performed[kind, stage.index], incoming = done, received(done.sent)
            on_the_way |= {(rule.message, name): received(array) for name, array in done.skips.items()}
    return performed


def _skips(stage, way):
    """The names of the skip connections that arrive from other stages, and of those that go on to others."""
    if way == 0:
        return [], []
    forks, joins = skips_across(stage.layers)
    return (joins, forks) if way > 0 else (forks, joins)


def _performed(stage, work, arguments, leaving):
    """What it took to call `work`, as `Performed`.

    arguments: what the action is given, for those who count bytes.
    leaving: the names of what goes on by skip connections.
    """
    before = _held(stage, arguments)["work"]
    begin = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - begin
    sent, skips = result
    held = _held(stage, (arguments, result))
    return Performed(seconds, before, held, sent, {name: skips.get(name) for name in leaving})


def _held(stage, work):
    return Holdings([stage])().with_work(work)


def received(sent):
    """What arrives: copies, in one piece each."""
    if sent is None or isinstance(sent, tuple):
        return sent and tuple(map(received, sent))
    return sent.copy()


def footprint(stage, performed, optimizer=None):
    """The `Footprint` of a stage that has just worked on a micro-batch, and has its gradients.

    performed: {pattern: {(kind, stage): Performed}}, as `one_micro_batch` gives for each pattern.
    optimizer: what it keeps counts, too.
    """
    by_kind = {
        pattern: {kind: actions[kind, stage.index] for kind in pattern}
        for pattern, actions in performed.items()
    }
    pattern, actions = next(iter(by_kind.items()))
    messages = {"F": actions["F"], "B": actions[sends_back(pattern)]}
    return Footprint(
        parameters=actions["F"].held["parameters"],
        optimizer_state=0 if optimizer is None else _state_of(optimizer.fresh(), stage),
        gradients=actions[pattern[-1]].held["gradients"] - actions["F"].held["gradients"],
        statistics=actions["F"].held["gradients"],  # they lie among the sums, alone until the backward
        itemsize=max((part.dtype.itemsize for part in leaves(stage.gradients())), default=1),
        sent={message: n_bytes_of(done.sent) for message, done in messages.items()},
        skips={
            (message, name): n_bytes_of(array)
            for message, done in messages.items()
            for name, array in done.skips.items()
        },
        tied={
            (layer.tie, place): dW.nbytes
            for place, (layer, (dW, _)) in enumerate(zip(stage.layers, stage.gradients()))
            if layer.tie
        },
        actions={
            pattern: {kind: _bytes_of(done) for kind, done in actions.items()}
            for pattern, actions in by_kind.items()
        },
    )


def _bytes_of(done):
    """(before, after, kept) of an action."""
    return done.before, done.held["work"], {name: done.held[name] for name in KEPT}


def in_network(of_stages, counts):
    """The footprints of all stages; tied layers then have their places in the network, not in their stage."""
    placed = []
    for start, of_stage in zip(accumulate([0, *counts]), of_stages):
        tied = {(name, start + place): n_bytes for (name, place), n_bytes in of_stage.tied.items()}
        placed.append(of_stage._replace(tied=tied))
    return placed


def n_bytes_of(sent):
    """The bytes of what a stage sends or receives."""
    return sum(array.nbytes for array in leaves(sent))


def _state_of(optimizer, stage):
    """Return the bytes that a fresh optimizer keeps for a stage, after an update of a copy of it."""
    optimizer.update([layer.copy() for layer in stage.layers], stage.gradients())
    return sum(Buffers(list(optimizer.memory.values())).values())
