"""Networks with a name, each as a plain list of layers for `Sequential` and `Pipeline` alike."""

from .amoebanet import amoebanet_d
from ..layers.skips import Pair
from .cells import Cell, First
from .lenet import lenet5
from .small import mlp
from .resnet import resnet
from .transformer import transformer

__all__ = ["Cell", "First", "Pair", "amoebanet_d", "lenet5", "mlp", "resnet", "transformer"]
