"""What a user sets as W, b, X, Y and dtype counts as the floats that it stands for, or is refused."""

import numpy as np
import pytest

import minipipe as mp
from minipipe.arrays import leaves
from minipipe.exact import rational

LOSS, RNG = mp.MeanSquaredError(), np.random.default_rng(0)
X, Y = RNG.integers(-3, 4, (2, 3, 6)).astype(float)
W, B = RNG.integers(-2, 3, (3, 3)).astype(float), np.array([[1.0], [0.0], [2.0]])
CLIENTS = [(X[:, :3], Y[:, :3]), (X[:, 3:], Y[:, 3:])]

NETWORKS = {
    "on one device": mp.Sequential,
    "pipeline": lambda *a, **o: mp.Pipeline(*a, 2, 2, **o),
    "without a flush": lambda *a, **o: mp.Pipeline(*a, 2, 1, schedule="pipedream", **o),
    "copies": lambda *a, **o: mp.DataParallel(*a, 2, **o),
    "shards": lambda *a, **o: mp.TensorParallel(*a, 2, **o),
    "zero 1": lambda *a, **o: mp.DataParallel(*a, 2, zero=1, **o),
    "zero 3": lambda *a, **o: mp.DataParallel(*a, 2, zero=3, **o),
    "servers": lambda *a, **o: mp.ParameterServer(*a, 2, **o),
    "clients": lambda *a, **o: mp.FederatedAveraging(*a, CLIENTS, **o),
}
each_network = pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)


class Own(mp.layers.Layer):
    """A = W A_prev + b."""

    def __init__(self, W, b=None):
        self.W, self.b = W, b

    def forward(self, A_prev):
        self.cache = A_prev
        return self.W @ A_prev + (0 if self.b is None else self.b)

    def backward(self, dZ):
        db = None if self.b is None else dZ.sum(axis=1, keepdims=True)
        return self.W.T @ dZ, dZ @ self.cache.T, db


# What is set: (W, b), and None, or what the error says; after a "|", what it says of an own layer, or of a
# `Linear` before it is in a network.
KINDS = {
    "whole numbers": (W.astype(int), B.astype(np.uint8), None),
    "booleans": (W > 0, B > 0, None),
    "lists": (W.astype(int).tolist(), B.tolist(), None),
    "float32": (W.astype(np.float32), B.astype(np.float32), None),
    "objects": (W.astype(int).astype(object), B, None),
    "views": (W.copy().T, np.hstack([B, B])[:, :1], None),
    "another shape": (W[:2], B, r"W has shape \(2, 3\), but .* needs \(3, 3\)|shape|broadcast"),
    "a vector": (W, B[:, 0], r"b has shape \(3,\), but .* needs \(3, 1\)|db of shape \(3, 1\)|broadcast"),
    "complex": (W + 0j, B, "W is an array of complex128: pass real numbers"),
    "texts": (W, B.astype(str), "b is an array of <U32: pass real numbers"),
    "NaN": (W * np.nan, B, "W holds NaN or infinity in 9 of 9 places"),
    "infinity": (W, np.full((3, 1), np.inf), "b holds NaN or infinity"),
    "a mask": (np.ma.masked_array(W, W > 1), B, "W is a masked array"),
    "a number": (2.0, B, r"W=2.0 is a single number: make it np.full\(\(1, 1\), 2.0\)|W has shape \(\)"),
}


def train(net, times=2):
    batches = times if isinstance(net, mp.FederatedAveraging) else [(X, Y)] * times
    net.train(batches, mp.SGD(0.125, momentum=0.5))


def trained(make, way, W, b):
    """The arrays of a network that has been trained with this W and b, in the dtype that they have then."""
    last, set_later = mp.Linear(3, 3, W=np.eye(3)), way in ("assigned", "assigned after a run")
    first = Own(W, b) if way == "own layer" else mp.Linear(3, 3, W=-np.eye(3), b=B)
    if way == "assigned before":
        first.W, first.b = W, b
    net = make([mp.Linear(3, 3, W=W, b=b) if way == "constructor" else first, last], LOSS)
    if way == "assigned after a run":
        train(net, 1)
    if set_later:
        net.layers[0].W, net.layers[0].b = W, b
    train(net)
    return leaves([(layer.W, layer.b) for layer in net.layers])


