"""Parameter servers: they have the weights, and workers send them gradients.

Where to read: `programs` has what workers and servers do, `share` how a server updates, `hogwild` the same
without a lock, `costs` what a round takes.
"""

from .costs import bytes_on_workers, bytes_through_server, round_ticks, synchronous_ticks
from .labels import Gradient, Late, Update
from .options import MODES, Pace, Servers
from .parameter_server import ParameterServer
from .places import speeds_with
from .streams import mini_batches

__all__ = [
    "MODES", "Gradient", "Late", "Pace", "ParameterServer", "Servers", "Update", "bytes_on_workers",
    "bytes_through_server", "mini_batches", "round_ticks", "speeds_with", "synchronous_ticks",
]
