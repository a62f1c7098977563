"""Layers by hand: one class per formula, samples in columns.

Each file of this room registers its layers in `LAYERS`; they are found there, and
`minipipe` hands them on.

Where to read: `layer` is the contract, `linear` the model that keeps it; what networks
and stages do with a list of layers is in `through`, and where devices share the work
inside them, in `exchanging`.
"""

from .attention import recomputing  # noqa: F401
from .blocks import Block  # noqa: F401 (for subclasses)
from .layer import LAYERS, Layer, every_layer, he, xavier  # noqa: F401

globals().update(LAYERS.load())

__all__ = sorted(["Block", "Layer", "every_layer", "he", "recomputing", "xavier", *LAYERS])
