"""What a subclass of `Layer`, `Loss` or `Optimizer` has left out is said in words; what a layer prints."""

from inspect import signature

import numpy as np
import pytest
from layers.every_layer import LAYERS

import minipipe as mp
from minipipe.layers import he, xavier
from minipipe.layers.layer import Layer
from minipipe.losses import Loss
from minipipe.optimizers import Optimizer

X, Y = np.ones((2, 4)), np.ones((2, 4))


class Nothing(Layer):
    """All methods are missing."""


class Half(Layer):
    def forward(self, A_prev):
        self.cache = A_prev
        return A_prev / 2


class Silent(Half):
    def backward_input(self, dZ):
        dZ / 2


class Mute(Layer):
    def forward(self, A_prev):
        A_prev / 2


class Slope(Half):
    """With a parameter, but without its gradient."""

    def parameter_shapes(self):
        return (1, 1), None

    def draw(self, rng):
        return np.ones(1)

    def backward_input(self, dZ):
        return dZ


class Undrawn(Half):
    parameter_shapes = Slope.parameter_shapes


class NoCost(Loss):
    """All methods are missing."""


class NoReturn(Loss):
    def cost(self, A, Y, m):
        self.cache = A, m
        (A - Y).sum() / m


class NoDerivative(Loss):
    def cost(self, A, Y, m):
        self.cache = A, m
        return (A - Y).sum() / m


class NoReturnedDerivative(NoDerivative):
    def derivative(self, A, m):
        A / m


class NoStep(Optimizer):
    def __init__(self):
        super().__init__(0.1, 0, False)


class NoReturnedStep(NoStep):
    def step(self, g):
        0.1 * g


@pytest.mark.parametrize("layer, loss, optimizer, error, words", [
    (Nothing(), None, None, NotImplementedError,
     "Nothing has no forward: write `def forward(self, A_prev)` in class Nothing(Layer)"),
    (Half(), None, None, NotImplementedError,
     "Half has no backward: write `def backward(self, dZ)` in class Half(Layer), which returns (dA_prev, "),
    (Slope(), None, None, NotImplementedError, "Slope has no backward_weight: write `def backward"),
    (Undrawn(), None, None, NotImplementedError, "Undrawn has no draw: write `def draw(self, rng)`"),
    (Mute(), None, None, TypeError, "Mute.forward has returned None: end it with `return A`"),
    (Silent(), None, None, TypeError, "Silent.backward_input has returned None: end it with `return dA_"),
    (None, NoCost(), None, NotImplementedError, "NoCost has no cost: write `def cost(self, A"),
    (None, NoReturn(), None, TypeError, "NoReturn.cost has returned None: end it with `return J`"),
    (None, NoDerivative(), None, NotImplementedError, "NoDerivative has no derivative: write `def deriv"),
    (None, NoReturnedDerivative(), None, TypeError, "derivative has returned None: end it with `return dA`"),
    (None, None, NoStep(), NotImplementedError, "NoStep has no step: write `def step(self, g, *memory)` in"),
    (None, None, NoReturnedStep(), TypeError, "NoReturnedStep.step has returned None: end it with `return"),
])
@pytest.mark.parametrize("kind", [mp.Sequential, lambda *network: mp.Pipeline(*network, 2, 2)],
                         ids=["Sequential", "Pipeline"])
def test_a_missing_method_is_named_with_its_class(kind, layer, loss, optimizer, error, words):
    layers = [mp.Linear(2, 2), layer or mp.ReLU(), mp.Linear(2, 2)]
    with pytest.raises(error) as caught:
        model = kind(layers, loss or mp.MeanSquaredError())
        model.forward_backward(X, Y)
        model.step(optimizer or mp.SGD(0.1))
    assert words in str(caught.value)


OTHER = {  # a value that is no default, for each optional argument that layers of the package have
    "stride": 4, "padding": 1, "dilation": 2, "groups": 2, "bias": False, "output_padding": 1, "epsilon": 0.5,
    "momentum": 0.5, "gamma": 0, "p": 0.25, "negative_slope": 0.5, "causal": True, "dropout": 0.25,
    "n_hidden": 3, "how": "concat", "tie": "name", "initialization": xavier, "approximate": "none",
}
BESIDE = {"output_padding": {"stride": 2}}
NEEDED = {"widths": [1], "shape": (2, 3), "kernel_size": 3}  # other sizes are 4, and the rest an example's


def again(layer):
    return eval(repr(layer), vars(mp) | {"he": he, "xavier": xavier})


@pytest.mark.parametrize("name", LAYERS)
def test_the_repr_is_the_call_that_makes_such_a_layer(name):
    layer, shape = LAYERS[name]
    twin, shape = again(layer), tuple((*s, 5) for s in shape) if layer.join else (*shape, 5)
    assert repr(twin) == repr(layer)
    assert twin.parameter_shapes() == layer.parameter_shapes()
    assert twin.output_shape(shape) == layer.output_shape(shape) and twin.macs(shape) == layer.macs(shape)


@pytest.mark.parametrize("name", [name for name in mp.layers.LAYERS if name not in ("Add", "Concat")])
def test_the_repr_names_every_argument_that_differs_from_its_default(name):
    kind = getattr(mp, name)
    arguments = signature(kind).parameters.values()
    named = [argument for argument in arguments if argument.kind is argument.POSITIONAL_OR_KEYWORD]
    example, *_ = mp.layers.LAYERS.facts[name].examples()[0]
    needed = []
    for argument in named:
        if argument.default is argument.empty:
            shown = example.argument(argument.name)
            needed.append(NEEDED.get(argument.name, 4 if isinstance(shown, int) else shown))
    assert "=" not in repr(kind(*needed))
    for argument in named:
        if argument.default is not argument.empty and argument.name in OTHER:
            value = OTHER[argument.name]
            layer = kind(*needed, **{argument.name: value}, **BESIDE.get(argument.name, {}))
            assert f"{argument.name}={getattr(value, '__name__', None) or repr(value)}" in repr(layer)
            assert repr(again(layer)) == repr(layer)


def test_the_repr_of_a_layer_of_your_own():
    class Scale(Layer):
        def __init__(self, n, factor=2, shift=0, hidden=3):
            self.n, self.factor, self.shift = n, factor, shift

    assert repr(Scale(5)) == "Scale(5)" and repr(Scale(5, shift=1)) == "Scale(5, shift=1)"
    assert repr(Nothing()) == "Nothing()"
    assert repr(mp.Linear(2, 1, W=[[1.0, 2.0]], b=[[0.5]])) == "Linear(2, 1)"
    assert repr(mp.Conv2d(1, 2, 3, stride=2, padding=1)) == "Conv2d(1, 2, 3, stride=2, padding=1)"
