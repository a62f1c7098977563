"""The plan for a cluster: all ways to split a model, the best, its neighbours."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import gcd, inf
from operator import attrgetter
from os import PathLike
from typing import Any, NamedTuple

from ..checks import one_of, shown, truth, whole_number
from ..cluster import SHOWS
from .hardware import LARGEST, Nodes
from .seconds import step
from .transformer import (
    RECOMPUTATIONS, SAFE, SCHEDULES, Choice, Recipe, Software, Transformer, Way, memory,
)

SIMPLEST_WITHIN = 1.01  # the simplest within this multiple of the fastest time is taken
LARGEST_B = 64  # the most samples of a micro-batch
ENOUGH = 10  # doublings of the nodes that are tried if nothing fits
in_seconds, in_bytes = attrgetter("step"), attrgetter("n_bytes")  # sort keys


@dataclass(frozen=True)
class Estimate(Way):
    """The time and memory of a way to train, by formulas."""

    @cached_property
    def parts(self) -> dict[str, float]:
        """{part: seconds} of a step."""
        return step(self)

    @cached_property
    def memory(self) -> dict[str, float]:
        """{kind: bytes} of the fullest GPU."""
        return memory(self)

    @property
    def step(self) -> float:
        """The seconds of a step."""
        return sum(self.parts.values())

    @property
    def n_bytes(self) -> float:
        """The bytes of the fullest GPU."""
        return sum(self.memory.values())

    @property
    def fits(self) -> bool:
        """Whether `n_bytes` is at most 94 % of the GPU's memory."""
        return self.n_bytes <= SAFE * self.nodes.gpu.memory

    @property
    def tokens_per_second(self) -> float:
        """The tokens per second of all GPUs together."""
        return self.batch * self.model.seq / self.step

    @property
    def mfu(self) -> float:
        """The used share of the specified peak, without recomputation (MFU)."""
        return self.tokens_per_second * self.model.flops_of_token / (self.nodes.n * self.nodes.gpu.peak)


class Neighbour(NamedTuple):
    """Another choice: its difference as `name`, its `Estimate`, and why it loses."""

    name: str
    estimate: Estimate
    reason: str


@dataclass(frozen=True)
class Plan:
    """The answer of `plan`.

    Args:
        best: the `Estimate` of the simplest choice within 1 % of the fastest.
        fastest: the `Estimate` of the fastest choice.
        neighbours: a list of `Neighbour`.
        ways: the number of all choices.
    """

    best: Estimate
    fastest: Estimate
    neighbours: list[Neighbour]
    ways: int

    def plot(self) -> Any:
        """Return a matplotlib `Figure`: parts of a step and kinds of bytes."""
        return SHOWS.load()["plan"](self)

    def save(self, path: str | PathLike) -> None:
        """Write the picture into a file; path: such as "plan.svg" or "plan.png"."""
        SHOWS.load()["save_plan"](self, path)

    def __str__(self):
        best = self.best
        nodes, used = best.nodes, best.n_bytes / best.nodes.gpu.memory
        kinds = ", ".join(f"{kind} {n_bytes / 1e9:.1f}" for kind, n_bytes in best.memory.items() if n_bytes)
        parts = {part: text_of_seconds(x) for part, x in best.parts.items() if x >= 5e-4 * best.step}
        lines = [
            f"{best.model.name}, {best.batch} x {best.model.seq} tokens on "
            f"{nodes.nodes} x {nodes.gpus} {nodes.gpu.name}: the best of {self.ways:,} ways",
            "",
            f"  {best.choice}",
            f"  {text_of_seconds(best.step)} s a step, {best.tokens_per_second:,.0f} tokens/s, "
            f"MFU {best.mfu:.1%}, {best.n_bytes / 1e9:.0f} GB ({used:.0%})",
            "",
            f"  GB: {kinds}",
            f"  seconds: {', '.join(f'{part} {x}' for part, x in parts.items())}",
            "",
            *(f"  {neighbour.name:22}{neighbour.reason}" for neighbour in self.neighbours),
        ]
        return "\n".join(lines)


