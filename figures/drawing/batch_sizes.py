"""The pictures of large mini-batches: the test error, and the steps to a target."""

from statistics import mean, stdev

import numpy as np

from minipipe import SGD, Sequential, SoftmaxCrossEntropy
from minipipe.datasets import digits
from minipipe.experiments import Recipe, measured_noise, train, with_batch_norm
from minipipe.models import mlp
from minipipe.plots.canvas import label, new_figure
from minipipe.watching import with_progress

TARGET, TARGET_RATES, TARGET_SIZES = 0.1, (0.1, 0.2, 0.4, 0.8, 1.6), (4, 8, 16, 32, 64, 128, 256, 512, 1437)

BATCH_SIZES, N_SEEDS = (32, 64, 128, 256, 512, 719, 1437), 5
LAYER_SIZES = (64, 64, 64, 64, 64, 64, 10)
LINE_STYLES = {  # colour of Okabe and Ito, marker
    "linear, gradual warm-up": ("#0072B2", "o"),
    "linear, no warm-up": ("#D55E00", "s"),
    "square root, gradual warm-up": ("#009E73", "^"),
    "fixed rate": ("#000000", "x"),
}
VARIANTS = {  # the name of a line: (rule, warm-up)
    "linear, gradual warm-up": ("linear", "gradual"),
    "linear, no warm-up": ("linear", "none"),
    "square root, gradual warm-up": ("square root", "gradual"),
    "fixed rate": ("fixed", "none"),
}


def errors_of(layers, data, recipe, sizes, variants, n_seeds):
    """Return {(variant, size): the test errors of all seeds, in percent}.

    layers, data, recipe: as for `train`.
    sizes: samples in a mini-batch, one or more.
    variants: names in `VARIANTS`; those with one rate for a size share a training.
    n_seeds: trainings of each kind.
    """
    rates = {(name, size): recipe.rate(size, *VARIANTS[name]) for size in sizes for name in variants}
    places = {(rate, size): name for (name, size), rate in rates.items()}  # one variant for each rate
    runs = [(name, size, seed) for (_, size), name in places.items() for seed in range(n_seeds)]
    errors = {}
    for name, size, seed in with_progress(runs, "trainings"):
        outcome = train(layers, data, recipe, size, *VARIANTS[name], seed)
        errors.setdefault((rates[name, size], size), []).append(outcome.error)
    return {(name, size): errors[rate, size] for (name, size), rate in rates.items()}


def error_against_batch_size():
    """Return a `Figure` of the test error on the digits against the batch size.

    140 trainings: some minutes.
    """
    data, recipe = digits("float32"), Recipe()
    found = errors_of(with_batch_norm(LAYER_SIZES), data, recipe, BATCH_SIZES, VARIANTS, N_SEEDS)
    figure = new_figure(8, 4.6)
    ax = figure.subplots()
    for place, (name, (colour, marker)) in enumerate(LINE_STYLES.items()):
        beside = [size * 1.05 ** (place - (len(LINE_STYLES) - 1) / 2) for size in BATCH_SIZES]
        means, spreads = ([of(found[name, size]) for size in BATCH_SIZES] for of in (mean, stdev))
        ax.errorbar(beside, means, spreads, color=colour, marker=marker, capsize=3, linewidth=1.5,
                    markersize=5, label=name)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xticks(BATCH_SIZES, BATCH_SIZES)
    ax.minorticks_off()
    ticks = [1, 2, 5, 10, 20, 50, 100]
    ax.set_yticks(ticks, ticks)
    ax.set_ylim(1, 120)
    ax.legend(frameon=False, loc="upper left", fontsize=10)
    title = f"{data.train[0].shape[-1]:,} digits, mlp, {recipe.epochs} epochs, {N_SEEDS} seeds"
    label(ax, title, "samples in a mini-batch", "test error, % (mean and standard deviation)")
    return figure


def steps_to_target(layers, data, batch_size, rates, target, most=2000):
    """Return (the fewest SGD updates to J <= `target` on all samples, the rate).

    layers, data, batch_size: as for `train`.
    rates: those to try; the best one depends on the batch size.
    target: a cost.
    most: updates after which a rate is given up.

    Returns (most + 1, None) if no rate gets there.
    """
    (X, Y), _ = data
    best, of_best = most + 1, None
    for rate in rates:
        net = Sequential(layers, SoftmaxCrossEntropy(), dtype=X.dtype)
        steps = _count_steps(net, X, Y, batch_size, rate, target, best)
        if steps < best:
            best, of_best = steps, rate
    return best, of_best


def _count_steps(net, X, Y, batch_size, rate, target, limit):
    """Return the number of updates to the target, or `limit`."""
    optimizer, rng = SGD(rate), np.random.default_rng(0)
    loss, m, order = SoftmaxCrossEntropy(), X.shape[-1], np.arange(0)
    for step in range(1, limit):
        if len(order) < batch_size:
            order = rng.permutation(m)
        chosen, order = order[:batch_size], order[batch_size:]
        try:
            net.forward_backward(np.take(X, chosen, axis=-1), np.take(Y, chosen, axis=-1))
            net.step(optimizer)
            J = loss.forward(net.predict(X), Y)
        except FloatingPointError:
            return limit
        if J <= target:
            return step
    return limit


def steps_against_batch_size():
    """Return a `Figure` of the updates to a cost of 0.1, and of S_min + E_min / B."""
    data, layers = digits("float32"), mlp([64, 128, 64, 10])
    steps = [
        steps_to_target(layers, data, size, TARGET_RATES, TARGET)[0]
        for size in with_progress(TARGET_SIZES, "batch sizes")
    ]
    columns = np.stack([np.ones(len(steps)), 1 / np.array(TARGET_SIZES)], axis=1) / np.array(steps)[:, None]
    least, samples = np.linalg.lstsq(columns, np.ones(len(steps)), rcond=None)[0]  # of relative errors
    net = Sequential(layers, SoftmaxCrossEntropy(), dtype=np.float32)
    scale = measured_noise(net, *data.train).scale
    figure = new_figure(8, 4.2)
    ax = figure.subplots()
    ax.plot(TARGET_SIZES, steps, "o", color="#0072B2", label="updates to J = 0.1, best of five rates")
    curve = np.geomspace(TARGET_SIZES[0], TARGET_SIZES[-1], 100)
    words = f"S + E / B, with S = {least:.0f} updates and E = {samples:.0f} samples"
    ax.plot(curve, least + samples / curve, color="#000000", linewidth=1.2, label=words)
    perfect = steps[0] * TARGET_SIZES[0] / curve
    ax.plot(curve, perfect, ":", color="#555555", label="twice the samples, half the updates")
    for value, name, place in ((samples / least, "E / S", 0.06), (scale, "noise scale at the start", 0.18)):
        ax.axvline(value, color="#D55E00", linewidth=1)
        ax.annotate(f"{name}: {value:.0f}", (value, place), (4, 0), xycoords=("data", "axes fraction"),
                    textcoords="offset points", color="#D55E00", fontsize=10)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_ylim(min(steps) / 3, max(steps) * 2)
    ax.set_xticks(TARGET_SIZES, TARGET_SIZES)
    ax.minorticks_off()
    ticks = [20, 50, 100, 200, 500, 1000]
    ax.set_yticks(ticks, ticks)
    ax.legend(frameon=False, fontsize=10)
    label(ax, "1,437 digits, MLP, plain SGD", "samples in a mini-batch, B", "updates")
    return figure
