"""The base of all optimizers, and stochastic gradient descent."""

from __future__ import annotations  # so that help() shows names, not what they stand for

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..arrays import computing, not_zero_in, overflow_refused
from ..checks import Number, real_number, shown, to_be_written, truth, without_return
from ..layers.layer import Layer, finite, parameters_with
from ..layers.through import in_one_piece
from ..registry import AsCode, Examples, Registry
from ..state import OptimizerState, Pass

OPTIMIZERS = Registry("minipipe.optimizers", Examples)  # name -> class, with examples of it for tests


class Optimizer(AsCode):
    """The base of all optimizers: the walk over parameters, weight decay, the state.

    Args:
        learning_rate: above 0; it may be changed between updates.
        weight_decay: at least 0.
        decoupled: how the decay acts, see below.
        weights_only: whether only W decays; biases, and the scale and shift of a
            normalisation, do not, as in Goyal et al. 2017, arXiv 1706.02677, section
            5.1.

    First the weight decay, then W <- W - (the result of `step`):

        coupled:    g <- g + weight_decay * W                  in g, and in its averages
        decoupled:  W <- W - learning_rate * weight_decay * W  in W alone

    Coupled decay is the gradient of the cost weight_decay/2 * ||W||^2; without momentum
    both are the same. Source: Loshchilov and Hutter 2017, arXiv 1711.05101.

    The state belongs to this object: `n_memories` arrays for each parameter, which
    start at 0, and the number of epochs that `fit` has made with it. So keep one
    optimizer for a whole training, and make one for each network.
    """

    n_memories = 0
    epsilon: Any = None  # keeps a gradient of 0 from division by 0, where a class has it
    needs_whole_parameters = False  # whether a step depends on all entries of a parameter together

    def __init__(
        self, learning_rate: Number, weight_decay: Number, decoupled: bool, weights_only: bool = False
    ):
        self.learning_rate, self.decoupled = learning_rate, truth("decoupled", decoupled)
        self.weights_only = truth("weights_only", weights_only)
        self.weight_decay = real_number("weight_decay", weight_decay, least=0)
        self.last_rate = self.learning_rate
        self.memory: Any = {}  # (index of the layer, "W" or "b", position in it) -> arrays
        self.n_updates = 0
        self.last_pass, self.in_fit = Pass(), False
        self.network: str | None = None  # the token of the network that was trained last

    @property
    def n_epochs(self) -> int:
        """The number of the last epoch that `fit` has finished; 0 before the first."""
        return self.last_pass.number - (self.last_pass.n_done < self.last_pass.n_batches)

    def why_no_parts(self) -> str | None:
        """Return why a shard of a parameter cannot be updated, or None if it can."""
        if self.needs_whole_parameters:
            return "looks at whole parameters"
        if getattr(self.update, "__func__", None) is not Optimizer.update:  # the class or object overrides it
            return "has an update of its own, for whole layers"
        return None

    @property
    def learning_rate(self) -> Any:
        """The learning rate: a float, or a fraction."""
        return self._learning_rate

    @learning_rate.setter
    def learning_rate(self, value: Number) -> None:
        self._learning_rate = real_number("learning_rate", value, above=0)

    def update(self, layers: Sequence[Layer], gradients: Sequence[tuple]) -> None:
        """Give `layers` new parameters; `gradients` has a pair (dW, db) for each.

        The old arrays and the gradients are not written to. An update is made as a
        whole or not at all, optimizer state included.

        Raises `ValueError` if the gradients do not belong to these layers, or the state
        to another network, and `FloatingPointError` if anything would overflow.
        """
        parameters = parameters_with(layers, gradients)
        for key, W in self.updated(parameters).items():
            layer, _, _ = parameters[key]
            setattr(layer, key[1], W)

    def updated(self, parameters: Mapping) -> dict:
        """Return {key: new array}, and update `memory` for the next update.

        Args:
            parameters: {key, as in `memory`: (layer, array, gradient)}; the array may
                also be a shard of the layer's parameter, a vector.
        """
        self._check(parameters)
        self.n_updates += 1
        try:
            with computing(), overflow_refused():
                after = {key: self._after(key, *parameter) for key, parameter in parameters.items()}
        except BaseException:
            self.n_updates -= 1
            raise
        self.memory = dict(self.memory) | {key: memory for key, (_, memory) in after.items()}
        self.last_rate = self.learning_rate
        return {key: W for key, (W, _) in after.items()}

    def _after(self, key, layer, W, g):
        """Return (the parameter W of `layer` after this update, its new state)."""
        memory = self.memory.get(key) or [np.zeros_like(g) for _ in range(self.n_memories)]
        is_excluded = self.weights_only and key[1] not in layer.decays
        if not is_excluded:
            g = self.before_step(W, g)
        answer = self.step(g, *memory)
        if answer is None:
            raise without_return(self, "step", "step, *memory")
        step, *remembered = answer
        new, step = (W, step) if is_excluded else self.after_step(W, step)
        new = in_one_piece((new - step).astype(W.dtype, copy=False))
        pairs = zip(remembered, memory, strict=True)
        remembered = [in_one_piece(array.astype(old.dtype, copy=False)) for array, old in pairs]
        finite(layer, new, f"{key[1]} after this update")
        for array in remembered:
            finite(layer, array, f"what {type(self).__name__} remembers for {key[1]}")
        return new, remembered

    def before_step(self, W: np.ndarray, g: np.ndarray) -> np.ndarray:
        """Return the gradient for `step`: g, plus weight_decay * W if it is coupled."""
        return g + self.weight_decay * W if self.weight_decay and not self.decoupled else g

    def after_step(self, W: np.ndarray, step: np.ndarray) -> tuple:
        """Return (W, step); the update is W - step. Decoupled decay shrinks W first."""
        if self.weight_decay and self.decoupled:
            W = W - self.learning_rate * self.weight_decay * W
        return W, step

    def count_step(self, network: str) -> None:
        """Record a step of the network with token `network`; `fit` also counts it."""
        if self.network not in (None, network):
            self.last_pass = Pass()
        self.network = network
        if self.in_fit:
            self.last_pass = self.last_pass._replace(n_done=self.last_pass.n_done + 1)

    def fresh(self) -> Optimizer:
        """Return a copy without state, for a new training."""
        twin = copy.copy(self)
        twin.memory, twin.n_updates, twin.last_pass, twin.network = {}, 0, Pass(), None
        return twin

    def resume(self, found: OptimizerState, network: str) -> None:
        """Go on where another optimizer has stopped.

        Args:
            found: the `OptimizerState` of that optimizer.
            network: the token of the network that this optimizer trains from now on.
        """
        self.memory = {key: [array.copy() for array in arrays] for key, arrays in found.memory.items()}
        self.n_updates, self.last_pass = found.n_updates, Pass(*found.last_pass)
        self.learning_rate, self.last_rate, self.network = found.learning_rate, found.last_rate, network

    def step(self, g: Any, *memory: Any) -> tuple:
        """Return (the array to subtract from a parameter, *its new `memory`).

        `g` is the parameter's gradient. A step writes into none of the arrays that it
        gets.
        """
        raise to_be_written(self, "Optimizer", "step(self, g, *memory)", "(what to subtract, *memory)")

    def _check(self, parameters):
        for (index, name, _), (_, W, g) in parameters.items():
            if np.shape(W) != np.shape(g):
                raise ValueError(
                    f"layer {index}: {name} has shape {np.shape(W)}, but its gradient has {np.shape(g)}"
                )
            if not hasattr(W, "dtype") or W.dtype.kind in "iub":
                remedy = f"layer.{name} = np.asarray(layer.{name}, float)"
                raise ValueError(f"layer {index}: {name} holds no floats, which an update needs: {remedy}")
            if self.epsilon is not None and isinstance(g, np.ndarray):  # a MetaArray has no numbers
                not_zero_in(g.dtype, "epsilon", self.epsilon)
        self.check_memory({key: g.shape for key, (_, _, g) in parameters.items()})

    def check_network(self, token: str) -> None:
        """Raise `ValueError` if the state belongs to a network with another `token`."""
        if self.n_memories and self.n_updates and self.network not in (None, token):
            raise ValueError(
                "this optimizer remembers the gradients of another network: make a new "
                f"{type(self).__name__} for each network, or take optimizer.fresh(); to go on with that "
                "training in this network, call net.resume(other.state(optimizer), optimizer)"
            )

    def check_memory(self, shapes: Mapping) -> None:
        """Raise `ValueError` if the state does not fit `shapes`, {key: shape}."""
        if not self.n_memories:
            return
        remembered = {key: arrays[0].shape for key, arrays in self.memory.items()}
        if remembered and remembered != shapes:
            old, new = list(remembered.values()), list(shapes.values())
            words = f"of shapes {old}, not {new}: take optimizer.fresh()"
            raise ValueError(f"this optimizer remembers the gradients of another network, {words}")


