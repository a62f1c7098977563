"""`minipipe figures`: every picture in `figures/`, from runs of the package."""

from pathlib import Path

from ..cluster import Link
from ..datasets import digits
from ..layers import Linear, Tanh
from ..losses import SoftmaxCrossEntropy
from ..pipeline import Pipeline
from ..planning import simulate
from ..plots import compare
from ..plots.memory import memory
from ..schedules import BUILDERS, STAGES_PER_DEVICE, Costs, gpipe, naive, one_f_one_b, with_recompute
from ..figures.cut import cuts
from ..figures.memory_by_devices import memory_by_devices
from .output import save, write
from ..figures.throughput import throughput

PURPOSE = "make the pictures of the README again"
EPILOG = """example:
  python3 -m minipipe figures --folder figures
"""
K, M = 4, 8
ZOO = {
    "gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved 1F1B", "chimera": "Chimera", "zb-h1": "ZB-H1", "zb-v": "ZB-V",
    "dualpipe": "DualPipe, overlaps not faster",
}
LATENCIES = [quarter / 4 for quarter in range(9)]
LINES = {  # name: (label, colour of Okabe and Ito, line style)
    "gpipe": ("GPipe", "#000000", "-"),
    "1f1b": ("1F1B", "#D55E00", "-"),
    "eager-1f1b": ("eager 1F1B", "#D55E00", "--"),
    "interleaved": ("interleaved 1F1B", "#CC79A7", "-"),
    "looped": ("looped", "#E69F00", "-"),
    "zb-h1": ("ZB-H1", "#0072B2", "-"),
    "zb-h2": ("ZB-H2", "#0072B2", "--"),
    "zb-v": ("ZB-V", "#009E73", "-"),
}


def add_options(parser):
    parser.add_argument("--folder", default="figures", help="where to write them (default: %(default)s)")


def run(options):
    folder = Path(options.folder)
    folder.mkdir(exist_ok=True)
    for name, schedule, title in [
        ("naive", naive(K, 4), "Naive: one device works at a time"),
        ("gpipe", gpipe(K, M), "GPipe: all forwards, then all backwards"),
        ("1f1b", one_f_one_b(K, M), "1F1B: the same bubble, fewer micro-batches alive"),
        ("gpipe_recompute", with_recompute(gpipe(K, M)), "GPipe with recomputation, done before the gradient arrives"),
    ]:
        save(simulate(schedule, Costs(F=1, B=2)), folder / f"{name}.png", title)
    few = {"Naive": naive(K, 4), "GPipe": gpipe(K, 4), "1F1B": one_f_one_b(K, 4)}
    write(compare({name: simulate(schedule) for name, schedule in few.items()}), folder / "schedules.png")
    write(compare({label: _run_of(name, K, M) for name, label in ZOO.items()}), folder / "zoo.png")
    _slow_links(folder / "slow_links.png")
    _memory_over_time(folder / "memory.png")
    write(throughput(), folder / "throughput.png")
    write(cuts(), folder / "cut.png")
    write(memory_by_devices(), folder / "memory_by_devices.png")


def _run_of(name, n_devices, n_microbatches, link=Link()):
    """A schedule's run in which the forward of a device takes one tick and its backward two, in however many stages."""
    v = STAGES_PER_DEVICE.get(name, 1)
    return simulate(BUILDERS[name](n_devices, n_microbatches), Costs(F=1 / v, B=2 / v), link)


def _slow_links(path):
    """The makespan of schedules against the latency of a link."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    ax = figure.add_subplot()
    ends = []
    for name, (label, colour, style) in LINES.items():
        makespans = [_run_of(name, 8, 32, Link(latency=latency)).makespan for latency in LATENCIES]
        ax.plot(LATENCIES, makespans, style, color=colour, linewidth=2)
        ends.append((makespans[-1], label, colour))
    _label_ends(ax, ends)
    ax.set_xlim(0, LATENCIES[-1])
    ax.set_xlabel("latency of a link (ticks; a device's forward takes 1, its backward 2)")
    ax.set_ylabel("makespan (ticks)")
    ax.set_title("Slow links reverse the ranking: 8 devices, 32 micro-batches", loc="left", fontsize=11)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    write(figure, path)


def _label_ends(ax, ends, distance=8):
    """A name beside the right end of each line, at least `distance` ticks from the one below."""
    lowest = 0
    for makespan, label, colour in sorted(ends):
        lowest = max(makespan, lowest + distance)
        ax.annotate(f"{label}, {makespan:g}", (LATENCIES[-1], makespan), (LATENCIES[-1] + 0.05, lowest), color=colour,
                    va="center", fontsize=9, annotation_clip=False)


def _memory_over_time(path):
    """Bytes of real arrays, in three runs of the same mini-batch of digits."""
    from matplotlib.figure import Figure

    X, Y = digits().train
    layers = [Linear(64, 64), Tanh()] * 7 + [Linear(64, 64), Linear(64, 10)]
    settings = [("GPipe", "gpipe", False), ("1F1B", "1f1b", False), ("GPipe with recomputation", "gpipe", True)]
    figure = Figure(figsize=(9, 8.5), layout="constrained")
    for ax, (name, schedule, recompute) in zip(figure.subplots(3, sharex=True, sharey=True), settings):
        pipe = Pipeline(layers, SoftmaxCrossEntropy(), K, M, schedule, recompute)
        pipe.forward_backward(X[:, :1024], Y[:, :1024])
        title = f"{name}: at most {max(pipe.trace.peak_bytes()) / 1024:.0f} KiB on a device"
        memory(pipe.trace, ax=ax, title=title, legend=name == "GPipe")
    for ax in figure.axes[:-1]:
        ax.set_xlabel("")
    write(figure, path)
