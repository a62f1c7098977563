"""The cut of AmoebaNet-D in three ways, as a picture."""

from minipipe import describe, partition
from minipipe.models import amoebanet_d
from minipipe.partitioning import equal_counts, loads
from minipipe.plots import cut
from minipipe.plots.canvas import new_figure

SIZE, INPUT_SHAPE, K = (18, 208), (3, 224, 224), 8


def cuts():
    """Return a `Figure` of cuts by counts, by parameters and by MACs, with the MACs."""
    layers = amoebanet_d(*SIZE)
    rows = describe(layers, INPUT_SHAPE).rows
    macs = [row.macs for row in rows]
    names = [row.name if len(row.name) < 20 else row.name.split("(")[0] for row in rows]
    choices = {
        "equal counts": equal_counts(len(layers), K),
        "by parameters": partition(layers, K),
        "by MACs": partition(layers, K, by="macs", input_shape=INPUT_SHAPE),
    }
    figure = new_figure(9, 9)
    for ax, (name, counts) in zip(figure.subplots(len(choices), sharex=True, sharey=True), choices.items()):
        slowest = K * max(loads(macs, counts)) / sum(macs)
        cut(
            [n / 1e6 for n in macs], counts, names, ax,
            title=f"{name}: the slowest stage has {slowest:.2f} times an equal share", unit="million MACs",
        )
        ax.tick_params(axis="x", labelbottom=ax is figure.axes[-1])
    return figure
