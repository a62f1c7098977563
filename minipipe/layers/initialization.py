"""How large the first weights are: the variance that keeps signals alive through many layers."""

import numpy as np

from ..arguments import argument


def he(rng, n_prev, n):
    """W (n, n_prev) from N(0, 2/n_prev), which keeps the mean square of a signal through ReLU.

    Source: He et al. 2015, arXiv 1502.01852, equation 10.
    """
    argument("rng", rng)
    n_prev, n = argument("n_prev", n_prev), argument("n", n)
    return rng.standard_normal((n, n_prev)) * np.sqrt(2 / n_prev)


def xavier(rng, n_prev, n):
    """W (n, n_prev) from N(0, 2/(n_prev + n)), for Tanh and Sigmoid.

    A compromise between keeping the variance of the forward values (1/n_prev) and of the backward
    values (1/n). Source: Glorot and Bengio 2010, AISTATS, equation 12.
    """
    argument("rng", rng)
    n_prev, n = argument("n_prev", n_prev), argument("n", n)
    return rng.standard_normal((n, n_prev)) * np.sqrt(2 / (n_prev + n))
