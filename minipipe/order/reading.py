"""Read a schedule from a name, a text, a file or a function, by `build`."""

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import module_from_spec, spec_from_file_location
from inspect import signature
from pathlib import Path, PurePath

from typing import Any

from ..checks import shown, whole_number
from .actions import RULES, ScheduleError
from .costs import check_number_of_actions
from .csv_format import read_text
from .names import SCHEDULES, name_of, names_having
from .schedule import Schedule, copies_of, lines_of

DEVICES, MICROBATCHES = 4, 8  # the sizes for a name or a function without sizes
TABLE, TEXT, CODE = ".csv", ".txt", ".py"  # the endings of files
KINDS = "|".join(map(re.escape, RULES))
LINE = re.compile(rf"\s*(device \d+:|\d*({KINDS})\d+[\s,&])", re.IGNORECASE)  # the start of a device's line


def build(
    what: object, devices: int | None = None, microbatches: int | None = None, *, stages: int | None = None
) -> Schedule:
    """Return the `Schedule` that `what` describes; all that take a schedule call this.

    Args:
        what: one of these:

            - a name, such as "1f1b", as `name_of` reads it;
            - a `Schedule`;
            - a text with a line for each device, such as "F0 B0", or as a schedule
              prints; or a list with a line, or a list of actions, for each device;
            - a path that ends in ".csv", of a table as PyTorch's pipelining reads and
              writes it, or in ".txt", of a text; the file has the schedule's name;
            - a function (device, K, M), which returns the actions of that device, such
              as [("F", 0), ("F", 1), ("B", 0), ("B", 1)] or ["F0", "F1", "B0", "B1"];
            - a function (K, M), which returns a `Schedule`;
            - "my_pipeline.py:one_f_one_b": the object with this name in that file.
        devices: K. Left out, as many as `what` has; 4 for a name and for a function.
        microbatches: M. Left out, as many as `what` has; 8 for a name and a function.
        stages: instead of `devices`, the stages of a network: a schedule with v stages
            on each device has stages / v devices. A function of K gets stages / v, too.

    Raises:
        ValueError: sizes do not fit, or `what` is not a schedule. An error in your own
            function passes through. The schedule is not validated here, see
            `Schedule.validate`.

    >>> build("zb-v", 4, 8) == build("ZB_V", stages=8, microbatches=8)
    True
    >>> def all_forwards_first(device, K, M):
    ...     return [("F", i) for i in range(M)] + [("B", i) for i in range(M)]
    >>> print(build(all_forwards_first, 2, 3))
    device 0: 0F0 0F1 0F2 0B0 0B1 0B2
    device 1: 1F0 1F1 1F2 1B0 1B1 1B2
    """
    sizes = _checked_sizes(devices, microbatches, stages)
    said = said_by(what)
    if isinstance(said, Schedule):
        return _fitting(said, sizes)
    K = sizes.get("stages", sizes.get("devices", DEVICES))
    M = sizes.get("microbatches", MICROBATCHES)
    check_number_of_actions(2 * K * M)
    return said(K, M) if stages is None else _of_stages(said, K, M)


def said_by(what: Any) -> Any:
    """Return the `Schedule`, or function (K, M) -> `Schedule`, in `what`."""
    if not may_say_a_schedule(what):
        raise ValueError(
            f"{shown(what)} is not a schedule: pass a name, such as '1f1b', a Schedule, a text or a list of "
            "texts, such as ['F0 B0', 'F0 B0'], the path of a .csv or .txt, or a function (device, K, M) "
            "that returns the actions of a device"
        )
    if isinstance(what, Schedule):
        return what
    if isinstance(what, (list, tuple)):
        return Schedule.of_devices(lines_of(what))
    if not isinstance(what, (str, PurePath)):
        if isinstance(what, FromFunction) or registered_name(what):
            return what
        name = getattr(what, "__name__", "custom")
        return FromFunction(what, name, _number_of_parameters(what, name))
    if str(what).lower().endswith((TABLE, TEXT)) or isinstance(what, PurePath):
        return _of_file(Path(what))
    file, ending, name = what.partition(f"{CODE}:")
    if ending or what.endswith(CODE):
        return said_by(_defined_in(Path(file.removesuffix(CODE) + CODE), name))
    is_text = "\n" in what.strip() or LINE.match(what)
    return Schedule.from_text(what) if is_text else SCHEDULES[name_of(what)]


def may_say_a_schedule(what: object) -> bool:
    """Tell whether `what` is of a type that `build` reads."""
    if isinstance(what, (list, tuple)):
        return len(what) > 0 and all(isinstance(line, (str, list, tuple)) for line in what)
    is_function = callable(what) and not isinstance(what, type)
    return is_function or isinstance(what, (Schedule, str, PurePath))


def registered_name(builder: object) -> str | None:
    """Return the name of a `builder` in `SCHEDULES`, or None."""
    return next((name for name, one in SCHEDULES.load().items() if one is builder), None)


# Files.

