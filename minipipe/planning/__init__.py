"""What a way of training will take, in ticks and in bytes, and the search for the best one."""

from .fitting import Setting, what_fits
from .footprints import footprints, temporaries
from .in_shards import simulate_in_shards
from .measuring import Measured, measure
from .one_microbatch import Footprint
from .precision import PRECISIONS, Precision
from .rehearsal import rehearse
from .simulation import simulate

__all__ = [
    "PRECISIONS", "Footprint", "Measured", "Precision", "Setting",
    "footprints", "measure", "rehearse", "simulate", "simulate_in_shards", "temporaries", "what_fits",
]
