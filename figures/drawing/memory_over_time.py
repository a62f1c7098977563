"""The picture of memory over time: bytes of real arrays, in three runs of the same mini-batch of digits."""

from minipipe import Linear, Pipeline, SoftmaxCrossEntropy, Tanh
from minipipe.datasets import digits
from minipipe.plots import memory
from minipipe.plots.canvas import new_figure

K, M, N_SAMPLES = 4, 8, 1024
RUNS = [  # title, schedule, what it recomputes
    ("GPipe", "gpipe", "never"),
    ("1F1B", "1f1b", "never"),
    ("GPipe with recomputation", "gpipe", "always"),
]


def memory_over_time():
    """A matplotlib `Figure`: KiB on each device, for GPipe, 1F1B, and GPipe with recomputation."""
    X, Y = digits().train
    pairs = [layer for _ in range(7) for layer in (Linear(64, 64), Tanh())]
    layers = [*pairs, Linear(64, 64), Linear(64, 10)]
    figure = new_figure(9, 8.5)
    all_axes = figure.subplots(len(RUNS), sharex=True, sharey=True)
    for ax, (name, schedule, recompute) in zip(all_axes, RUNS):
        pipe = Pipeline(
            layers, SoftmaxCrossEntropy(), K, M, schedule=schedule, recompute=recompute, count_bytes=True
        )
        pipe.forward_backward(X[:, :N_SAMPLES], Y[:, :N_SAMPLES])
        peak = max(pipe.trace.peak_bytes()) / 1024
        title = f"{name}: at most {peak:.0f} KiB on a device"
        memory(pipe.trace, ax=ax, title=title, legend=name == "GPipe")
    for ax in all_axes[:-1]:
        ax.set_xlabel("")
    return figure
