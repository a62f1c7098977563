"""What a program can ask of the hardware.

A program is a generator. It yields a request, and is resumed with the answer when the
clock has reached it:

    def program():
        A_prev = yield Receive("F0", source=0)
        A = yield Compute("F0", stage.forward, 0, A_prev)
        yield Send("F0", A, to=2)
"""

from collections.abc import Callable, Generator
from typing import Any, NamedTuple

Program = Generator[Any, Any, Any]  # yields `Compute`, `Send` and `Receive`

ANY = "any device"
"""The source of a `Receive` that takes the earliest message of its name, whoever sends it."""


class Label(NamedTuple):
    """A name for a piece of work, and its kind.

    Pictures give each kind a colour and an entry in the legend. Any object can be the
    label of a request; one that has a `kind`, as an action of a schedule has, is of
    that kind.

    >>> print(Label("add 3", kind="add"))
    add 3
    """

    text: str
    kind: str

    def __str__(self):
        return self.text


class Compute:
    """Work of this device, called `label`; the answer is `function(*args)`, or None.

    Args:
        ticks: how long it takes; left out, the cluster's `duration` of this label.
    """

    __slots__ = ("label", "function", "args", "ticks")

    def __init__(self, label: Any, function: Callable | None = None, *args: Any, ticks: float | None = None):
        self.label, self.function, self.args, self.ticks = label, function, args, ticks


class Send:
    """Send `value` to the device `to` under the name `label`.

    Args:
        label: a name that no other message between these two devices has until it is
            received.
        value: arrays, or lists, tuples and dicts of them. The receiver gets a copy,
            made now: the sender may overwrite its arrays afterwards.
        to: the number of a device. One lane of a device can send to another: to its own
            device, at no cost.
        n_bytes: the size of a message whose value is None, in a simulation; others have
            the size of their arrays.
        stays: whether the sender leaves its arrays as they are to the end of the run; a
            process then need not copy them before it sends them.

    The sender goes on at once, unless the link says otherwise.
    """

    __slots__ = ("label", "value", "to", "n_bytes", "stays")

    def __init__(self, label: Any, value: Any, to: int, n_bytes: float = 0, stays: bool = False):
        self.label, self.value, self.to, self.n_bytes, self.stays = label, value, to, n_bytes, stays


class Receive:
    """Wait for the message `label` from the device `source`; the answer is its value.

    With source=ANY it takes the earliest message of this name from any device; of two
    that arrive in one tick, that of the lower device. The answer is then (source,
    value). Over links with a rendezvous, it asks for the first message that was sent,
    if no other is in flight.
    """

    __slots__ = ("label", "source")

    def __init__(self, label: Any, source: int | str):
        self.label, self.source = label, source
