"""Parameter servers and federated averaging: devices that have the weights, and devices that have samples.

Where to read: `programs` has what workers and servers do, `parameter_server` the network that they train, its
mini-batches and what a round takes; `federated_averaging` has the other network, its clients, their rounds,
and who of them gets which samples.
"""

from .federated_averaging import FederatedAveraging, Round, clients_of
from .parameter_server import ParameterServer, mini_batches, round_ticks
from .programs import Gradient, Update

__all__ = [
    "FederatedAveraging", "Gradient", "ParameterServer", "Round", "Update", "clients_of", "mini_batches",
    "round_ticks",
]
