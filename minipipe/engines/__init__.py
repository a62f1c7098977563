"""Other drivers of the programs that a cluster runs: on real hardware, in measured seconds."""

from .threads import Threads

__all__ = ["Threads"]
