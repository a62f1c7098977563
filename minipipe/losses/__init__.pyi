# Made from the registries by `python3 tests/house/stubs.py`: do not edit.

from .cross_entropy import BinaryCrossEntropy as BinaryCrossEntropy
from .cross_entropy import LOSSES as LOSSES
from .cross_entropy import SoftmaxCrossEntropy as SoftmaxCrossEntropy
from .loss import Loss as Loss
from .loss import MeanSquaredError as MeanSquaredError

__all__: list[str]