def text_of_seconds(x: float) -> str:
    """Return `x` seconds as text, with three or four digits."""
    return f"{x:.4g}" if x < 1 else f"{x:.2f}" if x < 100 else f"{x:,.0f}"


def estimate(
    model: Transformer, nodes: Nodes, batch: int, choice: Choice, recipe: Recipe = Recipe(),
    software: Software = Software(),
) -> Estimate:
    """Return the `Estimate` of one choice, whether it fits or not.

    Args:
        model: a `Transformer`, such as MODELS["llama-7b"].
        nodes: the `Nodes`.
        batch: samples of a step, of all replicas: D b M.
        choice: the `Choice`.
        recipe: the `Recipe`, the bytes of each parameter.
        software: the `Software`.

    Raises:
        ValueError: the model, the nodes or the batch does not allow the choice.

    >>> from minipipe.planning import GPUS, MODELS, Choice, Nodes
    >>> cluster = Nodes(2, 4, GPUS["h100"], nvlink=450e9, nic=50e9)
    >>> choice = Choice(D=8, T=1, K=1, b=2, M=4, zero=2)
    >>> found = estimate(MODELS["llama-7b"], cluster, 64, choice)
    >>> round(found.n_bytes / 1e9), round(found.step, 2)
    (67, 2.91)
    """
    batch = checked_arguments(model, nodes, batch, recipe, software)
    return Estimate(model, nodes, batch, checked_choice(model, nodes, batch, choice), recipe, software)


def checked_arguments(
    model: Transformer, nodes: Nodes, batch: int, recipe: Recipe, software: Software
) -> int:
    """Return the batch; raise `ValueError` for an argument of the wrong type.

    Args:
        model, nodes, batch, recipe, software: as for `estimate`.
    """
    kinds = {"model": Transformer, "nodes": Nodes, "recipe": Recipe, "software": Software}
    for (name, kind), value in zip(kinds.items(), (model, nodes, recipe, software), strict=True):
        if not isinstance(value, kind):
            raise ValueError(f"{name}={shown(value)} must be a {kind.__name__}")
    return whole_number("batch", batch, 1, LARGEST)


def checked_choice(model: Transformer, nodes: Nodes, batch: int, choice: Choice) -> Choice:
    """Return `choice` with Python's numbers; raise `ValueError` if it is impossible.

    Args:
        model, nodes, batch, choice: as for `estimate`.
    """
    if not isinstance(choice, Choice):
        raise ValueError(f"choice={shown(choice)} must be a Choice: Choice(D=8, T=1, K=1, b=2, M=4)")
    names = ("D", "T", "K", "b", "M", "v")
    numbers: dict[str, Any] = {name: whole_number(name, getattr(choice, name), 1) for name in names}
    numbers["zero"] = whole_number("zero", choice.zero, 0, 3)
    one_of("schedule", choice.schedule, SCHEDULES)
    one_of("recompute", choice.recompute, RECOMPUTATIONS)
    one_of("inner", choice.inner, ("D", "K"))
    choice = choice._replace(**numbers, sequence=truth("sequence", choice.sequence))
    (D, T, K, b, M), v, layers = choice[:5], choice.v, model.layers
    for holds, sentence in (
        (D * T * K == nodes.n, f"D T K = {D * T * K}, but there are {nodes.n} GPUs: use all of them"),
        (D * b * M == batch, f"D b M = {D * b * M}, but batch={batch}: use M = batch / (D b)"),
        (nodes.gpus % T == 0, f"T={T} must divide the {nodes.gpus} GPUs of a node"),
        (model.kv_heads % T == 0,
         f"T={T} must divide the {model.kv_heads} heads of keys and values: use T={gcd(T, model.kv_heads)}"),
        (layers % (K * v) == 0 or (layers + 2) % (K * v) == 0,
         f"K v = {K * v} divides neither {layers} layers nor {layers + 2}, embedding and logits included: "
         "use other numbers of stages"),
        ((v > 1) == (choice.schedule == "interleaved"),
         f"v={v} with {choice.schedule}: interleaved needs v > 1, and the others v=1"),
        (v == 1 or M % K == 0,
         f"interleaved needs M in multiples of K={K}, not M={M}: use a batch that is a multiple of "
         f"D b K = {D * b * K}, or another schedule"),
        (choice.zero < 2 or K == 1, f"zero={choice.zero} with K={K} is not modelled: use zero=1 or K=1"),
    ):
        if not holds:
            raise ValueError(sentence)
    return choice


