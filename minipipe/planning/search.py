"""The plan for a cluster: all ways to split a model, the best, and its neighbours."""

from dataclasses import dataclass, replace
from math import gcd, inf
from typing import NamedTuple

from ..checks import one_of, shown, truth, whole_number
from .hardware import LARGEST, Nodes
from .seconds import layer, logits, step
from .transformer import (
    RECOMPUTATIONS, SAFE, SCHEDULES, Choice, Recipe, Software, Transformer, layers_of_stages, memory,
)

SIMPLEST_WITHIN = 1.01  # of the fastest, the simplest is taken
LARGEST_B = 64  # samples of a micro-batch
ENOUGH = 10  # doublings of the nodes that are tried where nothing fits


@dataclass(frozen=True)
class Estimate:
    """What a `Choice` takes; not `minipipe.papers.gpipe.Estimate`.

    model, nodes, batch, choice, recipe, software: what was asked.
    parts: {part: seconds} of a step.
    memory: {kind: bytes} of the fullest GPU.
    """

    model: Transformer
    nodes: Nodes
    batch: int
    choice: Choice
    recipe: Recipe
    software: Software
    parts: dict
    memory: dict

    @property
    def step(self):
        """Seconds of a step."""
        return sum(self.parts.values())

    @property
    def n_bytes(self):
        """Bytes of the fullest GPU."""
        return sum(self.memory.values())

    @property
    def fits(self):
        """Whether these are at most 94 % of the GPU's memory."""
        return self.n_bytes <= SAFE * self.nodes.gpu.memory

    @property
    def tokens_per_second(self):
        """Tokens a second of all GPUs."""
        return self.batch * self.model.seq / self.step

    @property
    def mfu(self):
        """Share of the specified peak, without what is recomputed."""
        return self.tokens_per_second * self.model.flops_of_token / (self.nodes.n * self.nodes.gpu.peak)


class Neighbour(NamedTuple):
    """Another choice: what differs in it, its `Estimate`, and why it loses."""

    name: str
    estimate: Estimate
    reason: str


@dataclass(frozen=True)
class Plan:
    """The answer of `plan`.

    best: the `Estimate` of the simplest choice within 1 % of the fastest.
    fastest: that of the fastest.
    neighbours: a list of `Neighbour`.
    ways: how many choices there are.
    """

    best: Estimate
    fastest: Estimate
    neighbours: list
    ways: int

    def __str__(self):
        best = self.best
        nodes, used = best.nodes, best.n_bytes / best.nodes.gpu.memory
        kinds = ", ".join(f"{kind} {n_bytes / 1e9:.1f}" for kind, n_bytes in best.memory.items() if n_bytes)
        parts = ", ".join(f"{part} {_seconds(x)}" for part, x in best.parts.items() if x >= 5e-4 * best.step)
        lines = [
            f"{best.model.name}, {best.batch} x {best.model.seq} tokens on "
            f"{nodes.nodes} x {nodes.gpus} {nodes.gpu.name}: the best of {self.ways:,} ways",
            "",
            f"  {best.choice}",
            f"  {_seconds(best.step)} s a step, {best.tokens_per_second:,.0f} tokens/s, MFU {best.mfu:.1%}, "
            f"{best.n_bytes / 1e9:.0f} GB ({used:.0%})",
            "",
            f"  GB: {kinds}",
            f"  seconds: {parts}",
            "",
            *(f"  {neighbour.name:22}{neighbour.reason}" for neighbour in self.neighbours),
        ]
        return "\n".join(lines)


def _seconds(x):
    return f"{x:.4g}" if x < 1 else f"{x:.2f}" if x < 100 else f"{x:,.0f}"


def estimate(model, nodes, batch, choice, recipe=Recipe(), software=Software()):
    """Return the `Estimate` of one choice, whether it fits or not.

    Args:
        model: a `Transformer`, such as MODELS["llama-7b"].
        nodes: the `Nodes`.
        batch: samples of a step, of all replicas: D b M.
        choice: the `Choice`.
        recipe: the `Recipe`, bytes a parameter.
        software: the `Software`.

    Raises:
        ValueError: for a choice that the model, the nodes or the batch does not allow.

    >>> from minipipe.planning import GPUS, MODELS, Choice, Nodes
    >>> cluster = Nodes(2, 4, GPUS["h100"], nvlink=450e9, nic=50e9)
    >>> choice = Choice(D=8, T=1, K=1, b=2, M=4, zero=2)
    >>> found = estimate(MODELS["llama-7b"], cluster, 64, choice)
    >>> round(found.n_bytes / 1e9), round(found.step, 2)
    (67, 2.91)
    """
    batch = checked_arguments(model, nodes, batch, recipe, software)
    return _estimate(model, nodes, batch, checked_choice(model, nodes, batch, choice), recipe, software)


def _estimate(model, nodes, batch, choice, recipe, software):
    asked = model, nodes, choice, recipe, software
    return Estimate(model, nodes, batch, choice, recipe, software, step(*asked), memory(*asked))


