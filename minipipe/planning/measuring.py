"""One micro-batch through the stages: the bytes and the seconds that each action needs.

`footprints` passes a meta array, without numbers, and `measure` an array with numbers.
"""

import copy
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import accumulate
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np

from ..arrays import computing, floats, leaves
from ..checks import listed, one_of, shown, whole_number
from ..cluster import SECONDS, bytes_by_kind
from ..description import describe
from ..layers import Layer
from ..layers.layer import checked_layers
from ..layers.through import run_alone
from ..meta import MetaArray
from ..network import Network
from ..optimizers import checked_optimizer
from ..order import Action, Costs
from ..order.actions import RULES
from ..parallel.batches import MicroBatches
from ..parallel.options import Cut
from ..parallel.stage import KEPT, Holdings, Stage, stages_of
from ..partitioning.partition import counts_of, cut_into_stages

PATTERNS = ("FB", "FIW", "FRB", "FRIW")  # the actions that a micro-batch can go through on a stage
TIMED_KINDS = "FBRIW"  # the kinds of actions that are timed


class Footprint(NamedTuple):
    """The bytes that a stage needs for micro-batches of one size.

    Args:
        parameters, optimizer_state: those of the stage in all.
        gradients, statistics: those of each sum over micro-batches that is kept.
        sent: {"F": those of the message to the next stage, "B": of the one back}.
        skips: {("F", name): those of the message of a Fork to its Join in another
            stage, ("B", name): of the message back}.
        tied: {(name, place of a tied layer in the network): those of its dW}.
        actions: {pattern: {kind: (before, after, kept)}}: the bytes of an action's
            arguments at its start, with its results at its end, and of what the stage
            keeps of the micro-batch after it, by kind.
        itemsize: the bytes of one number among the gradients.
        accumulate: how the sums over micro-batches are made, "tree" or "running", as
            for `Sums`.
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
    """The seconds, the bytes and the messages of an action.

    Args:
        seconds: the time from its start to its end.
        before: the bytes of its arguments.
        held: {kind: bytes held at its end}, its arguments and results as "work".
        sent: the message to the neighbouring stage.
        skips: {name: the message to the other end of a skip connection}.
    """

    seconds: float
    before: int
    held: dict
    sent: object
    skips: dict


def counts_for(stages: int | Cut, layers: Sequence[Layer], loss: Any, sample: Any) -> list[int]:
    """Return the number of layers of each stage.

    Args:
        stages: K; or a `Cut`.
        layers, loss: those of the network.
        sample: a micro-batch (X, Y), for a `Cut` without one.
    """
    cut = stages if isinstance(stages, Cut) else Cut(whole_number("stages", stages, 1))
    return counts_of(replace(cut, sample=sample) if cut.sample is None else cut, layers, loss)


def one_micro_batch(
    stages: Sequence[Stage], pattern: str, X: Any, Y: Any
) -> dict[tuple[str, int], Performed]:
    """Return {(kind, stage): Performed} of a micro-batch on which each stage does the actions of `pattern`.

    Args:
        stages: the `Stage`s of a network.
        pattern: the kinds of their actions in order.
        X, Y: the samples, for stage 0, and their labels, for the last stage.
    """
    performed, on_the_way = {}, dict[tuple, Any]()  # on_the_way: by skip connections
    line = MicroBatches([(X, Y)], 1, step=0)
    for stage in stages:
        stage.begin(line, recomputed=[(stage.index, 0)] if "R" in pattern else ())
    for kind in pattern:
        rule, incoming = RULES[kind], None
        for stage in stages if rule.way > 0 else reversed(stages):
            ends = [(rule.message, layer.join if rule.way > 0 else layer.fork) for layer in stage.layers]
            arguments = incoming, {end[1]: on_the_way.pop(end) for end in ends if end in on_the_way}
            before = _held(stage, arguments)["work"]
            begin = time.perf_counter()
            result = run_alone(stage.act(Action(kind, stage.index, 0), *arguments))
            seconds = time.perf_counter() - begin
            held = _held(stage, (arguments, result))
            sent, skips = result
            performed[kind, stage.index] = Performed(seconds, before, held, sent, skips)
            incoming = received(sent)
            on_the_way |= {(rule.message, name): received(array) for name, array in skips.items()}
    return performed


def _held(stage, work):
    return bytes_by_kind(Holdings([stage])() | {"work": work})


def received(sent: Any) -> Any:
    """Return copies of a message's arrays, as its receiver gets them."""
    if sent is None or isinstance(sent, tuple):
        return sent and tuple(map(received, sent))
    return sent.copy()


