"""Layers that share their W: which ones do, where it comes from, and what their gradients add up to."""

import numpy as np

from .functions import sum_in_order


def ties_of(layers):
    """{name: indices of the layers with this `tie`, at least two of them}"""
    ties = {}
    for index, layer in enumerate(layers):
        if layer.tie is not None:
            ties.setdefault(layer.tie, []).append(index)
    for name, indices in ties.items():
        if len(indices) == 1:
            raise ValueError(
                f"only layer {indices[0]} has tie={name!r}: give it to the layer that shares its W, too"
            )
        shapes = [layers[index].parameter_shapes()[0] for index in indices]
        if any(shape != shapes[0] for shape in shapes):
            raise ValueError(
                f"layers {indices} share tie={name!r}, but their W have shapes {shapes}: make them equal"
            )
    return ties


def share(layers, indices, index):
    """Give layer `index` a copy of the W that a layer tied to it, one of those at `indices`, has already."""
    first = next((tied for tied in indices if layers[tied].W is not None), None)
    if first is None:
        return
    W, own = layers[first].W, layers[index].W
    if own is not None and not np.array_equal(own, W):
        raise ValueError(
            f"layers {first} and {index} share tie={layers[index].tie!r}, but have different W: "
            "give it to one of them"
        )
    layers[index].W = W.copy()


def sum_of_tied(parts):
    """dW of tied layers: the sum of their own, in the order of the layers.

    The order is always the same, and so are the bits, wherever the layers are.
    """
    return sum_in_order(parts)


def each_once(gradients, ties):
    """`gradients`, a list over the layers of (dW, db), without the dW that a layer before has already.

    >>> each_once([("dW", "db"), ("dW", None), ("other dW", None)], {"name": [0, 1]})
    [('dW', 'db'), (None, None), ('other dW', None)]
    """
    again = {index for indices in ties.values() for index in indices[1:]}
    return [(None if index in again else dW, db) for index, (dW, db) in enumerate(gradients)]
