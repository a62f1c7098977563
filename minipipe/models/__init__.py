"""Networks with a name, each as a plain list of layers for `Sequential` and `Pipeline` alike."""

from .lenet import lenet5
from .mlp import mlp
from .resnet import resnet
from .transformer import transformer

__all__ = ["lenet5", "mlp", "resnet", "transformer"]
