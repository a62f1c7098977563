"""The part of a stage's parameters that one of several devices with the stage updates, or has: ZeRO."""

import numpy as np

from ..collectives.group import cut, flattened, joined
from ..layers import every_layer
from ..layers.parameters import pairs_of_layers, parameters_with


class OwnPart:
    """What an optimizer updates in the place of a layer: a run of a stage's parameters.

    W: a vector, numbers of one array.
    decays: whether these decay where an optimizer's `weights_only` is True.
    """

    def __init__(self, W, decays):
        self.W, self.decays = W, ("W",) if decays else ()

    def __repr__(self):
        return f"a part of {len(self.W)} parameters"


def parameters_in_parts(layers, size):
    """The parameters of layers in a row, in `size` parts as equal as can be: lists of views of the arrays.

    >>> import numpy as np
    >>> from ..layers import Linear
    >>> parameters_in_parts([Linear(2, 1, W=np.array([[1.0, 2.0]]), b=np.array([[3.0]]))], 2)
    [[array([1., 2.])], [array([3.])]]
    """
    return cut(flattened(pairs_of_layers(layers)), size)


def decaying_in_part(layers, rank, size):
    """For each vector of the part of `rank`, whether it decays where an optimizer's `weights_only` is True.

    >>> from ..layers import Linear
    >>> decaying_in_part([Linear(2, 1, W=[[1.0, 2.0]], b=[[3.0]])], 0, 1)
    [True, False]
    """
    marks = [
        np.broadcast_to(key[1] in owner.decays, array.size)
        for key, (owner, array, _) in parameters_with(layers, pairs_of_layers(layers)).items()
    ]
    return [bool(vector[0]) for vector in cut(marks, size)[rank]]


def update_part(optimizer, layers, gradients, rank, size):
    """Give `layers` new arrays of parameters, of which the part of `rank` is updated.

    gradients: of this part, vectors.

    The optimizer keeps something for this part alone. It must take each number by itself, as all here do.
    """
    _make_new(layers)
    vectors = parameters_in_parts(layers, size)[rank]
    decaying = decaying_in_part(layers, rank, size)
    for vector, new in zip(vectors, updated(optimizer, vectors, gradients, decaying), strict=True):
        vector[...] = new


def updated(optimizer, vectors, gradients, decaying):
    """New vectors, which an update has made of these; the optimizer keeps something for them alone."""
    parts = [OwnPart(*pair) for pair in zip(vectors, decaying, strict=True)]
    optimizer.update(parts, [(gradient, None) for gradient in gradients])
    return [part.W for part in parts]


def put_together(layers, parts):
    """Write the parts of all ranks into the parameters of `layers`, which are returned as vectors."""
    vectors = flattened(pairs_of_layers(layers))
    for vector, new in zip(vectors, joined(parts, vectors), strict=True):
        vector[...] = new
    return vectors


class Owned:
    """What a device owns of the parameters of a stage: its own part, a list of `vectors`.

    layers: of the stage.
    rank, size: which of how many parts is this device's own.
    has_all: whether the layers have all numbers from the beginning, among which then are those of the
        `vectors`. If not, they hold arrays that look like their parameters, without numbers, until `gather`
        gives them all, which then are `whole`; after `free` they have none again.
    """

    def __init__(self, layers, rank, size, has_all):
        self._layers, self._place, self.has_all = layers, (rank, size), has_all
        self._find_own()
        if not has_all:
            self.vectors = [vector.copy() for vector in self.vectors]
            self.free()

    def update(self, optimizer, gradients):
        """Update the own part, for which alone the optimizer keeps something.

        gradients: of this part, vectors.
        """
        if self.has_all:
            update_part(optimizer, self._layers, gradients, *self._place)
            self._find_own()
        else:
            decaying = decaying_in_part(self._layers, *self._place)
            self.vectors = updated(optimizer, self.vectors, gradients, decaying)
            self.free()

    def gather(self, parts):
        """Write the parts of all ranks into the layers."""
        if not self.has_all:
            _make_new(self._layers)
        self.whole = put_together(self._layers, parts)

    def free(self):
        """Drop all numbers but those of the own part."""
        for layer in _with_parameters(self._layers):
            layer.W, layer.b = map(_without_numbers, (layer.W, layer.b))
        self.whole = []

    def _find_own(self):
        rank, size = self._place
        self.vectors = parameters_in_parts(self._layers, size)[rank]


def _make_new(layers):
    """Copies of all parameters take their places."""
    for layer in _with_parameters(layers):
        layer.W, layer.b = (None if array is None else array.copy() for array in (layer.W, layer.b))


def _with_parameters(layers):
    """Those of the layers, and of the layers that they are made of, whose W and b are arrays or None."""
    return [layer for layer in every_layer(layers) if layer.arrays]


def _without_numbers(array):
    """An array of the same shape and dtype that takes no memory, and spoils what it is used for."""
    if not isinstance(array, np.ndarray):
        return array  # None, or without numbers anyway
    return np.broadcast_to(np.array(np.nan, array.dtype), array.shape)
