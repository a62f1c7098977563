"""A layer of six lines, with `forward` and a whole `backward`, works wherever the package's own do.

It is the fully connected layer of `minipipe.tiny`, its parameters set in the constructor, or a scale whose
parameter is drawn. All numbers are fractions, and the reference is `Linear` in a full batch.
"""

import copy
import math
import pickle
from typing import NamedTuple

import numpy as np
import pytest
from compared import assert_refused, assert_same
from layers.every_layer import ALONE, LAYERS
from sampling import one_in

import minipipe as mp
from minipipe.arrays import leaves
from minipipe.exact import Rational, rational
from minipipe.layers.through import put_aside
from minipipe.losses import Loss
from minipipe.optimizers import Optimizer
from minipipe.order import RECOMPUTE
from minipipe.schedules import names_for


class Tiny(mp.Layer):
    def __init__(self, W, b):
        self.W, self.b = W, b

    def forward(self, A_prev):
        self.cache = A_prev
        return self.W @ A_prev + self.b

    def backward(self, dZ):
        return self.W.T @ dZ, dZ @ self.cache.T, dZ.sum(axis=1, keepdims=True)


class Scale(mp.Layer):
    """A = W A_prev, one number of W for each row."""

    def __init__(self, n):
        self.n = n

    def parameter_shapes(self):
        return (self.n, 1), None

    def draw(self, rng):
        return rng.integers(1, 4, self.n) / 2

    def forward(self, A_prev):
        self.cache = A_prev
        return self.W * A_prev

    def backward(self, dZ):
        return self.W * dZ, (dZ * self.cache).sum(axis=1, keepdims=True), None


class Bend(mp.Layer):
    """A ReLU without halves, and without parameters."""

    def forward(self, Z):
        self.cache = Z
        return np.maximum(Z, 0)

    def backward(self, dA):
        return dA * (self.cache > 0), None, None


def fractions(*shape, seed):
    return rational(np.random.default_rng(seed).integers(-4, 5, shape)) / 4


X, Y = fractions(2, 6, seed=0), fractions(2, 6, seed=1)
SIZES = [(2, 3), (3, 3), (3, 3), (3, 2)]


def network(linear, bend):
    layers = []
    for seed, (n_prev, n) in enumerate(SIZES):
        layers += [linear(fractions(n, n_prev, seed=seed), fractions(n, 1, seed=seed + 9)), bend()]
    return layers


def same_with_halves():
    return network(lambda W, b: mp.Linear(*W.shape[::-1], W=W, b=b), mp.ReLU)


def tiny():
    return network(Tiny, Bend)


def two_updates(net, optimizer):
    """Train `net`; return both costs and all parameters."""
    costs = net.train([(X, Y)], optimizer) + net.train([(X, Y)], optimizer)
    return [np.array(costs), *leaves([(layer.W, layer.b) for layer in net.layers])]


def sgd():
    return mp.SGD(Rational(1, 2), momentum=Rational(1, 4))


LOSS = mp.MeanSquaredError()
FULL_BATCH = two_updates(mp.Sequential(same_with_halves(), LOSS), sgd())


def assert_two_updates_equal_full_batch(net):
    assert_same(two_updates(net, sgd()), FULL_BATCH)


SCHEDULES = names_for(stages=4, microbatches=6)


@pytest.mark.parametrize("schedule, recompute", one_in(5, SCHEDULES, RECOMPUTE))
def test_a_custom_layer_equals_the_full_batch_in_every_schedule(schedule, recompute):
    assert_two_updates_equal_full_batch(
        mp.Pipeline(tiny(), LOSS, 4, 6, schedule=schedule, recompute=recompute)
    )


def in_copies_that_share_parameters(zero):
    split, memory = dict(replicas=3, microbatches=6), dict(recompute="always", zero=zero)
    return mp.Parallel(tiny(), LOSS, **split, **memory, sums=mp.Sums(buckets=1))


def beside_a_linear_that_is_divided():
    """Each device of a group has the other layers whole."""
    layers = [*same_with_halves()[:2], *tiny()[2:]]
    return mp.Parallel(layers, LOSS, replicas=2, shards=2, stages=2, microbatches=4)


@pytest.mark.parametrize("make", [
    lambda: in_copies_that_share_parameters(2), lambda: in_copies_that_share_parameters(3),
    beside_a_linear_that_is_divided, lambda: mp.ParameterServer(tiny(), LOSS, 3),
    lambda: mp.Pipeline([mp.Chain(*tiny()[:2]), *tiny()[2:]], LOSS, 2, 3, schedule="zb-h1"),
], ids=["ZeRO 2", "ZeRO 3", "every split", "a server", "inside a block"])
def test_a_custom_layer_equals_the_full_batch_in_every_split(make):
    assert_two_updates_equal_full_batch(make())


