"""Federated averaging: clients with data of their own, and a server that averages what they come to.

Where to read: `clients` has how a client trains, `programs` what the server and a client do in a round: the
average, and the masks that hide its terms.
"""

from .clients import clients_of
from .federated_averaging import FederatedAveraging, Round
from .rounds import Rounds

__all__ = ["FederatedAveraging", "Round", "Rounds", "clients_of"]
