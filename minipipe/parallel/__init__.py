"""Networks that several simulated devices train, and servers for their parameters."""

from ..cluster.links import in_nodes
from ..federated import FederatedAveraging, Rounds, clients_of
from ..servers import (
    Pace, ParameterServer, Servers, mini_batches, round_ticks, speeds_with, synchronous_ticks,
)
from .buckets import in_buckets
from .network import Parallel
from .one_axis import DataParallel, Pipeline, TensorParallel

__all__ = [
    "DataParallel", "FederatedAveraging", "Pace", "Parallel", "ParameterServer", "Pipeline", "Rounds",
    "Servers", "TensorParallel", "clients_of", "in_buckets", "in_nodes", "mini_batches", "round_ticks",
    "speeds_with", "synchronous_ticks",
]