def checked_arguments(model, nodes, batch, recipe, software):
    """Return the batch; raise `ValueError` for an argument of another kind."""
    kinds = {"model": Transformer, "nodes": Nodes, "recipe": Recipe, "software": Software}
    for (name, kind), value in zip(kinds.items(), (model, nodes, recipe, software), strict=True):
        if not isinstance(value, kind):
            raise ValueError(f"{name}={shown(value)} must be a {kind.__name__}")
    return whole_number("batch", batch, 1, LARGEST)


def checked_choice(model, nodes, batch, choice):
    """Return a `Choice` of Python's numbers; raise `ValueError` for one that cannot be."""
    if not isinstance(choice, Choice):
        raise ValueError(f"choice={shown(choice)} must be a Choice: Choice(D=8, T=1, K=1, b=2, M=4)")
    numbers = {name: whole_number(name, getattr(choice, name), 1) for name in ("D", "T", "K", "b", "M", "v")}
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


def divisors(n, most=inf):
    """Return the divisors of n up to `most`, in order."""
    return [i for i in range(1, int(min(n, most)) + 1) if n % i == 0]


def splits(model, nodes, batch):
    """Yield every (D, T, K, b, M): T in a node, stages of equally many layers."""
    for T in divisors(gcd(nodes.gpus, model.kv_heads)):
        for K in divisors(nodes.n // T, model.layers):
            D = nodes.n // T // K
            if batch % D or (model.layers % K and (model.layers + 2) % K):
                continue
            for b in divisors(batch // D, LARGEST_B):
                yield D, T, K, b, batch // D // b


def ways_of(model, split, recompute, gpus):
    """Yield every `Choice` of one split and recomputation."""
    D, T, K, _, M = split
    if K == 1:
        yield from (Choice(*split, zero=zero, recompute=recompute) for zero in range(4 if D > 1 else 1))
        return
    orders = [("1f1b", 1), ("gpipe", 1), ("zb-h1", 1)]
    if M % K == 0:
        orders += [
            ("interleaved", v) for v in range(2, model.layers // K + 1)
            if model.layers % (K * v) == 0 or (model.layers + 2) % (K * v) == 0
        ]
    near = ("D", "K") if D > 1 and T * K <= gpus else ("D",)
    for schedule, v in orders:
        for zero in range(2 if D > 1 else 1):
            for inner in near:
                yield Choice(*split, schedule, v, zero, recompute, True, inner)


def recomputations(software):
    """Return the recomputations that gain something: fused attention keeps no scores."""
    return [name for name in RECOMPUTATIONS if name != "selective" or not software.flash]


def least_seconds(model, nodes, recipe, software, split, recompute):
    """Return a lower bound: the seconds of M micro-batches on the slowest stage."""
    choice = Choice(*split, recompute=recompute)
    of_layer, of_logits = layer(model, nodes, choice, recipe, software), logits(model, nodes.gpu, choice)
    _, middle, last = layers_of_stages(model, choice)
    t, more = (sum(map(sum, parts.values())) for parts in (of_layer, of_logits))
    return choice.M * max(middle * t if choice.K > 2 else 0.0, last * t + more)


def simplicity(found):
    """Return a key that is smaller for simpler choices."""
    choice = found.choice
    return (
        RECOMPUTATIONS.index(choice.recompute), sum(n > 1 for n in choice[:3]), choice.zero,
        SCHEDULES.index(choice.schedule), choice.v, found.step,
    )


def has(choice, axes):
    """Tell whether a choice has these sizes, {name: size}."""
    return all(getattr(choice, name) == size for name, size in axes.items())


class Search:
    """All ways to split one model, in the order of their least seconds."""

    def __init__(self, model, nodes, batch, recipe, software):
        self.asked = model, nodes, batch, recipe, software
        self.groups = []
        self.ways = 0
        for split in splits(model, nodes, batch):
            for recompute in recomputations(software):
                ways = list(ways_of(model, split, recompute, nodes.gpus))
                self.ways += len(ways)
                self.groups.append((least_seconds(model, nodes, recipe, software, split, recompute), ways))
        self.groups.sort(key=lambda group: group[0])

    def n_bytes(self, choice):
        """Return the bytes of the fullest GPU."""
        model, nodes, _, recipe, software = self.asked
        return sum(memory(model, nodes, choice, recipe, software).values())

    def estimate(self, choice):
        """Return the `Estimate` of one way."""
        model, nodes, batch, recipe, software = self.asked
        return _estimate(model, nodes, batch, choice, recipe, software)

    def leading(self, **axes):
        """Return the `Estimate`s that fit and are within 1 % of the fastest, in order.

        Args:
            axes: sizes that a way must have, such as T=1, K=4.
        """
        limit, found = SAFE * self.asked[1].gpu.memory, []
        fastest = inf
        for least, ways in self.groups:
            if least > SIMPLEST_WITHIN * fastest:
                break
            for choice in ways:
                if has(choice, axes) and self.n_bytes(choice) <= limit:
                    found.append(self.estimate(choice))
                    fastest = min(fastest, found[-1].step)
        found.sort(key=lambda one: one.step)
        return [one for one in found if one.step <= SIMPLEST_WITHIN * fastest]

    def smallest(self, **axes):
        """Return the way with the fewest bytes that has these sizes, or None if there is no way."""
        ways = (choice for _, ways in self.groups for choice in ways if has(choice, axes))
        return min(ways, key=self.n_bytes, default=None)


def plan(model, nodes, batch, recipe=Recipe(), software=Software()):
    """Return the `Plan`: the best way to train a model on nodes, and why its neighbours lose.

    Every way is priced by formulas; of those within 1 % of the fastest, the simplest is
    the best: less recomputation, fewer axes, lower ZeRO, 1F1B first.

    Args:
        model: a `Transformer`, such as MODELS["llama-7b"].
        nodes: the `Nodes`.
        batch: samples of a step.
        recipe: the `Recipe`, bytes a parameter.
        software: the `Software`.

    Raises:
        ValueError: where no split divides the batch, or none fits, with what would.
    """
    batch = checked_arguments(model, nodes, batch, recipe, software)
    search = Search(model, nodes, batch, recipe, software)
    if not search.groups:
        raise ValueError(
            f"no way to split batch={batch} and {model.layers} layers on {nodes.n} GPUs: use a batch that is "
            f"a multiple of {nodes.n}, or other numbers of nodes and GPUs"
        )
    leading = search.leading()
    if not leading:
        raise ValueError(_too_large(search))
    best = min(leading, key=simplicity)
    return Plan(best, leading[0], neighbours_of(search, best), search.ways)


def _too_large(search):
    """Return how many bytes are too many, and what would make the model fit."""
    model, nodes, batch, recipe, software = search.asked
    smallest = search.smallest()
    n_bytes, limit = search.n_bytes(smallest), SAFE * nodes.gpu.memory
    remedy = f"a GPU of {n_bytes / SAFE / 1e9:.0f} GB"
    for doublings in range(1, ENOUGH + 1):
        more = Search(model, replace(nodes, nodes=nodes.nodes << doublings), batch, recipe, software)
        fewest = more.smallest()
        if fewest and more.n_bytes(fewest) <= limit:
            remedy = f"{more.asked[1].nodes} nodes, or {remedy}"
            break
    return (
        f"{model.name} does not fit on {nodes.nodes} x {nodes.gpus} {nodes.gpu.name}: the smallest way, "
        f"{smallest}, needs {n_bytes / 1e9:.1f} GB, and {limit / 1e9:.1f} GB may be used; use {remedy}"
    )


def neighbours_of(search, best):
    """Return a `Neighbour` for twice and half T, K and b, D alone, and other settings.

    Where an axis changes, the rest is the best for it; where a setting changes, the
    rest stays.
    """
    _, T, K, b, *_ = best.choice
    families = [("D alone", {"T": 1, "K": 1})] if T * K > 1 else []
    for name, value in (("T", T), ("K", K), ("b", b)):
        for other in (2 * value, value // 2):
            families.append((f"{name}={other}", {"T": T, "K": K, name: other}))
    found = []
    for name, axes in families:
        leading = search.leading(**axes)
        smallest = None if leading else search.smallest(**axes)
        if leading:
            found.append(_neighbour(name, leading[0], best))
        elif smallest:
            found.append(_neighbour(name, search.estimate(smallest), best))
    for name, choice in settings_beside(search, best.choice):
        found.append(_neighbour(name, search.estimate(choice), best))
    return found


def settings_beside(search, choice):
    """Yield (name, Choice) for every other schedule, ZeRO, recomputation and `sequence`."""
    software = search.asked[4]
    of_split = [
        way for recompute in recomputations(software)
        for way in ways_of(search.asked[0], choice[:5], recompute, search.asked[1].gpus)
    ]
    for name in ("schedule", "zero", "recompute"):
        fields = [name, "v"] if name == "schedule" else [name]
        for way in of_split:
            changed = choice._replace(**{field: getattr(way, field) for field in fields})
            if way == changed and way != choice:
                said = {"zero": f"ZeRO-{way.zero}", "recompute": f"recompute {way.recompute}"}
                yield said.get(name, f"{way.schedule} v={way.v}" if way.v > 1 else way.schedule), way
    if choice.T > 1:
        yield "without sequence", choice._replace(sequence=not choice.sequence)


def _neighbour(name, found, best):
    """Return a `Neighbour` with what it costs more by parts, or that it does not fit."""
    if not found.fits:
        return Neighbour(name, found, f"does not fit: {found.n_bytes / 1e9:.0f} GB")
    more = {part: x - best.parts.get(part, 0.0) for part, x in found.parts.items()}
    loudest = sorted(more, key=lambda part: -abs(more[part]))[:3]
    said = [f"{part} {more[part]:+.3g} s" for part in loudest if abs(more[part]) >= 0.002 * best.step]
    words = f"{found.step / best.step - 1:+.1%}: " + (", ".join(said) or "the same but for rounding")
    changed = "" if found.choice[:5] == best.choice[:5] else f" ({found.choice})"
    return Neighbour(name, found, words + changed)
