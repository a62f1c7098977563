"""Networks that several simulated devices train together: in stages, in copies, and in shards of layers.

Where to read: `options` is what a network can be told, and `rules` which pairs of that
are refused; `orders` makes the order of its actions, `stage` does them, `run` has one
run; `ranks` is what MPI ranks have of a network; `network` is where all of it meets.
"""

from ..cluster.links import in_nodes
from .network import Parallel
from .one_axis import DataParallel, Pipeline, TensorParallel
from .orders import in_buckets
from .stage import Stage

__all__ = ["DataParallel", "Parallel", "Pipeline", "Stage", "TensorParallel", "in_buckets", "in_nodes"]
