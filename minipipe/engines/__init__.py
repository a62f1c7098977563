"""Other drivers of the programs that a cluster runs: on real hardware, in measured seconds.

Where to read: `threads` and `mpi` run programs, `world` has what all processes do together, and `gathering`
makes one trace of what they have seen.
"""

from .mpi import Mpi, check_size
from .threads import Threads, keep_memory, measured_link
from .world import world

__all__ = ["Mpi", "Threads", "check_size", "keep_memory", "measured_link", "world"]
