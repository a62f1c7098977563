"""What each kind of action needs, forbids, adds and hands on. Whoever wants to know it asks this table."""

from typing import NamedTuple

# What can have been done on a stage for a micro-batch, as bits of one number.
FORWARD, INPUT, WEIGHT, AGAIN, SUMMED, UPDATED = 1, 2, 4, 8, 16, 32


class Rule(NamedTuple):
    """What one kind of action is like.

    name: what a sentence calls it.
    needs, forbids: what must, and what must not, have been done on its stage for its micro-batch.
    adds: what has been done after it.
    way: its result goes to the stage this many stages on, and it waits for one from as many stages before; 0:
        neither.
    message: the kind that its message is called by; a gradient has one name, whether its sender halves the
        backward or not.
    alive: by how many micro-batches more its device keeps activations after it.
    wide: whether it does this for all micro-batches of the mini-batch at once, the last of which names it.
    meets: whether it only starts an exchange, which is over when all devices with the stage have come to it.
    whole: in an order with `S`, whether its device must have all of the stage's parameters before it (True),
        or only its own part (False); None: that does not matter.
    leaves: whether the device has all of them after it, or only its own part; None: as before.
    """

    name: str
    needs: int
    forbids: int
    adds: int
    way: int = 0
    message: str = ""
    alive: int = 0
    wide: bool = False
    meets: bool = False
    whole: bool | None = None
    leaves: bool | None = None

    @property
    def handed_on(self):
        """What its message says has been done, and what it waits for itself; 0: nothing."""
        return self.adds & (FORWARD | INPUT)


RULES = {
    "F": Rule("forward", 0, FORWARD, FORWARD, way=1, message="F", alive=1, whole=True),
    "B": Rule(
        "backward", FORWARD, INPUT | WEIGHT, INPUT | WEIGHT, way=-1, message="B", alive=-1, whole=True
    ),
    "I": Rule("input gradient", FORWARD, INPUT | WEIGHT, INPUT, way=-1, message="B", whole=True),
    "W": Rule("weight gradient", INPUT, WEIGHT, WEIGHT, alive=-1, whole=True),
    "W*": Rule("late weight gradient", INPUT, WEIGHT, WEIGHT, alive=-1, wide=True, whole=True),
    "R": Rule("recomputation", FORWARD, INPUT | AGAIN, AGAIN, whole=True),
    "A": Rule("all-reduce", WEIGHT, SUMMED | UPDATED, SUMMED, meets=True),
    "S": Rule("reduce-scatter", WEIGHT, SUMMED | UPDATED, SUMMED, meets=True),
    "U": Rule("update", WEIGHT, UPDATED, UPDATED, leaves=False),
    "G": Rule("gather", 0, 0, 0, meets=True, whole=False, leaves=True),
    "X": Rule("freeing of parameters", 0, 0, 0, whole=True, leaves=False),
}

# The kinds that work on no micro-batch: they add up, apply or move what belongs to a whole stage.
CLOSING = frozenset(
    kind for kind, rule in RULES.items() if not rule.adds & (FORWARD | INPUT | WEIGHT | AGAIN)
)

# The kinds that a device may have several times with one name.
REPEATED = frozenset(kind for kind, rule in RULES.items() if not rule.adds)

# The kinds that start an exchange between the devices that have a stage.
MEETING = frozenset(kind for kind, rule in RULES.items() if rule.meets)

# The kinds that do their work for all micro-batches at once.
WIDE = frozenset(kind for kind, rule in RULES.items() if rule.wide)


def adding(bits, kinds=RULES):
    """The kinds among `kinds` that add any of `bits`.

    >>> adding(WEIGHT), adding(INPUT, "FIW")
    (['B', 'W', 'W*'], ['I'])
    """
    return [kind for kind in kinds if RULES[kind].adds & bits]


def before(kind, stage, microbatch, kinds=RULES):
    """What an action waits for, as (kind, stage, micro-batch), if its order is made of `kinds`.

    First what its own stage must have done, then the message from its neighbour, which at an end of the
    pipeline is a stage that does not exist. Where `kinds` has both whole and halved backwards, both are
    listed: one of them will do.

    >>> before("I", 2, 0, "FIW")
    [('F', 2, 0), ('I', 3, 0)]
    """
    rule = RULES[kind]
    own = [(other, stage, microbatch) for other in adding(rule.needs, kinds)]
    senders = [other for other in kinds if rule.way and RULES[other].message == rule.message]
    return own + [(other, stage - rule.way, microbatch) for other in senders]


def works_on(action, copies=()):
    """The micro-batches that an action of a stage works on: one, or all of a copy that are not later.

    copies: for each micro-batch, the copy of the network that it passes through; empty, if there is one.

    >>> works_on(("W", 0, 2)), works_on(("W*", 0, 2)), works_on(("W*", 0, 2), [0, 1, 1])
    ([2], [0, 1, 2], [1, 2])
    """
    kind, _, last = action
    if kind not in WIDE:
        return [last]
    return [i for i in range(last + 1) if not copies or copies[i] == copies[last]]


def one_of(words):
    """`words` as a sentence lists them.

    >>> one_of("FBU")
    'F, B or U'
    """
    *first, last = words
    return f"{', '.join(first)} or {last}"
