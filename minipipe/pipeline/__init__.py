"""A network, a schedule and a cluster joined."""

from .asynchronous import AsynchronousPipeline
from .measuring import Footprint, Measured, measure
from .partition import equal_counts
from .pipeline import Pipeline
from .simulation import simulate
from .stage import Stage
from .treesum import TreeSum

__all__ = ["AsynchronousPipeline", "Footprint", "Measured", "Pipeline", "Stage", "TreeSum", "equal_counts", "measure", "simulate"]
