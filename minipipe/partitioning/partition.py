"""Where to cut a network into stages."""

from ..checks import shown, whole_number
from .costs_of_layers import COST_KINDS, costs_of_layers
from .solvers import equal_counts, min_max

CUT_BY = ("count", *COST_KINDS)  # of what a `Cut` balances


def partition(layers, stages, by="parameters", input_shape=None, sample=None, loss=None):
    """Return the number of layers of each stage, for the cut whose largest stage is smallest.

    layers: a list of layers.
    stages: K.
    by: what a stage's size is: "parameters", "macs", "bytes", "time", a function (layer,
        input_shape) -> cost, or a list with a cost for each layer.
    input_shape: that of one sample, which "macs", "bytes" and a function need.
    sample, loss: a micro-batch (X, Y) and the loss, which "time" needs, see `costs_of_layers`.

    For other cuts, or with limits of memory, unequal devices and slow links, hand `costs_of_layers`
    to `min_max`, `min_variance` or `histogram` of `minipipe.partitioning` instead.

    >>> from minipipe.layers import Linear, ReLU
    >>> layers = [Linear(64, 64), ReLU(), Linear(64, 64), ReLU(), Linear(64, 256), ReLU(), Linear(256, 10)]
    >>> partition(layers, 2), partition(layers, 2, by="bytes", input_shape=(64,))
    ([4, 3], [5, 2])
    """
    return min_max(costs_of_layers(layers, by, input_shape, sample, loss), whole_number("stages", stages))


def counts_of(cut, layers, loss):
    """Return the number of layers of each stage.

    cut: a `Cut`, of `minipipe.parallel.options`.
    layers: a list of layers.
    loss: of the network, which "time" needs.
    """
    by, n_layers = cut.by, len(layers)
    if isinstance(cut.stages, tuple):
        counts = list(cut.stages)
        if sum(counts) != n_layers:
            raise ValueError(
                f"stages={shown(counts)} adds up to {sum(counts)} for {n_layers} layers: "
                f"give the stages {n_layers} layers in all"
            )
        return counts
    if cut.n > n_layers:
        raise ValueError(
            f"{cut.n} stages do not fit {n_layers} layers: use at most {n_layers}, so that each has a layer"
        )
    if by == "count":
        return equal_counts(n_layers, cut.n)
    if cut.sample is None and by != "parameters":
        raise ValueError(f"by={shown(by)} needs data to find the costs: pass sample=(X, Y), a micro-batch")
    return partition(layers, cut.n, by, sample=cut.sample, loss=loss)


def cut_into_stages(layers, counts):
    """Return `layers` as one list per stage, with `counts[s]` consecutive layers in stage s."""
    layers = iter(layers)
    return [[next(layers) for _ in range(count)] for count in counts]
