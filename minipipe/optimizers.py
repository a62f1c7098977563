"""How gradients change parameters.

In every equation W stands for any parameter (each W and each b), g for its gradient, which needs no division
by m since the loss has done that, t for the number of the update, from 1. The hyper-parameters may be floats,
or `exact.Rational` for a network of rational numbers.
"""

import copy

import numpy as np

from .checks import listed, not_zero_in, real_number, returned, to_be_written, truth
from .functions import overflow_refused
from .layers.layer import finite
from .layers.parameters import parameters_with

__all__ = ["SGD", "Adam", "AdamW", "RMSProp"]


class Optimizer:
    """What all optimizers share: the walk over the parameters, weight decay, the memory of past gradients.

    learning_rate: above 0; it may be changed between updates.
    weight_decay: at least 0.
    decoupled: how the decay acts.

        coupled:    g <- g + weight_decay * W                     part of the gradient, so it is remembered
        decoupled:  W <- W - learning_rate * weight_decay * W     on W alone

    then W <- W - (the optimizer's step). Coupled decay is the gradient of the cost weight_decay/2 * ||W||^2;
    without momentum the two are the same. Source: Loshchilov and Hutter 2017, arXiv 1711.05101.

    The memory, `n_memories` arrays for each parameter that start at 0, belongs to this object, so keep one
    optimizer for the whole of a training.
    """

    n_memories = 0
    epsilon = None  # what keeps a gradient of 0 from being divided by 0, if there is one

    def __init__(self, learning_rate, weight_decay, decoupled):
        self.learning_rate, self.decoupled = learning_rate, decoupled
        self.weight_decay = real_number("weight_decay", weight_decay, least=0)
        self.last_rate = self.learning_rate
        self.memory = {}  # (index of the layer, "W" or "b", position in it) -> arrays
        self.n_updates = 0

    @property
    def learning_rate(self):
        return self._learning_rate

    @learning_rate.setter
    def learning_rate(self, value):
        self._learning_rate = real_number("learning_rate", value, above=0)

    def update(self, layers, gradients):
        """Give `layers` new parameters; `gradients` is a list of `(dW, db)`, one per layer.

        The old parameters and the gradients stay as they are. An update is made as a whole or not at all,
        memory included. Raises `ValueError` if the gradients do not belong to these layers, or the memory
        belongs to another network, and `FloatingPointError` if a parameter or the memory would overflow.
        """
        parameters = parameters_with(layers, gradients)
        self._check(parameters)
        self.n_updates += 1
        try:
            with overflow_refused():
                after = {key: self._after(key, *parameter) for key, parameter in parameters.items()}
        except BaseException:
            self.n_updates -= 1
            raise
        for (_, name, _), (layer, W, _) in after.items():
            setattr(layer, name, W)
        self.memory |= {key: memory for key, (_, _, memory) in after.items()}
        self.last_rate = self.learning_rate

    def _after(self, key, layer, W, g):
        """(layer, its parameter after this update, what is remembered of it then)"""
        memory = self.memory.get(key) or [np.zeros_like(g) for _ in range(self.n_memories)]
        new = W
        if self.weight_decay and self.decoupled:
            new = W - self.learning_rate * self.weight_decay * W
        elif self.weight_decay:
            g = g + self.weight_decay * W
        step, *remembered = returned(self, "step", "step, *memory", self.step(g, *memory))
        new = np.subtract(new, step, out=step if step.dtype == W.dtype else None)
        new = new.astype(W.dtype, copy=False)
        pairs = zip(remembered, memory, strict=True)
        remembered = [array.astype(old.dtype, copy=False) for array, old in pairs]
        finite(layer, new, f"{key[1]} after this update")
        for array in remembered:
            finite(layer, array, f"what {type(self).__name__} remembers for {key[1]}")
        return layer, new, remembered

    def fresh(self):
        """An optimizer like this one that has made no update yet."""
        twin = copy.copy(self)
        twin.memory, twin.n_updates = {}, 0
        return twin

    def resume(self, memory, n_updates, learning_rate, last_rate):
        """Go on where another optimizer has stopped, with what it has remembered."""
        self.memory, self.n_updates = memory, n_updates
        self.learning_rate, self.last_rate = learning_rate, last_rate

    def memory_of(self, indices):
        """The arrays that are remembered for the layers with these indices."""
        return [arrays for (index, _, _), arrays in self.memory.items() if index in indices]

    def step(self, g, *memory):
        """(what to subtract from a parameter with gradient `g`, *what to remember instead of `memory`).

        These are new arrays: the first of them takes up the parameter's new value.
        """
        raise to_be_written(self, Optimizer, "step(self, g, *memory)", "(what to subtract, *memory)")

    def _check(self, parameters):
        for (index, name, _), (_, W, g) in parameters.items():
            if np.shape(W) != np.shape(g):
                raise ValueError(
                    f"layer {index}: {name} has shape {np.shape(W)}, "
                    f"but its gradient has {np.shape(g)}: make them equal"
                )
            if self.epsilon is not None and isinstance(g, np.ndarray):  # others have no numbers
                not_zero_in(g.dtype, "epsilon", self.epsilon)
        if not self.n_memories:
            return
        shapes = {key: g.shape for key, (_, _, g) in parameters.items()}
        remembered = {key: arrays[0].shape for key, arrays in self.memory.items()}
        if remembered and remembered != shapes:
            raise ValueError(
                "this optimizer remembers the gradients of another network, "
                f"of shapes {list(remembered.values())}, but got {list(shapes.values())}: "
                f"make a new {type(self).__name__} for each network"
            )


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum in one of two forms.

        u = momentum * u + g                     W = W - learning_rate * u        rate_inside=False
        v = momentum * v + learning_rate * g     W = W - v                        rate_inside=True

    learning_rate: above 0.
    momentum: the share of the past that is kept, 0 <= momentum < 1.
    nesterov: whether to look one step ahead, and use g + momentum * u (or learning_rate * g + momentum * v)
        for u (or v).
    rate_inside: which of the two forms.
    weight_decay, decoupled: see `Optimizer`.

    While the learning rate stays the same, v = learning_rate * u, and the two are one. When it changes,
    v still carries the old rate, so it is corrected first: v <- v * new rate / old rate, and the two
    stay one.

    Sources: Polyak 1964; equations 9 and 10 and the momentum correction of Goyal et al. 2017, arXiv
    1706.02677; Sutskever et al. 2013, ICML, for Nesterov's momentum, with W as the point looked ahead to.

    >>> from minipipe.layers import Linear
    >>> layer, optimizer = Linear(1, 1, W=[[1.0]], b=[[0.0]]), SGD(learning_rate=0.5, momentum=0.5)
    >>> for _ in range(2):
    ...     optimizer.update([layer], [(np.array([[1.0]]), np.array([[0.0]]))])
    >>> layer.W                                       # 1 - 0.5 * 1 - 0.5 * 1.5
    array([[-0.25]])
    """

    def __init__(
        self, learning_rate, momentum=0, nesterov=False, rate_inside=False, weight_decay=0, decoupled=False
    ):
        super().__init__(learning_rate, weight_decay, decoupled)
        momentum = real_number("momentum", momentum, least=0, below=1)
        if truth("nesterov", nesterov) and not momentum:
            words = "it needs a momentum above 0, such as 0.9"
            raise ValueError(f"nesterov=True with momentum={momentum}: {words}")
        self.momentum, self.nesterov, self.rate_inside = momentum, nesterov, rate_inside
        self.n_memories = 1 if momentum else 0

    def step(self, g, velocity=None):
        if velocity is None:
            return (self.learning_rate * g,)
        if self.rate_inside:
            g = self.learning_rate * g
            velocity = velocity * (self.learning_rate / self.last_rate)
        velocity = self.momentum * velocity
        velocity += g
        ahead = g + self.momentum * velocity if self.nesterov else velocity
        return ahead.copy() if self.rate_inside else self.learning_rate * ahead, velocity


class RMSProp(Optimizer):
    """Divide each gradient by the root of its recent mean square.

        v = rho * v + (1 - rho) * g^2            W = W - learning_rate * g / (sqrt(v) + epsilon)

    learning_rate: above 0.
    rho: the share of the past that is kept, 0 <= rho < 1.
    epsilon: above 0.
    weight_decay, decoupled: see `Optimizer`.

    Source: Tieleman and Hinton 2012, Neural Networks for Machine Learning, lecture 6.5.
    """

    n_memories = 1

    def __init__(self, learning_rate=0.01, rho=0.99, epsilon=1e-8, weight_decay=0, decoupled=False):
        super().__init__(learning_rate, weight_decay, decoupled)
        self.rho, self.epsilon = real_number("rho", rho, least=0, below=1), _checked_epsilon(epsilon)

    def step(self, g, v):
        v = _average(v, self.rho, g * g)
        root = np.sqrt(v)
        root += self.epsilon
        step = self.learning_rate * g
        step /= root
        return step, v


class Adam(Optimizer):
    """Momentum over RMSProp, both averages corrected for their start at 0.

        m = beta1 * m + (1 - beta1) * g          m^ = m / (1 - beta1^t)
        v = beta2 * v + (1 - beta2) * g^2        v^ = v / (1 - beta2^t)
        W = W - learning_rate * m^ / (sqrt(v^) + epsilon)

    learning_rate: above 0.
    betas: (beta1, beta2), the shares of the past that are kept, each from 0 to below 1.
    epsilon: above 0.
    weight_decay, decoupled: see `Optimizer`.

    After t updates with one g, m = (1 - beta1^t) g; that is what the division undoes. The step hardly
    depends on the size of g, so that a cost scaled by mistake goes unnoticed. Source: Kingma and Ba 2014,
    arXiv 1412.6980, algorithm 1.

    >>> from minipipe.layers import Linear
    >>> layer, optimizer = Linear(1, 1, W=[[1.0]], b=[[1.0]]), Adam(learning_rate=0.25)
    >>> optimizer.update([layer], [(np.array([[1000.0]]), np.array([[-0.001]]))])
    >>> layer.W.round(4), layer.b.round(4)
    (array([[0.75]]), array([[1.25]]))
    """

    n_memories = 2

    def __init__(
        self, learning_rate=0.001, betas=(0.9, 0.999), epsilon=1e-8, weight_decay=0, decoupled=False
    ):
        super().__init__(learning_rate, weight_decay, decoupled)
        betas = listed("betas", betas)
        if len(betas) != 2:
            raise ValueError(f"betas has {len(betas)} numbers: pass a pair (beta1, beta2)")
        named = zip(("beta1", "beta2"), betas)
        self.betas = tuple(real_number(name, beta, least=0, below=1) for name, beta in named)
        self.epsilon = _checked_epsilon(epsilon)

    def step(self, g, m, v):
        beta1, beta2 = self.betas
        m, v = _average(m, beta1, g), _average(v, beta2, g * g)
        root = v / (1 - beta2**self.n_updates)
        np.sqrt(root, out=root)
        root += self.epsilon
        step = self.learning_rate / (1 - beta1**self.n_updates) * m
        step /= root
        return step, m, v


class AdamW(Adam):
    """Adam with decoupled weight decay: W = W - learning_rate * weight_decay * W - (Adam's step).

    learning_rate: above 0.
    betas: (beta1, beta2), the shares of the past that are kept, each from 0 to below 1.
    epsilon: above 0.
    weight_decay: at least 0.

    In Adam, coupled decay is divided by sqrt(v^) like the gradient, so that parameters with large gradients
    decay less; here all decay alike. Source: Loshchilov and Hutter 2017, arXiv 1711.05101, algorithm 2,
    with the learning rate multiplying the decay, as in PyTorch.
    """

    def __init__(self, learning_rate=0.001, betas=(0.9, 0.999), epsilon=1e-8, weight_decay=0.01):
        super().__init__(learning_rate, betas, epsilon, weight_decay, decoupled=True)


def checked_optimizer(optimizer):
    """`optimizer`, if it is one."""
    if not isinstance(optimizer, Optimizer):
        raise ValueError(
            f"optimizer is {optimizer!r}: "
            "pass an object, such as SGD(learning_rate=0.1), or one of a subclass of Optimizer"
        )
    return optimizer


def _average(before, share, value):
    """share * before + (1 - share) * value"""
    average = share * before
    average += (1 - share) * value
    return average


def _checked_epsilon(epsilon):
    note = ": it keeps gradients of 0 from being divided by 0"
    return real_number("epsilon", epsilon, above=0, note=note)