def _of_file(path):
    """Return the schedule in a table or a text, with the name of the file."""
    if path.suffix.lower() == TABLE:
        return Schedule.from_csv(path)
    if path.suffix.lower() == TEXT:
        text = read_text(path)
        try:
            schedule = Schedule.from_text(text, name=path.stem)
        except ValueError as error:
            raise ScheduleError(f"{path}: {error}", getattr(error, "faults", ())) from None
        copies = copies_of(schedule.devices)
        return replace(schedule, copy_of=copies, n_microbatches=len(copies)) if copies else schedule
    raise ValueError(
        f"{path} is not the file of a schedule: pass a table, which ends in {TABLE}, a text, which ends in "
        f"{TEXT}, or the name of a function in a file, as in 'my_pipeline.py:one_f_one_b'"
    )


def _defined_in(path, name):
    """Run a file of Python, and return its object `name`; `ValueError` without one.

    The file may import others in its folder.
    """
    if not path.is_file():
        raise ValueError(f"cannot read {path}: there is no such file")
    spec = spec_from_file_location(path.stem, path)
    module = module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    if not hasattr(module, name):
        own = [key for key, one in vars(module).items() if getattr(one, "__module__", None) == path.stem]
        names = ", ".join(own) or "what it defines"
        what = f"has no {name!r}" if name else "is a file of Python"
        raise ValueError(f"{path} {what}: write {path}:NAME, and for NAME one of {names}")
    return getattr(module, name)


# Functions.

@dataclass(frozen=True)
class FromFunction:
    """A function (K, M) -> `Schedule` that calls one of yours.

    Args:
        function, name: your function, and its name.
        n_parameters: 3 for a function (device, K, M), 2 for (K, M).
    """

    function: Callable
    name: str
    n_parameters: int

    def __call__(self, K: int, M: int) -> Schedule:
        if self.n_parameters == 3:
            orders = lines_of(
                (self.function(r, K, M) for r in range(K)), lambda r: f"{self.name}({r}, {K}, {M})"
            )
            return Schedule.of_devices(orders, M, self.name)
        schedule = self.function(K, M)
        if not isinstance(schedule, Schedule):
            raise ValueError(
                f"{self.name}({K}, {M}) returns {shown(schedule)}: a function (K, M) returns a Schedule, "
                "such as gpipe(K, M); let one that returns the actions of a device take (device, K, M)"
            )
        return schedule


def _number_of_parameters(function, name):
    """Return the number of arguments that `function` takes: 2 or 3, else an error."""
    for n in (2, 3):
        with suppress(TypeError, ValueError):  # ValueError: its parameters are unknown
            signature(function).bind(*range(n))
            return n
    raise ValueError(
        f"{name} takes other arguments: a schedule is a function (device, K, M) that returns the actions of "
        "a device, or a function (K, M) that returns a Schedule"
    )


# Sizes.

def names_for(
    devices: int | None = None, microbatches: int | None = None, *, stages: int | None = None
) -> list[str]:
    """Return the names of the schedules with a flush that exist for these sizes.

    Args:
        devices, microbatches, stages: as for `build`, which says why others do not.

    >>> everything = names_having(flush=True)
    >>> sorted(set(everything) - set(names_for(4, 7)))
    ['chimera', 'dualpipe', 'dualpipe-v']
    """
    sizes = _checked_sizes(devices, microbatches, stages)
    found = []
    for name in names_having(flush=True):
        try:
            build(name, **sizes)
        except ValueError:  # it does not exist for these sizes
            continue
        found.append(name)
    return found


def _checked_sizes(devices, microbatches, stages):
    """Return {name: size} of the given sizes; raise `ValueError` for wrong ones."""
    if devices is not None and stages is not None:
        raise ValueError(f"devices={devices} and stages={stages} say the same: leave one of them out")
    sizes = {"devices": devices, "microbatches": microbatches, "stages": stages}
    return {name: whole_number(name, size, 1) for name, size in sizes.items() if size is not None}


def _fitting(schedule, sizes):
    """Return `schedule`; raise `ValueError` if it has other sizes than asked for."""
    has = {
        "devices": len(schedule.devices), "microbatches": schedule.n_microbatches, "stages": schedule.n_stages
    }
    wrong = [name for name in sizes if sizes[name] != has[name]]
    if wrong:
        asked = " and ".join(f"{name}={sizes[name]}" for name in wrong)
        real = " and ".join(f"{name}={has[name]}" for name in wrong)
        raise ValueError(
            f"the schedule {schedule.name!r} has {real}, not {asked}: pass {real}, or leave it out"
        )
    return schedule


def _of_stages(builder, stages, microbatches):
    """Return the schedule of a builder for a network of `stages` stages.

    `SCHEDULES` knows the stages per device of its own; for another builder they are
    counted in the schedule that it makes for one stage per device.
    """
    name = registered_name(builder)
    v, deeper = 0, 1 if name is None else SCHEDULES.facts[name].stages_per_device
    while deeper > v:
        v = deeper
        if stages % v:
            below, above = stages - stages % v, stages - stages % v + v
            nearest = f"{below} or {above}" if below else f"{above}"
            raise ValueError(
                f"{name or builder.name!r} puts {v} stages on each device, which stages={stages} does "
                f"not allow: use {nearest}"
            )
        schedule = builder(stages // v, microbatches)
        deeper = schedule.n_stages // max(1, len(schedule.devices))
    return schedule
