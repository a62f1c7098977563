"""The kinds of work, what each needs and gives, and the actions of an order."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from ..checks import shown

MOST_ACTIONS = 4_000_000  # actions of a schedule, on all devices: a run of them takes gigabytes


# What can have been done on a stage for a micro-batch, as bits of one number.
FORWARD, INPUT, WEIGHT, AGAIN, SUMMED, UPDATED = 1, 2, 4, 8, 16, 32


class Rule(NamedTuple):
    """The rule of one kind of action.

    Args:
        name: its name in a sentence.
        needs, forbids: what must, and what must not, have been done on its stage for
            its micro-batch, as bits.
        adds: what has been done after it, as bits.
        way: where its message goes: 1, to the next stage; -1, to the one before; 0,
            nowhere.
        message: the kind in the label of its message. An I has the messages of a B, so
            that a receiver need not know whether the backward is in halves.
        alive: how many more micro-batches are alive on its device after it.
        meets: whether it only starts an exchange, which ends when all devices with the
            stage have started it.
        whole: in an order with `S`, whether its device must have all of the stage's
            parameters before it (True), or only its own shard (False); None: either.
        leaves: whether the device has all of them after it, or only its own shard;
            None: as before.
    """

    name: str
    needs: int
    forbids: int
    adds: int
    way: int = 0
    message: str = ""
    alive: int = 0
    meets: bool = False
    whole: bool | None = None
    leaves: bool | None = None

    @property
    def handed_on(self) -> int:
        """The bits that its message reports as done; the next stage waits for them."""
        return self.adds & (FORWARD | INPUT)


# What each kind of action needs, forbids, adds and sends is written here alone.
RULES = {
    "F": Rule("forward", 0, FORWARD, FORWARD, way=1, message="F", alive=1, whole=True),
    "B": Rule(
        "backward", FORWARD, INPUT | WEIGHT, INPUT | WEIGHT, way=-1, message="B", alive=-1, whole=True
    ),
    "I": Rule("input gradient", FORWARD, INPUT | WEIGHT, INPUT, way=-1, message="B", whole=True),
    "W": Rule("weight gradient", INPUT, WEIGHT, WEIGHT, alive=-1, whole=True),
    "R": Rule("recomputation", FORWARD, INPUT | AGAIN, AGAIN, whole=True),
    "A": Rule("all-reduce", WEIGHT, SUMMED | UPDATED, SUMMED, meets=True),
    "S": Rule("reduce-scatter", WEIGHT, SUMMED | UPDATED, SUMMED, meets=True),
    "U": Rule("update", WEIGHT, UPDATED, UPDATED, leaves=False),
    "G": Rule("gather", 0, 0, 0, meets=True, whole=False, leaves=True),
    "X": Rule("freeing of parameters", 0, 0, 0, whole=True, leaves=False),
}

# The kinds without work on a micro-batch: they sum, apply or move gradients or parameters of a stage.
CLOSING = frozenset(
    kind for kind, rule in RULES.items() if not rule.adds & (FORWARD | INPUT | WEIGHT | AGAIN)
)

# The kinds that a device may have several times with one name.
REPEATED = frozenset(kind for kind, rule in RULES.items() if not rule.adds)

# The kinds that start an exchange between the devices that have a stage.
MEETING = frozenset(kind for kind, rule in RULES.items() if rule.meets)


def adding(bits: int, kinds: Iterable[str] = RULES) -> list[str]:
    """Return the kinds among `kinds` that add any of `bits`."""
    return [kind for kind in kinds if RULES[kind].adds & bits]


def before(
    kind: str, stage: int, microbatch: int, kinds: Iterable[str] = RULES
) -> list[tuple[str, int, int]]:
    """Return what an action waits for, as [(kind, stage, micro-batch)].

    The actions of its own stage come first, then those that send it a message, also
    from a stage before the first or after the last.

    Args:
        kind, stage, microbatch: of the action.
        kinds: those of the order. With whole and halved backwards, both are listed: one
            of them is enough.

    >>> before("I", 2, 0, "FIW")
    [('F', 2, 0), ('I', 3, 0)]
    """
    rule = RULES[kind]
    own = [(other, stage, microbatch) for other in adding(rule.needs, kinds)]
    senders = [other for other in kinds if rule.way and RULES[other].message == rule.message]
    return own + [(other, stage - rule.way, microbatch) for other in senders]


# The actions, and how they are written.

class Fault(str):
    """A sentence about one fault of an order, with its place.

    Args:
        words: the sentence.
        device: the device whose line is wrong; None if not one device alone.
        position: the index of the wrong action in this line; None if one is missing.
    """

    device: int | None
    position: int | None

    def __new__(cls, words: str, device: int | None = None, position: int | None = None) -> "Fault":
        fault = super().__new__(cls, words)
        fault.device, fault.position = device, position
        return fault


class ScheduleError(ValueError):
    """A schedule cannot be read, or cannot run; the message lists its faults.

    Args:
        message: the text of the error.
        faults: all `Fault`s, if it is about single actions.
    """

    def __init__(self, message: str, faults: Iterable[Fault] = ()) -> None:
        super().__init__(message)
        self.faults = list(faults)


class ScheduleWarning(UserWarning):
    """Cells of a table are left out, or PyTorch cannot run it."""


class Action(NamedTuple):
    """A piece of work: `2F0` is the forward of micro-batch 0 on stage 2, as in PyTorch.

    Args:
        kind: what each needs and gives is in `RULES`.
            "F" forward;
            "B" backward, or its halves "I" (the gradient of the stage's input) and "W"
            (of its weights);
            "R" recompute the forward for a backward that follows;
            "A" start the all-reduce of the stage's gradients over all replicas;
            "S" start the reduce-scatter: as "A", but each device keeps only its own
            shard of the sum;
            "U" update the stage's weights; after an "S", those of the device's shard;
            "G" start the gather of the parameters from the shards of all devices;
            "X" free the stage's parameters, all but the device's own shard.
        stage: the part of the network, counted from 0.
        microbatch: counted from 0. `A`, `S`, `U`, and a `G` after a `U`, include all
            micro-batches since the stage's last update, and have the last one's number.
    """

    kind: str
    stage: int
    microbatch: int

    @property
    def parts(self) -> tuple["Action", ...]:
        """This `Action` alone, where an `Overlap` has two."""
        return (self,)

    @property
    def alive(self) -> int:
        """How many more micro-batches are alive on its device after it."""
        rule = RULES.get(self.kind)
        return 0 if rule is None else rule.alive

    def __str__(self):
        return f"{self.stage}{self.kind}{self.microbatch}"


class Overlap(NamedTuple):
    """A forward and a backward that one device runs at once: one sends, one computes.

    Both begin together and end together. Written `0F5&3B2`. Source: DeepSeek-V3, arXiv
    2412.19437, section 3.2.1.

    >>> overlap = Overlap(Action("F", 0, 5), Action("B", 3, 2))
    >>> str(overlap), overlap.kind, overlap.alive
    ('0F5&3B2', 'F&B', 0)
    """

    forward: Action
    backward: Action

    kind = "F&B"  # type: ignore[misc]  # a constant of the class, not a field, which Python allows

    @property
    def parts(self) -> tuple[Action, ...]:
        """The `Action`s that this one consists of: the forward and the backward."""
        return tuple(self)

    @property
    def alive(self) -> int:
        """How many more micro-batches are alive on its device after it."""
        return self.forward.alive + self.backward.alive

    def __str__(self):
        return f"{self.forward}&{self.backward}"


def parse(word: str, device: int) -> Action | Overlap:
    """Return the action that `word` stands for; raise `ScheduleError` for no action.

    Args:
        word: one action, such as "2F0", or an overlap of two.
        device: the stage of an action where the word has none.

    >>> parse("F0", 2), str(parse("0F5&3B2", 0))
    (Action(kind='F', stage=2, microbatch=0), '0F5&3B2')
    """
    parts = [_parse_part(part, word, device) for part in word.split("&")]
    if len(parts) == 1:
        return parts[0]
    if [part.kind for part in parts] != ["F", "B"]:
        raise ScheduleError(
            f"device {device}: {shown(word)} is not an overlap: write a forward & a backward, such as 0F5&3B2"
        )
    return Overlap(*parts)


def _parse_part(part, word, device):
    match = re.fullmatch(r"(\d{0,9})([A-Za-z])(\d{1,9})", part, re.ASCII)
    if not match or match[2].upper() not in RULES:
        raise ScheduleError(
            f"device {device}: {shown(word)} is not an action: "
            f"write {', '.join(kind + '0' for kind in RULES)}, 2F0 for stage 2, or 0F5&3B2 for an overlap"
        )
    stage, kind, microbatch = match.groups()
    return Action(kind.upper(), int(stage) if stage else device, int(microbatch))


def listing(faults: Iterable[str]) -> str:
    """Return `faults`, one line for those of a kind: the first, and how many more.

    Faults are of one kind if they differ only in numbers, actions and quoted words.

    >>> print(listing(["device 0 is slow", "device 1 is slow", "stage 1 is lost"]))
    - device 0 is slow (and 1 more like it)
    - stage 1 is lost
    """
    kinds: dict[str, list[str]] = {}
    for fault in faults:
        kinds.setdefault(re.sub(r"'[^']*'|\d+[A-Z]\d+|\d+", "#", fault), []).append(fault)
    lines = []
    for first, *others in kinds.values():
        lines.append(f"- {first} (and {len(others)} more like it)" if others else f"- {first}")
    return "\n".join(lines)
