"""The order of work: for each device, the list of its actions."""

import re
from dataclasses import dataclass
from typing import NamedTuple

from .validation import faults


class Action(NamedTuple):
    """One piece of work, written as PyTorch writes it: `2F0` is the forward of micro-batch 0 on stage 2.

    kind: "F" forward, "B" backward, or its halves "I" (the gradient of the stage's input) and "W" (of its weights), and
    "R" recompute the forward for a backward that follows.
    """

    kind: str
    stage: int
    microbatch: int

    def __str__(self):
        return f"{self.stage}{self.kind}{self.microbatch}"


class ScheduleError(ValueError):
    """A schedule that cannot run; the message lists every fault."""


@dataclass(frozen=True)
class Schedule:
    """For each device, in order, the `Action`s that it performs.

    Builders such as `gpipe` make one, and `from_text` reads one; `placement` says on which device each stage is.
    `faults()` lists all that is wrong with it, `validate()` raises `ScheduleError` if that is anything.

    >>> schedule = Schedule.from_text(["F0 F1 B0 B1", "F0 B0 F1 B1"])
    >>> schedule.n_stages, schedule.n_microbatches
    (2, 2)
    >>> print(schedule)
    device 0: 0F0 0F1 0B0 0B1
    device 1: 1F0 1B0 1F1 1B1
    >>> Schedule.from_text(["F0 B0 B1", "F0 B0 F1 B1"]).faults()
    ['device 0 never does 0F1 (missing): every stage needs F and B (or I and W) of micro-batches 0..1']
    """

    devices: tuple[tuple[Action, ...], ...]
    n_stages: int
    n_microbatches: int
    name: str = "custom"

    @classmethod
    def from_text(cls, lines, n_microbatches=None, name="custom"):
        """The schedule of a learner: one line of actions per device.

        lines: a list of strings, or one string with line breaks. An action is `F0`, which stands for the
        stage with the number of its device, or `2F0` with the stage in front. n_microbatches: left out, one
        more than the largest index that occurs. Raises `ScheduleError` for text that is not an action.
        """
        if isinstance(lines, str):
            lines = lines.strip().splitlines()
        devices = tuple(
            tuple(_parse(word, device) for word in line.split()) for device, line in enumerate(lines)
        )
        actions = [action for order in devices for action in order]
        if not actions:
            raise ScheduleError("the schedule has no actions: write one line per device, such as 'F0 F1 B0 B1'")
        far = next((action for action in actions if max(action.stage, action.microbatch) > 100 + len(actions)), None)
        if far is not None:
            raise ScheduleError(f"{far} is out of reach: {len(actions)} actions cannot cover that many stages and micro-batches")
        n_stages = max(len(devices), 1 + max(action.stage for action in actions))
        if n_microbatches is None:
            n_microbatches = 1 + max(action.microbatch for action in actions)
        if not 1 <= n_microbatches <= 101 + len(actions):
            raise ScheduleError(f"n_microbatches={n_microbatches} does not fit a schedule of {len(actions)} actions")
        return cls(devices, n_stages, n_microbatches, name)

    @property
    def placement(self):
        """For each stage, the device that works on it."""
        device_of = {action.stage: device for device, order in enumerate(self.devices) for action in order}
        return [device_of[stage] for stage in range(self.n_stages)]

    def faults(self):
        """Every fault in words, in a list; a schedule with an empty list runs to its end."""
        return faults(self)

    def validate(self):
        """This schedule, or `ScheduleError` with all its faults."""
        found = self.faults()
        if found:
            raise ScheduleError(f"the schedule {self.name!r} cannot run:\n- " + "\n- ".join(found))
        return self

    def __str__(self):
        return "\n".join(f"device {device}: {' '.join(map(str, order))}" for device, order in enumerate(self.devices))


def _parse(word, device):
    match = re.fullmatch(r"(\d*)([A-Za-z])(\d+)", word)
    if not match:
        raise ScheduleError(f"device {device}: {word!r} is not an action: write F0, B0, I0, W0, R0, or 2F0 for stage 2")
    stage, kind, microbatch = match.groups()
    return Action(kind.upper(), int(stage) if stage else device, int(microbatch))
