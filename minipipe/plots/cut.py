"""A cut of a network: the cost of each layer, the stages behind, and the one that all others wait for."""


from ..checks import listed
from ..arguments import argument, optional
from .canvas import label

BACKGROUNDS = ("#FFFFFF", "#E4E4E4")        # of the stages in turn
BAR, BOTTLENECK = "#0072B2", "#D55E00"      # of Okabe and Ito, for colour-blind readers
MOST_NAMES = 40
MOST_LOADS = 24


def cut(costs, counts, names=None, ax=None, title=None, unit=None):
    """The costs of the layers as bars, and the stages as stripes behind them, each with its load.

    costs: one number for each layer.
    counts: how many layers each stage has, in order.
    names: of the layers; if None, or for more than 40 layers, they are numbered.
    ax: matplotlib axes; new ones if None.
    title: above the picture.
    unit: what the costs are, for the axis.

    The largest load is marked. Loads are given as shares of the equal load, total / K, which no cut's largest
    one can be below. Returns the matplotlib axes.

    >>> from matplotlib.figure import Figure
    >>> ax = cut([10, 10, 10, 10, 11, 11], [5, 1], ax=Figure().add_subplot())
    >>> [text.get_text() for text in ax.texts]
    ['1.65', '0.35']
    """
    costs, counts = argument("cut.costs", costs), argument("cut.counts", counts)
    names = None if names is None else listed("names", names)
    optional("ax", ax)
    _check(costs, counts, names)
    if ax is None:
        from matplotlib import pyplot

        ax = pyplot.gca()
    ends = [sum(counts[:stage + 1]) for stage in range(len(counts))]
    loads = [sum(costs[end - count:end]) for end, count in zip(ends, counts)]
    equal, slowest = sum(costs) / len(counts), loads.index(max(loads))
    for stage, (end, count) in enumerate(zip(ends, counts)):
        ax.axvspan(end - count - 0.5, end - 0.5, facecolor=BACKGROUNDS[stage % 2], zorder=0)
        if count and (len(counts) <= MOST_LOADS or stage == slowest):
            colour, weight = (BOTTLENECK, "bold") if stage == slowest else ("#404040", "normal")
            share = loads[stage] / equal if equal else 0
            ax.text(
                end - count / 2 - 0.5, 1.01, f"{share:.2f}", transform=ax.get_xaxis_transform(), ha="center",
                va="bottom", fontsize=8, color=colour, fontweight=weight,
            )
    first = ends[slowest] - counts[slowest]
    colours = [BOTTLENECK if first <= layer < ends[slowest] else BAR for layer in range(len(costs))]
    ax.bar(range(len(costs)), costs, width=0.7, color=colours, zorder=2)
    ax.set(xlim=(-0.5, len(costs) - 0.5), ylim=(0, 1.05 * max(costs) or 1))
    label(ax, title, "layer", "cost" if unit is None else unit, pad=16)
    if names is not None and len(costs) <= MOST_NAMES:
        ax.set_xticks(range(len(costs)), names, rotation=60, ha="right", rotation_mode="anchor", fontsize=8)
        ax.set_xlabel("")
    return ax


def _check(costs, counts, names):
    if sum(counts) != len(costs):
        raise ValueError(
            f"counts={counts} adds up to {sum(counts)} for {len(costs)} costs: "
            "together the stages have every layer"
        )
    if names is not None and len(names) != len(costs):
        raise ValueError(f"{len(names)} names for {len(costs)} costs: give each layer one")
