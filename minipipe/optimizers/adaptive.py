"""Optimizers that adapt the length of a step, per entry or per parameter.

RMSProp, Adam and AdamW divide gradients by their recent size. LARS and LAMB, for large
mini-batches, make the norm of a step proportional to that of the parameter.
"""

from collections.abc import Sequence

import numpy as np

from ..arrays import norm
from ..checks import Number, listed, real_number
from .optimizer import OPTIMIZERS, SGD, Optimizer


@OPTIMIZERS(examples=lambda: [RMSProp(0.125, rho=0.5), RMSProp(0.125, rho=0.5, weight_decay=0.25)])
class RMSProp(Optimizer):
    """Divide each gradient by the root of its recent mean square.

        v = rho * v + (1 - rho) * g^2
        W = W - learning_rate * g / (sqrt(v) + epsilon)

    Args:
        learning_rate: above 0.
        rho: the weight of the old average v, 0 <= rho < 1.
        epsilon: above 0.
        weight_decay, weights_only: see `Optimizer`; the decay is coupled.

    Source: Tieleman and Hinton 2012, Neural Networks for Machine Learning, lecture 6.5.
    """

    n_memories = 1

    def __init__(
        self, learning_rate: Number = 0.01, rho: Number = 0.99, epsilon: Number = 1e-8,
        weight_decay: Number = 0, weights_only: bool = False,
    ):
        super().__init__(learning_rate, weight_decay, False, weights_only)
        self.rho, self.epsilon = real_number("rho", rho, least=0, below=1), _checked_epsilon(epsilon)

    def step(self, g: np.ndarray, v: np.ndarray) -> tuple:
        v = _average(v, self.rho, g * g)
        return self.learning_rate * g / (np.sqrt(v) + self.epsilon), v


@OPTIMIZERS(examples=lambda: [Adam(0.125), Adam(0.125, betas=(0.5, 0.75), weight_decay=0.25)])
class Adam(Optimizer):
    """Momentum divided by RMSProp's root, both corrected for their start at 0.

        m = beta1 * m + (1 - beta1) * g          m^ = m / (1 - beta1^t)
        v = beta2 * v + (1 - beta2) * g^2        v^ = v / (1 - beta2^t)
        W = W - learning_rate * m^ / (sqrt(v^) + epsilon)

    Args:
        learning_rate: above 0.
        betas: (beta1, beta2), the weights of the old averages, each from 0 to below 1.
        epsilon: above 0.
        weight_decay, decoupled, weights_only: see `Optimizer`.

    After t updates with the same g, m = (1 - beta1^t) g, so m^ = g. The step hardly
    depends on the size of g: a wrong factor in the cost goes unnoticed. Source: Kingma
    and Ba 2014, arXiv 1412.6980, algorithm 1.

    >>> from minipipe.layers import Linear
    >>> layer, optimizer = Linear(1, 1, W=[[1.0]], b=[[1.0]]), Adam(learning_rate=0.25)
    >>> optimizer.update([layer], [(np.array([[1000.0]]), np.array([[-0.001]]))])
    >>> layer.W.round(4), layer.b.round(4)
    (array([[0.75]]), array([[1.25]]))
    """

    n_memories = 2

    def __init__(
        self, learning_rate: Number = 0.001, betas: Sequence[Number] = (0.9, 0.999), epsilon: Number = 1e-8,
        weight_decay: Number = 0, decoupled: bool = False, weights_only: bool = False,
    ):
        super().__init__(learning_rate, weight_decay, decoupled, weights_only)
        betas = listed("betas", betas)
        if len(betas) != 2:
            raise ValueError(f"betas has {len(betas)} numbers: pass a pair (beta1, beta2)")
        named = zip(("beta1", "beta2"), betas)
        self.betas = tuple(real_number(name, beta, least=0, below=1) for name, beta in named)
        self.epsilon = _checked_epsilon(epsilon)

    def step(self, g: np.ndarray, m: np.ndarray, v: np.ndarray) -> tuple:
        beta1, beta2 = self.betas
        m, v = _average(m, beta1, g), _average(v, beta2, g * g)
        root = np.sqrt(v / (1 - beta2**self.n_updates))
        return self.learning_rate / (1 - beta1**self.n_updates) * m / (root + self.epsilon), m, v


@OPTIMIZERS(examples=lambda: [AdamW(0.125), AdamW(0.125, betas=(0.5, 0.75), weight_decay=0.25)])
class AdamW(Adam):
    """Adam with decoupled weight decay.

        m = beta1 * m + (1 - beta1) * g          m^ = m / (1 - beta1^t)
        v = beta2 * v + (1 - beta2) * g^2        v^ = v / (1 - beta2^t)
        W = W - learning_rate * (m^ / (sqrt(v^) + epsilon) + weight_decay * W)

    Args:
        learning_rate, betas, epsilon: as for `Adam`.
        weight_decay, weights_only: see `Optimizer`.

    In Adam, coupled decay is divided by sqrt(v^) like the gradient, so that parameters
    with large gradients decay less; here all decay at the same rate. Source: Loshchilov
    and Hutter 2017, arXiv 1711.05101, algorithm 2, with the learning rate multiplying
    the decay, as in PyTorch.
    """

    def __init__(
        self, learning_rate: Number = 0.001, betas: Sequence[Number] = (0.9, 0.999), epsilon: Number = 1e-8,
        weight_decay: Number = 0.01, weights_only: bool = False,
    ):
        super().__init__(learning_rate, betas, epsilon, weight_decay, True, weights_only)


