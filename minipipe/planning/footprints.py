"""The bytes that each stage of a network needs for a micro-batch."""

from ..arguments import argument
from ..checks import chosen
from ..layers.layer import checked_layers
from ..parallel.options import Cut
from .one_microbatch import PATTERNS, counts_for
from .without_numbers import WithoutNumbers


def footprints(
    layers, loss, n_stages, input_shape, m,
    dtype="float64", optimizer=None, patterns=PATTERNS, accumulate="tree", precision=None, grain=None,
):
    """The `Footprint` of each stage for micro-batches of m samples: a list for `simulate`.

    layers: a list of them.
    loss: an object, such as MeanSquaredError(): a backward begins at the loss.
    n_stages: K, the parts that the layers are cut into; or a `Cut`, which needs no sample; "time" takes
        numbers, and is refused.
    input_shape: of one sample, such as (64,) or (3, 32, 32).
    m: the samples of a micro-batch.
    dtype: of the parameters and of X.
    optimizer: what it keeps for each parameter counts, too, as it does from its first update on.
    patterns: the orders of actions that a micro-batch may go through on a stage; fewer take less time.
    accumulate: how gradients are summed over micro-batches, "tree" or "running", as for `Sums`.
    precision: "float64", "float32", "mixed" or a `Precision`, to count other bytes than those of a run in
        `dtype`, which then is not looked at. "mixed": 2 bytes for each number of parameters, gradients and
        activations, and 4 for those that the optimizer keeps, a second copy of the parameters among them.
    grain: None, or the samples of a grain, as for `Sequential`.

    They are the bytes at the start and the end of each action; `temporaries` tells what is there for a moment
    in between. `measure` finds the same, but here no parameter is drawn and no array made, so the network may
    be larger than this computer: the layers' own forward and backward work with arrays that have a shape and
    no numbers, see `minipipe.meta`. Raises `ValueError` for what does not fit.

    >>> from minipipe.layers import Linear
    >>> from minipipe.losses import MeanSquaredError
    >>> layers = [Linear(10**6, 10**6), Linear(10**6, 1)]
    >>> huge = footprints(layers, MeanSquaredError(), 2, (10**6,), m=8, dtype="float32")
    >>> [footprint.parameters / 1e12 for footprint in huge]       # terabytes: 4 * (10**12 + 10**6)
    [4.000004, 4.000004e-06]
    >>> from minipipe.order import simulate
    >>> from minipipe.schedules import gpipe
    >>> simulate(gpipe(2, 4), footprints=huge).peak_bytes()       # on device 0, W and two partial sums of dW
    [12000076000000, 136000104]
    >>> huge = [footprint._replace(accumulate="running") for footprint in huge]
    >>> simulate(gpipe(2, 4), footprints=huge).peak_bytes()       # W and one sum of dW
    [8000136000000, 136000104]
    >>> from minipipe.optimizers import Adam
    >>> large = [Linear(74_999, 100_000)], MeanSquaredError(), 1, (74_999,)
    >>> (stage,) = footprints(*large, m=1, optimizer=Adam(), precision="mixed")
    >>> (stage.parameters + stage.gradients + stage.optimizer_state) / 1e9      # 16 bytes * 7.5e9 parameters
    120.0
    """
    patterns, layers = chosen("patterns", patterns, PATTERNS), checked_layers(layers)
    network = WithoutNumbers(layers, loss, input_shape, dtype, optimizer, accumulate, precision, grain)
    return network.footprints(_counts(network, layers, n_stages), m, patterns)


def temporaries(
    layers, loss, n_stages, input_shape, m, dtype="float64", patterns=PATTERNS, precision=None
):
    """For each stage {kind of action: bytes}: what is there for a moment inside such an action, at most.

    It comes on top of the bytes at its start and its end, those of `footprints`, which a run counts: no run
    needs more than both together. (NumPy may need less, as it reuses large arrays inside an expression.) With
    as many stages as layers, these are the numbers of each layer. All arguments as for `footprints`.

    >>> from minipipe.layers import Linear, ReLU
    >>> from minipipe.losses import MeanSquaredError
    >>> layers = [Linear(100, 50), ReLU(), Linear(50, 1)]
    >>> temporaries(layers, MeanSquaredError(), 3, (100,), m=8, patterns=["FB"])[0]
    {'B': 40464, 'F': 0}
    >>> 8 * (50 * 100 + 50 + 8)     # dW and db, until they are added to their sum; and ones, for the sum db
    40464
    """
    patterns, layers = chosen("patterns", patterns, PATTERNS), checked_layers(layers)
    network = WithoutNumbers(layers, loss, input_shape, dtype, None, precision=precision)
    return network.temporaries(_counts(network, layers, n_stages), argument("m", m), patterns)


def _counts(network, layers, n_stages):
    """Return the number of layers of each stage."""
    if isinstance(n_stages, Cut) and isinstance(n_stages.by, str) and n_stages.by == "time":
        raise ValueError(
            "by='time' measures, which takes numbers: use by='macs', or Cut(counts), with the list of counts "
            "that `partition` has found"
        )
    return counts_for(n_stages, layers, network.loss, network.sample(1))
