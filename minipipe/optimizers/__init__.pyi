# Made from the registries by `python3 tests/house/stubs.py`: do not edit.

from .adaptive import Adam as Adam
from .adaptive import AdamW as AdamW
from .adaptive import OPTIMIZERS as OPTIMIZERS
from .adaptive import RMSProp as RMSProp
from .by_parameter import LAMB as LAMB
from .by_parameter import LARS as LARS
from .optimizer import Optimizer as Optimizer
from .optimizer import checked_optimizer as checked_optimizer
from .sgd import SGD as SGD

__all__: list[str]
