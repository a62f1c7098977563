"""What a layer costs, and where to cut a network into stages."""

from .partition import Times, costs_of_layers, partition, times_of_layers
from .solvers import equal_counts, histogram, loads, min_max, min_variance

__all__ = [
    "Times", "costs_of_layers", "equal_counts", "histogram", "loads", "min_max", "min_variance",
    "partition", "times_of_layers",
]
