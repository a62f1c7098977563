"""Three ways to split a network: what each device holds, and what it does when."""

from fractions import Fraction

import numpy as np
from matplotlib.patches import FancyArrowPatch, Patch, Rectangle

from minipipe import (
    Costs, Cut, DataParallel, Linear, MeanSquaredError, Pipeline, ReLU, Sequential, TensorParallel,
)
from minipipe.arrays import even_slices
from minipipe.cluster import ports
from minipipe.plots import timeline
from minipipe.plots.boxes import rows_of
from minipipe.plots.canvas import EDGE, STYLES, label, new_figure

SIZES, N, SAMPLES, BANDWIDTH = (64, 128, 128, 64, 10), 4, 32, 2 ** 14
TIMES = 8  # how many times as large the second mini-batch is
PART, SAMPLE, SENDS = "#8D7CC1", "#D0D7DE", "#5F5F5F"  # colours of what a device holds, is given, and does
FORWARD, BACKWARD = 16, 32  # ticks of the whole network
SPLITS = {  # the title of a panel, and what its devices send
    "network split": ("network split: some layers each", "A goes to the next device, dA comes back"),
    "layer split": ("layer split: a part of every layer", "all sum their Z, and dA on the way back"),
    "data split": ("data split: some samples each", "all sum their dW and db"),
}
SIDE, PITCH_X, PITCH_Y = 0.8, 1.3, 1  # of the square of a W, and from one to the next
LARGE, SMALL = 13, 11  # points
ARROW = {"arrowstyle": "<|-|>", "color": "#202020", "linewidth": 1.6, "mutation_scale": 14, "shrinkA": 0,
         "shrinkB": 0}


def splits():
    """Return a `Figure`: above, what each device holds of each W; below, steps.

    The first step is of `SAMPLES` samples, the second of `TIMES` times as many.
    """
    figure = new_figure(14, 12)
    upper, *lower = figure.subplots(3, len(SPLITS), height_ratios=(5, 4, 4))
    for ax, (name, net) in zip(upper, split_runs().items()):
        _draw_parts(ax, name, net)
        ax.set_title(SPLITS[name][0], fontsize=LARGE, fontweight="bold", loc="left")
    for axes, times in zip(lower, (1, TIMES)):
        runs, alone = split_runs(times), (FORWARD + BACKWARD) * times
        longest = max(net.trace.makespan for net in runs.values())
        for ax, net in zip(axes, runs.values()):
            _draw_step(ax, net.trace, longest, alone)
        axes[0].set_title(f"a step of {times * SAMPLES} samples", fontsize=LARGE, loc="left")
    handles = [Patch(facecolor=STYLES[kind]["facecolor"], **EDGE) for kind in "FBA"]
    handles.append(Patch(facecolor=SENDS))
    figure.legend(
        handles, ["forward", "backward", "all-reduce", "sends to other devices"], loc="outside lower center",
        ncols=4, frameon=False, fontsize=LARGE,
    )
    return figure


def _draw_step(ax, trace, longest, alone):
    """Draw a step, and when messages travel. alone: the ticks of one device."""
    timeline(trace, ax, legend=False, longest=longest)
    for text in list(ax.texts):
        text.remove()
    _draw_sends(ax, trace)
    n_bytes = sum(message.n_bytes for message in trace.messages)
    ticks = f"{float(trace.makespan):.1f} ticks instead of {alone}"
    label(ax, None, f"time (ticks)\n{ticks}\n{n_bytes:,} bytes travel")
    ax.xaxis.label.set_size(LARGE)
    ax.tick_params(labelsize=SMALL)


def split_runs(times=1):
    """Return {split: the network after a step} on `times * SAMPLES` samples."""
    rng = np.random.default_rng(0)
    linears = [Linear(n_prev, n) for n_prev, n in zip(SIZES, SIZES[1:])]
    layers = [linears[0]] + [layer for linear in linears[1:] for layer in (ReLU(), linear)]
    layers, loss = Sequential(layers, None).layers, MeanSquaredError()
    F, B, wires = Fraction(FORWARD * times, N), Fraction(BACKWARD * times, N), ports(N, BANDWIDTH)
    costs, quarters = Costs(F, B), Costs(F / N, B / N)
    runs = {
        "network split": Pipeline(
            layers, loss, Cut([2, 2, 2, 1]), N, schedule="gpipe", costs=quarters, ports=wires),
        "layer split": TensorParallel(layers, loss, N, costs=costs, ports=wires),
        "data split": DataParallel(layers, loss, N, costs=costs, ports=wires),
    }
    X, Y = (rng.standard_normal((n, times * SAMPLES)) for n in (SIZES[0], SIZES[-1]))
    for net in runs.values():
        net.forward_backward(X, Y)
    return runs


