"""Which layers of a copy of the network compute together with those of the other copies."""

from ..layers import Layer, every_layer
from .proved import is_stated


def synchronised(layer: Layer) -> Layer:
    """Return the layer; `layer.synchronised()`, if a sample's A depends on other samples.

    Raise `ValueError` for a layer that has no such form, and for one inside another layer.
    """
    if layer.alone_per_sample:
        return layer
    inside = next((part for part in every_layer(layer.layers) if not part.alone_per_sample), None)
    if inside is not None:
        raise ValueError(
            f"{inside!r} is inside {layer!r}, but only layers of the network itself talk to other devices: "
            "use a Fork and a Join around it, or sync_batch_norm=False"
        )
    found = layer.synchronised() if is_stated(type(layer), "synchronised") else None
    if found is None:
        raise ValueError(
            f"{layer!r} is a layer of your own in which samples meet, and nobody knows what copies must "
            "exchange: write synchronised() in it, use BatchNorm, or sync_batch_norm=False"
        )
    return found
