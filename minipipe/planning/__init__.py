"""The bytes that a network in stages will hold, and the seconds that it will take.

Where to read: `measuring` passes a micro-batch through stages, and counts its bytes and seconds; `footprints`
counts the bytes alone, with arrays without numbers; `foresight` makes of them the bytes of a run.
"""

from .footprints import footprints
from .measuring import Footprint, Measured, measure

__all__ = ["Footprint", "Measured", "footprints", "measure"]
