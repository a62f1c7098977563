"""The pictures of large mini-batches: the learning rates, and the steps to a target."""

import numpy as np

from minipipe import Sequential, SoftmaxCrossEntropy
from minipipe.experiments import digits_in_float32, measured_noise, steps_to_target
from minipipe.models import mlp
from minipipe.plots.canvas import label, new_figure
from minipipe.plots.curves import draw_rates
from minipipe.rates import ConstantWarmUp, GradualWarmUp, StepDecay
from minipipe.watching import with_progress

TARGET, TARGET_RATES, TARGET_SIZES = 0.1, (0.1, 0.2, 0.4, 0.8, 1.6), (4, 8, 16, 32, 64, 128, 256, 512, 1437)


def learning_rates():
    """The rates of Goyal et al. for 8,192 samples, with and without the two warm-ups."""
    drops = [30, 60, 80]
    steps = StepDecay(3.2, drops)
    curves = {
        "no warm-up": steps, "constant warm-up": ConstantWarmUp(steps, 0.1),
        "gradual warm-up": GradualWarmUp(steps, 0.1), "256 samples": StepDecay(0.1, drops),
    }
    figure = new_figure(8, 3.6)
    ax = figure.subplots()
    draw_rates(ax, curves, 90, 157)
    label(ax, "Learning rates for 8,192 samples in a mini-batch, and for 256", "epochs", "learning rate")
    return figure


def steps_against_batch_size():
    """Updates to a cost of 0.1 on the digits, of the best of five rates, beside S_min + E_min / B."""
    data, layers = digits_in_float32(), mlp([64, 128, 64, 10])
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