def held(net):
    """Yield (device, number of a W, its rows, its columns) for all that `net` holds."""
    if isinstance(net, TensorParallel):
        ways = [how for how, layer in zip(net.ways, net.layers, strict=True) if layer.W is not None]
        for number, (how, n_prev, n) in enumerate(zip(ways, SIZES, SIZES[1:], strict=False)):
            for device in range(N):
                rows, columns = slice(0, n), slice(0, n_prev)
                if how == "by inputs":
                    columns = even_slices(n_prev, N)[device]
                else:
                    rows = even_slices(n, N)[device]
                yield device, number, rows, columns
        return
    number = 0
    is_copy = isinstance(net, DataParallel)
    for device, layers in enumerate(net.replicas if is_copy else [stage.layers for stage in net.stages]):
        number = 0 if is_copy else number
        for layer in layers:
            if layer.W is not None:
                yield device, number, slice(0, layer.n), slice(0, layer.n_prev)
                number += 1


def _draw_parts(ax, name, net):
    """Draw a row for each device: its samples, and the part that it holds of each W."""
    for number, words in enumerate(("samples", "W1", "W2", "W3", "W4")):
        ax.text(number * PITCH_X + SIDE / 2, -0.1, words, ha="center", va="bottom", fontsize=LARGE)
    for device, number, rows, columns in held(net):
        high, wide = SIZES[number + 1], SIZES[number]
        left, top = (number + 1) * PITCH_X, device * PITCH_Y
        ax.add_patch(Rectangle((left, top), SIDE, SIDE, facecolor="none", edgecolor="#A0A0A0", linestyle=":"))
        place = left + SIDE * columns.start / wide, top + SIDE * rows.start / high
        size = SIDE * (columns.stop - columns.start) / wide, SIDE * (rows.stop - rows.start) / high
        ax.add_patch(Rectangle(place, *size, facecolor=PART, **EDGE))
    for device in range(N):
        middle = device * PITCH_Y + SIDE / 2
        ax.text(-0.3, middle, f"device {device}", ha="right", va="center", fontsize=LARGE)
        _draw_samples(ax, device, name)
    _draw_meetings(ax, name)
    ax.text(2.5 * PITCH_X, N * PITCH_Y + 0.1, SPLITS[name][1], ha="center", va="center", fontsize=LARGE)
    ax.set(xlim=(-1.5, 5 * PITCH_X + 0.2), ylim=(N * PITCH_Y + 0.3, -0.5))
    ax.axis("off")


def _draw_samples(ax, device, name):
    """Draw a column for each group of samples that `device` is given."""
    first_alone = range(N if device == 0 else 0)
    groups = {"network split": first_alone, "layer split": range(N), "data split": [device]}
    for group in groups[name]:
        corner = group * SIDE / N, device * PITCH_Y
        ax.add_patch(Rectangle(corner, SIDE / N, SIDE, facecolor=SAMPLE, **EDGE))


def _draw_meetings(ax, name):
    """Draw an arrow where devices send what the next layer, or the update, needs."""
    top, bottom = -0.02, (N - 1) * PITCH_Y + SIDE + 0.02
    if name == "network split":
        for device in range(N - 1):
            begin = (device + 1) * PITCH_X + SIDE, device * PITCH_Y + SIDE
            end = (device + 2) * PITCH_X, (device + 1) * PITCH_Y
            ax.add_patch(FancyArrowPatch(begin, end, **ARROW))
        return
    places = (2, 4) if name == "layer split" else (4,)  # after which W
    for number in places:
        x = number * PITCH_X + SIDE + (PITCH_X - SIDE) / 2
        ax.add_patch(FancyArrowPatch((x, top), (x, bottom), **ARROW))


def _draw_sends(ax, trace):
    """Draw below each device's boxes when its messages travel."""
    rows = rows_of(trace)
    for message in trace.messages:
        row = rows[message.source, "compute"]
        ax.add_patch(Rectangle(
            (float(message.sent), row.middle + row.height / 2), float(message.arrived - message.sent), 0.1,
            facecolor=SENDS, linewidth=0,
        ))
