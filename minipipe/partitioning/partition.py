"""Where to cut a network into stages."""

from ..checks import shown, whole_number, whole_numbers
from .costs_of_layers import NEED_DATA, costs_of_layers
from .solvers import equal_counts, min_max


def partition(layers, n_stages, by="parameters", input_shape=None, sample=None, loss=None):
    """The number of layers of each stage, for the cut whose largest stage is smallest: a list for `Pipeline`.

    layers: a list of layers.
    n_stages: K.
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
    return min_max(costs_of_layers(layers, by, input_shape, sample, loss), whole_number("n_stages", n_stages))


def counts_of(choice, layers, n_stages, sample, loss):
    """The number of layers of each stage, from what the user of a pipeline has chosen.

    choice: None for equal counts, what `partition` takes as by, or the counts themselves.
    layers: a list of layers.
    n_stages: K.
    sample, loss: what "time" needs, see `costs_of_layers`.
    """
    if isinstance(choice, type):
        words = "pass a name, a function or the counts themselves"
        raise ValueError(f"partition={shown(choice)} is a class: {words}")
    if choice is None:
        return equal_counts(len(layers), n_stages)
    if not isinstance(choice, str) and not callable(choice):
        return _checked_counts(choice, len(layers), n_stages)
    if sample is None and (callable(choice) or choice in NEED_DATA):
        raise ValueError(
            f"partition={choice!r} needs data to find the costs: pass sample=(X, Y), a micro-batch, too"
        )
    return partition(layers, n_stages, choice, sample=sample, loss=loss)


def _checked_counts(counts, n_layers, n_stages):
    counts = list(whole_numbers("partition", counts))
    if any(count < 1 for count in counts) or sum(counts) != n_layers:
        raise ValueError(
            f"partition={counts} adds up to {sum(counts)} for {n_layers} layers: "
            "give each stage at least 1 layer and all of them together every layer"
        )
    if len(counts) != n_stages:
        raise ValueError(f"partition={counts} makes {len(counts)} stages, but n_stages={n_stages}")
    return counts


def cut(layers, counts):
    """`layers` as one list per stage, with `counts[s]` consecutive layers in stage s."""
    layers = iter(layers)
    return [[next(layers) for _ in range(count)] for count in counts]
