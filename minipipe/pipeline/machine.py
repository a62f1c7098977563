"""What a network runs on, and how."""

from typing import NamedTuple

from ..checks import bytes_of_memory, one_of
from ..cluster import checked_ports, links_between
from ..collectives import ALL_REDUCES, OWNERS
from ..engines import check_size, world
from ..sums import checked_accumulate

CLUSTER, THREADS, MPI = ENGINES = "cluster", "threads", "mpi"


class Machine(NamedTuple):
    """Each field as for `Pipeline`."""

    costs: object
    link: object
    ports: list
    memory_limit: int | None
    engine: str
    accumulate: str
    all_reduce: str

    def checked(self, schedule, n_devices, grain=None):
        """The same, with ports as a list; `ValueError` for what does not fit the schedule, or a grain."""
        self.costs.table(schedule.sharing)
        links_between(self.link, n_devices)
        checked_accumulate(self.accumulate)
        one_of("all_reduce", self.all_reduce, ALL_REDUCES)
        if "S" in schedule.kinds and self.all_reduce != OWNERS:
            raise ValueError(
                f"all_reduce={self.all_reduce!r}, but the order has S, after which each device owns a part "
                f"of the sum: use {OWNERS!r}"
            )
        if grain is not None:
            self._check_sums(schedule, grain)
        limit = None if self.memory_limit is None else bytes_of_memory(self.memory_limit)
        if one_of("engine", self.engine, ENGINES) != CLUSTER and limit is not None:
            raise ValueError(
                "memory_limit needs the bytes that only the cluster counts: use engine='cluster'"
            )
        if self.engine == MPI:
            check_size(world(), n_devices)
        return self._replace(ports=checked_ports(self.ports, n_devices), memory_limit=limit)

    def _check_sums(self, schedule, grain):
        """The bits of a grain are those of sums along the tree."""
        if self.accumulate != "tree":
            raise ValueError(
                f"grain={grain} needs accumulate='tree', not {self.accumulate!r}, to keep its bits"
            )
        if schedule.n_copies > 1 and self.all_reduce != OWNERS:
            raise ValueError(
                f"grain={grain} needs all_reduce={OWNERS!r}, not {self.all_reduce!r}, to keep its bits"
            )
