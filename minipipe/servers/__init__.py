"""Parameter servers and federated averaging: devices that have the weights, and devices that have samples.

Where to read: `programs` has what workers and servers do, `share` how a server updates, `places` what a round
takes; `clients` has what clients do in a round, and `federated_averaging` the rounds.
"""

from .clients import clients_of
from .federated_averaging import FederatedAveraging, Round
from .parameter_server import ParameterServer
from .places import mini_batches, round_ticks
from .share import Gradient, Update

__all__ = [
    "FederatedAveraging", "Gradient", "ParameterServer", "Round", "Update", "clients_of", "mini_batches",
    "round_ticks",
]
