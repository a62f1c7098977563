"""Other drivers of the programs that a cluster runs: on real hardware, in measured seconds.

Where to read: `threads` and `mpi` run programs, and `world` has what all processes do
together.
"""

from .mpi import Mpi, check_size
from .threads import Threads, keep_memory, measured_link
from .world import world

__all__ = ["Mpi", "Threads", "check_size", "keep_memory", "measured_link", "world"]
