"""Networks that several simulated devices train, and servers for their parameters."""

from ..cluster.links import in_nodes
from .network import Parallel
from .one_axis import DataParallel, Pipeline, TensorParallel
from .orders import in_buckets

__all__ = ["DataParallel", "Parallel", "Pipeline", "TensorParallel", "in_buckets", "in_nodes"]
