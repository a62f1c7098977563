"""A schedule as the table that PyTorch reads and writes: one row per rank, one cell per time step.

PyTorch 2.13 loads it with `_PipelineScheduleRuntime(...)._load_csv(path)`, and writes one with
`_dump_csv(path, format="compute_only")`. An empty cell is a bubble; two actions that overlap share a cell:

    0F0,0F1,,0B0,,0B1
    ,1F0,1B0,1F1,1B1,           (0F5;3B2)OVERLAP_F_B would be the forward 0F5 with the backward 3B2
"""

import csv
import io
import re

from .actions import Action, Overlap
from .playing import play
from .rules import CLOSING, RULES

EXPECTED = (
    "write 2F0, 2B0, 2I0 or 2W0 for stage 2 and micro-batch 0, (0F1;3B0)OVERLAP_F_B for two at once, nothing "
    "for a bubble"
)
COMMUNICATION = re.compile(r"\d+(SEND_F|RECV_F|SEND_B|RECV_B|UNSHARD|RESHARD|REDUCE_GRAD)\d*", re.ASCII)


def table_text(schedule):
    """The table of a schedule without faults, without its A and U; `ValueError` for what PyTorch lacks."""
    what = remedy = None
    if "R" in schedule.kinds:
        what = "recomputes"
        remedy = "export it without, and recompute inside PyTorch's stages, with torch.utils.checkpoint"
    elif schedule.asynchronous:
        what, remedy = "updates weights on the way", "its schedules are synchronous, so export one of those"
    if what is not None:
        parts = (part for device in range(len(schedule.devices)) for part in schedule.parts(device))
        foreign = next(part for part in parts if part.kind in "RU")
        raise ValueError(
            f"the schedule {schedule.name!r} {what} ({foreign}), for which PyTorch's table has no cell: "
            f"{remedy}"
        )
    rows = [[_cell(action) for action in row] for row in time_steps(schedule)]
    return "".join(",".join(row) + "\n" for row in rows)


def time_steps(schedule):
    """For each device, its actions, with None for every step that it waits, if each takes one step.

    All rows are of one length; A and U have no place in them. The schedule must be one that runs to its end.
    """
    clock = _Clock(len(schedule.devices))
    play(schedule, clock)
    length = max(map(len, clock.rows))
    return [row + [None] * (length - len(row)) for row in clock.rows]


class _Clock:
    """What `play` performs, in steps.

    rows: for each device, what it did in each step.
    sent: (message, stage, micro-batch) -> the step from which on it is there.
    """

    def __init__(self, n_devices):
        self.rows = [[] for _ in range(n_devices)]
        self.sent = {}

    def perform(self, device, action, parts):
        if action.kind in CLOSING:
            return
        row = self.rows[device]
        arrived = [0]
        for kind, stage, i in parts:
            arrived.append(self.sent.get((RULES[kind].message, stage - RULES[kind].way, i), 0))
        row += [None] * (max(arrived) - len(row)) + [action]
        for kind, stage, i in parts:
            if RULES[kind].way:
                self.sent[RULES[kind].message, stage, i] = len(row)

    def meet(self, actions):
        """An all-reduce takes no step."""


def _cell(action):
    if action is None:
        return ""
    return str(action) if len(action.parts) == 1 else f"({';'.join(map(str, action.parts))})OVERLAP_F_B"


def parse_table(text):
    """For each row of `text`, a tuple of its actions. `ValueError` for none, or with all wrong cells."""
    try:
        rows = list(csv.reader(io.StringIO(text.rstrip())))
    except csv.Error as error:
        raise ValueError(f"this is not a table of comma-separated values: {error}") from None
    _refuse_communication(rows)
    devices, malformed = [], []
    for rank, row in enumerate(rows):
        actions = []
        for column, cell in enumerate(row, 1):
            try:
                actions += _actions(cell.strip())
            except ValueError as error:
                malformed.append(f"{_position(rank, column)}: {error}")
        devices.append(tuple(actions))
    if malformed:
        raise ValueError(f"malformed cells: {len(malformed)}; {EXPECTED}:\n- " + "\n- ".join(malformed))
    if not any(devices):
        raise ValueError("the table has no actions: write one row per device, such as 0F0,0F1,0B0,0B1")
    return tuple(devices)


def _position(rank, column):
    return f"row {rank + 1} (rank {rank}), column {column}"


def _refuse_communication(rows):
    """PyTorch's other format, its default, has hundreds of these cells: one sentence says it for all."""
    for rank, row in enumerate(rows):
        for column, cell in enumerate(row, 1):
            if COMMUNICATION.fullmatch(cell.strip()):
                raise ValueError(
                    f"the table contains communication, such as {cell!r} in {_position(rank, column)}: "
                    'have PyTorch dump it with format="compute_only"'
                )


def _actions(cell):
    """The action of a cell in a list, or no action for a bubble."""
    if cell in ("", "None"):
        return []
    if match := re.fullmatch(r"\((.*);(.*)\)OVERLAP_F_B", cell):
        parts = [_action(word.strip(), cell) for word in match.groups()]
        if [part.kind for part in parts] != ["F", "B"]:
            raise ValueError(f"{cell!r} is not one forward with one backward B")
        return [Overlap(*parts)]
    return [_action(cell, cell)]


def _action(word, cell):
    if match := re.fullmatch(r"(\d+)([FBIW])(\d+)", word, re.ASCII):
        stage, kind, microbatch = match.groups()
        return Action(kind, int(stage), int(microbatch))
    raise ValueError(f"{cell!r} is not an action")
