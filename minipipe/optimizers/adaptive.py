"""Optimizers that divide each gradient by its recent size."""

import numpy as np

from ..checks import listed, real_number
from .optimizer import OPTIMIZERS, Optimizer


@OPTIMIZERS(
    examples=lambda: [RMSProp(0.125, rho=0.5), RMSProp(0.125, rho=0.5, weight_decay=0.25, decoupled=True)],
    source="Tieleman and Hinton 2012",
)
class RMSProp(Optimizer):
    """Divide each gradient by the root of its recent mean square.

        v = rho * v + (1 - rho) * g^2            W = W - learning_rate * g / (sqrt(v) + epsilon)

    learning_rate: above 0.
    rho: the share of the past that is kept, 0 <= rho < 1.
    epsilon: above 0.
    weight_decay, decoupled, weights_only: see `Optimizer`.

    Source: Tieleman and Hinton 2012, Neural Networks for Machine Learning, lecture 6.5.
    """

    n_memories = 1

    def __init__(
        self, learning_rate=0.01, rho=0.99, epsilon=1e-8, weight_decay=0, decoupled=False, weights_only=False
    ):
        super().__init__(learning_rate, weight_decay, decoupled, weights_only)
        self.rho, self.epsilon = real_number("rho", rho, least=0, below=1), _checked_epsilon(epsilon)

    def step(self, g, v):
        v = _average(v, self.rho, g * g)
        root = np.sqrt(v)
        root += self.epsilon
        step = self.learning_rate * g
        step /= root
        return step, v


@OPTIMIZERS(
    examples=lambda: [Adam(0.125), Adam(0.125, betas=(0.5, 0.75), weight_decay=0.25)],
    source="arXiv 1412.6980",
)
class Adam(Optimizer):
    """Momentum over RMSProp, both averages corrected for their start at 0.

        m = beta1 * m + (1 - beta1) * g          m^ = m / (1 - beta1^t)
        v = beta2 * v + (1 - beta2) * g^2        v^ = v / (1 - beta2^t)
        W = W - learning_rate * m^ / (sqrt(v^) + epsilon)

    learning_rate: above 0.
    betas: (beta1, beta2), the shares of the past that are kept, each from 0 to below 1.
    epsilon: above 0.
    weight_decay, decoupled, weights_only: see `Optimizer`.

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
        self, learning_rate=0.001, betas=(0.9, 0.999), epsilon=1e-8, weight_decay=0, decoupled=False,
        weights_only=False,
    ):
        super().__init__(learning_rate, weight_decay, decoupled, weights_only)
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


@OPTIMIZERS(
    examples=lambda: [AdamW(0.125), AdamW(0.125, betas=(0.5, 0.75), weight_decay=0.25)],
    source="arXiv 1711.05101",
)
class AdamW(Adam):
    """Adam with decoupled weight decay.

        m = beta1 * m + (1 - beta1) * g          m^ = m / (1 - beta1^t)
        v = beta2 * v + (1 - beta2) * g^2        v^ = v / (1 - beta2^t)
        W = W - learning_rate * weight_decay * W - learning_rate * m^ / (sqrt(v^) + epsilon)

    learning_rate: above 0.
    betas: (beta1, beta2), the shares of the past that are kept, each from 0 to below 1.
    epsilon: above 0.
    weight_decay, weights_only: see `Optimizer`.

    In Adam, coupled decay is divided by sqrt(v^) like the gradient, so that parameters with large gradients
    decay less; here all decay alike. Source: Loshchilov and Hutter 2017, arXiv 1711.05101, algorithm 2,
    with the learning rate multiplying the decay, as in PyTorch.
    """

    def __init__(
        self, learning_rate=0.001, betas=(0.9, 0.999), epsilon=1e-8, weight_decay=0.01, weights_only=False
    ):
        super().__init__(learning_rate, betas, epsilon, weight_decay, True, weights_only)


def _average(before, share, value):
    """share * before + (1 - share) * value"""
    average = share * before
    average += (1 - share) * value
    return average


def _checked_epsilon(epsilon):
    note = ": it keeps gradients of 0 from being divided by 0"
    return real_number("epsilon", epsilon, above=0, note=note)
