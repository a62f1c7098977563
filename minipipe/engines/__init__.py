"""Engines that run the programs of a cluster on real hardware, in measured seconds.

Where to read: `threads` and `mpi` run programs; `world` has the calls that all MPI
ranks make together.
"""

from .mpi import Mpi, check_size
from .threads import Threads, keep_memory, measured_link
from .world import world

__all__ = ["Mpi", "Threads", "check_size", "keep_memory", "measured_link", "world"]
