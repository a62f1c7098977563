"""What parameter servers are like, and how long things take: plain data, which checks its own fields."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..arguments import argument, optional
from ..checks import listed, one_of, python_number, real_number
from ..parallel.options import Plain

SYNC, ASYNC, STALE, HOGWILD = MODES = "sync", "async", "ssp", "hogwild"


@dataclass(frozen=True, repr=False)
class Servers(Plain):
    """The servers that have the weights, and when they update.

    n: s, the devices among which the parameters are divided, as evenly as numbers allow.
    on_workers: whether server k is not a device of its own, but a lane of the device of worker k.
    mode: when a server updates, and answers a worker:
        "sync": once all workers' gradients are there, each of its part of one mini-batch; these are summed.
        "async": as each gradient comes, of a mini-batch of its own, whatever weights it is of.
        "ssp": the same, but a worker more than `bound` gradients ahead of the slowest has to wait.
        "hogwild": workers read and write without a lock, so that some updates are lost, see
            `minipipe.servers.programs`. Needs plain SGD and one server.
    bound: the s of Ho et al. 2013, at least 0; for "ssp" alone.
    backups: for "sync", how many gradients an update leaves out: the last to arrive.
    compensation: lambda of `minipipe.servers.share.compensated`, for "async" and "ssp".
    """

    example = "Servers(mode='async')"
    n: int = 1
    on_workers: bool = False
    mode: str = SYNC
    bound: int | None = None
    backups: int = 0
    compensation: float = 0

    def __post_init__(self) -> None:
        one_of("mode", self.mode, MODES)
        self._keep(
            n=argument("Servers.n", self.n), on_workers=argument("on_workers", self.on_workers),
            bound=optional("bound", self.bound), backups=argument("backups", self.backups),
            compensation=argument("compensation", self.compensation),
        )
        if (self.bound is None) == (self.mode == STALE):
            raise ValueError(
                f"bound={self.bound} in mode {self.mode!r}: the mode 'ssp' needs a bound, and no other has "
                "one"
            )
        if self.backups and (self.mode != SYNC or self.n > 1):
            raise ValueError(
                f"backups={self.backups} in mode {self.mode!r} with n={self.n} servers: only 'sync' has "
                "backup workers, and one server, since several would do without different workers"
            )
        if self.compensation and self.mode not in (ASYNC, STALE):
            raise ValueError(
                f"compensation={self.compensation} in mode {self.mode!r}: only 'async' and 'ssp' have delays "
                "to make up for"
            )
        if self.mode == HOGWILD and self.n > 1:
            raise ValueError(f"mode 'hogwild' with n={self.n} servers: without a lock, use one server")


@dataclass(frozen=True, repr=False)
class Pace(Plain):
    """How long the work takes.

    ticks: of a gradient, or of a sample of a client, at speed 1.
    speeds: for each worker or client; at speed 1/4 it takes four times as long. Left out, 1 for all.
    delay: the mean of a random delay in ticks, exponentially distributed, that each gradient has besides; a
        function of the seed, the worker and the number of its gradient.
    update_ticks: of an update on a server; in "hogwild", from a load to its store.
    """

    example = "Pace(speeds=[1, 0.5])"
    ticks: float = 1
    speeds: Sequence[float] | None = None
    delay: float = 0
    update_ticks: float = 0

    def __post_init__(self) -> None:
        names = "ticks", "delay", "update_ticks"
        self._keep(**{name: argument(name, getattr(self, name)) for name in names})
        if self.speeds is not None:
            self._keep(speeds=tuple(listed("speeds", self.speeds)))
        for number, speed in enumerate(self.speeds or ()):
            if python_number(speed) == 0:
                raise ValueError(
                    f"speeds[{number}]=0 would never finish: use a speed above 0, or a worker or client less"
                )
            real_number(f"speeds[{number}]", speed, above=0, clock=True)
