"""A plan for a cluster by closed formulas; the bytes and seconds of a network in stages.

Where to read: `transformer` has a model, the ways to split it, and its bytes; `seconds`
the time of a step; `hardware` GPUs and links, with what was measured; `search` prices
all ways and answers; `confirming` runs an answer on the exact engine.

For networks in NumPy, `measuring` passes a micro-batch through stages, and counts its
bytes and seconds; `footprints` counts the bytes alone, with arrays without numbers;
`foresight` makes of them the bytes of a run.
"""

from .confirming import Confirmed, confirm
from .hardware import GPU, GPUS, Nodes
from .search import Estimate, Neighbour, Plan, estimate, plan
from .transformer import MODELS, Choice, Recipe, Software, Transformer

__all__ = [
    "GPU", "GPUS", "MODELS", "Choice", "Confirmed", "Estimate", "Neighbour", "Nodes", "Plan", "Recipe",
    "Software", "Transformer", "confirm", "estimate", "plan",
]

try:
    from .footprints import footprints
    from .measuring import Footprint, Measured, measure
except ModuleNotFoundError as error:  # formulas need no NumPy
    if error.name != "numpy":
        raise
else:
    __all__ += ["Footprint", "Measured", "footprints", "measure"]
