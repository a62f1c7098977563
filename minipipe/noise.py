"""How large a mini-batch is large enough: the gradient noise scale.

The gradient of B samples, drawn at random with replacement, is that of all samples, G, and noise:

    E |G_B|^2 = |G|^2 + tr(S) / B            S: the covariance of the gradients of single samples

For B far below tr(S) / |G|^2, the noise scale, twice the samples are worth two steps; far above it, hardly
more than one. Two sizes b < B give both unknowns, without any gradient of all samples:

    |G|^2 = (B |G_B|^2 - b |G_b|^2) / (B - b)        tr(S) = (|G_b|^2 - |G_B|^2) / (1/b - 1/B)

Both are unbiased, their quotient is not: average them over many mini-batches first, then divide.

Source: McCandlish, Kaplan, Amodei 2018, arXiv 1812.06162, appendix A.
"""

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from .arguments import argument
from .checks import whole_number


class Noise(NamedTuple):
    """square: |G|^2, of the gradient of all samples. trace: tr(S), the variance of that of one sample."""

    square: float
    trace: float

    @property
    def scale(self):
        """tr(S) / |G|^2, in samples; infinite where |G|^2 is not above 0, by chance or at a minimum."""
        return self.trace / self.square if self.square > 0 else float("inf")


def noise_from_two(small, large, of_small, of_large):
    """The `Noise` from two sizes of mini-batches.

    small, large: these sizes.
    of_small, of_large: |g|^2 of the gradient of so many samples, a mean over many mini-batches.

    >>> noise_from_two(1, 4, Fraction(5), Fraction(4))
    Noise(square=Fraction(11, 3), trace=Fraction(4, 3))
    """
    small = argument("small", small)
    large = whole_number("large", large)
    if large <= small:
        raise ValueError(f"large={large} must exceed small={small}: one size of mini-batches tells nothing")
    square = (large * of_large - small * of_small) / (large - small)
    return Noise(square, (of_small - of_large) / (Fraction(1, small) - Fraction(1, large)))


def measured_noise(model, X, Y, small=16, large=128, n_repeats=60, seed=0):
    """The `Noise` of a network as it is: no parameter moves.

    model: a `Sequential` or another network.
    X, Y: the samples; mini-batches are drawn from them with replacement.
    small, large, n_repeats: the sizes of the mini-batches, and how many of each.
    """
    X, Y = model.checked_batch(X, Y)
    rng, squares = np.random.default_rng(argument("seed", seed)), []
    argument("n_repeats", n_repeats)
    for size in (small, large):
        own = []
        for _ in range(n_repeats):
            chosen = rng.integers(0, X.shape[-1], whole_number("small and large", size, 1))
            model.forward_backward(np.take(X, chosen, axis=-1), np.take(Y, chosen, axis=-1))
            own.append(model.gradient_norm() ** 2)
        squares.append(sum(own) / n_repeats)
    model.forget_run()
    return noise_from_two(small, large, *squares)


def steps_and_samples(batch, critical):
    """(1 + critical / batch, 1 + batch / critical): the price of mini-batches of a size.

    The updates to a target, as a multiple of the fewest that do, and the samples for it, likewise: with
    few samples in a mini-batch updates are wasted, with many of them samples. Source: McCandlish, Kaplan,
    Amodei 2018, arXiv 1812.06162, equations 2.11 and 2.12.

    batch: the samples of a mini-batch.
    critical: the size at which both cost twice what they must, about the noise scale; or a guess of it.

    >>> steps_and_samples(400, 100)
    (1.25, 5.0)
    """
    ratio = Fraction(argument("batch", batch)) / Fraction(argument("critical", critical))
    return float(1 + 1 / ratio), float(1 + ratio)


def noise_of_updates(learning_rate, batch, n_samples):
    """learning_rate (n_samples / batch - 1): what a rate makes of the noise of mini-batches.

    A fifth of the rate and five times the batch have the same noise, nearly, as long as the batch is small
    beside all samples. Source: Smith, Kindermans, Ying, Le 2017, arXiv 1711.00489.

    learning_rate: above 0; a `Fraction` stays one.
    batch: the samples of a mini-batch, out of
    n_samples: all samples.

    >>> noise_of_updates(Fraction(1, 50), 32, 1437), noise_of_updates(Fraction(1, 10), 160, 1437)
    (Fraction(281, 320), Fraction(1277, 1600))
    """
    batch = whole_number("batch", batch, 1, argument("n_samples", n_samples))
    return argument("learning_rate", learning_rate) * (Fraction(n_samples, batch) - 1)
