"""Parameter servers have the weights, workers the samples; federated averaging.

`programs` has the programs of workers and servers, `parameter_server` the network that
runs them, `federated_averaging` the network of clients and their samples.
"""

from .federated_averaging import FederatedAveraging, Round, clients_of
from .parameter_server import ParameterServer, mini_batches
from .programs import Gradient, Update

__all__ = [
    "FederatedAveraging", "Gradient", "ParameterServer", "Round", "Update", "clients_of", "mini_batches",
]
