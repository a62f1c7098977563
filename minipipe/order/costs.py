"""What the actions of a schedule cost, and how large schedules may be."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import partial
from itertools import chain
from numbers import Integral, Rational
from typing import TYPE_CHECKING, Any

from ..checks import checked_name, items_of, one_of, python_number, real_number, shown, whole_number
from ..cluster import TICKS, OneTick
from .actions import CLOSING, MOST_ACTIONS, Action, Overlap

if TYPE_CHECKING:
    from .schedule import Schedule


# Fractions of a device's share of the network, exact where possible.

def divide_exactly(whole: Any, n: int) -> Any:
    """Return `whole` / n: exactly, for whole numbers and fractions."""
    if not isinstance(whole, Integral):
        return whole / n
    return int(whole) // n if whole % n == 0 else Fraction(int(whole), n)


def adds_up_in_floats(number: Any) -> bool:
    """Tell whether 2**23 numbers like `number` add up in floats without rounding.

    Multiples of 1/1024 below 2**20 do: their sum is one of 2**53 multiples of 1/1024.
    """
    return not isinstance(number, Rational) or (1024 % int(number.denominator) == 0 and number < 2**20)


def as_float(number: Any) -> Any:
    """Return a `Fraction` as the equal float if `adds_up_in_floats`, else `number`."""
    return float(number) if isinstance(number, Fraction) and adds_up_in_floats(number) else number


# Checks of sizes and limits, for builders of schedules.

def check_sizes(devices: int, microbatches: int, v: int = 1) -> list[int]:
    """Return [devices, microbatches, v] as Python numbers.

    Raise `ValueError` unless they are whole, at least 1, and make few enough actions.
    """
    named = {"devices": devices, "microbatches": microbatches, "v": v}
    sizes = [whole_number(name, size, 1) for name, size in named.items()]
    check_number_of_actions(2 * math.prod(sizes))
    return sizes


def check_number_of_actions(n: int) -> None:
    """Raise `ValueError` if a schedule of n actions would not fit into memory."""
    if n > MOST_ACTIONS:
        raise ValueError(
            f"a schedule of {shown(n)} actions exceeds the limit of {MOST_ACTIONS:,}: "
            "use fewer devices or micro-batches; a schedule repeats itself long before"
        )


def one_for_each(name: str, value: Any, what: str, n: int, of: str) -> list:
    """Return `value`, one number for all or one for each, as a list of `n`.

    `name`, `what` and `of` are words for the error, such as speeds has 3 numbers for 4
    devices: there `what` is "numbers", and `of` is "device".
    """
    items = items_of(value)
    values = [value] * n if items is None else items
    if len(values) != n:
        raise ValueError(f"{name} has {len(values)} {what} for {n} {of}s: give one number, or one per {of}")
    return values


NO_COSTS = ("unit", "share", "by")  # fields of `Costs` that tell what the costs mean


@dataclass(frozen=True)
class Costs:
    """Ticks of each kind of action: a number for a device's share of work, or a list.

    A number is divided evenly among the stages of a device: F=1 means that each device
    takes a tick for a forward, be it one stage or three of a third of a tick each.
    Whole numbers and fractions are divided exactly.

    Args:
        F, B: forward and backward. B left out is I + W where both are given, else 2.
        R: recompute; left out, it is F.
        I, W: the halves of a backward; left out, each is B / 2. If one is given, the
            other is the rest of B.
        FB: a forward and a backward that overlap, by the forward's stage; left out,
            F + B, so that the overlap saves nothing.
        A: the all-reduce of a stage's gradients over all replicas, on the communication
            lane; left out, 0. An S and a G take the time of their messages.
        U: an update; left out, 0. A and U matter only where the order has such actions.
        message_bytes: the bytes that a stage sends to the next one for each
            micro-batch; the gradient that comes back has the same size. A number is for
            each stage, however many a device has. In a run with arrays, a message has
            the size of its arrays instead.
        unit: the unit of all costs, and of the trace, "ticks" or "seconds".
        share: the share of the forward of the whole network that a device does in one
            tick, see `Trace.tick_is`. Left out, it follows from F, if F is a number:
            F = 1 on 4 devices is 1/4.
        by: "stage": a list has the ticks of each stage. "device": a list has the ticks
            of each device for its share of the network, so that a device can be slow
            even if replicas of a stage are on two devices. message_bytes are always by
            stage.

    >>> Costs.from_text("F=1,B=2.5").table([1, 1])["I"]         # two devices with a stage each
    [1.25, 1.25]
    >>> Costs(F=12.5, I=13, W=9).B
    22
    >>> Costs(F=1, B=2).table([1, 2, 2])["F"], Costs(F=1, B=2).table([3, 3, 3])["F"][0]
    ([1, 0.5, 0.5], Fraction(1, 3))
    """

    F: float | Sequence[float] = 1
    B: float | Sequence[float] | None = None
    R: float | Sequence[float] | None = None
    I: float | Sequence[float] | None = None
    W: float | Sequence[float] | None = None
    FB: float | Sequence[float] | None = None
    A: float | Sequence[float] | None = None
    U: float | Sequence[float] | None = None
    message_bytes: float | Sequence[float] = 0
    unit: str = field(default="ticks", repr=False)
    share: Fraction | None = field(default=None, repr=False)
    by: str = field(default="stage", repr=False)

    def __post_init__(self) -> None:
        for each in fields(self):
            cost = getattr(self, each.name)
            items = items_of(cost)  # made a new list, since the user may change theirs
            cost = _in_python(cost) if items is None else list(map(_in_python, items))
            object.__setattr__(self, each.name, cost)
        if self.B is None:
            object.__setattr__(self, "B", _whole_backward(self.I, self.W))
        one_of("unit", self.unit, ["ticks", "seconds"])
        one_of("by", self.by, ["stage", "device"])
        if self.share is not None:
            share = real_number("share", self.share, above=0, note=" of the network in a tick")
            object.__setattr__(self, "share", _exact(share))
        object.__setattr__(self, "_tables", {})  # a cache for `table`: each run asks for the same one

    @classmethod
    def from_text(cls, text: str) -> Costs:
        """Return the costs in `text`, such as "F=1,B=2" or "F=1/1/3,by=device"."""
        names = [each.name for each in fields(cls) if each.name not in ("unit", "share")]
        costs: dict[str, Any] = {}
        for part in checked_name("costs", text).split(","):
            name, _, value = part.partition("=")
            name = name.strip()
            if name not in names or name in costs:
                raise ValueError(
                    f"costs {text!r}: {part!r} is not one cost of {', '.join(names)}: write for instance "
                    "F=1,B=2,R=1"
                )
            if name == "by":
                costs[name] = value.strip()
                continue
            numbers = [_number(word, text) for word in value.split("/")]
            costs[name] = numbers[0] if len(numbers) == 1 else numbers
        return cls(**costs)

    def table(self, sharing: Iterable[int], others: Iterable[float] = ()) -> dict[str, list]:
        """Return {kind: its ticks on each stage}.

        Raise `ValueError` for ticks that a clock cannot keep.

        Args:
            sharing: for each stage, how many stages share its device,
                `Schedule.sharing`.
            others: the times of links, which will be added to ticks. If a cost or a
                time needs thirds, or is a `Fraction`, all ticks stay fractions;
                otherwise they are floats, which are quicker, and as exact.
        """
        key, tables = (tuple(sharing), frozenset(others)), vars(self)["_tables"]
        if key not in tables:
            tables[key] = self._table(*key)
        return dict(tables[key])

    def _table(self, sharing, others):
        table, n_stages = {}, len(sharing)
        for kind in ("F", "B", "R", "I", "W", "FB", "A", "U"):
            cost = getattr(self, kind)
            if cost is not None or kind in ("F", "B"):
                ticks = _per_stage(kind, cost, n_stages, may_be_0=kind in CLOSING)
                table[kind] = ticks if hasattr(cost, "__len__") else list(map(divide_exactly, ticks, sharing))
        B, I, W = (table.get(kind) for kind in "BIW")
        if I is None:
            I = [divide_exactly(b, 2) for b in B] if W is None else _difference("I = B - W", B, W)
        if W is None:
            W = _difference("W = B - I", B, I)
        table = {"R": table["F"]} | table | {"I": I, "W": W}
        given = [cost for kind in table for cost in _as_list(getattr(self, kind))]
        are_exact = all(map(adds_up_in_floats, chain(*table.values(), others)))  # sums of them as floats
        if not are_exact or any(isinstance(number, Fraction) for number in given):
            return table
        return {kind: list(map(as_float, ticks)) for kind, ticks in table.items()}

    def duration(
        self, schedule: Schedule, others: Iterable[float] = ()
    ) -> Callable[[Action | Overlap], Any]:
        """Return a function from an action to its ticks, which a run calls.

        Args:
            schedule: the `Schedule` of the actions.
            others: as for `table`.
        """
        free: dict[str, list] = {kind: [0] * schedule.n_stages for kind in CLOSING}
        # not a closure: a network that has run can be pickled
        if self.by == "stage":
            return partial(_action_ticks, free | self.table(schedule.sharing, others))
        tables = []
        for placement in schedule.placements:
            sharing = [1 if device is None else schedule.stages_on[device] for device in placement]
            costs = self.by_stage(placement, schedule.stages_on)
            tables.append(free | costs.table(sharing, others))
        return partial(_ticks_in_copies, tables, schedule.copies)

    def by_stage(self, placement: Sequence[int | None], stages_on: Sequence[int]) -> Costs:
        """Return the same costs with lists by stage.

        Args:
            placement: for each stage, its device; None in an order with faults.
            stages_on: for each device, how many stages share it.
        """
        if self.by == "stage":
            return self
        lists: dict[str, Any] = {}
        for name, cost in self._lists().items():
            costs = one_for_each(name, cost, "costs", len(stages_on), "device")
            shares = [divide_exactly(*pair) for pair in zip(costs, stages_on, strict=True)]
            lists[name] = [shares[device or 0] for device in placement]
        return replace(self, by="stage", **lists)

    def _lists(self):
        """Return {name: list} of the costs that are lists."""
        names = [each.name for each in fields(self) if each.name not in (*NO_COSTS, "message_bytes")]
        return {name: getattr(self, name) for name in names if hasattr(getattr(self, name), "__len__")}

    def tick_of(self, sharing: Iterable[int], samples: Any = None, shards: int = 1) -> OneTick | None:
        """Return what a tick is; None for seconds, and for a list F without `share`.

        Args:
            sharing: for each stage, how many stages share its device.
            samples: the samples of a micro-batch, or None.
            shards: how many devices share the work inside each layer.

        >>> print(Costs(F=2).tick_of([2, 2, 1], shards=3))
        1 tick: the forward of 1/12 of the network for a micro-batch
        """
        if self.unit != TICKS or (self.share is None and hasattr(self.F, "__len__")):
            return None
        if self.share is not None:
            return OneTick(self.share, samples)
        n_devices = shards * sum(Fraction(1, n) for n in sharing)
        F = _exact(self.F)
        return OneTick(1 / (F * n_devices), samples, F)

    def even(self, sharing: Iterable[int]) -> Costs | None:
        """Return costs with equal work on each device; None if they are equal already.

        Args:
            sharing: for each stage, how many stages share its device.

        >>> Costs(F=[1, 2, 3]).even([1, 1, 1]).F
        2
        """
        lists = self._lists()
        if all(len(set(cost)) == 1 for cost in lists.values()):
            return None
        n_devices = int(sum(Fraction(1, n) for n in sharing))
        means = {name: as_float(divide_exactly(sum(cost), n_devices)) for name, cost in lists.items()}
        return replace(self, **means)

    def bytes_sent(self, stages: int) -> list:
        """Return for each of the `stages` the bytes of its message to the next one."""
        return _per_stage("message_bytes", self.message_bytes, stages, may_be_0=True, unit="bytes")


def _action_ticks(table, action):
    """Return the ticks of an action. table: {kind: its ticks on each stage}."""
    if action.__class__ is Overlap:
        forward, backward = action[0][1], action[1][1]
        together = table.get("FB")
        return table["F"][forward] + table["B"][backward] if together is None else together[forward]
    kind, stage, _ = action
    return table[kind][stage]


def _ticks_in_copies(tables, copies, action):
    """Return the ticks of an action. tables: for each replica, as `_action_ticks`."""
    if action.__class__ is Overlap and "FB" not in tables[0]:
        return sum(_ticks_in_copies(tables, copies, part) for part in action)
    return _action_ticks(tables[copies[action.parts[0].microbatch]], action)


def checked_costs(costs: Any) -> Costs:
    """Return `costs`; raise `ValueError` for anything but `Costs`."""
    if not isinstance(costs, Costs):
        raise ValueError(f"costs={shown(costs)} must be Costs(F=..., B=...), or Costs.from_text('F=1,B=2')")
    return costs


def _exact(number):
    """Return a number as a `Fraction`: a float as the decimal that it prints as."""
    return Fraction(number if isinstance(number, Rational) else repr(number))


def _as_list(cost):
    return cost if hasattr(cost, "__len__") else [cost]


def _whole_backward(I, W):
    """Return B = I + W, or 2 unless both are given.

    Halves that do not fit each other are refused where they are used.
    """
    if I is None or W is None:
        return 2
    if isinstance(I, list) != isinstance(W, list):
        raise ValueError(f"I={shown(I)} and W={shown(W)}: give two lists, two numbers, or B, too")
    pairs = list(zip(_as_list(I), _as_list(W)))
    if len(_as_list(I)) != len(_as_list(W)) or None in map(python_number, chain(*pairs)):
        return 2
    whole = [i + w for i, w in pairs]
    return whole if isinstance(I, list) else whole[0]


def _difference(name, whole, half):
    return _per_stage(name, [b - part for b, part in zip(whole, half)], len(whole))


def _per_stage(name, cost, n_stages, may_be_0=False, unit="ticks"):
    costs = one_for_each(name, cost, "costs", n_stages, "stage")
    least, above = (0, None) if may_be_0 else (None, 0)
    return [
        real_number(f"stage {stage}: {name}", cost, least, above, note=f" {unit}", clock=True)
        for stage, cost in enumerate(costs)
    ]


def _in_python(cost):
    """Return a number as Python's, and anything else as it is."""
    number = python_number(cost)
    return cost if number is None else number


def _number(word, text):
    for number in (int, float):
        try:
            return number(word)
        except ValueError:
            continue
    raise ValueError(f"costs {text!r}: {word!r} is not a number: write for instance F=1,B=2.5")
