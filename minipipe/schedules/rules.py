"""What each kind of action needs, forbids, adds and hands on. Whoever wants to know it asks this table."""

from typing import NamedTuple

# What can have been done on a stage for a micro-batch, as bits of one number.
FORWARD, INPUT, WEIGHT, AGAIN, SUMMED, UPDATED = 1, 2, 4, 8, 16, 32


class Rule(NamedTuple):
    """What one kind of action is like.

    name: what a sentence calls it.
    needs, forbids: what must, and what must not, have been done on its stage for its micro-batch.
    adds: what has been done after it.
    way: its result goes to the stage this many stages on, and it waits for one from as many stages before; 0: neither.
    message: the kind that its message is called by; a gradient has one name, whether its sender halves the backward or not.
    alive: by how many micro-batches more its device keeps activations after it.
    """

    name: str
    needs: int
    forbids: int
    adds: int
    way: int = 0
    message: str = ""
    alive: int = 0


RULES = {
    "F": Rule("forward", 0, FORWARD, FORWARD, way=1, message="F", alive=1),
    "B": Rule("backward", FORWARD, INPUT | WEIGHT, INPUT | WEIGHT, way=-1, message="B", alive=-1),
    "I": Rule("input gradient", FORWARD, INPUT | WEIGHT, INPUT, way=-1, message="B"),
    "W": Rule("weight gradient", INPUT, WEIGHT, WEIGHT, alive=-1),
    "R": Rule("recomputation", FORWARD, INPUT | AGAIN, AGAIN),
    "A": Rule("all-reduce", WEIGHT, SUMMED | UPDATED, SUMMED),
    "U": Rule("update", WEIGHT, UPDATED, UPDATED),
}
