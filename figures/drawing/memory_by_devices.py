"""The picture of memory against devices: what a large Transformer needs on each of K."""

from functools import cache
from itertools import chain

from minipipe import Adam, Costs, Cut, SoftmaxCrossEntropy, footprints, partition, simulate
from minipipe.models import transformer
from minipipe.order import in_segments, with_recompute
from minipipe.parallel.options import EVERY_SQRT
from minipipe.parallel.orders import sqrt_units
from minipipe.plots.canvas import label, new_figure
from minipipe.schedules import build

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
    floors = [max(map(_floor, _footprints(counts, "FB"))) / GIB for counts in cuts]
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


@cache
def _footprints(counts, pattern):
    """Return the `Footprint` of each stage, for micro-batches of one sequence."""
    return footprints(
        LAYERS, SoftmaxCrossEntropy(), Cut(counts), (N_PLACES,), 1, "float32", Adam(), [pattern]
    )


def _needed(counts, schedule, mode):
    """GiB that a device holds at once: (the most beyond the floor, the most in all).

    The schedule has a stage on each device. Gradients count as one sum on each device: not the partial sums
    that keep the order of summation fixed.
    """
    schedule = build(schedule, len(counts), M)
    if mode == EVERY_SQRT:
        units = list(map(sqrt_units, counts))
        schedule, counts = in_segments(schedule, list(map(len, units))), list(chain(*units))
    if mode != "never":
        schedule = with_recompute(schedule)
    of_stages = _footprints(tuple(counts), "FB" if mode == "never" else "FRB")
    beyond = simulate(schedule, Costs(F=1, B=2), footprints=of_stages).peak_bytes(ACTIVATIONS)
    floors = [0] * len(beyond)
    for stage, device in enumerate(schedule.placement):
        floors[device] += _floor(of_stages[stage])
    return max(beyond) / GIB, max(map(sum, zip(beyond, floors))) / GIB


def _floor(footprint):
    """The bytes that belong to the parameters of a stage."""
    return footprint.parameters + footprint.gradients + footprint.optimizer_state


def _label(ax, title):
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    ax.set_xticks(DEVICES, DEVICES)
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    label(ax, title, "devices K, a stage on each", "GiB on the fullest device")
