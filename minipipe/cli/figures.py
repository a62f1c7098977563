"""`minipipe figures`: every picture in `figures/`, from runs of the package."""

from pathlib import Path

from ..datasets import digits
from ..layers import Linear, Tanh
from ..losses import SoftmaxCrossEntropy
from ..pipeline import Pipeline, simulate
from ..plots.memory import memory
from ..schedules import Costs, gpipe, naive, one_f_one_b, with_recompute
from .output import drawing_of, save, save_stacked, write

PURPOSE = "make the pictures of the README again"
EPILOG = """example:
  python3 -m minipipe figures --folder figures
"""
K, M = 4, 8


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
    three = {"Naive": naive(K, 4), "GPipe": gpipe(K, 4), "1F1B": one_f_one_b(K, 4)}
    save_stacked({name: simulate(schedule) for name, schedule in three.items()}, folder / "schedules.png")
    _memory_over_time(folder / "memory.png")


def _memory_over_time(path):
    """Bytes of real arrays, in three runs of the same mini-batch of digits."""
    X, Y = digits().train
    layers = [Linear(64, 64), Tanh()] * 7 + [Linear(64, 64), Linear(64, 10)]
    settings = [("GPipe", "gpipe", False), ("1F1B", "1f1b", False), ("GPipe with recomputation", "gpipe", True)]
    figure = drawing_of(33, 3 * K, height=0.6)
    for ax, (name, schedule, recompute) in zip(figure.subplots(3, sharex=True, sharey=True), settings):
        pipe = Pipeline(layers, SoftmaxCrossEntropy(), K, M, schedule, recompute)
        pipe.forward_backward(X[:, :1024], Y[:, :1024])
        title = f"{name}: at most {max(pipe.trace.peak_bytes()) / 1024:.0f} KiB on a device"
        memory(pipe.trace, ax=ax, title=title, legend=name == "GPipe")
    for ax in figure.axes[:-1]:
        ax.set_xlabel("")
    write(figure, path)
