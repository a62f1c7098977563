"""Layers by hand: one class per formula, samples in columns.

Each file of this package registers its layers in `LAYERS`, from which `minipipe` takes
them. Read `layer` first, the base class, then `linear`, its model. `through` runs a
list of layers, for networks and stages. `exchanging` has the layers that communicate
where devices share the work of a layer.
"""

from .attention import recomputing  # noqa: F401
from .blocks import Block  # noqa: F401 (for subclasses)
from .layer import LAYERS, Layer, every_layer, he, xavier  # noqa: F401

globals().update(LAYERS.load())

__all__ = sorted(["Block", "Layer", "every_layer", "he", "recomputing", "xavier", *LAYERS])
