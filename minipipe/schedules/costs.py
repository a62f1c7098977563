"""What the actions of a schedule cost."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from numbers import Real


@dataclass(frozen=True)
class Costs:
    """Ticks of each kind of action: a number, or a list with one number per stage.

    F forward, B backward, R recompute, I and W, the halves of a backward, FB a forward and a backward that overlap, U an
    update. R left out is F, since a recompute is a forward again; I and W left out are B / 2 each, and one of them left out
    is B minus the other. FB left out is F of the one stage and B of the other: nothing is gained; a number or a list, by
    the forward's stage, replaces that. U may be 0, which it is where it is left out.

    message_bytes: what a stage sends on to the next one for each micro-batch, and gets back as a gradient, which has the
    same size. Only simulations need it; in a run with arrays, messages have the size that they have.
    all_reduce, U: where they are given, each stage of a synchronous schedule ends with them: an all-reduce (kind "A") of its
    gradients with replicas that are not simulated, and an update.

    >>> Costs.from_text("F=1,B=2.5").table(2)["I"]
    [1.25, 1.25]
    """

    F: float | Sequence[float] = 1
    B: float | Sequence[float] = 2
    R: float | Sequence[float] | None = None
    I: float | Sequence[float] | None = None
    W: float | Sequence[float] | None = None
    FB: float | Sequence[float] | None = None
    U: float | Sequence[float] | None = None
    all_reduce: float | Sequence[float] | None = None
    message_bytes: float | Sequence[float] = 0

    @classmethod
    def from_text(cls, text):
        """Costs from "F=1,B=2"; several numbers for one kind, "F=1/1/3", are its costs stage by stage."""
        names = [field.name for field in fields(cls)]
        costs = {}
        for part in text.split(","):
            name, _, value = part.partition("=")
            name = name.strip()
            if name not in names or name in costs:
                raise ValueError(f"costs {text!r}: {part!r} is not one cost of {', '.join(names)}: write for instance F=1,B=2,R=1")
            numbers = [_number(word, text) for word in value.split("/")]
            costs[name] = numbers[0] if len(numbers) == 1 else numbers
        return cls(**costs)

    def table(self, n_stages):
        """{kind: list of ticks over the stages}, for those that have a cost; `ValueError` for one that no clock can keep."""
        F, B = _per_stage("F", self.F, n_stages), _per_stage("B", self.B, n_stages)
        R = F if self.R is None else _per_stage("R", self.R, n_stages)
        halves = {kind: None if cost is None else _per_stage(kind, cost, n_stages) for kind, cost in (("I", self.I), ("W", self.W))}
        I, W = halves["I"], halves["W"]
        if I is None:
            I = [b / 2 for b in B] if W is None else _per_stage("I = B - W", [b - w for b, w in zip(B, W)], n_stages)
        if W is None:
            W = _per_stage("W = B - I", [b - i for b, i in zip(B, I)], n_stages)
        table = {"F": F, "B": B, "R": R, "I": I, "W": W}
        for kind, name in (("FB", "FB"), ("U", "U"), ("A", "all_reduce")):
            if getattr(self, name) is not None:
                table[kind] = _per_stage(name, getattr(self, name), n_stages, may_be_0=kind != "FB")
        return table

    def duration(self, n_stages):
        """A function: the ticks of an `Action` or `Overlap`."""
        table = {"U": [0] * n_stages} | self.table(n_stages)
        together = table.get("FB")

        def ticks(action):
            if action.kind in table:
                return table[action[0]][action[1]]
            forward, backward = action
            return table["F"][forward.stage] + table["B"][backward.stage] if together is None else together[forward.stage]

        return ticks

    def bytes_sent(self, n_stages):
        """For each stage, the bytes of the message that it sends on."""
        return _per_stage("message_bytes", self.message_bytes, n_stages, may_be_0=True, unit="bytes")


def checked_costs(costs):
    """`costs`; `ValueError` for anything but `Costs`."""
    if not isinstance(costs, Costs):
        raise ValueError(f"costs={costs!r} must be Costs(F=..., B=...), or Costs.from_text('F=1,B=2')")
    return costs


def _per_stage(name, cost, n_stages, may_be_0=False, unit="ticks"):
    costs = list(cost) if hasattr(cost, "__len__") else [cost] * n_stages
    if len(costs) != n_stages:
        raise ValueError(f"{name} has {len(costs)} costs for {n_stages} stages: give one number, or one per stage")
    for stage, cost in enumerate(costs):
        if not (isinstance(cost, Real) and 0 <= cost < math.inf) or (cost == 0 and not may_be_0):
            bound = "of at least 0" if may_be_0 else "above 0"
            raise ValueError(f"{name}={cost} on stage {stage}: a cost is a finite number of {unit} {bound}")
    return costs


def _number(word, text):
    try:
        return int(word)
    except ValueError:
        pass
    try:
        return float(word)
    except ValueError:
        raise ValueError(f"costs {text!r}: {word!r} is not a number: write for instance F=1,B=2.5") from None
