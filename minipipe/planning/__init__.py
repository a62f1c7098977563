"""A plan for a cluster by closed formulas; the bytes and seconds of a network in stages.

Where to read: `transformer` has a model, the ways to split it, and its bytes; `seconds`
the time of a step; `hardware` GPUs and links, with what was measured; `search` prices
all ways and answers; `confirming` runs an answer on the exact engine.

For networks in NumPy, `measuring` passes a micro-batch through the stages and counts
its bytes and seconds, or the bytes alone; `foresight` makes of them the bytes of a run.
"""

from .confirming import Confirmed, confirm
from .hardware import GPU, GPUS, Nodes
from .search import Estimate, Neighbour, Plan, estimate, plan
from .transformer import MODELS, Choice, Recipe, Software, Transformer

__all__ = [
    "GPU", "GPUS", "MODELS", "Choice", "Confirmed", "Estimate", "Neighbour", "Nodes", "Plan", "Recipe",
    "Software", "Transformer", "confirm", "estimate", "plan",
]
