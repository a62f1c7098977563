"""Plans for a cluster by closed formulas; seconds and bytes of a network in stages.

Where to read: `transformer` has a model, the ways to split it, and its bytes; `seconds`
the time of a step; `hardware` GPUs and links, with what was measured; `search` prices
all ways and answers; `confirming` runs an answer on the exact engine.

For networks in NumPy, `measuring` has the seconds of a micro-batch in each stage, and
`without_values`, with which a run counts its bytes without memory for its arrays.
"""

from .confirming import Confirmed, confirm
from .hardware import GPU, GPUS, Nodes
from .search import Estimate, Neighbour, Plan, estimate, plan
from .transformer import MODELS, Choice, Recipe, Software, Transformer

__all__ = [
    "GPU", "GPUS", "MODELS", "Choice", "Confirmed", "Estimate", "Neighbour", "Nodes", "Plan", "Recipe",
    "Software", "Transformer", "confirm", "estimate", "plan",
]