def footprint(
    stage: Stage, performed: dict[str, dict[tuple[str, int], Performed]], optimizer: Any, start: int
) -> Footprint:
    """Return the `Footprint` of a stage that has just computed the gradients of a micro-batch.

    Args:
        stage: the `Stage`.
        performed: {pattern: the result of `one_micro_batch`}.
        optimizer: an optimizer, whose state counts, too; or None.
        start: the index of the stage's first layer in the network.
    """
    by_kind = {
        pattern: {kind: actions[kind, stage.index] for kind in pattern}
        for pattern, actions in performed.items()
    }
    pattern, actions = next(iter(by_kind.items()))
    back = next(kind for kind in pattern if RULES[kind].way < 0)  # B or I
    messages = {"F": actions["F"], "B": actions[back]}
    state = 0
    if optimizer is not None:  # the state of a fresh one after an update of a copy of the stage
        optimizer = optimizer.fresh()
        optimizer.update([layer.copy() for layer in stage.layers], stage.gradients())
        state = bytes_by_kind({"optimizer state": optimizer.memory})["optimizer state"]
    return Footprint(
        parameters=actions["F"].held["parameters"],
        optimizer_state=state,
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
            for place, (layer, (dW, _)) in enumerate(zip(stage.layers, stage.gradients()), start)
            if layer.tie
        },
        actions={
            pattern: {
                kind: (done.before, done.held["work"], {name: done.held[name] for name in KEPT})
                for kind, done in actions.items()
            }
            for pattern, actions in by_kind.items()
        },
    )


def footprints_of(
    stages: Sequence[Stage], performed: dict[str, dict[tuple[str, int], Performed]], optimizer: Any
) -> list[Footprint]:
    """Return the `Footprint` of each stage. Arguments: see `footprint`."""
    starts = accumulate([0, *(len(stage.layers) for stage in stages)])
    return [footprint(stage, performed, optimizer, start) for stage, start in zip(stages, starts)]


def n_bytes_of(sent: Any) -> int:
    """Return the bytes of a message, with nested arrays."""
    return sum(array.nbytes for array in leaves(sent))


def footprints(
    layers: Sequence[Layer], loss: Any, stages: int | Cut, input_shape: Sequence[int], m: int,
    dtype: Any = "float64", optimizer: Any = None, patterns: Sequence[str] = PATTERNS,
) -> list[Footprint]:
    """Return the `Footprint` of each stage for micro-batches of m samples: a list for `simulate`.

    They have the bytes at the start and the end of each action, without temporary arrays
    in between. `measure` finds the same bytes. Here no parameter is drawn and no array
    allocated, so the network may be larger than this computer's memory: the layers' own
    forward and backward work with arrays that have a shape and no numbers, see
    `minipipe.meta`.

    Gradients are summed along the tree; `footprint._replace(accumulate="running")` is
    for sums in one buffer, as for `Sums`. A network with a `grain` keeps more sums than
    this.

    Args:
        layers: a list of layers.
        loss: an object, such as MeanSquaredError(): a backward begins at the loss.
        stages: K, the number of stages that the layers are cut into; or a `Cut`, which
            needs no sample; by="time" needs numbers, and is refused.
        input_shape: the shape of one sample, such as (64,) or (3, 32, 32).
        m: the samples of a micro-batch.
        dtype: the dtype of the parameters and of X.
        optimizer: an optimizer, whose state after its first update counts, too; or
            None.
        patterns: the orders of actions that a micro-batch may go through on a stage;
            fewer take less time.

    Raises:
        ValueError: an argument does not fit, or a layer needs numbers.

    >>> from minipipe.layers import Linear
    >>> from minipipe.losses import MeanSquaredError
    >>> layers = [Linear(10**6, 10**6), Linear(10**6, 1)]
    >>> huge = footprints(layers, MeanSquaredError(), 2, (10**6,), m=8, dtype="float32")
    >>> [footprint.parameters / 1e12 for footprint in huge]       # terabytes: 4 * (10**12 + 10**6)
    [4.000004, 4.000004e-06]
    >>> from minipipe.order import simulate
    >>> from minipipe.schedules import gpipe
    >>> simulate(gpipe(2, 4), footprints=huge).peak_bytes()       # on device 0, W and two partial sums of dW
    [12000076000000, 136000104]
    >>> huge = [footprint._replace(accumulate="running") for footprint in huge]
    >>> simulate(gpipe(2, 4), footprints=huge).peak_bytes()       # W and one sum of dW
    [8000136000000, 136000104]
    """
    patterns = [one_of("patterns", pattern, PATTERNS) for pattern in listed("patterns", patterns)]
    layers, m = checked_layers(layers), whole_number("m", m, 1)
    if isinstance(loss, (type, Layer)) or not hasattr(loss, "backward"):
        raise ValueError(
            f"loss is {shown(loss)}, but a backward begins at the loss: pass one, such as MeanSquaredError()"
        )
    if isinstance(stages, Cut) and isinstance(stages.by, str) and stages.by == "time":
        raise ValueError(
            "by='time' measures, which takes numbers: use by='macs', or Cut(counts), with the list of counts "
            "that `partition` has found"
        )
    if optimizer is not None:
        checked_optimizer(optimizer)
    dtype = floats(dtype)
    description, loss = describe(layers, tuple(input_shape), dtype), copy.copy(loss)

    def sample(m):
        X = MetaArray((*description.input_shape, m), dtype)
        if layers[0].takes == "tokens":  # an embedding reads their numbers
            X = np.zeros(X.shape)
        return X, MetaArray((*description.rows[-1].output_shape, m), dtype)

    counts = counts_for(stages, layers, loss, sample(1))
    layers = [layer.copy(dtype.type) for layer in layers]
    of_stages = stages_of(cut_into_stages(layers, counts), loss)
    no_numbers: Any = NoNumbers()
    try:
        for layer in layers:
            layer.initialize(no_numbers, dtype)
        performed = {pattern: one_micro_batch(of_stages, pattern, *sample(m)) for pattern in patterns}
    except (TypeError, AttributeError, IndexError) as error:
        raise ValueError(
            f"a layer or the loss cannot be counted without numbers: {error}. Use functions that arrays "
            "without numbers know, see minipipe.meta, or mp.measure, which runs the layers with numbers"
        ) from error
    return footprints_of(of_stages, performed, optimizer)