WAYS = ["own layer", "constructor", "assigned before", "assigned", "assigned after a run"]


@pytest.mark.parametrize("way", [
    pytest.param(way, marks=[] if way in WAYS[::4] else pytest.mark.slow) for way in WAYS
])
@each_network
def test_assigned_parameters_train_as_floats_or_are_refused(make, way):
    for kind, (W, b, words) in KINDS.items():
        if words is not None:
            words = words if way == "own layer" or kind == "a number" else words.partition("|")[0]
            with pytest.raises(ValueError, match=words):
                trained(make, way, W, b)
            continue
        found, expected = trained(make, way, W, b), trained(make, way, np.array(W, float), np.array(b, float))
        for array, other in zip(found, expected, strict=True):
            assert array.dtype == other.dtype == np.float64 and np.array_equal(array, other), kind


@each_network
def test_the_layers_of_a_layer_are_taken_over_too(make):
    found = []
    for number in (float, int):
        net = make([mp.Residual(mp.Linear(3, 3, W=W, b=B)), mp.LayerNorm(3)], LOSS)
        inner = net.layers[0].layers[1].layers[0]
        inner.W = W.astype(number)
        net.layers[1].W = np.full((3, 1), 2, number)
        train(net)
        found.append(leaves([(layer.W, layer.b) for layer in net.layers]))
    assert all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(*found, strict=True))
    net.layers[1].b = np.zeros(3)
    with pytest.raises(ValueError, match=r"b has shape \(3,\), but layer 1, LayerNorm\(3\) needs \(3, 1\)"):
        train(net)


def test_assigned_parameters_are_used_in_step_predict_and_state():
    nets = [mp.Sequential([mp.Linear(3, 3, W=W, b=B)], LOSS) for _ in range(2)]
    for net, number in zip(nets, (float, int)):
        net.forward_backward(X, Y)
        net.layers[0].W = W.astype(number)
        assert net.state().arrays["0/W"].dtype == np.float64
        net.layers[0].b = B.astype(number)
        net.step(mp.SGD(0.125))
    assert np.array_equal(nets[0].layers[0].W, nets[1].layers[0].W)
    for name, value, words in [
        ("W", None, r"layer 0, Linear.* has no W now, unlike before: make it an array of shape \(3, 3\)"),
        ("b", [[1], [2]], r"b has shape \(2, 1\), but layer 0, Linear\(3, 3, .*\) needs \(3, 1\)"),
    ]:
        net, optimizer = mp.Sequential([mp.Linear(3, 3)], LOSS), mp.SGD(0.1)
        net.forward_backward(X, Y)
        setattr(net.layers[0], name, value)
        for call in (lambda: net.step(optimizer), lambda: net.predict(X), net.state):
            with pytest.raises(ValueError, match=words):
                call()
        assert net.n_steps == 0
    net = mp.Sequential([mp.Linear(3, 3, bias=False)], LOSS)
    net.layers[0].b = B
    with pytest.raises(ValueError, match="has a b now, unlike before: make it in __init__"):
        net.predict(X)


def test_an_assigned_array_is_the_networks_own_if_it_fits():
    net, array = mp.Sequential([mp.Linear(3, 3)], LOSS), W.copy()
    net.layers[0].W = array
    J = net.forward_backward(X, Y)
    array[0, 0] += 1
    assert net.layers[0].W is array and net.forward_backward(X, Y) != J


def test_tied_weights_are_assigned_together_or_not_at_all():
    layers = [mp.Linear(3, 3, tie="a"), mp.Tanh(), mp.Linear(3, 3, tie="a")]
    for make in (mp.Sequential, NETWORKS["pipeline"], NETWORKS["zero 1"]):
        net = make(layers, LOSS)
        train(net, 1)
        net.layers[2].W = W
        with pytest.raises(ValueError, match="layers 0 and 2 share tie='a', but have different W"):
            train(net)
        net.layers[0].W = W.astype(int)
        train(net)
        assert np.array_equal(net.layers[0].W, net.layers[2].W)


# --- one dtype

LAYERS = [mp.Linear(3, 3), mp.BatchNorm(3), mp.Tanh(), mp.Linear(3, 3)]


