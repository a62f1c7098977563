"""Parameter servers and federated averaging: devices that have the weights, and devices that have samples.

Where to read: `programs` has what workers and servers do, `parameter_server` the network that they train and
what a round takes; `federated_averaging` has the other network, its clients and their rounds; `samples` who
gets which samples.
"""

from .federated_averaging import FederatedAveraging, Round
from .parameter_server import ParameterServer, round_ticks
from .programs import Gradient, Update
from .samples import clients_of, mini_batches

__all__ = [
    "FederatedAveraging", "Gradient", "ParameterServer", "Round", "Update", "clients_of", "mini_batches",
    "round_ticks",
]
