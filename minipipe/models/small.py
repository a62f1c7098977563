"""Fully connected networks."""

from ..checks import shown, whole_numbers
from ..layers import Layer, Linear, ReLU, he


def mlp(sizes, activation=ReLU, initialization=he):
    """A multi-layer perceptron: Linear(sizes[l], sizes[l + 1]) with an activation between each two.

    sizes: the numbers of units, at least two.
    activation: called without arguments for each of the layers, so a class, such as `ReLU`, or for
        instance `lambda: LeakyReLU(0.2)`; there is none at the end.
    initialization: `he` for ReLU and its relatives, `xavier` for Tanh.

    Returns a list of layers from (sizes[0], m) to (sizes[-1], m). Source: Rumelhart, Hinton, Williams 1986.

    >>> mlp([64, 32, 10])
    [Linear(64, 32), ReLU(), Linear(32, 10)]
    """
    sizes = list(whole_numbers("sizes", sizes))
    if len(sizes) < 2:
        raise ValueError(
            f"sizes={sizes} must have at least 2 numbers of units: those of the input and of the output"
        )
    if isinstance(activation, Layer) or not callable(activation):
        raise ValueError(
            f"activation={shown(activation)} must make a layer when called: pass a class, such as ReLU"
        )
    layers = []
    for n_prev, n in zip(sizes, sizes[1:]):
        layers += [Linear(n_prev, n, initialization), activation()]
    return layers[:-1]
