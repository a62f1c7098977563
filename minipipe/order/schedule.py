"""The order of work: for each device, the list of its actions."""

from __future__ import annotations  # a `Schedule` may name itself

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from numbers import Integral
from operator import attrgetter
from os import PathLike
from pathlib import Path
from typing import Any

from ..checks import items_of, listed, shown, write_text
from ..cluster import SHOWS
from .actions import CLOSING, RULES, Action, Fault, Overlap, ScheduleError, listing, parse
from .costs import check_sizes
from .csv_format import parse_table, read_text, table_text
from .faults import faults, is_count, wrong_form


# What the actions alone tell: the number of micro-batches, and the replicas of the network.

def n_microbatches_of(devices: Sequence[Sequence[Action | Overlap]]) -> int:
    """Return one more than the largest micro-batch that several devices have.

    So a single action with too large an index is the fault, not all devices that lack
    it.
    """
    on = _devices_of(devices, lambda part: part.microbatch)
    several = sum(map(bool, devices)) > 1
    return 1 + max([i for i in on if not several or len(on[i]) > 1] or on)


def copies_of(devices: Sequence[Sequence[Action | Overlap]]) -> tuple[int, ...]:
    """Return for each micro-batch its replica of the network; () for one replica.

    Each replica has all stages, each on a device where no other replica has it. If a
    stage is on several devices otherwise, the result is (), and `faults` reports it.
    """
    on = _devices_of(devices, lambda part: (part.microbatch, part.stage))
    n_microbatches, n_stages = (1 + max(place) for place in zip(*on))
    if len(on) < n_microbatches * n_stages or any(len(found) > 1 for found in on.values()):
        return ()
    ways = [tuple(min(on[i, stage]) for stage in range(n_stages)) for i in range(n_microbatches)]
    copies = list(dict.fromkeys(ways))
    if len(copies) == 1 or any(len(set(placed)) < len(copies) for placed in zip(*copies)):
        return ()
    return tuple(map(copies.index, ways))


def _devices_of(devices, what):
    """Return {what(action): the devices that have such an action}."""
    found: dict = {}
    for device, order in enumerate(devices):
        for action in order:
            for part in action.parts:
                found.setdefault(what(part), set()).add(device)
    return found


def lines_of(
    orders: Iterable, name_of_line: Callable[[int], str] = "line {}".format
) -> tuple[tuple[Action | Overlap, ...], ...]:
    """Return for each device the tuple of its actions.

    Args:
        orders: for each device a text, such as "F0 2F0 B0", which may begin with
            "device 0:"; or a list, whose items are `Action`s, words of such a text, or
            ("F", 0) for the device's own stage and ("F", 2, 0) for stage 2.
        name_of_line: a function from a device to the name of its order in errors.

    Raises:
        ScheduleError: some words are not actions; its `faults` has each of them.
    """
    devices: list[list[Action | Overlap]] = []
    faults = []
    for device, order in enumerate(orders):
        is_text, name = isinstance(order, str), name_of_line(device)
        items = re.sub(r"^\s*device \d+:", "", order).split() if is_text else items_of(order)
        if items is None:
            raise ScheduleError(
                f"{name} returns {shown(order)}: return the list of the actions of device {device}, such as "
                '[("F", 0), ("B", 0)]'
            )
        devices.append([])
        for position, item in enumerate(items):
            try:
                devices[device].append(_action(item, device))
            except ScheduleError as error:
                words = str(error) if is_text else (
                    f"device {device}: item {position} of {name} is {shown(item)}, which is not an action: "
                    f'write ("F", 0) or "F0"; ("F", 2, 0) or "2F0" for stage 2; for F also '
                    f"{', '.join([*RULES][1:])}"
                )
                faults.append(Fault(words, device, position))
    if faults:
        several = f"{len(faults)} words are not actions:\n{listing(faults)}"
        raise ScheduleError(faults[0] if len(faults) == 1 else several, faults)
    return tuple(map(tuple, devices))


