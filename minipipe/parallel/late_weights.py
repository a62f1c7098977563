"""The weight gradients of one layer for all micro-batches at once, as a late W makes them."""

import numpy as np

from ..layers.through import weight_gradients
from ..sums import TreeSum
from .grains import side_by_side


def late_gradients(layer, halves):
    """(dW, db) of a layer for all samples of a mini-batch.

    layer: one with parameters.
    halves: what it has `put_aside`, one for each micro-batch in order.

    A layer that `joins_samples` gets the A_prev and dZ of all micro-batches side by side, so its dW = dZ
    A_prev^T is one product over the whole mini-batch, and its bits do not depend on where that was cut. So
    does each of the layers that a block is made of. The gradients of any other layer, such as a
    normalization, which has summed over the samples of a micro-batch already, are made for each micro-batch
    and summed along the fixed tree.
    """
    caches = [cache for _, cache in halves]
    if layer.joins_samples and all(isinstance(cache, np.ndarray) for cache in caches):
        return weight_gradients(layer, (side_by_side([dZ for dZ, _ in halves]), side_by_side(caches)))
    if layer.layers and all(hasattr(cache, "halves") for cache in caches):
        return _of_block(layer, [cache.halves for cache in caches])
    total = TreeSum(len(halves))
    for i, half in enumerate(halves):
        total.add(i, weight_gradients(layer, half))
    return total.value


def _of_block(block, halves):
    pairs = []
    for layer, *of_layer in zip(block.layers, *halves, strict=True):
        pairs.append((layer.W, layer.b) if of_layer[0] is None else late_gradients(layer, of_layer))
    return tuple(dW for dW, _ in pairs), tuple(db for _, db in pairs)
