"""The pieces of work of which a schedule is made."""

import re
from typing import NamedTuple

from .rules import RULES, one_of


class ScheduleError(ValueError):
    """A schedule that cannot be read, or cannot run; the message lists every fault."""


class ScheduleWarning(UserWarning):
    """What a reader of a table has left out, or will not be able to run."""


class Action(NamedTuple):
    """One piece of work, written as PyTorch writes it: `2F0` is the forward of micro-batch 0 on stage 2.

    kind: one of these; what each of them needs and gives is in `minipipe.order.rules`.
        "F" forward;
        "B" backward, or its halves "I" (the gradient of the stage's input) and "W" (of its weights);
        "W*" late W: the weight gradients of all micro-batches in one product;
        "R" recompute the forward for a backward that follows;
        "A" start the all-reduce: add up the stage's gradients over all copies of the network;
        "S" start the reduce-scatter: as "A", but each device gets, and keeps, only its own part of the sum;
        "U" update the stage's weights; behind an "S", those of the device's own part;
        "G" start the gather: each device gets the parts of the parameters that the others have;
        "X" free the stage's parameters, all but the device's own part.
    stage: the part of the network, counted from 0.
    microbatch: counted from 0. An `A`, an `S` and a `U` take in the gradients of all micro-batches since the
        stage's last update, of which this one is the last, and so has a `G` behind a `U`; a `W*`
        makes those of all, of which it is the last, too. A `G` and an `X` around the work on a micro-batch
        have its number, each time.
    """

    kind: str
    stage: int
    microbatch: int

    @property
    def parts(self):
        """The `Action`s of which this one is made: itself."""
        return (self,)

    @property
    def alive(self):
        """By how many micro-batches more its device keeps activations after it; 0 for an unknown kind.

        What works on all micro-batches at once has that of one.
        """
        rule = RULES.get(self.kind)
        return 0 if rule is None else rule.alive

    def __str__(self):
        return f"{self.stage}{self.kind}{self.microbatch}"


class Overlap(NamedTuple):
    """A forward and a backward that one device runs at once: while one sends, the other computes.

    Both begin together and end together. Written `0F5&3B2`. Source: DeepSeek-V3, arXiv 2412.19437, section
    3.2.1.

    >>> overlap = Overlap(Action("F", 0, 5), Action("B", 3, 2))
    >>> str(overlap), overlap.kind, overlap.alive
    ('0F5&3B2', 'F&B', 0)
    """

    forward: Action
    backward: Action

    kind = "F&B"

    @property
    def parts(self):
        """The `Action`s of which this one is made: the forward and the backward."""
        return tuple(self)

    @property
    def alive(self):
        """By how many micro-batches more its device keeps activations after it."""
        return self.forward.alive + self.backward.alive

    def __str__(self):
        return f"{self.forward}&{self.backward}"


def parse(word, device):
    """The action that `word` stands for; without a stage, that of the device. `ScheduleError` for others.

    >>> parse("F0", 2), str(parse("0F5&3B2", 0))
    (Action(kind='F', stage=2, microbatch=0), '0F5&3B2')
    """
    parts = [_parse_part(part, word, device) for part in word.split("&")]
    if len(parts) == 1:
        return parts[0]
    if [part.kind for part in parts] != ["F", "B"]:
        raise ScheduleError(
            f"device {device}: {word!r} is not an overlap: write a forward & a backward, such as 0F5&3B2"
        )
    return Overlap(*parts)


def _parse_part(part, word, device):
    match = re.fullmatch(r"(\d{0,9})([A-Za-z]\*?)(\d{1,9})", part, re.ASCII)
    if not match:
        raise ScheduleError(
            f"device {device}: {word!r} is not an action: write {one_of(kind + '0' for kind in RULES)}, 2F0 "
            "for stage 2, or 0F5&3B2 for an overlap"
        )
    stage, kind, microbatch = match.groups()
    return Action(kind.upper(), int(stage) if stage else device, int(microbatch))
