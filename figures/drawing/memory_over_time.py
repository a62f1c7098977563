"""The picture of memory over time: the bytes of one device in three runs."""

from minipipe import Linear, Pipeline, SoftmaxCrossEntropy, Tanh
from minipipe.datasets import digits
from minipipe.plots.canvas import label, new_figure

K, M, N_SAMPLES = 4, 8, 1024
RUNS = {  # name, colour of Okabe and Ito, line, schedule, what it recomputes
    "GPipe": ("#000000", "-", "gpipe", "never"),
    "1F1B": ("#0072B2", "--", "1f1b", "never"),
    "GPipe with recomputation": ("#D55E00", "-.", "gpipe", "always"),
}


def memory_over_time():
    """Return a `Figure` of KiB on device 0: GPipe, 1F1B, GPipe with recomputation."""
    X, Y = digits().train
    pairs = [layer for _ in range(7) for layer in (Linear(64, 64), Tanh())]
    layers = [*pairs, Linear(64, 64), Linear(64, 10)]
    figure = new_figure(8, 4.2)
    ax = figure.subplots()
    for name, (colour, line, schedule, recompute) in RUNS.items():
        pipe = Pipeline(
            layers, SoftmaxCrossEntropy(), K, M, schedule=schedule, recompute=recompute, count_bytes=True
        )
        pipe.forward_backward(X[:, :N_SAMPLES], Y[:, :N_SAMPLES])
        ticks, levels = zip(*pipe.trace.memory(0), (pipe.trace.makespan, 0))
        peak = f"{name}: at most {max(levels) / 1024:,.0f} KiB"
        ax.step(ticks, [n_bytes / 1024 for n_bytes in levels], line, where="post", color=colour, linewidth=2,
                label=peak)
    ax.set(xlim=(0, None), ylim=(0, None))
    ax.legend(frameon=False, loc="lower center", fontsize=10)
    label(ax, f"Device 0 of {K}, {M} micro-batches", "time (ticks)", "memory (KiB)")
    return figure