def test_the_halves_of_a_custom_layer_equal_its_backward():
    layer, dZ = tiny()[0], fractions(3, 6, seed=2)
    layer.forward(X)
    whole = layer.backward(dZ)
    assert layer.cache is X
    assert_same([layer.backward_input(dZ), *layer.backward_weight(dZ)], whole)
    layer.forward(X)
    assert_same(layer.backward_weight(dZ), whole[1:])
    layer.forward(X)
    layer.backward_input(dZ)
    kept_dZ, cache = put_aside(layer, dZ)
    assert kept_dZ is None
    assert_same(cache, whole[1:])
    bend = Bend()
    bend.forward(X)
    bend.backward_input(X)
    assert bend.cache is None and put_aside(bend, X) is None


def test_a_drawn_parameter_is_drawn_in_the_dtype_of_the_network():
    net = mp.Sequential([Scale(2)], LOSS, dtype=np.float32)
    assert net.layers[0].W.dtype == np.float32 and net.layers[0].W.shape == (2, 1)
    assert net.layers[0].b is None and tiny()[0].parameter_shapes() == ((3, 2), (3, 1))
    twin = pickle.loads(pickle.dumps(net))
    batch = np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)
    assert twin.forward_backward(*batch) == net.forward_backward(*batch)


# --- a subclass of a shipped layer with a backward of its own

def with_backward(layer, backward):
    """Return a copy of `layer`, of a subclass that overrides `backward`; its `calls` counts the calls."""
    kind, calls = type(layer), []

    class Own(kind):
        def backward(self, dZ):
            calls.append(1)
            return backward(self, kind, dZ)

    own = layer.copy()
    own.__class__, own.calls = Own, calls
    return own


def by_super(self, kind, dZ):
    return super(type(self), self).backward(dZ)


def by_another_layer(self, kind, dZ):
    """Compute without `super()`: with a layer of the shipped class, which gets the cache."""
    twin = copy.copy(self)
    twin.__class__ = kind
    return twin.backward(dZ)


def gradients_of(layer, shape, schedule):
    """Return [J, dW, db, ...] of a network in four stages, of which `layer` is the second layer."""
    rng, tokens = np.random.default_rng(0), layer.takes == "tokens"
    X = (rng.integers(0, 2, (*shape, 12)) if tokens else rng.standard_normal((*shape, 12))).astype(float)
    n = math.prod(layer.output_shape((*shape, 1)))
    before = mp.Chain() if tokens else mp.LayerNorm(shape[0])  # whose parameters need the layer's dA_prev
    net = mp.Pipeline([before, layer, mp.Flatten(), mp.Linear(n, 2)], LOSS, 4, 6, schedule=schedule)
    return [net.forward_backward(X, rng.standard_normal((2, 12))), *leaves(net.gradients)]


@pytest.mark.parametrize("name, schedule", one_in(9, ALONE, names_for(stages=4, microbatches=6)))
def test_a_subclass_with_its_own_backward_is_what_runs(name, schedule):
    layer, shape = LAYERS[name]
    expected = gradients_of(layer.copy(), shape, schedule)
    for backward in (by_super, by_another_layer):
        own = with_backward(layer, backward)
        assert_same(gradients_of(own, shape, schedule), expected)
        assert len(own.calls) >= 6


def test_an_overridden_half_is_what_backward_calls():
    class Doubled(mp.Linear):
        def backward_input(self, dZ):
            return 2 * super().backward_input(dZ)

    layer, dZ = Doubled(2, 3, W=fractions(3, 2, seed=0)), fractions(3, 6, seed=1)
    layer.b = fractions(3, 1, seed=2)
    layer.forward(X)
    assert_same(layer.backward(dZ), [2 * layer.W.T @ dZ, dZ @ X.T, dZ.sum(axis=1, keepdims=True)])


