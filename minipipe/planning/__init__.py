"""The bytes that a network in stages will hold, and the seconds that it will take.

Where to read: `one_microbatch` passes a micro-batch through stages; `footprints` counts its bytes with arrays
without numbers, `measuring` its bytes and seconds with numbers; `foresight` makes of them the bytes of a run.
"""

from .footprints import footprints
from .measuring import Measured, measure
from .one_microbatch import Footprint

__all__ = ["Footprint", "Measured", "footprints", "measure"]
