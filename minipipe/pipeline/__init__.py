"""A network, a schedule and a cluster joined."""

from .partition import equal_counts
from .pipeline import Pipeline
from .program import Costs, simulate
from .stage import Stage
from .treesum import TreeSum

__all__ = ["Costs", "Pipeline", "Stage", "TreeSum", "equal_counts", "simulate"]
