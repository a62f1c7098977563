"""The part of a stage's parameters that one of several devices with the stage updates: ZeRO."""

from ..collectives.vectors import cut, flattened, joined
from ..layers import every_layer
from ..layers.blocks import Block


class OwnPart:
    """What an optimizer updates in the place of a layer: a run of a stage's parameters.

    W: a vector, numbers of one array.
    """

    b = None

    def __init__(self, W):
        self.W = W

    def __repr__(self):
        return f"a part of {len(self.W)} parameters"


def parameters_in_parts(layers, size):
    """The parameters of layers in a row, in `size` parts as equal as can be: lists of views of the arrays.

    >>> import numpy as np
    >>> from ..layers import Linear
    >>> parameters_in_parts([Linear(2, 1, W=np.array([[1.0, 2.0]]), b=np.array([[3.0]]))], 2)
    [[array([1., 2.])], [array([3.])]]
    """
    return cut(flattened([(layer.W, layer.b) for layer in layers]), size)


def update_part(optimizer, layers, gradients, rank, size):
    """Give `layers` new arrays of parameters, of which the part of `rank` is updated.

    gradients: of this part, vectors.

    The optimizer keeps something for this part alone. It must take each number by itself, as all here do.
    """
    for layer in every_layer(layers):
        if not isinstance(layer, Block):
            layer.W, layer.b = (None if array is None else array.copy() for array in (layer.W, layer.b))
    vectors = parameters_in_parts(layers, size)[rank]
    parts = [OwnPart(vector) for vector in vectors]
    optimizer.update(parts, [(gradient, None) for gradient in gradients])
    for vector, part in zip(vectors, parts, strict=True):
        vector[...] = part.W


def put_together(layers, parts):
    """Write the parts of all ranks into the parameters of `layers`."""
    vectors = flattened([(layer.W, layer.b) for layer in layers])
    for vector, new in zip(vectors, joined(parts, vectors), strict=True):
        vector[...] = new