def test_the_most_derived_class_decides_what_is_called():
    """A whole backward over halves, halves over a whole, and a backward from a class that is no layer."""
    class Whole(mp.Linear):
        def backward(self, dZ):
            return "whole", "dW", "db"

    class Halves(Whole):
        def backward_input(self, dZ):
            return "half"

        def backward_weight(self, dZ):
            return "dW of half", "db of half"

    class SecondHalf(Whole):
        def backward_weight(self, dZ):
            return "dW of half", "db of half"

    class NoLayer:
        def backward(self, dZ):
            return "mixed in", "dW", "db"

    class Mixed(NoLayer, mp.Linear):
        pass

    for kind, first, second in (
        (Whole, "whole", ("dW", "db")), (Halves, "half", ("dW of half", "db of half")),
        (SecondHalf, "whole", ("dW of half", "db of half")), (Mixed, "mixed in", ("dW", "db")),
    ):
        layer = kind(2, 3, W=np.ones((3, 2)))
        assert (layer.backward(X), layer.backward_input(X)) == ((first, *second), first), kind.__name__
        assert layer.backward_weight(X) == second, kind.__name__
    layer = SecondHalf(2, 3, W=np.ones((3, 2)))
    layer.cache = "of a forward"
    layer.backward_input(X)
    assert layer.cache == "of a forward"  # which its backward_weight may read


# --- what is missing, and what it prints

class Nothing(mp.Layer):
    """All methods are missing."""


class Half(mp.Layer):
    def forward(self, A_prev):
        self.cache = A_prev
        return A_prev / 2


class Silent(Half):
    def backward_input(self, dZ):
        dZ / 2


class Mute(mp.Layer):
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


class One(Half):
    def backward(self, dZ):
        return dZ


class SecondHalf(Half):
    """It writes the second half alone."""

    def backward_weight(self, dZ):
        return None, None


MISSING = [
    (Nothing(), NotImplementedError,
     "Nothing has no forward: write `def forward(self, A_prev)` in class Nothing(Layer)"),
    (Half(), NotImplementedError,
     "Half has no backward: write `def backward(self, dZ)` in class Half(Layer), which returns (dA_prev, "),
    (Slope(), NotImplementedError, "Slope has no backward_weight: write `def backward"),
    (Undrawn(), NotImplementedError, "Undrawn has no draw: write `def draw(self, rng)`"),
    (Mute(), TypeError, "Mute.forward has returned None: end it with `return A`"),
    (Silent(), TypeError, "Silent.backward_input has returned None: end it with `return dA_"),
    (One(), TypeError, "end it with `return dA_prev, dW, db`"),
    (SecondHalf(), NotImplementedError, "SecondHalf has no backward: write `def backward(self, dZ)`"),
    (NoCost(), NotImplementedError, "NoCost has no cost: write `def cost(self, A"),
    (NoReturn(), TypeError, "NoReturn.cost has returned None: end it with `return J`"),
    (NoDerivative(), NotImplementedError, "NoDerivative has no derivative: write `def deriv"),
    (NoReturnedDerivative(), TypeError, "derivative has returned None: end it with `return dA`"),
    (NoStep(), NotImplementedError, "NoStep has no step: write `def step(self, g, *memory)` in"),
    (NoReturnedStep(), TypeError, "NoReturnedStep.step has returned None: end it with `return"),
]


def test_an_error_names_the_missing_method_and_its_class():
    def used(part):
        layer, loss, optimizer = (
            part if isinstance(part, kind) else other
            for kind, other in ((mp.Layer, mp.ReLU()), (Loss, LOSS), (Optimizer, mp.SGD(0.1)))
        )
        pipe = mp.Pipeline([mp.Linear(2, 2), layer, mp.Linear(2, 2)], loss, 2, 2)
        pipe.forward_backward(np.ones((2, 4)), np.ones((2, 4)))
        pipe.step(optimizer)

    for part, error, words in MISSING:
        assert_refused([(lambda: used(part), words)], error)


class Gradients(NamedTuple):
    """(dW, db) by name."""

    dW: np.ndarray
    db: np.ndarray


class WithNames(Tiny):
    """A Tiny whose gradients have names, and lie in memory as the transpose of a new array."""

    def backward_input(self, dZ):
        return self.W.T @ dZ

    def backward_weight(self, dZ):
        return Gradients((self.cache @ dZ.T).T, dZ.sum(axis=1, keepdims=True))


def test_gradients_may_be_a_named_tuple():
    W, b, X, Y = np.array([[1.0, 2.0]]), np.ones((1, 1)), np.arange(8.0).reshape(2, 4), np.ones((1, 4))
    expected = mp.Sequential([Tiny(W, b)], LOSS)
    expected.forward_backward(X, Y)
    for net in mp.Sequential([WithNames(W, b)], LOSS), mp.Pipeline([WithNames(W, b)], LOSS, 1, 2):
        net.forward_backward(X, Y)
        assert_same(net.gradients, expected.gradients)
