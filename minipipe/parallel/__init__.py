"""Ways to split the training of a network other than by its layers."""

from ..cluster.links import in_nodes
from .buckets import in_buckets
from .data import DataParallel
from .federated import FederatedAveraging, clients_of
from .hybrid import Hybrid, TensorParallel
from .servers import ParameterServer, mini_batches, round_ticks, speeds_with, synchronous_ticks

__all__ = [
    "DataParallel", "FederatedAveraging", "Hybrid", "ParameterServer", "TensorParallel", "clients_of",
    "in_buckets", "in_nodes", "mini_batches", "round_ticks", "speeds_with", "synchronous_ticks",
]