@OPTIMIZERS(examples=lambda: [LARS(0.25, 0.5), LARS(0.25, 0.5, weight_decay=0.25, trust=0.5)])
class LARS(SGD):
    """SGD with momentum, in which each parameter has a learning rate of its own.

        local = trust * ||W|| / (||g|| + weight_decay * ||W||)   1 if a norm is 0
        u = momentum * u + local * (g + weight_decay * W)
        W = W - learning_rate * u

    Args:
        learning_rate: above 0; it multiplies `local`, so it is far larger than for SGD.
        momentum: as for `SGD`.
        weight_decay: at least 0.
        trust: above 0; ||step|| / ||W|| for learning_rate = 1, without momentum.
        weights_only: whether biases, and the scale and shift of a normalisation, are
            updated as in `SGD`, with local = 1 and without decay.

    Without decay, a step does not depend on the size of g. In the paper, v contains
    learning_rate * local; that is the same, given the correction of v in `SGD` when the
    rate changes. Code with W = W - learning_rate * local * u, and u without `local`, is
    another algorithm: the current `local` scales old gradients.

    Source: You, Gitman, Ginsburg 2017, arXiv 1708.03888, algorithm 1.

    >>> from minipipe.layers import Linear
    >>> layer, optimizer = Linear(2, 1, W=[[3.0, 4.0]], b=[[0.0]]), LARS(learning_rate=1, trust=0.01)
    >>> optimizer.update([layer], [(np.array([[600.0, 800.0]]), np.array([[0.0]]))])
    >>> layer.W                                       # a step of 1 % of ||W|| = 5, against g
    array([[2.97, 3.96]])
    """

    needs_whole_parameters = True

    def __init__(
        self, learning_rate: Number, momentum: Number = 0.9, weight_decay: Number = 0,
        trust: Number = 0.001, weights_only: bool = True,
    ):
        super().__init__(learning_rate, momentum, weight_decay=weight_decay, weights_only=weights_only)
        self.trust = real_number("trust", trust, above=0)

    def before_step(self, W: np.ndarray, g: np.ndarray) -> np.ndarray:
        size, size_of_g = norm(W), norm(g)
        local = 1
        if size and size_of_g:
            local = self.trust * size / (size_of_g + self.weight_decay * size)
        return local * super().before_step(W, g)


@OPTIMIZERS(examples=lambda: [LAMB(0.25), LAMB(0.25, betas=(0.5, 0.75), weight_decay=0.25)])
class LAMB(Adam):
    """Adam, in which the norm of a step is proportional to that of the parameter.

        m = beta1 * m + (1 - beta1) * g          m^ = m / (1 - beta1^t)
        v = beta2 * v + (1 - beta2) * g^2        v^ = v / (1 - beta2^t)
        r = m^ / (sqrt(v^) + epsilon) + weight_decay * W
        W = W - learning_rate * ||W|| / ||r|| * r      with ratio 1 if a norm is 0

    Args:
        learning_rate: above 0; it is ||step|| / ||W||.
        betas, epsilon: as for `Adam`.
        weight_decay: at least 0.
        weights_only: whether biases, and the scale and shift of a normalisation, are
            updated as in `Adam`, with the ratio 1 and without decay.

    Without decay and epsilon, the correction of m and v does not matter, since r is
    divided by its norm. Many implementations leave the correction out. Source: You et
    al. 2019, arXiv 1904.00962, algorithm 2, without bounds for ||W|| (its phi).

    >>> from minipipe.layers import Linear
    >>> layer = Linear(4, 1, W=[[3.0, 4.0, 0.0, 0.0]], b=[[0.0]])
    >>> optimizer = LAMB(learning_rate=0.01, weight_decay=0)
    >>> optimizer.update([layer], [(np.array([[5.0, -7.0, 0.1, 2.0]]), np.array([[0.0]]))])
    >>> layer.W.round(4)                              # 1 % of ||W|| = 5, in equal shares: 0.05 / sqrt(4)
    array([[ 2.975,  4.025, -0.025, -0.025]])
    """

    needs_whole_parameters = True

    def __init__(
        self, learning_rate: Number = 0.001, betas: Sequence[Number] = (0.9, 0.999), epsilon: Number = 1e-6,
        weight_decay: Number = 0.01, weights_only: bool = True,
    ):
        super().__init__(learning_rate, betas, epsilon, weight_decay, True, weights_only)

    def after_step(self, W: np.ndarray, step: np.ndarray) -> tuple:
        if self.weight_decay:
            step = step + self.learning_rate * self.weight_decay * W
        size, size_of_step = norm(W), norm(step)
        if size and size_of_step:
            step = self.learning_rate * size / size_of_step * step
        return W, step


def _average(before, share, value):
    return share * before + (1 - share) * value


def _checked_epsilon(epsilon):
    note = ": it keeps gradients of 0 from being divided by 0"
    return real_number("epsilon", epsilon, above=0, note=note)