def _action(item, device):
    """Return the action of a word or list item; raise `ScheduleError` for no action."""
    if isinstance(item, (Action, Overlap)):
        return item
    if isinstance(item, str):
        return parse(item, device)
    kind, *numbers = items_of(item) or [None]
    if kind not in RULES or len(numbers) not in (1, 2) or not all(map(is_count, numbers)):
        raise ScheduleError(f"{shown(item)} is not an action")
    return Action(kind, *[device, *numbers][-2:])


@dataclass(frozen=True)
class Schedule:
    """The order of work: for each device, its `Action`s, and `Overlap`s of two.

    An order may say when a stage's gradients are summed over all replicas (`A`), and
    when the stage is updated (`U`); then it must do so for all stages. If it does not,
    sums and updates come after it.

    Args:
        devices: a tuple of tuples of actions, one for each device.
        n_stages, n_microbatches: the numbers of stages and micro-batches.
        name: its name in pictures and errors.
        copy_of: for each micro-batch, the replica of the network that it passes
            through, 0, 1, ...; replicas may share devices (Chimera) or not (data
            parallelism). Empty: there is one.
        versions: for each stage, the number of updates in the weights with which it
            works on each micro-batch, forward and backward. Empty: each stage works on
            all micro-batches before its first update, as in a synchronous schedule.

    >>> schedule = Schedule.from_text(["F0 F1 B0 B1", "F0 B0 F1 B1"])
    >>> schedule.n_stages, schedule.n_microbatches
    (2, 2)
    >>> print(schedule)
    device 0: 0F0 0F1 0B0 0B1
    device 1: 1F0 1B0 1F1 1B1
    >>> Schedule.from_text("B0 F0").faults()
    ['device 0: 0B0 comes before its forward 0F0']
    """

    devices: tuple[tuple[Action | Overlap, ...], ...]
    n_stages: int
    n_microbatches: int
    name: str = "custom"
    copy_of: tuple[int, ...] = ()
    versions: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        """Turn lists into tuples, NumPy's numbers into Python's; refuse others."""
        devices, versions = (
            [tuple(listed(f"{name}[{k}]", row, 0)) for k, row in enumerate(listed(name, rows, 0))]
            for name, rows in (("devices", self.devices), ("versions", self.versions))
        )
        strange = [one for one in chain(*devices) if not isinstance(one, (Action, Overlap))]
        if strange:
            raise ScheduleError(f"{shown(strange[0])} is not an action: use Schedule.from_text(['F0 B0'])")
        vars(self).update(
            devices=tuple(tuple(map(_plain, order)) for order in devices),
            n_stages=_plain_number(self.n_stages), n_microbatches=_plain_number(self.n_microbatches),
            copy_of=tuple(map(_plain_number, listed("copy_of", self.copy_of, 0))),
            versions=tuple(tuple(map(_plain_number, row)) for row in versions),
        )

    @classmethod
    def from_text(
        cls, lines: str | Sequence[str], microbatches: int | None = None, name: str = "custom",
        copy_of: Sequence[int] = (), versions: Sequence[Sequence[int]] = (),
    ) -> Schedule:
        """Return the schedule in a text, one line of actions a device.

        Args:
            lines: a list of strings, or one string with line breaks. An action is `F0`,
                which stands for the stage with the number of its device, or `2F0` with
                the stage in front, or `0F5&3B2` for two that overlap. A line may begin
                with "device 0:", as a schedule prints it.
            microbatches: left out, one more than the largest index that occurs on
                several devices, if there are several.
            name, copy_of, versions: as for `Schedule`.

        >>> copies = Schedule.from_text(["0F0 0B0 0A0", "0F1 0B1 0A1"], copy_of=(0, 1))     # data parallelism
        >>> copies.n_copies, copies.placements
        (2, [[0], [1]])
        """
        lines = lines.strip().splitlines() if isinstance(lines, str) else listed("lines", lines)
        if not all(isinstance(line, str) for line in lines):
            raise ScheduleError(f"lines={shown(lines)} must be texts, one per device, such as 'F0 F1 B0 B1'")
        return cls.of_devices(lines_of(lines), microbatches, name, copy_of, versions)

    @classmethod
    def from_csv(
        cls, source: str | PathLike, microbatches: int | None = None, name: str | None = None,
        copy_of: Sequence[int] = (),
    ) -> Schedule:
        """Return the schedule in a table that `to_csv` or PyTorch wrote.

        Args:
            source: a path, or the table itself: a string with a comma or a line break.
                One row per device, one cell per time step: `2F0`, `2B0`, `2I0`, `2W0`,
                `(0F1;3B0)OVERLAP_F_B` for two that overlap; an empty cell or `None` is
                a bubble, which a schedule does not keep. Cells of communication are
                left out with a `ScheduleWarning`: PyTorch's tables have them unless
                written by `_dump_csv(path, "compute_only")`.
            microbatches: as for `from_text`.
            name: left out, that of the file without its ending.
            copy_of: as for `Schedule`; if left out, it follows from the devices that
                each micro-batch passes.

        Raises:
            ScheduleError: some cells are not actions, or there is no such file.

        >>> Schedule.from_csv("0F0,,,0B0\\n,1F0,1B0,") == Schedule.from_text(["F0 B0", "F0 B0"])
        True
        """
        is_table = isinstance(source, str) and ("," in source or "\n" in source)
        if not isinstance(source, (str, PathLike)):
            raise ScheduleError(f"source={shown(source)} must be a path, or the table as text")
        text = str(source) if is_table else read_text(source)
        if name is None:
            name = "custom" if is_table else Path(source).stem
        try:
            devices = parse_table(text)
            if not copy_of:
                copies = copies_of(devices)
                copy_of = copies if microbatches in (None, len(copies)) else ()
            return cls.of_devices(devices, microbatches, name, copy_of)
        except ValueError as error:
            raise error if is_table else ScheduleError(f"{source}: {error}") from None

    @classmethod
    def of_devices(
        cls, devices: tuple[tuple[Action | Overlap, ...], ...], microbatches: int | None = None,
        name: str = "custom", copy_of: Any = (), versions: Any = (),
    ) -> Schedule:
        """Return the schedule of `devices`; its sizes are those of the indices in it.

        There are at least as many stages as devices, unless `copy_of` has several
        replicas. `ScheduleError` for no actions, or too few for their indices. For
        microbatches, name and versions see `from_text`.
        """
        copy_of = listed("copy_of", copy_of, 0)
        actions = [part for action in chain(*devices) for part in action.parts]
        if not actions:
            raise ScheduleError(
                "the schedule has no actions: write one line per device, such as 'F0 F1 B0 B1'"
            )
        most = 100 + len(actions)
        far = [action for action in actions if max(action.stage, action.microbatch) > most]
        if far:
            raise ScheduleError(
                f"{far[0]} is out of reach: {len(actions)} actions cannot cover that many stages and "
                "micro-batches"
            )
        n_stages = max(1 + max(action.stage for action in actions), 0 if copy_of else len(devices))
        occur = 1 + max(action.microbatch for action in actions)
        if microbatches is None:
            microbatches = occur if copy_of else n_microbatches_of(devices)
        if not (isinstance(microbatches, Integral) and 1 <= microbatches <= most + 1):
            raise ScheduleError(
                f"microbatches={microbatches!r} does not fit a schedule of {len(actions)} actions: use "
                f"{occur}, or leave it out"
            )
        return cls(devices, n_stages, microbatches, name, copy_of, versions)

    def parts(self, device: int) -> list[Action]:
        """Return the `Action`s of a device in order, with overlaps split."""
        return [part for action in self.devices[device] for part in action.parts]

    @cached_property
    def position_of(self) -> dict[tuple[int, Action], int]:
        """For each (device, `Action`), its last index in the device's line."""
        lines = enumerate(self.devices)
        return {(r, part): at for r, line in lines for at, action in enumerate(line) for part in action.parts}

    def walk(self) -> Iterator[tuple[int, Action, int]]:
        """Yield (device, `Action`, earlier updates of its stage) for each action."""
        for device in range(len(self.devices)):
            updates: Counter = Counter()
            for part in self.parts(device):
                yield device, part, updates[part.stage]
                updates[part.stage] += part.kind == "U"

    @property
    def n_copies(self) -> int:
        """The number of replicas of the network."""
        return 1 + max(self.copy_of, default=0)

    @cached_property
    def copies(self) -> tuple[int, ...]:
        """For each micro-batch, the replica of the network that it passes through."""
        return self.copy_of or (0,) * self.n_microbatches

    @cached_property
    def devices_of(self) -> list[dict[int, set[int]]]:
        """For each replica, {stage: its devices}; several only in a faulty order."""
        found: list[dict[int, set[int]]] = [{} for _ in range(self.n_copies)]
        for device in range(len(self.devices)):
            several, parts = len(found) > 1, self.parts(device)
            for stage, i in {(stage, microbatch if several else 0) for _, stage, microbatch in parts}:
                copy = self.copies[i] if 0 <= i < len(self.copies) else 0
                found[copy].setdefault(stage, set()).add(device)
        return found

    @cached_property
    def device_of(self) -> list[dict[int, int]]:
        """For each replica, {stage: device}; the last of several in a faulty order."""
        return [{stage: max(devices) for stage, devices in found.items()} for found in self.devices_of]

    def holders(self, stage: int) -> list[int]:
        """Return the devices that have a replica of `stage`, in order."""
        return sorted({device_of[stage] for device_of in self.device_of if stage in device_of})

    @cached_property
    def has_copied_stages(self) -> bool:
        """Whether a stage is on several devices, each with a replica of it."""
        return any(len(self.holders(stage)) > 1 for stage in range(self.n_stages))

    @cached_property
    def placements(self) -> list[list[int | None]]:
        """For each replica, its stages' devices; None for a stage without one."""
        if any(wrong_form(self)):
            self.validate()
        return [list(map(device_of.get, range(self.n_stages))) for device_of in self.device_of]

    @property
    def placement(self) -> list[int | None]:
        """For each stage, its device in the first replica."""
        return self.placements[0]

    @cached_property
    def stages_on(self) -> list[int]:
        """For each device, the largest number of stages that one replica has on it."""
        counts = [Counter(placement) for placement in self.placements]
        return [max(1, *(count[device] for count in counts)) for device in range(len(self.devices))]

    @cached_property
    def sharing(self) -> list[int]:
        """For each stage, how many stages share its device, in the first replica."""
        return [1 if device is None else self.stages_on[device] for device in self.placement]

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds of action that occur, those within overlaps too."""
        names = set(map(attrgetter("kind"), chain(*self.devices)))
        return frozenset(kind for name in names for kind in name.split("&"))

    @cached_property
    def recomputed(self) -> frozenset[tuple[int, int]]:
        """The pairs (stage, micro-batch) whose forward is recomputed."""
        return frozenset((part.stage, part.microbatch) for _, part, _ in self.walk() if part.kind == "R")

    @cached_property
    def asynchronous(self) -> bool:
        """Whether some stage works on a micro-batch after an update of its weights."""
        return "U" in self.kinds and any(n and part.kind not in CLOSING for _, part, n in self.walk())

    def faults(self, most_alive: float | Sequence[float] | None = None) -> list[Fault]:
        """Return the faults, as sentences; without any, the schedule can run.

        They name what is unknown or missing, and on each device the first action that
        is in a wrong place.

        Args:
            most_alive: the micro-batches whose activations a device can keep at once: a
                number, or one for each device. Of n stages on a device, each counts
                1/n.
        """
        return faults(self, most_alive)

    def validate(self, most_alive: float | Sequence[float] | None = None) -> Schedule:
        """Return this schedule; raise `ScheduleError` if it has faults.

        Args:
            most_alive: as for `faults`.
        """
        found = self.faults(most_alive)
        if found:
            raise ScheduleError(f"the schedule {self.name!r} cannot run:\n{listing(found)}", found)
        return self

    def to_csv(self, path: str | PathLike | None = None) -> str | None:
        """Return the table that PyTorch's `_load_csv` reads, or write it to `path`.

        A column is a time step, in which each device does one action, or waits: an
        empty cell. All-reduces, updates and the name are left out, since PyTorch has no
        cells for them; `from_csv` takes the name of the file. With several replicas
        there is a `ScheduleWarning`: PyTorch cannot run the table.

        Args:
            path: the file to write; None: return the text.

        Raises:
            ScheduleError: the schedule has faults, has R, or is asynchronous.

        >>> print(Schedule.from_text(["F0 F1 B0 B1", "F0 B0 F1 B1"]).to_csv(), end="")
        0F0,0F1,,0B0,,0B1
        ,1F0,1B0,1F1,1B1,
        """
        self.validate()
        text = table_text(self)
        if path is None:
            return text
        write_text(Path(path), text)
        return None

    def plot(self, ax: Any = None, title: str | None = None) -> Any:
        """Draw its run with the standard costs; return the matplotlib axes.

        Args:
            ax: matplotlib axes; new ones if None.
            title: the title of the picture; the name if None.
        """
        return SHOWS.load()["timeline_of"](self, ax, title)

    def _repr_html_(self):
        """Return the player of its run, or its faults, for Jupyter."""
        return SHOWS.load()["player"](self)

    def _repr_png_(self):
        """Return a picture of its run, for GitHub and exports."""
        return SHOWS.load()["still"](self)

    def __repr__(self):
        return f"<Schedule {self.name!r} of {len(self.devices)} devices, {self.n_stages} stages and "\
               f"{self.n_microbatches} micro-batches>"

    def __str__(self):
        return "\n".join(f"device {r}: {' '.join(map(str, order))}" for r, order in enumerate(self.devices))


def make_schedule(
    name: str, devices: int, microbatches: int, order: Callable[[int], Iterable[Action | Overlap]],
    v: int = 1, copy_of: Any = (), versions: Any = (),
) -> Schedule:
    """Return the `Schedule` in which device r does the actions of `order(r)`.

    Args:
        devices, microbatches: K and M, at least 1 each, else `ValueError`.
        order: the function of a device.
        v: the number of stages on each device.
        name, copy_of, versions: as for `Schedule`.
    """
    devices, microbatches, v = check_sizes(devices, microbatches, v)
    orders = tuple(tuple(order(r)) for r in range(devices))
    return Schedule(orders, v * devices, microbatches, name, copy_of, versions)


def checked_schedule(schedule: Any) -> Schedule:
    """Return `schedule`; raise `ValueError` if it is not a `Schedule`."""
    if not isinstance(schedule, Schedule):
        raise ValueError(
            f"schedule={shown(schedule)} is not a Schedule: pass one, such as build('1f1b', devices, "
            "microbatches)"
        )
    return schedule


def _plain(action):
    """Return an action with Python's numbers; refuse any but whole numbers."""
    if isinstance(action, Overlap):
        return Overlap(*map(_plain, action))
    kind, stage, i = action
    if type(stage) is type(i) is int:
        return action
    if not is_count(stage) or not is_count(i):
        raise ScheduleError(
            f"{kind} of stage {shown(stage)} and micro-batch {shown(i)} is not an action: write whole "
            f"numbers, as in Action({kind!r}, 0, 1)"
        )
    return Action(kind, int(stage), int(i))


def _plain_number(number):
    return int(number) if isinstance(number, Integral) else number
