"""Well-known networks as lists of layers, for `Sequential`, `Pipeline` and others."""

from .amoebanet import Cell, First, amoebanet_d
from ..layers.skips import Pair
from .networks import lenet5, mlp, transformer

__all__ = ["Cell", "First", "Pair", "amoebanet_d", "lenet5", "mlp", "transformer"]