@each_network
def test_a_network_has_one_dtype_whatever_it_is_fed(make):
    found = []
    for number in (np.float64, np.float32, np.int8):
        net = make(LAYERS, LOSS, dtype="float32")
        batches = [(X.astype(number), Y.astype(number))] * 2
        net.train(2 if isinstance(net, mp.FederatedAveraging) else batches, mp.Adam(0.125))
        found.append([array for layer in net.layers for array in leaves((layer.W, layer.b))])
        A = net.predict(X.astype(number))
        assert net.dtype == A.dtype == np.float32 and {array.dtype for array in found[-1]} == {net.dtype}
        assert all(np.array_equal(*pair) for pair in zip(found[0], found[-1], strict=True))
    for layer in (net.layers[0], net.layers[3]):
        layer.W, layer.b = W.astype(int), B.astype(int)
    train(net, 1)
    assert {layer.W.dtype for layer in net.layers if layer.has_parameters} == {net.dtype}
    assert make(LAYERS, LOSS).dtype == np.float64
    assert make(net.layers, LOSS).dtype == np.float32
    again = make(net.layers, LOSS, dtype=np.float64)  # what the layers bring, and have counted
    arrays = leaves([[getattr(layer, name) for name in layer.arrays] for layer in again.layers])
    assert {array.dtype for array in arrays} == {np.dtype(np.float64)}
    for x, y, words in [
        (1e39 * X, Y, r"X holds 3e\+39, but float32 ends at 3.4e\+38"), (X, 1e39 * Y, "Y holds 3e"),
    ]:
        with pytest.raises(ValueError, match=words):
            net.checked_batch(x, y)


def test_tokens_and_fractions_keep_their_dtype():
    many = mp.Sequential([mp.Embedding(2**12, 2)], None, dtype="float16")  # whose floats have no 2049
    assert many.predict([[2049]]).tolist() == many.layers[0].W[2049].reshape(2, 1, 1).tolist()
    exact = mp.Sequential([mp.Linear(3, 3, W=rational(W))], LOSS)
    assert exact.dtype == object and exact.predict(rational(X)).dtype == object


# --- one object, one place

def test_a_layer_with_parameters_stands_in_one_place():
    linear, relu = mp.Linear(3, 3), mp.ReLU()
    for layers in (
        [linear] * 3, [linear, mp.Residual(linear)], [mp.Residual(linear)] * 2, [Own(W)] * 2,
        [mp.Residual(Own(W.tolist()))] * 2,
    ):
        with pytest.raises(ValueError, match=r"layers 0 and 1 are one object, .* tie='a name'"):
            mp.Sequential(layers, LOSS)
    net = mp.Sequential([relu, linear, relu], LOSS)
    assert np.isfinite(net.forward_backward(X, Y))
    assert mp.Sequential([linear], LOSS).layers[0] is not linear  # one layer, several networks


# --- gradients that are not those of the parameters

@pytest.mark.parametrize("name", ["on one device", "pipeline", "zero 1"])
def test_a_gradient_that_is_not_its_parameters_is_refused(name):
    def own(gradients, b=None):
        class Wrong(Own):
            def backward(self, dZ):
                return self.W.T @ dZ, *gradients

        return Wrong(W, b)

    for layer, error, words in [
        (own((None, None)), ValueError, "None for dW, but it has a W: return its gradient; if W is"),
        (own((W, None), B), ValueError, "None for db, but it has a b"),
        (own((W[:1], None)), ValueError, r"dW of shape \(1, 3\), but its W has \(3, 3\)"),
        (own((W, B)), ValueError, r"db of shape \(3, 1\), but its b has None"),
        (own((W, B[:, 0]), B), ValueError, r"db of shape \(3,\), but its b has \(3, 1\)"),
        (own((W, B, B)), TypeError, r"(?s)Wrong.backward has returned .* with `return dA_prev, dW, db`"),
    ]:
        net = NETWORKS[name]([mp.Linear(3, 3), layer], LOSS)
        with pytest.raises(error, match=words):
            train(net)
        assert net.n_steps == 0


def test_an_error_shows_the_shape_of_the_x_that_was_passed():
    for make in (mp.Sequential, NETWORKS["pipeline"]):
        net = make(LAYERS, LOSS)
        for call in (lambda: net.forward_backward(X[:2], Y), lambda: net.predict(X[:2])):
            with pytest.raises(ValueError, match=r"needs A_prev of shape \(3, m\), got \(2, 6\)"):
                call()