@OPTIMIZERS(
    examples=lambda: [
        SGD(0.125), SGD(0.125, 0.5), SGD(0.125, 0.5, nesterov=True), SGD(0.125, 0.5, rate_inside=True),
        SGD(0.125, 0.5, nesterov=True, rate_inside=True), SGD(0.125, 0.5, weight_decay=0.25),
        SGD(0.125, 0.5, weight_decay=0.25, decoupled=True),
    ],
)
class SGD(Optimizer):
    """Stochastic gradient descent, with momentum in two forms, also Nesterov's.

        u = momentum * u + g                     W = W - learning_rate * u
        u = momentum * u + g  W = W - learning_rate * (g + momentum * u)  nesterov=True
        v = momentum * v + learning_rate * g     W = W - v             rate_inside=True
        v = momentum * v + learning_rate * g
        W = W - learning_rate * g - momentum * v       nesterov=True, rate_inside=True

    Args:
        learning_rate: above 0.
        momentum: the fraction of u or v that is kept, 0 <= momentum < 1.
        nesterov: whether to look one step ahead.
        rate_inside: whether the learning rate is inside the momentum, as in v.
        weight_decay, decoupled, weights_only: see `Optimizer`.

    While the learning rate stays the same, v = learning_rate * u, and both forms give
    the same W. When it changes, v still contains the old rate, so it is corrected
    first: v <- v * new rate / old rate. So the two forms stay equal.

    Sources: Polyak 1964; equations 9 and 10 and the momentum correction of Goyal et al.
    2017, arXiv 1706.02677; Sutskever et al. 2013, ICML, for Nesterov's momentum, where
    W here is the point at which the gradient is taken.

    >>> from minipipe.layers import Linear
    >>> layer, optimizer = Linear(1, 1, W=[[1.0]], b=[[0.0]]), SGD(learning_rate=0.5, momentum=0.5)
    >>> for _ in range(2):
    ...     optimizer.update([layer], [(np.array([[1.0]]), np.array([[0.0]]))])
    >>> layer.W                                       # 1 - 0.5 * 1 - 0.5 * 1.5
    array([[-0.25]])
    """

    def __init__(
        self, learning_rate: Number, momentum: Number = 0, nesterov: bool = False, rate_inside: bool = False,
        weight_decay: Number = 0, decoupled: bool = False, weights_only: bool = False,
    ):
        super().__init__(learning_rate, weight_decay, decoupled, weights_only)
        momentum = real_number("momentum", momentum, least=0, below=1)
        if truth("nesterov", nesterov) and not momentum:
            words = "it needs a momentum above 0, such as 0.9"
            raise ValueError(f"nesterov=True with momentum={momentum}: {words}")
        self.momentum, self.nesterov, self.rate_inside = momentum, nesterov, rate_inside
        self.n_memories = 1 if momentum else 0

    def step(self, g: np.ndarray, velocity: np.ndarray | None = None) -> tuple:
        if velocity is None:
            return (self.learning_rate * g,)
        if self.rate_inside:
            g = self.learning_rate * g
            velocity = velocity * (self.learning_rate / self.last_rate)
        velocity = self.momentum * velocity + g
        step = g + self.momentum * velocity if self.nesterov else velocity
        return step if self.rate_inside else self.learning_rate * step, velocity


def checked_optimizer(optimizer: Any) -> Optimizer:
    """Return `optimizer` if it is one; raise `ValueError` for anything else."""
    if not isinstance(optimizer, Optimizer):
        raise ValueError(f"optimizer is {shown(optimizer)}: pass an object, such as SGD(learning_rate=0.1)")
    return optimizer
