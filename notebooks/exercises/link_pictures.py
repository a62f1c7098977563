"""A picture for notebook 20: a drawing that would be too long for a cell."""

import matplotlib.pyplot as plt

from minipipe import plots


def zigzag(traces):
    """Return a figure of runs, {name: trace}, with arrows for the messages that a device waits for."""
    longest = max(trace.makespan for trace in traces.values())
    figure, axes = plt.subplots(len(traces), 1, figsize=(12, 5.2), sharex=True, layout="constrained")
    for ax, (name, trace) in zip(axes, traces.items()):
        plots.timeline(trace, ax=ax, title=f"{name}: {trace.makespan:g} ticks", legend=ax is axes[0],
                       arrows="waited", longest=longest)
        ax.set_xlabel("time (ticks)" if ax is axes[-1] else "")
    return figure
