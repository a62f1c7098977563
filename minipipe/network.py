"""The full-batch reference that every pipeline must equal."""

from __future__ import annotations  # so that help() shows names, not what they stand for

import copy
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from .checks import Number, items_of, real_number, shown, whole_number
from .exact import Rational, rational
from .arrays import (
    as_floats, computing, floats, grains_of, leaves, overflow_refused, real_numbers, root, scaled,
    sum_in_order, sum_of_squares,
)
from .layers import LAYERS, Layer, every_layer
from .layers.layer import (
    checked_layers, commit, finite, pairs_of_layers, parameters_with, take_statistics,
)
from .layers.parameters import Parameters, take_over
from .layers.skips import skip_routes
from .layers.through import backward_through, forward_through, in_one_piece, prepare_forward
from .state import (
    Lock, State, all_or_nothing, check_layers, check_optimizer_state, checked_array, checked_state,
    named_arrays, state_of_optimizer,
)
from .sums import TreeSum
from .ties import each_once, ties_of

if TYPE_CHECKING:
    from .losses.loss import Loss
    from .optimizers.optimizer import Optimizer


class Network:
    """Layers with parameters, and a loss: the base of all networks.

    Args:
        layers: a list of `Layer`s. They are copied, so the same list can build several
            networks, which then train independently.
        loss: a `Loss`, or None for a network that only predicts.
        seed: for the parameters that the layers do not have yet. They are drawn from
            `default_rng([seed, index of the layer])`, however the network is cut.
        dtype: the floats of the whole network; None: those of the layers' parameters,
            or float64.
        grain: the samples that pass the layers at a time, see `Sequential`, or None.

    A network has one dtype. W, b, X and the floats of Y are converted to it, but not
    tokens, nor whole numbers in Y, which a loss may use as indices. If the parameters
    have different dtypes, it is their `np.result_type`. With fractions it is object,
    and X and Y are not converted.

    A W or b that is assigned later, as in `net.layers[0].W = W`, must have the same
    shape. The next run, prediction or step converts it, or raises an error.

    Layers with the same `tie` start from one W: the first that one of them has already,
    else that of the first layer. Each gets the sum of their dW, so they stay equal.
    `n_steps` is the number of updates by `step`.
    """

    forward_backward: Callable[..., Number]
    has_updates = False  # whether a run makes the updates itself, instead of `step(optimizer)`

    def __init__(
        self, layers: Sequence[Layer], loss: Loss | None, seed: int = 0, dtype: DTypeLike | None = None,
        grain: int | None = None,
    ):
        self._grain = None if grain is None else whole_number("grain", grain, 1)
        if isinstance(loss, (type, Layer)) or not (loss is None or hasattr(loss, "backward")):
            words = "pass a list of layers, then a loss object, such as MeanSquaredError()"
            raise ValueError(f"loss is {shown(loss)}: {words}")
        layers, seed = checked_layers(layers), whole_number("seed", seed, 0, 2**128 - 1)
        self._layers = tuple(layer.copy(copy.copy) for layer in layers)
        for index, layer in enumerate(self.layers):
            for part in every_layer([layer]):
                part.index = index
        self._all_layers = list(every_layer(self.layers))  # with the layers inside of layers
        dtype = None if dtype is None else floats(dtype)
        self._dtype = take_over(every_layer(layers), self._all_layers, dtype)
        self.skips = skip_routes(self.layers)
        self.ties = ties_of(self.layers)
        for index, layer in enumerate(self.layers):
            of_ties = [] if layer.tie is None else [self.layers[k].W for k in self.ties[layer.tie]]
            given = [W for W in of_ties if W is not None]
            if given and layer.W is None:
                layer.W = given[0].copy()
            drawn = np.float64 if self.dtype.hasobject else self.dtype
            layer.initialize(np.random.default_rng([seed, index]), drawn)
        self._lock = Lock()  # taken before Ctrl-C is held back, so that Ctrl-C can interrupt the waiting
        self._parameters = Parameters(self._all_layers, self.layers, self.ties, self.dtype, self._lock)
        self._loss: Any = loss
        self.n_steps = 0
        self.token = os.urandom(8).hex()  # by which an optimizer recognizes its network; copies keep it
        self._gradients: Any = None
        self._counted: list[tuple] = []  # [(layers, statistics)] of the last mini-batch, for the next step

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers of the network, a tuple that cannot be replaced."""
        return self._layers

    @property
    def loss(self) -> Loss | None:
        """The loss of the network, or None."""
        return self._loss

    @property
    def dtype(self) -> np.dtype:
        """The dtype of parameters, X and Y: floats, or object for fractions."""
        return self._dtype

    @property
    def grain(self) -> int | None:
        """The samples of a grain, or None."""
        return self._grain

    @property
    def gradients(self) -> list:
        """A list over the layers of `(dW, db)` from the last `forward_backward`."""
        if self._gradients is None:
            raise RuntimeError("there are no gradients yet: call forward_backward(X, Y) first")
        return self._gradients

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self.layers)}, {self.loss})"

    def __copy__(self) -> Network:
        """Return a deep copy: with shared layers, both networks would train."""
        return copy.deepcopy(self)

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return the output of the last layer for X (n[0], m), without training."""
        self._parameters.check()
        self.collect()
        with computing():
            X, layers = self._inputs(X), self._idle_layers()
            all_layers = list(every_layer(layers))
            prepare_forward(all_layers, training=False)
            with overflow_refused():
                A = forward_through(layers, X, skips={})
        for layer in layers:
            layer.cache = None
        return A

    def _idle_layers(self):
        """Return the layers; a subclass returns copies while a run uses them."""
        return self.layers

    def check_step(self, optimizer: Optimizer, clip: float | None = None) -> None:
        """Raise `ValueError` unless `step(optimizer, clip)` can update this network."""
        self._check_is_optimizer(optimizer)
        optimizer.check_network(self.token)

    def step(self, optimizer: Optimizer, clip: float | None = None) -> None:
        """Update all parameters and running statistics with the current gradients.

        Args:
            optimizer: an `Optimizer`, such as `SGD(0.1)`.
            clip: None, or the largest allowed `gradient_norm`: larger gradients are
                scaled down to it, all by one factor, before weight decay. `gradients`
                is not changed. Source: Pascanu, Mikolov, Bengio 2012, arXiv 1211.5063.

        A step is made as a whole or not at all, even if Ctrl-C interrupts it. So an
        optimizer of your own must not change its attributes in place, except `memory`.
        """
        self.check_step(optimizer, clip)
        self._parameters.check()
        with computing():
            gradients = self._clipped(clip, self.own_gradients())
            with self._lock, all_or_nothing([self, optimizer, *self._all_layers]):
                with overflow_refused():
                    for counting, statistics in self._counted:
                        commit(counting, statistics)
                optimizer.update(self.layers, gradients)
                self._parameters.keep()
                optimizer.count_step(self.token)
                self._counted = []
                self.n_steps += 1
                self.keep_memory(optimizer)

    def check_training(self, optimizer: Optimizer, clip: float | None = None) -> None:
        """Raise `ValueError` unless `train` can update with `optimizer` and `clip`."""
        self.check_step(optimizer, clip)
        if clip is not None:
            real_number("clip", clip, above=0)

    def check_fit(self, optimizer: Optimizer, clip: float | None = None) -> None:
        """Raise `ValueError` unless `fit` can train with `optimizer` and `clip`."""
        self.check_training(optimizer, clip)

    def train(self, batches: Iterable[tuple], optimizer: Optimizer, clip: float | None = None) -> list:
        """Return the costs of mini-batches, with an update by `optimizer` after each.

        Args:
            batches: a list of (X, Y), as for `forward_backward`.
            optimizer, clip: as for `step`.

        Raises `ValueError` before any update if a batch is not such a pair, and at its
        turn if it has a wrong number of rows. Raises `FloatingPointError` if anything
        overflows; the parameters are then those of the update before.
        """
        self.check_training(optimizer, clip)
        costs = []
        for X, Y in self.checked_batches(batches):
            costs.append(self.forward_backward(X, Y))
            self.step(optimizer, clip)
        return costs

    def gradient_norm(self) -> Number:
        """Return sqrt(sum of g^2) over all entries g of all gradients.

        A W that several layers share, and a parameter that several devices have, count
        once. For rational numbers, the root is rounded once. Raises
        `FloatingPointError` if it is not finite.
        """
        with computing():
            return root(sum(self._squares_of_layers()))

    def own_gradients(self) -> list:
        """Return the gradients of the layers that this process updates."""
        return self.gradients

    def _squares_of_layers(self):
        """Return the sum of the squares of each layer's gradients."""
        return [sum(map(sum_of_squares, leaves(pair))) for pair in each_once(self.own_gradients(), self.ties)]

    def _clipped(self, clip, gradients):
        """Return `gradients`, scaled down to the norm `clip` unless that is None."""
        if clip is None:
            return gradients
        clip, length = real_number("clip", clip, above=0), self.gradient_norm()
        return scaled(gradients, clip / length) if length > clip else gradients

    def collect(self, optimizer: Optimizer | None = None) -> Optimizer | None:
        """Gather all parameters and the state of `optimizer` here; return it.

        A network in one process has them already.
        """
        return optimizer

    def state(self, optimizer: Optimizer | None = None) -> State:
        """Return the `State` of this network and its optimizer; its arrays are copies.

        Args:
            optimizer: the one that `step` or `train` is called with; None: the state is
                for predictions.

        The state is the same however the network is split, and `minipipe.save`
        writes it to a file. If another thread is training, it is that of one step.
        Raises `ValueError` for the optimizer of another network.

        >>> from minipipe.layers import Linear
        >>> net = Sequential([Linear(1, 1, W=[[2.0]])], None)
        >>> before = net.state()
        >>> net.layers[0].W = np.array([[3.0]])
        >>> net.resume(before)
        >>> net.layers[0].W
        array([[2.]])
        """
        if optimizer is not None:
            self._check_is_optimizer(optimizer)
            optimizer.check_network(self.token)
        self._parameters.check()
        optimizer = self.collect(optimizer)  # exchanges with other ranks come before the lock
        with self._lock:
            arrays = {name: getattr(layer, array).copy() for name, layer, array in named_arrays(self.layers)}
            state = State(
                list(map(repr, self.layers)), arrays, self.n_steps,
                None if optimizer is None else state_of_optimizer(optimizer), self._own_counts(),
            )
        if optimizer is not None:
            self._check_state_of(optimizer, state)
        return state

    def resume(self, state: State, optimizer: Optimizer | None = None) -> None:
        """Continue from a `State`, with the bits of a training without interruption.

        Args:
            state: of a network with the same layers, split in any way.
            optimizer: an optimizer of the class in the state. It gets the saved state
                and learning rate, and keeps its other options. None: only the network
                resumes.

        Raises `ValueError` for the state of another network or optimizer; then nothing
        is changed.
        """
        checked_state(state)
        self._parameters.check()
        check_layers(state, self.layers)
        new = []
        for name, layer, array in named_arrays(self.layers):
            found = checked_array(state, name, getattr(layer, array))
            new.append((layer, array, real_numbers(f"{state.source}: {name}", found)))
        optimizers = [] if optimizer is None else [optimizer]
        for one in optimizers:
            self._check_is_optimizer(one)
            self._check_state_of(one, state)
        with self._lock, all_or_nothing([self, *optimizers, *self._all_layers]):
            for place in new:
                setattr(*place)
            self.n_steps = whole_number(f"{state.source}: n_steps", state.n_steps, 0)
            self.forget_run()
            for one in optimizers:
                one.resume(state.optimizer, self.token)  # type: ignore[arg-type]  # checked above
                self.keep_memory(one)
            self._resume_own(state)

    def _check_is_optimizer(self, optimizer):
        """Raise `ValueError` unless `optimizer` is one."""
        if isinstance(optimizer, type) or not hasattr(optimizer, "check_network"):
            words = "pass an object, such as SGD(learning_rate=0.1), or one of a subclass of Optimizer"
            raise ValueError(f"optimizer is {shown(optimizer)}: {words}")

    def _check_state_of(self, optimizer, state):
        """Raise `ValueError` unless `optimizer` can continue from `state` here."""
        pairs, parameters = pairs_of_layers(self.layers), {}
        for (index, name, _), (_, array, _) in parameters_with(self.layers, pairs).items():
            parameters.setdefault((index, name), []).append(array)
        check_optimizer_state(state, optimizer, parameters)
        for key, arrays in state.optimizer.memory.items():
            for array in arrays:
                real_numbers(f"{state.source}: what is remembered for parameter {key}", array)

    def _own_counts(self):
        """Return {name: whole numbers}, counters of a subclass besides `n_steps`."""
        return {}

    def _resume_own(self, state):
        """Restore the counters of `_own_counts` from `state`."""

    def once(self, function: Callable) -> None:
        """Call `function`, in one process only if several share the network."""
        function()

    def forget_run(self) -> None:
        """Drop the gradients and statistics of the last mini-batch."""
        self._gradients, self._counted = None, []

    def keep_memory(self, optimizer: Optimizer) -> None:
        """Record the state of `optimizer`, if a subclass needs it."""

    def checked_batches(self, batches: Iterable[tuple]) -> list:
        """Return `batches` as checked pairs (X, Y); raise `ValueError` for others."""
        items = items_of(batches)
        pairs: list = [batches] if items is None else items
        if not all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in pairs):
            raise ValueError("batches must be a list of pairs (X, Y), even for one mini-batch: [(X, Y)]")
        if not pairs:
            raise ValueError("0 mini-batches: pass a list of at least 1 pair (X, Y)")
        return [self.checked_batch(X, Y) for X, Y in pairs]

    def checked_batch(self, X: ArrayLike, Y: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return X and Y in the network's dtype; raise `ValueError` for unfit data."""
        if self.loss is None:
            raise ValueError(
                "this network has no loss, so it cannot be trained: pass one, such as MeanSquaredError()"
            )
        with computing():
            X, Y = self._inputs(X), _numbers("Y", Y)
            if Y.shape[-1:] != X.shape[-1:]:
                raise ValueError(
                    f"{X.shape[-1]} samples but labels of shape {Y.shape}: "
                    "both need the samples as their last axis"
                )
            if Y.ndim > 1:
                self.loss.check(Y)
            return X, as_floats("Y", Y, self.dtype) if Y.dtype.kind == "f" else Y

    def _inputs(self, X: ArrayLike) -> np.ndarray:
        """Return X, checked, in the dtype of the network; tokens keep their own."""
        X, first = checked_inputs(X), self.layers[0]
        if not first.layers and type(first) in LAYERS.values():
            first.output_shape(X.shape)  # so that an error shows the shape of X, not that of a micro-batch
        are_tokens = any(layer.takes == "tokens" for layer in self._all_layers)
        return X if are_tokens else as_floats("X", X, self.dtype)


class Sequential(Network):
    """A network on one device that sees the mini-batch as a whole.

    Args:
        layers, loss, seed, dtype: as for `Network`.
        grain: None, for one pass of the whole mini-batch. Or a number g: the samples
            pass all layers g at a time, and J, gradients and statistics are summed
            along the fixed tree whose leaves are these grains. A `Parallel` with
            `Sums(grain=g)` then has the same bits, for any floats and any K, M and D.
            BatchNorm takes its statistics over a grain.

    Grains cost time: a step of the MLP 784-512-512-10 in float32, m = 128, takes 3.3,
    2.0 and 1.4 times as long with g = 8, 16 and 32.

    `forward_backward(X, Y)` returns J and sets `gradients`, `step(optimizer)` applies
    them, `predict(X)` returns the output.

    >>> from minipipe.layers import Linear, ReLU
    >>> from minipipe.losses import MeanSquaredError
    >>> net = Sequential([Linear(2, 3), ReLU(), Linear(3, 1)], MeanSquaredError())
    >>> J = net.forward_backward(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[0.0, 1.0]]))
    >>> [dW.shape for dW, db in net.gradients if dW is not None]
    [(3, 2), (1, 3)]
    """

    def forward_backward(self, X: ArrayLike, Y: ArrayLike) -> Number:
        """Return the cost J of X (n[0], m), Y (n[L], m), and set `gradients`."""
        X, Y = self.checked_batch(X, Y)
        self._gradients, self._counted = None, []
        m = X.shape[-1]
        grains = grains_of(m, self.grain or m)
        self._parameters.check()
        total = TreeSum(len(grains))
        with computing():
            with overflow_refused():
                for k, part in enumerate(grains):
                    total.add(k, self.terms_of(part, X, Y))
                J, gradients, statistics = total.value
                for indices in self.ties.values():  # each of the tied layers gets the sum of their dW
                    dW = sum_in_order(gradients[index][0] for index in indices)
                    for index in indices:
                        gradients[index] = dW, gradients[index][1]
            check_finite_run(self._loss, J, self.layers, gradients)
        self._gradients, self._counted = gradients, [(self._all_layers, statistics)]
        return J

    def terms_of(self, part: slice, X: np.ndarray, Y: np.ndarray) -> tuple:
        """Return (J, gradients, statistics) of the samples `part` of X, Y."""
        prepare_forward(self._all_layers, training=True, step=self.n_steps, first_sample=part.start)
        samples, labels = in_one_piece((X[..., part], Y[..., part]))
        J = self._loss.forward(forward_through(self.layers, samples, skips={}), labels, X.shape[-1])
        gradients = backward_through(self.layers, self._loss.backward(), skips={})[1]
        self._loss.cache = None
        return J, gradients, take_statistics(self._all_layers)


def check_finite_run(loss: Loss, J: Number, layers: Sequence[Layer], gradients: Sequence[tuple]) -> None:
    """Raise `FloatingPointError` unless J and all `gradients` are finite.

    The error names the `loss`, or the one of `layers` whose gradient is not finite.
    """
    check_finite_cost(loss, J)
    for layer, pair in zip(layers, gradients, strict=True):
        for gradient in leaves(pair):
            finite(layer, gradient, "the gradient")


def check_finite_cost(loss: Loss, J: Number) -> None:
    """Raise `FloatingPointError` unless J, the cost by `loss`, is finite."""
    finite(loss, J if hasattr(J, "dtype") else np.asarray(J), "the cost")


def checked_inputs(X: ArrayLike) -> np.ndarray:
    """Return X (n, ..., m) as contiguous floats or fractions; refuse anything else."""
    X = _numbers("X", X)
    if X.ndim < 2:
        raise ValueError(f"X has shape {X.shape}: it needs at least two axes, the last one over samples")
    if X.shape[-1] == 0:
        raise ValueError(f"X has shape {X.shape}, a batch of 0 samples: pass at least 1")
    return np.ascontiguousarray(X, np.float64 if X.dtype.kind in "iub" else None, like=X)


def _numbers(name: str, values: ArrayLike) -> np.ndarray:
    """Return `values` as an array; if one is a fraction, all become `Rational`."""
    array = real_numbers(name, values)
    if array.dtype == object and any(type(value) is not Rational for value in array.flat):
        return rational(array)
    return array
