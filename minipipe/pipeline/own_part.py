"""The part of a stage's parameters that one of several devices with the stage updates, or has: ZeRO."""

import copy

import numpy as np

from ..collectives.vectors import cut, flattened, joined
from ..layers import every_layer
from ..layers.parameters import parameters_with


class OwnPart:
    """What an optimizer updates in the place of a layer: a run of a stage's parameters.

    W: a vector, numbers of one array.
    """

    decays = ("W",)

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
    _make_new(layers)
    vectors = parameters_in_parts(layers, size)[rank]
    for vector, new in zip(vectors, updated(optimizer, vectors, gradients), strict=True):
        vector[...] = new


def updated(optimizer, vectors, gradients):
    """New vectors, which an update has made of these; the optimizer keeps something for them alone."""
    parts = [OwnPart(vector) for vector in vectors]
    optimizer.update(parts, [(gradient, None) for gradient in gradients])
    return [part.W for part in parts]


def put_together(layers, parts):
    """Write the parts of all ranks into the parameters of `layers`, which are returned as vectors."""
    vectors = flattened([(layer.W, layer.b) for layer in layers])
    for vector, new in zip(vectors, joined(parts, vectors), strict=True):
        vector[...] = new
    return vectors


def in_one(layers, optimizers):
    """The optimizer of all parameters of `layers`, from those of all ranks for their parts."""
    whole, parameters = copy.copy(optimizers[0]), _by_key(layers)
    of_ranks = [list(one.memory.values()) for one in optimizers]
    if not whole.n_memories or not any(of_ranks):
        whole.memory = {}  # that of a rank has the numbers of its parts as keys
        return whole
    of_parameters = zip(*(
        joined([[kept[n] for kept in of_rank] for of_rank in of_ranks], flattened(list(parameters.values())))
        for n in range(whole.n_memories)
    ), strict=True)
    whole.memory = {
        key: [vector.reshape(array.shape) for vector in vectors]
        for (key, array), vectors in zip(parameters.items(), of_parameters, strict=True)
    }
    return whole


def in_parts(layers, optimizer, rank, size):
    """The optimizer of one of `size` parts of the parameters of `layers`, for which `optimizer` is."""
    own, memory = copy.copy(optimizer), optimizer.memory
    of_part = zip(*(
        cut(flattened([memory[key][n] for key in _by_key(layers)]), size)[rank]
        for n in range(own.n_memories if memory else 0)
    ), strict=True)
    own.memory = {(j, "W", 0): [vector.copy() for vector in vectors] for j, vectors in enumerate(of_part)}
    return own


def _by_key(layers):
    """{the key of a parameter in an optimizer's memory: the parameter}, in the order of the parts."""
    pairs = [(layer.W, layer.b) for layer in layers]
    return {key: array for key, (_, array, _) in parameters_with(layers, pairs).items()}


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
            self.vectors = updated(optimizer, self.vectors, gradients)
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