def divisors(n: int, most: float = inf) -> list[int]:
    """Return the divisors of n up to `most`, in order."""
    return [i for i in range(1, int(min(n, most)) + 1) if n % i == 0]


def ways_of_split(
    model: Transformer, split: tuple[int, int, int, int, int], gpus: int
) -> Iterator[tuple[str, int, int, str]]:
    """Yield every (schedule, v, zero, inner) for a `model` and nodes of `gpus` GPUs.

    Args:
        model, gpus: the `Transformer`; the GPUs of a node.
        split: (D, T, K, b, M).
    """
    D, T, K, _, M = split
    if K == 1:
        yield from (("1f1b", 1, zero, "D") for zero in range(4 if D > 1 else 1))
        return
    orders = [("1f1b", 1), ("gpipe", 1), ("zb-h1", 1)]
    if M % K == 0:
        orders += [
            ("interleaved", v) for v in range(2, model.layers // K + 1) if are_stages(model.layers, K * v)
        ]
    near = ("D", "K") if D > 1 and T * K <= gpus else ("D",)
    for order, zero, inner in product(orders, range(2 if D > 1 else 1), near):
        yield *order, zero, inner


def are_stages(layers: int, n: int) -> bool:
    """Tell whether n stages can share `layers`, or `layers` + 2, equally."""
    return layers % n == 0 or (layers + 2) % n == 0


def every_way(
    model: Transformer, nodes: Nodes, batch: int, recipe: Recipe, software: Software
) -> list[Estimate]:
    """Return an `Estimate` of every choice: T in a node, stages of equal layers.

    Args:
        model, nodes, batch, recipe, software: as for `estimate`.
    """
    # fused attention keeps no scores, so there is nothing for "selective" to recompute
    recomputations = [name for name in RECOMPUTATIONS if name != "selective" or not software.flash]
    found = []
    for T in divisors(gcd(nodes.gpus, model.kv_heads)):
        for K in divisors(nodes.n // T, model.layers):
            D = nodes.n // T // K
            if batch % D or not are_stages(model.layers, K):
                continue
            for b in divisors(batch // D, LARGEST_B):
                split = D, T, K, b, batch // D // b
                for recompute, way in product(recomputations, ways_of_split(model, split, nodes.gpus)):
                    schedule, v, zero, inner = way
                    choice = Choice(*split, schedule, v, zero, recompute, inner=inner)
                    found.append(Estimate(model, nodes, batch, choice, recipe, software))
    return found


def simplicity(found: Estimate) -> tuple:
    """Return a key of `found` that is smaller for simpler choices."""
    choice = found.choice
    return (
        RECOMPUTATIONS.index(choice.recompute), sum(n > 1 for n in choice[:3]), choice.zero,
        SCHEDULES.index(choice.schedule), choice.v, found.step,
    )


def plan(
    model: Transformer, nodes: Nodes, batch: int, recipe: Recipe = Recipe(), software: Software = Software()
) -> Plan:
    """Return the `Plan`: the best way to train a model, and why its neighbours lose.

    Every choice is priced by formulas; of those within 1 % of the fastest, the simplest
    is the best: less recomputation, fewer axes, lower ZeRO, 1F1B first.

    Args:
        model: a `Transformer`, such as MODELS["llama-7b"].
        nodes: the `Nodes`.
        batch: samples of a step.
        recipe: the `Recipe`, the bytes of each parameter.
        software: the `Software`.

    Raises:
        ValueError: no split divides the batch, or none fits the memory; the message has
            a remedy.
    """
    batch = checked_arguments(model, nodes, batch, recipe, software)
    ways = every_way(model, nodes, batch, recipe, software)
    if not ways:
        raise ValueError(
            f"no way to split batch={batch} and {model.layers} layers on {nodes.n} GPUs: use a batch that is "
            f"a multiple of {nodes.n}, or other numbers of nodes and GPUs"
        )
    fitting = [way for way in ways if way.fits]
    if not fitting:
        raise ValueError(_too_large(min(ways, key=in_bytes)))
    fastest = min(fitting, key=in_seconds)
    best = min((way for way in fitting if way.step <= SIMPLEST_WITHIN * fastest.step), key=simplicity)
    return Plan(best, fastest, neighbours_of(best, ways), len(ways))


def _too_large(smallest):
    """Return the error text: the bytes of the smallest choice, and what would fit."""
    model, nodes, limit = smallest.model, smallest.nodes, SAFE * smallest.nodes.gpu.memory
    rest = smallest.batch, smallest.recipe, smallest.software
    remedy = f"a GPU of {smallest.n_bytes / SAFE / 1e9:.0f} GB"
    for doublings in range(1, ENOUGH + 1):
        more = replace(nodes, nodes=nodes.nodes << doublings)
        if any(way.fits for way in every_way(model, more, *rest)):
            remedy = f"{more.nodes} nodes, or {remedy}"
            break
    return (
        f"{model.name} does not fit on {nodes.nodes} x {nodes.gpus} {nodes.gpu.name}: the smallest way, "
        f"{smallest.choice}, needs {smallest.n_bytes / 1e9:.1f} GB, and {limit / 1e9:.1f} GB may be used; "
        f"use {remedy}"
    )


def neighbours_of(best: Estimate, ways: list[Estimate]) -> list[Neighbour]:
    """Return a `Neighbour` for each single change of the `best` choice.

    The changes are twice or half T, K or b, and T = K = 1, each with the best of all
    other settings; and another schedule, ZeRO level, recomputation or `sequence`, with
    all other settings as they are. A schedule gets its best number of stages a device.

    Args:
        best: an `Estimate`.
        ways: the `Estimate` of every choice.
    """
    choice, same = best.choice, best.choice._asdict()
    names: dict[str, dict[str, Any]] = {"D alone": {"T": 1, "K": 1}} if choice.T * choice.K > 1 else {}
    for axis, size in (("T", choice.T), ("K", choice.K), ("b", choice.b)):
        for changed in (2 * size, size // 2):
            names[f"{axis}={changed}"] = {"T": choice.T, "K": choice.K, axis: changed}
    for schedule in SCHEDULES:
        names[schedule] = {name: same[name] for name in same if name != "v"} | {"schedule": schedule}
    names |= {f"ZeRO-{zero}": same | {"zero": zero} for zero in range(4)}
    names |= {f"recompute {recompute}": same | {"recompute": recompute} for recompute in RECOMPUTATIONS}
    found = []
    for name, fixed in names.items():
        group = [
            way for way in ways
            if way.choice != choice and all(getattr(way.choice, field) == x for field, x in fixed.items())
        ]
        fitting = [way for way in group if way.fits]
        if group:
            other = min(fitting, key=in_seconds) if fitting else min(group, key=in_bytes)
            stages = f" v={other.choice.v}" if name in SCHEDULES and other.choice.v > 1 else ""
            found.append(_neighbour(name + stages, other, best))
    if choice.T > 1:
        other = replace(best, choice=choice._replace(sequence=not choice.sequence))
        found.append(_neighbour("without sequence", other, best))
    return found


def _neighbour(name, found, best):
    """Return a `Neighbour`: which parts take longer, or that it does not fit."""
    if not found.fits:
        return Neighbour(name, found, f"does not fit: {found.n_bytes / 1e9:.0f} GB")
    more = {part: x - best.parts.get(part, 0.0) for part, x in found.parts.items()}
    loudest = sorted(more, key=lambda part: -abs(more[part]))[:3]
    said = [f"{part} {more[part]:+.3g} s" for part in loudest if abs(more[part]) >= 0.002 * best.step]
    words = f"{found.step / best.step - 1:+.1%}: " + (", ".join(said) or "the same but for rounding")
    changed = "" if found.choice[:5] == best.choice[:5] else f" ({found.choice})"
    return Neighbour(name, found, words + changed)
