"""Optimizers for large mini-batches: the length of a step goes with that of the parameter."""

from ..arrays import norm
from ..checks import listed, real_number
from .adaptive import Adam
from .optimizer import OPTIMIZERS
from .sgd import SGD


@OPTIMIZERS(
    examples=lambda: [LARS(0.25, 0.5), LARS(0.25, 0.5, weight_decay=0.25, trust=0.5)],
    source="arXiv 1708.03888",
)
class LARS(SGD):
    """SGD with momentum, in which each parameter has a learning rate of its own.

        local = trust * ||W|| / (||g|| + weight_decay * ||W||)          1 where ||W|| or ||g|| is 0
        u = momentum * u + local * (g + weight_decay * W)
        W = W - learning_rate * u

    learning_rate: above 0; it multiplies `local`, so it is far larger than that of SGD.
    momentum, nesterov: as for `SGD`.
    weight_decay: at least 0.
    trust: above 0, the share of ||W|| that a step of rate 1 has.
    bounds: None, or a pair between which `local` is kept.
    weights_only: whether biases, and the scale and shift of a normalisation, are updated as by `SGD`, with
        local = 1 and without decay.

    As long as `local` is within its bounds, and without decay, a step does not depend on the size of g. The
    paper writes learning_rate * local into v, which is the same, with the correction of v that `SGD` has when
    the rate changes. Code that takes `local` out of the sum, W = W - learning_rate * local * u, is another
    algorithm: there, an old gradient counts with today's `local`.

    Source: You, Gitman, Ginsburg 2017, arXiv 1708.03888, algorithm 1.

    >>> import numpy as np
    >>> from minipipe.layers import Linear
    >>> layer, optimizer = Linear(2, 1, W=[[3.0, 4.0]], b=[[0.0]]), LARS(learning_rate=1, trust=0.01)
    >>> optimizer.update([layer], [(np.array([[600.0, 800.0]]), np.array([[0.0]]))])
    >>> layer.W                                       # a step of 1 % of ||W|| = 5, against g
    array([[2.97, 3.96]])
    """

    needs_whole_parameters = True

    def __init__(
        self, learning_rate, momentum=0.9, nesterov=False, weight_decay=0, trust=0.001, bounds=None,
        weights_only=True,
    ):
        super().__init__(learning_rate, momentum, nesterov, False, weight_decay, False, weights_only)
        self.trust, self.bounds = real_number("trust", trust, above=0), _checked_bounds(bounds)

    def before_step(self, W, g):
        size, size_of_g = norm(W), norm(g)
        local = 1
        if size and size_of_g:
            local = within(self.bounds, self.trust * size / (size_of_g + self.weight_decay * size))
        return local * super().before_step(W, g)


@OPTIMIZERS(
    examples=lambda: [LAMB(0.25), LAMB(0.25, betas=(0.5, 0.75), weight_decay=0.25)],
    source="arXiv 1904.00962",
)
class LAMB(Adam):
    """Adam, in which the length of each parameter's step goes with that of the parameter.

        m = beta1 * m + (1 - beta1) * g          m^ = m / (1 - beta1^t)
        v = beta2 * v + (1 - beta2) * g^2        v^ = v / (1 - beta2^t)
        r = m^ / (sqrt(v^) + epsilon) + weight_decay * W
        W = W - learning_rate * ||W|| / ||r|| * r                       1 for the ratio where one of them is 0

    learning_rate: above 0, the share of ||W|| that a step has.
    betas, epsilon: as for `Adam`.
    weight_decay: at least 0.
    bounds: None, or a pair between which ||W|| is kept in the ratio: the paper's phi.
    weights_only: whether biases, and the scale and shift of a normalisation, are updated as by `Adam`, with
        the ratio 1 and without decay.

    Without decay and epsilon, the correction of m and v does not matter, since a factor of r falls out. Much
    code that is in use leaves the correction out.

    Source: You et al. 2019, arXiv 1904.00962, algorithm 2.

    >>> import numpy as np
    >>> from minipipe.layers import Linear
    >>> layer = Linear(4, 1, W=[[3.0, 4.0, 0.0, 0.0]], b=[[0.0]])
    >>> optimizer = LAMB(learning_rate=0.01, weight_decay=0)
    >>> optimizer.update([layer], [(np.array([[5.0, -7.0, 0.1, 2.0]]), np.array([[0.0]]))])
    >>> layer.W.round(4)                              # 1 % of ||W|| = 5, in equal shares: 0.05 / sqrt(4)
    array([[ 2.975,  4.025, -0.025, -0.025]])
    """

    needs_whole_parameters = True

    def __init__(
        self, learning_rate=0.001, betas=(0.9, 0.999), epsilon=1e-6, weight_decay=0.01, bounds=None,
        weights_only=True,
    ):
        super().__init__(learning_rate, betas, epsilon, weight_decay, True, weights_only)
        self.bounds = _checked_bounds(bounds)

    def after_step(self, W, step):
        if self.weight_decay:
            step = step + self.learning_rate * self.weight_decay * W
        size, size_of_step = within(self.bounds, norm(W)), norm(step)
        if size and size_of_step:
            step = self.learning_rate * size / size_of_step * step
        return W, step


def within(bounds, number):
    """`number`, or the bound that it is beyond; bounds: None, or a pair.

    >>> within((1, 10), 0.5), within((1, 10), 50), within(None, 50)
    (1, 10, 50)
    """
    return number if bounds is None else min(max(number, bounds[0]), bounds[1])


def _checked_bounds(bounds):
    if bounds is None:
        return None
    pair = listed("bounds", bounds)
    if len(pair) != 2:
        raise ValueError(f"bounds has {len(pair)} numbers: pass a pair (least, most)")
    least = real_number("bounds[0]", pair[0], least=0)
    return least, real_number("bounds[1]", pair[1], least=least)
