"""What a program can ask of the hardware.

A program is a generator. It yields a request and is resumed with the answer when the clock has reached it:

    def program():
        A_prev = yield Receive("F0", source=0)
        A = yield Compute("F0", stage.forward, 0, A_prev)
        yield Send("F0", A, to=2)
"""

from typing import NamedTuple

ANY = "any device"
"""The source of a `Receive` that takes the earliest message of its name, whoever sends it."""


class Label(NamedTuple):
    """A name for a piece of work, and the kind of work that it is.

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
    """Work of this device, called `label`; the answer is `function(*args)`, or None without a function.

    Args:
        ticks: how long it takes; left out, as long as the cluster's `duration` says for
            this label.
    """

    __slots__ = ("label", "function", "args", "ticks")

    def __init__(self, label, function=None, *args, ticks=None):
        self.label, self.function, self.args, self.ticks = label, function, args, ticks


class Send:
    """Hand `value` to the device `to` under the name `label`.

    Args:
        label: a name that no other message between these two devices has as long as it
            is not received.
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

    def __init__(self, label, value, to, n_bytes=0, stays=False):
        self.label, self.value, self.to, self.n_bytes, self.stays = label, value, to, n_bytes, stays


class Receive:
    """Wait for the message `label` from the device `source`; the answer is its value, the receiver's own.

    source=ANY: wait for the earliest message of this name, whoever sends it (of two
    that arrive in one tick, that of the lower device); the answer is then (source,
    value). Over links with a rendezvous, it asks for one message: the first that was
    sent, and only if no other is on its way.
    """

    __slots__ = ("label", "source")

    def __init__(self, label, source):
        self.label, self.source = label, source
