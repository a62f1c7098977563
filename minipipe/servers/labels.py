"""What workers and servers do, as the trace calls it."""

from typing import NamedTuple


class Gradient(NamedTuple):
    """A worker computes the gradient of a mini-batch, or of its part of it.

    batch: the number of the mini-batch.
    versions: for each server, how many updates the weights have had with which the worker computes.

    >>> print(Gradient(5, (3,)), Gradient(5, (3, 4)))
    5@3 5@3,4
    """

    batch: int
    versions: tuple

    @property
    def kind(self):
        return "gradient"

    def __str__(self):
        return f"{self.batch}@{','.join(map(str, self.versions))}"


class Update(NamedTuple):
    """A server changes its part of the weights.

    number: of this update, from 1 on; so many the weights have had then.
    batch: the number of the mini-batch.
    workers: those whose gradients count.
    read: how many updates the weights had had with which these gradients were computed.
    onto: how many updates the numbers had had that it was added to: all before, unless there is no lock.
    lost: the numbers of the updates since then that have changed the same numbers, which it undoes.

    >>> update = Update(number=5, batch=4, workers=(2,), read=3, onto=4)
    >>> print(update, update.staleness)
    u5 1
    """

    number: int
    batch: int
    workers: tuple
    read: int
    onto: int
    lost: tuple = ()

    @property
    def kind(self):
        return "U"

    @property
    def staleness(self):
        """How many updates there were between the weights that the gradient is of and this update."""
        return self.number - 1 - self.read

    def __str__(self):
        return f"u{self.number}"


class Late(NamedTuple):
    """A gradient that came too late, and was thrown away: of which worker, mini-batch and version."""

    worker: int
    batch: int
    read: int
