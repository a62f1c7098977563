"""Parameter servers and federated averaging: servers have the weights, workers or clients the samples.

Where to read: `programs` has the programs of workers and servers. `parameter_server`
has their network, its mini-batches and the ticks of a round. `federated_averaging` has
the network of clients, their rounds and their samples.
"""

from .federated_averaging import FederatedAveraging, Round, clients_of
from .parameter_server import ParameterServer, mini_batches, round_ticks
from .programs import Gradient, Update

__all__ = [
    "FederatedAveraging", "Gradient", "ParameterServer", "Round", "Update", "clients_of", "mini_batches",
    "round_ticks",
]
