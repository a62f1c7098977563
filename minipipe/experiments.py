"""How the size of a mini-batch changes the noise of a gradient, and the error."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .checks import Number, one_of, whole_number
from .datasets import Dataset
from .layers import BatchNorm, Layer, Linear, ReLU
from .losses import SoftmaxCrossEntropy
from .network import Network, Sequential
from .optimizers import SGD
from .rates import ConstantWarmUp, GradualWarmUp, Rate, StepDecay, linear_scaled, square_root_scaled
from .training import fit


# How large a mini-batch is large enough: the gradient noise scale.
#
# The gradient of B samples, drawn at random with replacement, is that of all samples, G, and noise:
#
#     E |G_B|^2 = |G|^2 + tr(S) / B            S: the covariance of the gradients of single samples
#
# For B far below the noise scale tr(S) / |G|^2, a step with twice the samples is worth two steps; far above
# it, hardly more than one. Two sizes b < B give both unknowns, without the gradient of all samples:
#
#     |G|^2 = (B |G_B|^2 - b |G_b|^2) / (B - b)        tr(S) = (|G_b|^2 - |G_B|^2) / (1/b - 1/B)
#
# Both are unbiased, but their quotient is not: average them over many mini-batches first, then divide.
#
# Source: McCandlish, Kaplan, Amodei 2018, arXiv 1812.06162, appendix A.

class Noise(NamedTuple):
    """`square` is |G|^2, of the gradient of all samples; `trace` is tr(S), see above."""

    square: Number
    trace: Number

    @property
    def scale(self) -> Number:
        """tr(S) / |G|^2, in samples; infinite if |G|^2 is not above 0, by chance or at a minimum."""
        return self.trace / self.square if self.square > 0 else float("inf")


def noise_from_two(small: int, large: int, of_small: Number, of_large: Number) -> Noise:
    """Return the `Noise`, from gradients for two sizes of mini-batches.

    Args:
        small, large: the two sizes.
        of_small, of_large: the mean of |g|^2 over many mini-batches of each size.

    >>> noise_from_two(1, 4, Fraction(5), Fraction(4))
    Noise(square=Fraction(11, 3), trace=Fraction(4, 3))
    """
    small = whole_number("small", small, 1)
    large = whole_number("large", large)
    if large <= small:
        raise ValueError(f"large={large} must exceed small={small}: one size of mini-batches tells nothing")
    square = (large * of_large - small * of_small) / (large - small)
    return Noise(square, (of_small - of_large) / (Fraction(1, small) - Fraction(1, large)))


def measured_noise(
    model: Network, X: ArrayLike, Y: ArrayLike, small: int = 16, large: int = 128, n_repeats: int = 60,
    seed: int = 0,
) -> Noise:
    """Return the `Noise` of a network; its parameters are not changed.

    Args:
        model: a `Sequential` or another network.
        X, Y: the samples; mini-batches are drawn from them with replacement.
        small, large, n_repeats: the sizes of the mini-batches, and the number of each.
        seed: the seed of the draws.
    """
    X, Y = model.checked_batch(X, Y)
    rng, squares = np.random.default_rng(whole_number("seed", seed, 0)), []
    whole_number("n_repeats", n_repeats, 1)
    for size in (small, large):
        own = []
        for _ in range(n_repeats):
            chosen = rng.integers(0, X.shape[-1], whole_number("small and large", size, 1))
            model.forward_backward(np.take(X, chosen, axis=-1), np.take(Y, chosen, axis=-1))
            own.append(model.gradient_norm() ** 2)
        squares.append(sum(own) / n_repeats)
    model.forget_run()
    return noise_from_two(small, large, *squares)


# Trainings that differ in one option, with several seeds each: the error for larger mini-batches.
#
# As in Goyal et al. 2017, arXiv 1706.02677: momentum 0.9, weight decay, the rate times 1/10 after 1/3, 2/3
# and 8/9 of the epochs, and the test error as the median of the last five epochs.

SCALING_RULES = {
    "linear": linear_scaled, "square root": square_root_scaled, "fixed": lambda base, *batches: base,
}
WARM_UPS = {"gradual": GradualWarmUp, "constant": ConstantWarmUp, "none": None}
N_LAST_EPOCHS = 5  # the error is the median over these


@dataclass(frozen=True)
class Recipe:
    """The options that all trainings of an experiment share.

    Args:
        base: the learning rate for mini-batches of `reference` samples.
        reference: the size of mini-batch that `base` is for.
        epochs: passes over the data.
        warm_up: epochs of the warm-up, if there is one.
        weight_decay: at least 0.
    """

    base: float = 0.1
    reference: int = 32
    epochs: int = 45
    warm_up: float = 8
    weight_decay: float = 1e-4

    def rate(self, batch_size: int, rule: str = "linear", warm_up: str = "gradual") -> Rate:
        """Return the learning rate for `batch_size`, a function of the epochs done.

        Args:
            batch_size: the largest number of samples in a mini-batch.
            rule: how the rate grows with the mini-batch, "linear", "square root" or
                "fixed".
            warm_up: "gradual", "constant" or "none"; without effect unless the rate is
                above `base`.

        >>> rate = Recipe(base=0.125, epochs=45).rate(128)
        >>> rate(0), rate(4), rate(8), round(rate(15), 3)
        (0.125, 0.3125, 0.5, 0.05)
        """
        top = SCALING_RULES[one_of("rule", rule, SCALING_RULES)](self.base, batch_size, self.reference)
        drops = [self.epochs * share for share in (1 / 3, 2 / 3, 8 / 9)]
        rate, kind = StepDecay(top, drops), WARM_UPS[one_of("warm_up", warm_up, WARM_UPS)]
        return rate if kind is None or top <= self.base else kind(rate, self.base, self.warm_up)


class Outcome(NamedTuple):
    """The results of a training.

    Args:
        error: the error on the test data, in percent.
        costs: J of each epoch; empty if numbers overflowed.
    """

    error: float
    costs: list


def train(
    layers: Sequence[Layer], data: Dataset, recipe: Recipe, batch_size: int, rule: str = "linear",
    warm_up: str = "gradual", seed: int = 0, grain: int | None = None,
) -> Outcome:
    """Return the `Outcome` of one training by a `Recipe`, in the dtype of the data.

    Args:
        layers: a list of layers whose output are logits.
        data: a `Dataset`.
        recipe: the `Recipe`.
        batch_size, rule, warm_up: as for `Recipe.rate`.
        seed: the seed of weights and shuffling.
        grain: the number of samples over which BatchNorm takes its statistics, as for
            `Sequential`, such as those of one of many workers; None: the mini-batch.

    If numbers overflow, no error is raised: the error of the training is 100 %.
    """
    (X, Y), test = data
    net = Sequential(layers, SoftmaxCrossEntropy(), seed, X.dtype, grain)
    rate = recipe.rate(batch_size, rule, warm_up)
    optimizer = SGD(recipe.base, 0.9, weight_decay=recipe.weight_decay)
    try:
        history = fit(
            net, X, Y, optimizer, recipe.epochs, batch_size, test, seed=seed, report=None, learning_rate=rate
        )
    except FloatingPointError:
        return Outcome(100.0, [])
    score = statistics.median(epoch.score for epoch in history[-N_LAST_EPOCHS:] if epoch.score is not None)
    return Outcome(100 * (1 - score), [epoch.J for epoch in history])


def with_batch_norm(sizes: Sequence[int]) -> list[Layer]:
    """Return Linear, BatchNorm and ReLU between `sizes`; the last is a Linear alone.

    >>> with_batch_norm([64, 32, 10])
    [Linear(64, 32), BatchNorm(32), ReLU(), Linear(32, 10)]
    """
    layers = []
    for n_prev, n in zip(sizes, sizes[1:]):
        layers += [Linear(n_prev, n), BatchNorm(n), ReLU()]
    return layers[:-2]
