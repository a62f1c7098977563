"""Who takes part in a collective, and what one of them can ask for."""

from ..arguments import argument
from ..checks import shown, whole_number, whole_numbers
from ..cluster import Compute, Label, Receive, Send, sent_bytes
from .group import added


class Group:
    """The devices that talk to each other, and which of them this one is; each device makes its own.

    rank: the place of this device among them, from 0 on.
    devices: the numbers of all devices of the group, the same list on each.
    name: what the labels of its messages begin with, if a device talks in several groups at once.
    gamma: ticks per byte that is added to another.
    stays: whether the ranks leave what they send as it is to the end of the run, as for `Send`.

    All ranks of a group must call the same collectives in the same order: each call has a number, by
    which its messages find each other. MPI calls a group a communicator. Raises `ValueError` for a rank
    that is not there.
    """

    def __init__(self, rank, devices, name="", gamma=0, stays=False):
        self.devices, self.name, self.stays = list(whole_numbers("devices", devices, 0)), name, stays
        self.gamma = argument("gamma", gamma)
        if len(set(self.devices)) < len(self.devices):
            raise ValueError(f"devices={self.devices} has a device twice: name each once")
        self.rank = self.check(rank=rank)
        self._n_calls = 0

    @property
    def size(self):
        """How many ranks there are, N."""
        return len(self.devices)

    def part(self, ranks):
        """A group of some of these ranks, this one among them."""
        name = f"{self.name}{self._n_calls} of {ranks[0]}: "
        devices = [self.devices[rank] for rank in ranks]
        return Group(ranks.index(self.rank), devices, name, self.gamma, self.stays)

    def check(self, **rank):
        """The rank, given by its name, as a Python int; `ValueError` unless it is in the group."""
        (name, number), = rank.items()
        number = whole_number(name, number)
        if number not in range(self.size):
            raise ValueError(f"{name}={shown(number)} is not in the group of {self.size}: ranks count from 0")
        return number

    def begin(self, collective):
        """The label of the next call, the same on all ranks."""
        self._n_calls += 1
        return f"{self.name}{collective} {self._n_calls}"

    def send(self, to, label, value):
        """A request: send to the rank `to`, counted around the group."""
        return Send(label, value, self.devices[to % self.size], stays=self.stays)

    def receive(self, source, label):
        """A request: receive from the rank `source`, counted around the group."""
        return Receive(label, self.devices[source % self.size])

    def add(self, mine, arrived, function=added):
        """A program: `function(mine, arrived)`, which takes gamma ticks for each byte that has arrived."""
        if not self.gamma:
            return function(mine, arrived)
        ticks = self.gamma * sent_bytes(arrived)
        return (yield Compute(Label("add", "add"), function, mine, arrived, ticks=ticks))
