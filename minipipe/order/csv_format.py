"""A schedule as the table that PyTorch reads and writes: a row per rank.

PyTorch 2.13 loads it with `_PipelineScheduleRuntime(...)._load_csv(path)`, and writes
one with `_dump_csv(path, format="compute_only")`. A cell is a time step, an empty one
a bubble; two actions that overlap share a cell, as the forward 0F5 and the backward
3B2 in (0F5;3B2)OVERLAP_F_B:

    0F0,0F1,,0B0,,0B1
    ,1F0,1B0,1F1,1B1,
"""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections import Counter, deque
from importlib import resources
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from ..checks import shown
from .actions import CLOSING, RULES, Action, Overlap, ScheduleError, ScheduleWarning, listing, parse

if TYPE_CHECKING:
    from .costs import Costs
    from .schedule import Schedule

EXPECTED = (
    "write 2F0, 2B0, 2I0 or 2W0 for stage 2 and micro-batch 0, (0F1;3B0)OVERLAP_F_B for two at once, nothing "
    "for a bubble"
)
FOREIGN = {  # kind that PyTorch lacks -> (what a schedule with it does, the remedy)
    "R": ("recomputes", "export it without, and recompute in PyTorch, with torch.utils.checkpoint"),
    "U": ("updates weights on the way", "its schedules are synchronous, so export one of those"),
}
MOST_CHARACTERS = 16_000_000  # in a file: its table takes up to 2.5 GB of memory
ACTION = re.compile(r"\d{1,9}[FBIW]\d{1,9}", re.ASCII)
COMMUNICATION = re.compile(r"\d+(SEND_F|RECV_F|SEND_B|RECV_B|UNSHARD|RESHARD|REDUCE_GRAD)\d*", re.ASCII)


def table_text(schedule: Schedule) -> str:
    """Return the table of a schedule without faults: its F, B, I and W.

    Raise `ScheduleError` for actions that PyTorch lacks.

    Args:
        schedule: the `Schedule`.
    """
    foreign = "R" if "R" in schedule.kinds else "U"
    if foreign != "U" or schedule.asynchronous:
        first = next(part for _, part, _ in schedule.walk() if part.kind == foreign)
        what, remedy = FOREIGN[foreign]
        raise ScheduleError(
            f"the schedule {schedule.name!r} {what} ({first}), for which PyTorch's table has no cell: "
            f"{remedy}"
        )
    if schedule.n_copies > 1:
        warnings.warn(
            f"the schedule {schedule.name!r} has {schedule.n_copies} replicas, and PyTorch has "
            "one: it can read this table, but not run it",
            ScheduleWarning, stacklevel=3,
        )
    def cell(action):
        if action is None:
            return ""
        parts = list(map(str, action.parts))
        return parts[0] if len(parts) == 1 else f"({';'.join(parts)})OVERLAP_F_B"

    return "".join(",".join(map(cell, row)) + "\n" for row in time_steps(schedule))


def script_text(schedule: Schedule, costs: Costs, makespan: float) -> str:
    """Return a script for `torchrun` that runs the table, and prints its timeline.

    Args:
        schedule: a `Schedule` without faults, of one replica.
        costs: the ticks for which stages sleep if the script is asked to.
        makespan: the ticks of the simulated run.

    Raises:
        ScheduleError: PyTorch cannot run the schedule.
    """
    if schedule.n_copies > 1:
        raise ScheduleError(
            f"the schedule {schedule.name!r} has {schedule.n_copies} replicas, and PyTorch runs "
            "one: export an order of one replica"
        )
    ticks = costs.by_stage(schedule.placement, schedule.stages_on).table(schedule.sharing)
    if ticks["B"] != [for_input + for_weight for for_input, for_weight in zip(ticks["I"], ticks["W"])]:
        raise ScheduleError("PyTorch's backward does both halves: give costs with B = I + W")
    words = {
        "TITLE": f"{schedule.name}, {schedule.n_stages} stages, {schedule.n_microbatches} micro-batches,",
        "K": len(schedule.devices), "N_STAGES": schedule.n_stages, "M": schedule.n_microbatches,
        "TICKS": {kind: list(map(float, ticks[kind])) for kind in "FIW"}, "SIMULATED": float(makespan),
        "TABLE": table_text(schedule),
    }
    text = resources.files(__package__).joinpath("run_in_pytorch.txt").read_text(encoding="utf-8")
    return re.sub("@([A-Z_]+)@", lambda found: str(words[found[1]]), text)


