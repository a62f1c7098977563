"""A network, a schedule and a cluster joined."""

from .asynchronous import AsynchronousPipeline
from .costs_of_layers import Times, costs_of_layers, times_of_layers
from .fitting import Setting, what_fits
from .footprints import footprints
from .measuring import Measured, measure
from .one_microbatch import Footprint
from .partition import partition
from .pipeline import Pipeline
from .simulation import simulate
from .solvers import equal_counts, histogram, loads, min_max, min_variance
from .stage import Stage
from .treesum import TreeSum

__all__ = [
    "AsynchronousPipeline", "Footprint", "Measured", "Pipeline", "Setting", "Stage", "Times", "TreeSum",
    "costs_of_layers", "equal_counts", "footprints", "histogram", "loads", "measure", "min_max", "min_variance",
    "partition", "simulate", "times_of_layers", "what_fits",
]
