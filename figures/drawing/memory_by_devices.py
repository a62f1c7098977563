"""The picture of memory against devices: what a Transformer needs on each of K."""

import numpy as np

from minipipe import Cut, Pipeline, SoftmaxCrossEntropy, describe, partition, without_values
from minipipe.meta import MetaArray
from minipipe.models import transformer
from minipipe.parallel.options import EVERY_SQRT
from minipipe.partitioning.partition import cut_into_stages
from minipipe.plots.canvas import label, new_figure

N_TOKENS, D, N_HEADS, N_BLOCKS, N_PLACES = 32_000, 2048, 32, 48, 1024  # the Transformer of GPipe's table 2
M = 32  # micro-batches of one sequence each
DEVICES = (1, 2, 4, 8, 16)
# label, colour of Okabe and Ito, marker
SCHEDULES = {"gpipe": ("GPipe", "#000000", "o"), "1f1b": ("1F1B", "#D55E00", "s")}
MODES = {  # what it is called, line style
    "never": ("all caches kept", "-"),
    "always": ("recomputed", "--"),
    EVERY_SQRT: ("recomputed, an input for every sqrt(L) layers", ":"),
}
ACTIVATIONS = ("stashed inputs", "caches", "work", "messages")  # and the derivatives by them
GIB = 2**30
LAYERS = transformer(N_TOKENS, D, N_HEADS, N_BLOCKS)


def memory_by_devices():
    """A matplotlib `Figure`: GiB of the fullest device against K.

    What belongs to the parameters is the floor on the right.
    """
    cuts = [tuple(partition(LAYERS, K, "macs", input_shape=(N_PLACES,))) for K in DEVICES]
    figure = new_figure(10, 5.6)
    beyond, whole = figure.subplots(1, 2)
    for schedule, (name, colour, marker) in SCHEDULES.items():
        for mode, (what, style) in MODES.items():
            needed = [_needed(counts, schedule, mode) for counts in cuts]
            style_of_line = {
                "color": colour,
                "linestyle": style,
                "marker": marker,
                "linewidth": 2,
                "markersize": 5,
            }
            beyond.plot(
                DEVICES, [activations for activations, _ in needed], **style_of_line, label=f"{name}, {what}"
            )
            whole.plot(DEVICES, [total for _, total in needed], **style_of_line)
    floors = [max(_floors(counts)) / GIB for counts in cuts]
    whole.fill_between(DEVICES, 1, floors, color="#BBBBBB", linewidth=0)
    whole.annotate("parameters, gradients, Adam's moments", (1.1, 1.25), fontsize=10)
    whole.axhline(16, color="#0072B2", linewidth=1)
    whole.annotate(
        "16 GiB", (16, 16), (0, 3), textcoords="offset points", color="#0072B2", ha="right", fontsize=10
    )
    whole.set_ylim(1, 600)
    _label(beyond, "What activations and messages need")
    _label(whole, "... and all that a device needs")
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=10, handlelength=3.5)
    title = "A Transformer of 2.5 billion parameters, 32 sequences in 32 micro-batches, float32"
    figure.suptitle(title, x=0.01, ha="left", fontsize=13)
    return figure


def _needed(counts, schedule, mode):
    """GiB that a device holds at once: (the most beyond the floor, the most in all).

    The schedule has a stage on each device. Gradients count as one sum on each device,
    not as the partial sums that keep the order of summation fixed.
    """
    n = M if schedule == "gpipe" else min(M, 2 * len(counts))  # 1F1B keeps no more for more micro-batches
    net = Pipeline(
        without_values(LAYERS), SoftmaxCrossEntropy(), Cut(counts), n, schedule=schedule, recompute=mode,
        dtype="float32", count_bytes=True,
    )
    net.forward_backward(np.zeros((N_PLACES, n), int), MetaArray((N_TOKENS, N_PLACES, n)))
    beyond = net.trace.peak_bytes(ACTIVATIONS)
    return max(beyond) / GIB, max(map(sum, zip(beyond, _floors(counts)))) / GIB


def _floors(counts):
    """The bytes that belong to the parameters of each stage: value, gradient and Adam's two moments."""
    rows = describe(LAYERS, (N_PLACES,)).rows
    return [16 * sum(row.parameters for row in stage) for stage in cut_into_stages(rows, counts)]


def _label(ax, title):
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    ax.set_xticks(DEVICES, DEVICES)
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    label(ax, title, "devices K, a stage on each", "GiB on the fullest device")
