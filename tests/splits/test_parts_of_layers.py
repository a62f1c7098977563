"""Parts of a layer, put together as its `splits` say, are the layer: in fractions, both ways."""

import numpy as np
import pytest
from cases import eighths
from compared import assert_same
from layers.every_layer import LAYERS, TOKENS, own_parameters, ready

from minipipe.arrays import even_slices
from minipipe.layers import every_layer

# how -> the axes along which A_prev and A are cut; None where A_prev is whole, or A a sum over the devices
AXES = {
    "outputs": (None, 0), "inputs": (0, None), "units": (0, 0), "heads": (None, None), "tokens": (None, None),
}


def n_parts(layer, shape, how):
    """The least number of devices that can share an example equally, from 2; None if none can."""
    W, _ = layer.parameter_shapes()
    lengths = {"outputs": lambda: W[0], "inputs": lambda: W[1], "units": lambda: shape[0],
               "tokens": lambda: W[0], "heads": lambda: layer.n_heads}
    n = lengths[how]()
    return next((T for T in range(2, n + 1) if n % T == 0), None)


CASES = [
    (name, how)
    for name, (layer, shape) in LAYERS.items() for how in layer.splits if n_parts(layer, shape, how)
]


def pieces(array, axis, T):
    """For each of T devices its part along an axis; all of the array, if that is None."""
    if axis is None:
        return [array] * T
    before = (slice(None),) * axis
    return [array[(*before, run)] for run in even_slices(array.shape[axis], T)]


def together(arrays, axis):
    """The arrays side by side along an axis; or for None the sum of them all."""
    if arrays[0] is None:
        return None
    if axis is None:
        return sum(arrays[1:], arrays[0])
    return np.concatenate(arrays, axis)


def without_last_bias(layer):
    """b of a layer whose parts make summands is added to their sum, by nobody alone."""
    last = [layer, *every_layer(layer.layers)][-1]
    last.b, last.bias = None, False


def gradients_together(layer, parts, how, found):
    """(dW, db) of the layer, or tuples of them, from those of its parts."""
    if layer.layers:
        return tuple(zip(*(
            gradients_together(inner, [part.layers[i] for part in parts], layer.splits[how][i],
                               [(dW[i], db[i]) for dW, db in found])
            for i, inner in enumerate(layer.layers)
        ), strict=True))
    axes = layer.splits[how]
    return tuple(together([pair["Wb".index(name)] for pair in found], axes.get(name)) for name in "Wb")


@pytest.mark.parametrize("name, how", CASES)
def test_parts_make_the_whole(name, how):
    layer, A_prev, dZ = ready(name)
    layer = layer.copy(eighths)
    A_prev, dZ = A_prev if name in TOKENS else eighths(A_prev), eighths(dZ)
    T = n_parts(layer, LAYERS[name][1], how)
    of_input, of_output = AXES[how]
    if of_output is None:
        without_last_bias(layer)
    A = layer.forward(A_prev)
    parts = [layer.part(how, rank, T) for rank in range(T)]
    assert all(part.cache is None for part in parts)
    assert all(getattr(part, which) is not getattr(whole, which) for part in parts
               for (part, which), (whole, _) in zip(own_parameters(part), own_parameters(layer), strict=True))
    inputs = pieces(A_prev, of_input, T)
    found = [part.forward(own) for part, own in zip(parts, inputs, strict=True)]
    assert_same(together(found, of_output), A, "A")
    dA_prev, dW, db = layer.backward(dZ)
    backward = [part.backward(own) for part, own in zip(parts, pieces(dZ, of_output, T), strict=True)]
    assert_same(together([dA for dA, _, _ in backward], of_input), dA_prev, "dA_prev")
    assert_same(gradients_together(layer, parts, how, [pair for _, *pair in backward]), (dW, db), "dW, db")


def stated(layer):
    """{(the class that says how this layer is split, how)}"""
    kind = next(base for base in type(layer).__mro__ if "splits" in vars(base))
    return {(kind.__name__, how) for how in layer.splits}


def test_every_way_of_every_layer_was_tried():
    tried = {(next(iter(stated(LAYERS[name][0])))[0], how) for name, how in CASES}
    assert tried == set().union(*(stated(layer) for layer, _ in LAYERS.values()))
