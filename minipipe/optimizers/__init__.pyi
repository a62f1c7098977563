# Made from the registries by `python3 tests/house/stubs.py`: do not edit.

from .adaptive import Adam as Adam
from .adaptive import AdamW as AdamW
from .adaptive import LAMB as LAMB
from .adaptive import LARS as LARS
from .adaptive import OPTIMIZERS as OPTIMIZERS
from .adaptive import RMSProp as RMSProp
from .optimizer import Optimizer as Optimizer
from .optimizer import SGD as SGD
from .optimizer import checked_optimizer as checked_optimizer

__all__: list[str]