class NoNumbers:
    """A generator of random numbers that draws none."""

    def standard_normal(self, size: Any = (), dtype: Any = "float64") -> MetaArray:
        return MetaArray(size, dtype)

    def __getattr__(self, name):
        return getattr(np.random.default_rng(0), name)


class Measured(NamedTuple):
    """The result of `measure`: `Costs` in seconds, and a `Footprint` for each stage."""

    costs: Costs
    footprints: list


def measure(
    layers: Sequence[Layer], loss: Any, stages: int | Cut, X: Any, Y: Any, dtype: Any = None,
    optimizer: Any = None, rounds: int = 5, at_once: int = 1,
) -> Measured:
    """Measure the seconds and bytes of a micro-batch in the stages of a network; return `Measured`.

    `simulate(schedule, measured.costs, link, measured.footprints)` then predicts how
    long a schedule with any number of such micro-batches takes, and how many bytes each
    device holds.

    Args:
        layers, loss: those of the network.
        stages: K, the number of stages that the layers are cut into; or a `Cut`, which
            needs no sample.
        X, Y: the micro-batch, (n[0], m) and (n[L], m).
        dtype: as for `Network`.
        optimizer: an optimizer, whose state counts, too; or None.
        rounds: how often each action is timed, in each order that it occurs in (such as
            F B, or F R I W); its time is the median.
        at_once: how many threads measure at the same time, each a network of its own; the
            seconds are their mean. Cores share the memory of a computer, so each is
            slower while the others work, as in a run.

    >>> import numpy as np
    >>> from minipipe.layers import Linear
    >>> from minipipe.losses import MeanSquaredError
    >>> layers, X, Y = [Linear(3, 2), Linear(2, 1)], np.ones((3, 4)), np.ones((1, 4))
    >>> measured = measure(layers, MeanSquaredError(), 2, X, Y)
    >>> measured.footprints[0].parameters, measured.costs.message_bytes  # 8 (2 * 3 + 2), and 8 * 2 * 4
    (64, [64, 0])
    """
    rounds, at_once = whole_number("rounds", rounds, 1), whole_number("at_once", at_once, 1)
    if optimizer is not None:
        checked_optimizer(optimizer)
    if at_once > 1:
        losses = [copy.copy(loss) for _ in range(at_once)]  # each network copies the layers itself
        setting = stages, X, Y, dtype, optimizer, rounds
        with computing(), ThreadPoolExecutor(at_once) as threads:
            of_threads = list(threads.map(lambda own: measure(layers, own, *setting), losses))
        return Measured(mean_of([one.costs for one in of_threads]), of_threads[0].footprints)
    network = Network(layers, loss, dtype=dtype)
    X, Y = network.checked_batch(X, Y)
    counts = counts_for(stages, network.layers, loss, (X, Y))
    own_loss: Any = network.loss
    alone = stages_of(cut_into_stages(network.layers, counts), own_loss)
    seconds = defaultdict(list)
    for _ in range(rounds):
        with computing():
            performed = {pattern: one_micro_batch(alone, pattern, X, Y) for pattern in PATTERNS}
        for actions in performed.values():
            for place, action in actions.items():
                seconds[place].append(action.seconds)
    times: Any = {kind: [median(seconds[kind, stage]) for stage in range(len(alone))] for kind in TIMED_KINDS}
    of_stages = footprints_of(alone, performed, optimizer)
    sent = [of_stage.sent["F"] for of_stage in of_stages]
    return Measured(Costs(**times, message_bytes=sent, unit=SECONDS), of_stages)


def mean_of(several: Sequence[Costs]) -> Costs:
    """Return the mean of several `Costs` that were measured at the same time."""
    by_kind = {kind: zip(*(getattr(one, kind) for one in several)) for kind in TIMED_KINDS}
    times: Any = {kind: list(map(fmean, seconds)) for kind, seconds in by_kind.items()}
    return Costs(**times, message_bytes=several[0].message_bytes, unit=SECONDS)
