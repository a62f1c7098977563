"""Parameter servers: they have the weights, and workers send them gradients.

Where to read: `programs` has what workers and servers do, with a lock and without one, `share` how a server
updates, `places` what a round takes.
"""

from .options import MODES, Pace, Servers
from .parameter_server import ParameterServer
from .places import (
    bytes_on_workers, bytes_through_server, mini_batches, round_ticks, speeds_with, synchronous_ticks,
)
from .share import Gradient, Late, Update

__all__ = [
    "MODES", "Gradient", "Late", "Pace", "ParameterServer", "Servers", "Update", "bytes_on_workers",
    "bytes_through_server", "mini_batches", "round_ticks", "speeds_with", "synchronous_ticks",
]
