"""Stochastic gradient descent."""

from ..checks import real_number, truth
from .optimizer import OPTIMIZERS, Optimizer


@OPTIMIZERS(
    examples=lambda: [
        SGD(0.125), SGD(0.125, 0.5), SGD(0.125, 0.5, nesterov=True), SGD(0.125, 0.5, rate_inside=True),
        SGD(0.125, 0.5, nesterov=True, rate_inside=True), SGD(0.125, 0.5, weight_decay=0.25),
        SGD(0.125, 0.5, weight_decay=0.25, decoupled=True),
    ],
    source="Polyak 1964",
)
class SGD(Optimizer):
    """Stochastic gradient descent, with momentum in one of two forms, each with or without a look ahead.

        u = momentum * u + g                    W = W - learning_rate * u
        u = momentum * u + g                    W = W - learning_rate * (g + momentum * u)    nesterov=True
        v = momentum * v + learning_rate * g    W = W - v                                     rate_inside=True
        v = momentum * v + learning_rate * g
        W = W - learning_rate * g - momentum * v                            nesterov=True, rate_inside=True

    learning_rate: above 0.
    momentum: the share of the past that is kept, 0 <= momentum < 1.
    nesterov: whether to look one step ahead.
    rate_inside: which of the two forms.
    weight_decay, decoupled, weights_only: see `Optimizer`.

    While the learning rate stays the same, v = learning_rate * u, and the two are one. When it changes,
    v still carries the old rate, so it is corrected first: v <- v * new rate / old rate, and the two
    stay one.

    Sources: Polyak 1964; equations 9 and 10 and the momentum correction of Goyal et al. 2017, arXiv
    1706.02677; Sutskever et al. 2013, ICML, for Nesterov's momentum, with W as the point looked ahead to.

    >>> import numpy as np
    >>> from minipipe.layers import Linear
    >>> layer, optimizer = Linear(1, 1, W=[[1.0]], b=[[0.0]]), SGD(learning_rate=0.5, momentum=0.5)
    >>> for _ in range(2):
    ...     optimizer.update([layer], [(np.array([[1.0]]), np.array([[0.0]]))])
    >>> layer.W                                       # 1 - 0.5 * 1 - 0.5 * 1.5
    array([[-0.25]])
    """

    def __init__(
        self, learning_rate, momentum=0, nesterov=False, rate_inside=False, weight_decay=0, decoupled=False,
        weights_only=False,
    ):
        super().__init__(learning_rate, weight_decay, decoupled, weights_only)
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
