"""All examples of all registered layers, and how to make one of them ready to run.

The tests of equivalence and of arrays without numbers take their layers from `LAYERS`. A new layer is found
there, since its file states its examples. What every layer has to keep holds for those of `CONTRACT`, which
has layers of the models as well.
"""

import numpy as np
from compared import difference

import minipipe as mp
from minipipe.arrays import leaves
from minipipe.cluster import Buffers
from minipipe.layers import every_layer
from minipipe.layers.through import put_aside, weight_gradients
from minipipe.models.amoebanet import Shift


def linear_cell(n_prev, n_before):
    """A cell for features instead of images, without batch norm, so that samples are alone in it."""
    fits = [mp.Linear(n_prev, 2), mp.Linear(n_before, 3)]
    sums = [
        ((mp.ReLU(), 0), (mp.Linear(3, 2), 1)),
        ((mp.Chain(), 2), (mp.ReLU(), 0)),
        ((mp.Chain(mp.Linear(3, 2), mp.ReLU()), 1), (mp.Chain(), 3)),
    ]
    return mp.models.Cell("LinearCell", fits, sums, concatenated=(0, 2, 4))


LAYERS = mp.layers.LAYERS.examples()  # {name: (layer, shape of a sample)}, where a Join has two samples
CONTRACT = LAYERS | {
    "LinearCell": (linear_cell(3, 4), ((3,), (4,))), "Shift()": (Shift(), (2, 4, 3)),
}
TOKENS = {  # {name: how many tokens there are}, for layers that take tokens
    name: next(part.n_tokens for part in every_layer([layer]) if not part.layers)
    for name, (layer, _) in LAYERS.items() if layer.takes == "tokens"
}
ALONE = [  # those that a network may hold by themselves, with samples that have an axis
    name for name, (layer, shape) in LAYERS.items() if shape and not layer.fork and not layer.join
]


def is_pair(shape):
    """Tell whether a layer takes two samples, of these shapes."""
    return bool(shape) and isinstance(shape[0], tuple)


def tree(function, *values):
    """`function` of the arrays at one position of nested tuples of one form; None stays None."""
    if values[0] is None:
        return None
    if isinstance(values[0], (tuple, list)):
        return tuple(tree(function, *parts) for parts in zip(*values, strict=True))
    return function(*values)


def arrays_in(value):
    """The arrays in nested tuples and lists, each once."""
    return list({id(array): array for array in leaves(value) if isinstance(array, np.ndarray)}.values())


def unread_between_the_halves(layer, A_prev, dZ):
    """What a stage keeps of `layer` between the halves of a backward although dW and db do not depend on it.

    That is an array without which they are the same, or one that keeps a larger one alive.
    """
    layer.forward(A_prev)
    layer.backward_input(dZ)
    half = put_aside(layer, dZ)
    right = weight_gradients(layer, half)

    def without(unwanted):
        spoilt = np.full_like(unwanted, np.nan if unwanted.dtype.kind == "f" else 0)
        return _replaced(half, unwanted, spoilt)

    unread = [
        array for array in arrays_in(half)
        if difference(weight_gradients(layer, without(array)), right) is None
    ]
    parts = {(array.ctypes.data, array.shape): array.nbytes for array in arrays_in(half)}
    if sum(parts.values()) < sum(Buffers(half).values()):
        unread.append(half)
    return unread


def _replaced(value, old, new):
    """Nested tuples and lists with one array instead of another."""
    if value is old:
        return new
    if not isinstance(value, (tuple, list)):
        return value
    parts = [_replaced(part, old, new) for part in value]
    return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)


def own_parameters(layer):
    """[(layer, "W" or "b")] for each array of parameters in `layer`, in the order of `leaves(dW)`,
    then `leaves(db)`.
    """
    return [
        (part, name)
        for name in "Wb"
        for part in every_layer([layer])
        if isinstance(getattr(part, name), np.ndarray)
    ]


def ready(name, m=5, dtype=np.float64, seed=0):
    """(a copy of the layer with parameters none of which is 0 or 1, A_prev, dZ)"""
    rng = np.random.default_rng(seed)
    layer, shape = CONTRACT[name]
    layer = layer.copy()
    layer.initialize(rng, dtype)
    for part, which in own_parameters(layer):
        parameter = getattr(part, which)
        setattr(part, which, parameter + rng.standard_normal(parameter.shape).astype(dtype) / 2)

    def normal(shape):
        return rng.standard_normal(shape).astype(dtype)

    if name in TOKENS:
        A_prev = rng.integers(0, TOKENS[name], (*shape, m)).astype(dtype)
    elif is_pair(shape):
        A_prev = tuple(normal((*of_one, m)) for of_one in shape)
    else:
        A_prev = normal((*shape, m))
    return layer, A_prev, tree(lambda A: normal(A.shape), layer.forward(A_prev))
