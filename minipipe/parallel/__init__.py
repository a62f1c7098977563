"""Networks that simulated devices train together: pipeline, data and tensor parallel.

`options` has the options of a network, and the pairs that are refused. `orders` makes
the order of the actions, `stage` executes them, and `run` is one run of an order.
`ranks` compares and collects what MPI ranks have. `network` combines all of this.
"""

from ..cluster.links import in_nodes
from .network import Parallel
from .one_axis import DataParallel, Pipeline, TensorParallel
from .orders import in_buckets
from .stage import Stage

__all__ = ["DataParallel", "Parallel", "Pipeline", "Stage", "TensorParallel", "in_buckets", "in_nodes"]
