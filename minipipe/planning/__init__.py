"""What a way of training will take, in ticks and in bytes, and the search for the best one."""

from .fitting import Setting, what_fits
from .footprints import footprints
from .measuring import Measured, measure
from .one_microbatch import Footprint
from .simulation import simulate

__all__ = ["Footprint", "Measured", "Setting", "footprints", "measure", "simulate", "what_fits"]
