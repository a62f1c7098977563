"""The full-batch reference that every pipeline must equal."""

import numpy as np

from .layers import Layer


class Network:
    """Layers with parameters, and a loss: what `Sequential` and `Pipeline` share.

    The layers are copied, so the same list can build several networks that then train apart. Parameters
    that a layer already has are kept; the others are drawn in float64 from
    `default_rng([seed, index of the layer])` and stored as `dtype`. They depend on the layer's place in the
    network alone, so they are the same however the network is cut.
    """

    def __init__(self, layers, loss, seed=0, dtype=np.float64):
        for index, layer in enumerate(layers):
            if not isinstance(layer, Layer):
                raise ValueError(f"layers[{index}] is {layer!r}: pass a layer object, such as Linear(2, 3) or ReLU()")
        if isinstance(loss, type) or not (loss is None or hasattr(loss, "backward")):
            raise ValueError(f"loss is {loss!r}: pass a loss object, such as MeanSquaredError()")
        if np.dtype(dtype).kind != "f":
            raise ValueError(f"dtype={dtype} must be one of floats; for exact numbers, use layer.copy(minipipe.exact.rational)")
        self.layers = [layer.copy() for layer in layers]
        if not self.layers:
            raise ValueError("a network needs at least 1 layer, got 0")
        for index, layer in enumerate(self.layers):
            layer.initialize(np.random.default_rng([seed, index]), dtype)
        self.loss = loss
        self._gradients = None

    @property
    def gradients(self):
        """A list over the layers of `(dW, db)` from the last `forward_backward`."""
        if self._gradients is None:
            raise RuntimeError("there are no gradients yet: call forward_backward(X, Y) first")
        return self._gradients

    def __repr__(self):
        return f"{type(self).__name__}({self.layers}, {self.loss})"

    def predict(self, X):
        """The output of the last layer for X (n[0], m), as one full-width batch; nothing is cached."""
        A = checked_inputs(X)
        for layer in self.layers:
            A = layer.forward(A)
            layer.cache = None
        return A

    def step(self, optimizer):
        """One update of all parameters by `optimizer`, with the current gradients."""
        optimizer.update(self.layers, self.gradients)

    def checked_batch(self, X, Y):
        """X and Y as arrays fit for training; `ValueError` for anything else, before anything is computed."""
        if self.loss is None:
            raise ValueError("this network has no loss, so it cannot be trained: pass one, such as MeanSquaredError()")
        X, Y = checked_inputs(X), np.asarray(Y)
        if Y.shape[-1:] != X.shape[-1:]:
            raise ValueError(
                f"{X.shape[-1]} samples but labels of shape {Y.shape}: both need the samples as their last axis"
            )
        _check_finite("Y", Y)
        if Y.ndim > 1:
            self.loss.check(Y)
        return X, Y


class Sequential(Network):
    """A network on one device that sees the mini-batch as a whole.

    layers: a list of `Layer`s, applied in order; they are copied, so one list can build several networks. loss: a
    `Loss`. seed: the weights that are not given yet are drawn from `default_rng([seed, index of the layer])`.
    dtype: how those are stored; the dtype of X decides that of the results.

    `forward_backward(X, Y)` returns J and leaves the `gradients`; `step(optimizer)` applies them; `predict(X)` is
    the output alone. Wrong data raise `ValueError` before anything is computed.

    >>> from minipipe.layers import Linear, ReLU
    >>> from minipipe.losses import MeanSquaredError
    >>> net = Sequential([Linear(2, 3), ReLU(), Linear(3, 1)], MeanSquaredError())
    >>> J = net.forward_backward(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[0.0, 1.0]]))
    >>> [dW.shape for dW, db in net.gradients if dW is not None]
    [(3, 2), (1, 3)]
    """

    def forward_backward(self, X, Y):
        """The cost J of the mini-batch X (n[0], m), Y (n[L], m); the gradients are then in `gradients`."""
        X, Y = self.checked_batch(X, Y)
        self._gradients = None
        A = X
        for layer in self.layers:
            A = layer.forward(A)
        J = self.loss.forward(A, Y)
        self._gradients = backward_through(self.layers, self.loss.backward())[1]
        self.loss.cache = None
        return J


def backward_through(layers, dA, wants_dX=False):
    """(dX, gradients) of consecutive layers; dX, which nobody may want, is None unless `wants_dX`."""
    gradients = [None] * len(layers)
    for index in reversed(range(len(layers))):
        layer = layers[index]
        gradients[index] = layer.backward_weight(dA)
        dA = layer.backward_input(dA) if index > 0 or wants_dX else None
        layer.cache = None
    return dA, gradients


def checked_inputs(X):
    X = np.asarray(X)
    if X.ndim < 2:
        raise ValueError(f"X has shape {X.shape}: it needs at least two axes, the last one over samples")
    if X.shape[-1] == 0:
        raise ValueError(f"X has shape {X.shape}, a batch of 0 samples: pass at least 1")
    _check_finite("X", X)
    return X.astype(np.float64) if X.dtype.kind in "iub" else X


def _check_finite(name, array):
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        bad = np.argwhere(~np.isfinite(array))
        raise ValueError(
            f"{name} holds NaN or infinity in {len(bad)} of {array.size} places, the first at index "
            f"{tuple(bad[0].tolist())}: clean the data first"
        )
    if array.dtype.kind not in "fiubO":
        raise ValueError(f"{name} is an array of {array.dtype}: pass real numbers")
