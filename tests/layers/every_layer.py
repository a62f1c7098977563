"""All examples of all registered layers, how to make one of them ready to run, and its derivatives exactly.

The tests of equivalence and of arrays without values take their layers from `LAYERS`. A new layer is found
there, since its file states its examples. What every layer has to keep holds for those of `CONTRACT`, which
has layers of the models as well.
"""

from functools import total_ordering

import numpy as np
from compared import difference

import minipipe as mp
from minipipe.arrays import leaves
from minipipe.cluster.memory import buffers
from minipipe.exact import Rational
from minipipe.layers import every_layer
from minipipe.layers.through import put_aside, weight_gradients
from minipipe.models.amoebanet import Shift


def linear_cell(n_prev, n_before):
    """A cell for features instead of images, without batch norm, so that samples do not interact."""
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
    if sum(parts.values()) < sum(buffers(half).values()):
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


# --- derivatives without a backward pass

@total_ordering
class Dual:
    """v + s e, with e^2 = 0: a number that carries its slope along, through the same forward code, exactly.

    It follows the rules of the derivative: (v + s e)(w + t e) = v w + (v t + s w) e. Of rational parts, it
    rounds nowhere but in exp, log, tanh and sqrt, whose slopes are those of the formulas: exp' = exp,
    log' = 1/v, tanh' = 1 - tanh^2, sqrt' = 1/(2 sqrt). So what a backward pass
    returns is the same number, and `==` decides. Comparisons look at the value alone, as a branch in a
    formula does.
    """

    __slots__ = ("value", "slope")

    def __init__(self, value, slope=Rational(0)):
        self.value, self.slope = value, slope

    def __add__(self, other):
        if isinstance(other, np.ndarray):
            return NotImplemented  # the array takes it from here, number by number
        return Dual(self.value + value(other), self.slope + slope(other))

    __radd__ = __add__

    def __neg__(self):
        return Dual(-self.value, -self.slope)

    def __sub__(self, other):
        return self + -other

    def __rsub__(self, other):
        return -self + other

    def __mul__(self, other):
        if isinstance(other, np.ndarray):
            return NotImplemented
        return Dual(self.value * value(other), self.slope * value(other) + self.value * slope(other))

    __rmul__ = __mul__

    def __truediv__(self, other):
        if isinstance(other, np.ndarray):
            return NotImplemented
        quotient = self.value / value(other)
        return Dual(quotient, (self.slope - quotient * slope(other)) / value(other))

    def __rtruediv__(self, other):
        return Dual(Rational(other)) / self

    def __abs__(self):
        return -self if self.value < 0 else self

    def __eq__(self, other):
        return self.value == value(other)

    def __lt__(self, other):
        return self.value < value(other)

    __hash__ = None

    def exp(self):
        return self._through(self.value.exp(), self.value.exp())

    def log(self):
        return self._through(self.value.log(), 1 / self.value)

    def log1p(self):
        return self._through(self.value.log1p(), 1 / (1 + self.value))

    def tanh(self):
        return self._through(self.value.tanh(), 1 - self.value.tanh() ** 2)

    def sqrt(self):
        return self._through(self.value.sqrt(), 1 / (2 * self.value.sqrt()))

    def _through(self, result, derivative):
        return Dual(result, self.slope * derivative)


def value(number):
    return number.value if isinstance(number, Dual) else number


def slope(number):
    return number.slope if isinstance(number, Dual) else 0


def dual(values, slopes):
    """An object array of `Dual`s."""
    made = np.empty(values.shape, object)
    made.flat = [Dual(*pair) for pair in zip(values.flat, slopes.flat, strict=True)]
    return made


def slopes(array):
    return np.vectorize(slope, otypes=[object])(array)
