"""The three ways to split a network, as pictures of runs: what each device holds, and what it does when."""

from fractions import Fraction

import numpy as np
from matplotlib.patches import Rectangle

from minipipe import (
    Costs, Cut, DataParallel, Linear, Machine, MeanSquaredError, Pipeline, ReLU, Sequential, TensorParallel,
)
from minipipe.arrays import even_slices
from minipipe.cluster import ports
from minipipe.plots import timeline
from minipipe.plots.canvas import label, new_figure, styles_of

SIZES, N, SAMPLES, BANDWIDTH = (64, 128, 128, 64, 10), 4, 32, 2 ** 14
COLOURS = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7")  # of the devices: Okabe and Ito's
FORWARD, BACKWARD = 16, 32  # ticks of the whole network
GAP = 24  # numbers between two layers, in the picture


def splits():
    """A matplotlib `Figure`: above, each W with the device that holds it; below, the step of each split."""
    runs = split_runs()
    figure = new_figure(15, 7)
    upper, lower = figure.subplots(2, len(runs))
    longest = max(net.trace.makespan for net in runs.values())
    styles = styles_of([net.trace for net in runs.values()])
    for ax, (name, net) in zip(upper, runs.items()):
        _draw_weights(ax, net)
        n_bytes = sum(message.n_bytes for message in net.trace.messages)
        ax.set_title(f"{name}\n{n_bytes:,} bytes travel", fontsize=12)
    for ax, net in zip(lower, runs.values()):
        is_last = ax is lower[-1]
        timeline(net.trace, ax, legend=is_last, arrows=True, longest=longest, styles=styles)
        label(ax, f"{float(net.trace.makespan):.1f} ticks", "time (ticks)")
    return figure


def split_runs():
    """{how it is split: the network after a step of it}, all with the same samples."""
    rng = np.random.default_rng(0)
    linears = [Linear(n_prev, n) for n_prev, n in zip(SIZES, SIZES[1:])]
    layers = [linears[0]] + [layer for linear in linears[1:] for layer in (ReLU(), linear)]
    layers, loss = Sequential(layers, None).layers, MeanSquaredError()
    wires, costs = ports(N, BANDWIDTH), Costs(F=Fraction(FORWARD, N), B=Fraction(BACKWARD, N))
    quarters = Costs(F=Fraction(FORWARD, N * N), B=Fraction(BACKWARD, N * N))
    runs = {
        "one device": Pipeline(layers, loss, 1, 1, on=Machine(costs=Costs(F=FORWARD, B=BACKWARD))),
        "network split": Pipeline(
            layers, loss, Cut([2, 2, 2, 1]), N, "gpipe", on=Machine(costs=quarters, ports=wires)
        ),
        "layer split": TensorParallel(layers, loss, N, on=Machine(costs=costs, ports=wires)),
        "data split": DataParallel(layers, loss, N, on=Machine(costs=costs, ports=wires)),
    }
    X, Y = rng.standard_normal((SIZES[0], SAMPLES)), rng.standard_normal((SIZES[-1], SAMPLES))
    for net in runs.values():
        net.forward_backward(X, Y)
    return runs


def held(net):
    """What each device holds: rows of (device, number of a W, which of its rows, which of its columns)."""
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


def _draw_weights(ax, net):
    """Each W, n numbers high and n_prev wide, above the one below; copies beside each other."""
    heights = [sum(SIZES[1:number + 1]) + GAP * number for number in range(len(SIZES))]
    is_copy = isinstance(net, DataParallel)
    for device, number, rows, columns in held(net):
        left = device * (max(SIZES) + GAP) if is_copy else 1.5 * (max(SIZES) + GAP)  # in the middle
        left += (max(SIZES) - SIZES[number]) / 2
        place = left + columns.start, heights[number] + SIZES[number + 1] - rows.stop
        size = columns.stop - columns.start, rows.stop - rows.start
        ax.add_patch(Rectangle(place, *size, facecolor=COLOURS[device], edgecolor="white", linewidth=1.5))
        if min(size) > 24:
            middle = place[0] + size[0] / 2, place[1] + size[1] / 2
            ax.text(*middle, f"{device}", ha="center", va="center", fontsize=9)
    for number, (n_prev, n) in enumerate(zip(SIZES, SIZES[1:])):
        words = f"W{number + 1}: {n} x {n_prev}"
        ax.text(-GAP, heights[number] + n / 2, words, ha="right", va="center", fontsize=8)
    ax.set(xlim=(-7 * GAP, 4 * (max(SIZES) + GAP)), ylim=(-GAP, heights[-1]))
    ax.axis("off")