def time_steps(schedule: Schedule) -> list[list[Action | Overlap | None]]:
    """Return for each device its actions, one a step, and None where it waits.

    All rows of `schedule`, which has no faults, have the same length. Sums, updates and
    gathers are left out.
    """
    to_do = [deque(action for action in order if action.kind not in CLOSING) for order in schedule.devices]
    rows: list[list] = [[] for _ in to_do]
    sent: set[tuple[str, int, int]] = set()

    def has_heard(part):
        """Tell whether the message that `part` waits for has been sent."""
        kind, stage, i = part
        source = stage - RULES[kind].way
        is_inside = source != stage and 0 <= source < schedule.n_stages
        return not is_inside or (RULES[kind].message, source, i) in sent

    while any(to_do):
        for row, actions in zip(rows, to_do):
            starts = actions and all(map(has_heard, actions[0].parts))
            row.append(actions.popleft() if starts else None)
        # a message can be read in the step after the one that sends it
        done = [part for row in rows if row[-1] for part in row[-1].parts]
        sent.update((RULES[kind].message, stage, i) for kind, stage, i in done)
    return rows


def read_text(path: str | PathLike) -> str:
    """Return the text of the file `path`; raise `ScheduleError` if there is none."""
    path = Path(path)
    if not path.is_file():  # reading a pipe could wait for ever
        raise ScheduleError(
            f"cannot read {path}: there is no such file; schedule.to_csv(path) writes one"
            if not path.is_dir() else f"cannot read {path}: it is a folder, name a file in it"
        )
    try:
        with path.open(encoding="utf-8-sig") as file:
            text = file.read(MOST_CHARACTERS + 1)
    except UnicodeDecodeError:
        raise ScheduleError(
            f"{path} is not a text file in UTF-8: save it as one, as schedule.to_csv(path) does"
        ) from None
    if len(text) > MOST_CHARACTERS:
        raise ScheduleError(
            f"{path} has more than {MOST_CHARACTERS:,} characters: name the file of a smaller schedule"
        )
    return text


def parse_table(text: str) -> tuple[tuple[Action | Overlap, ...], ...]:
    """Return each row's actions of `text`; raise `ScheduleError` for wrong cells."""
    try:
        rows = list(csv.reader(io.StringIO(text.rstrip())))
    except csv.Error as error:
        raise ScheduleError(f"this is not a table of comma-separated values: {error}") from None
    devices: list[list[Action | Overlap]] = [[] for _ in rows]
    malformed, skipped = [], Counter[str]()
    for rank, row in enumerate(rows):
        for column, cell in enumerate(map(str.strip, row), 1):
            if cell in ("", "None"):
                continue
            position = f"row {rank + 1} (rank {rank}), column {column}"
            overlap = re.fullmatch(r"\((.*);(.*)\)OVERLAP_F_B", cell)
            words = [word.strip() for word in overlap.groups()] if overlap else [cell]
            if found := COMMUNICATION.fullmatch(cell):  # PyTorch's default format has hundreds of these
                skipped[found[1]] += 1
            elif not all(ACTION.fullmatch(word) for word in words):
                malformed.append(f"{position}: {shown(cell)} is not an action")
            elif overlap and not ("F" in words[0] and "B" in words[1]):
                malformed.append(f"{position}: {shown(cell)} is not one forward with one backward B")
            else:
                devices[rank].append(parse("&".join(words), rank))
    if malformed:
        raise ScheduleError(f"malformed cells: {len(malformed)}; {EXPECTED}:\n{listing(malformed)}")
    if not any(devices):
        raise ScheduleError("the table has no actions: write one row per device, such as 0F0,0F1,0B0,0B1")
    if skipped:
        counts = ", ".join(f"{n} {kind}" for kind, n in skipped.items())
        warnings.warn(
            f"cells of communication are left out: {counts}; stages send what the others need by themselves",
            ScheduleWarning, stacklevel=3,
        )
    return tuple(map(tuple, devices))
