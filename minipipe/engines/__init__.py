"""Other drivers of the programs that a cluster runs: on real hardware, in measured seconds."""

from .links import measured_link
from .mpi import Mpi, check_size
from .threads import Threads, keep_memory
from .world import world

__all__ = ["Mpi", "Threads", "check_size", "keep_memory", "measured_link", "world"]
