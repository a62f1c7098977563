"""The arguments that functions have in common: for each name its kind, its bounds and its largest size.

A door asks `argument("n_rounds", n_rounds)`. A function in which the name means something else has a row of
its own, "function.name". The hostile tests of tests/doors draw from the same rows.
"""

import sys
from dataclasses import dataclass

from .checks import real_number, shown, truth, whole_number

MOST = 10**9  # devices, micro-batches, units: more than any run could hold
MOST_LAYERS = 10_000  # of a network with a name
MOST_RANKS = 10**6  # of a group that meets
MOST_THREADS = 1000
MOST_ACTIONS = 4_000_000  # of a schedule, of all devices: a run of them takes gigabytes
MOST_SAMPLES = 10**12  # of a mini-batch: far more than anybody has, and far less than would overflow


@dataclass(frozen=True)
class Whole:
    """A whole number from `least` to `most`; None for no lower bound."""

    least: int | None = 1
    most: int = MOST

    def checked(self, name, value):
        """Return `value` as a Python int; raise `ValueError` if it is not one within the bounds."""
        return whole_number(name, value, self.least, self.most)


@dataclass(frozen=True)
class Real:
    """A real number. Each field as for `real_number`; a bound of None is no bound."""

    least: float | None = None
    above: float | None = None
    below: float | None = None
    most: float | None = None
    note: str = ""
    infinite: bool = False
    clock: bool = False

    def checked(self, name, value):
        """Return `value` as a Python number; raise `ValueError` if it is not one within the bounds."""
        return real_number(name, value, **vars(self))


@dataclass(frozen=True)
class Truth:
    """True or False, or 1 or 0."""

    def checked(self, name, value):
        """Return `value` as a bool; raise `ValueError` for anything else."""
        return truth(name, value)


@dataclass(frozen=True)
class Made:
    """An object of a class.

    module, kind: the names of the class and of its module, since a room above this one has it. Whoever has
        such an object has imported its module.
    how: how to get one.
    """

    module: str
    kind: str
    how: str

    def checked(self, name, value):
        """Return `value`; raise `ValueError` if it is not an object of the class."""
        kind = getattr(sys.modules.get(self.module), self.kind, ())
        if not isinstance(value, kind):
            raise ValueError(f"{name}={shown(value)} is not a {self.kind}: {self.how}")
        return value


COUNT, COUNT_OR_0, TRUTH = Whole(), Whole(0), Truth()
TICKS = Real(least=0, note=" ticks", clock=True)
BYTES = Real(least=0, note=" bytes", clock=True)
ABOVE_0, AT_LEAST_0 = Real(above=0), Real(least=0)
SHARE, SHARE_OR_1 = Real(least=0, below=1), Real(least=0, most=1)
SAMPLES, RANKS = Whole(most=MOST_SAMPLES), Whole(most=MOST_RANKS)
OF_NAMED_NETWORKS = Whole(most=MOST_LAYERS)

ARGUMENTS = {
    # how many
    "amoebanet_d.L": Whole(None, MOST_LAYERS),
    "at_once": Whole(most=MOST_THREADS),
    "backups": COUNT_OR_0,
    "batch": SAMPLES,
    "batch_size": SAMPLES,
    "bigram_cross_entropy.n": Whole(most=0x110000),  # characters that Unicode has
    "blas_threads.n": Whole(most=MOST_THREADS),
    "bound": COUNT_OR_0,
    "bucket": COUNT,
    "d": COUNT,
    "exchanges": COUNT_OR_0,
    "grain": SAMPLES,
    "groups": COUNT,
    "in_channels": COUNT,
    "keep_every": COUNT,
    "levels": Whole(1, 127),
    "list_schedule.n_devices": Whole(most=MOST_ACTIONS),
    "m": SAMPLES,
    "most": COUNT,
    "most_nodes": COUNT,
    "n": COUNT,
    "N": RANKS,
    "n_best": COUNT,
    "n_clients": RANKS,
    "n_devices": COUNT,
    "n_epochs": Whole(most=10**6),
    "n_groups": COUNT,
    "n_heads": COUNT,
    "n_layers": COUNT,
    "n_microbatches": COUNT,
    "n_nodes": COUNT,
    "n_places": COUNT,
    "n_prev": COUNT,
    "n_repeats": COUNT,
    "n_replicas": RANKS,
    "n_rounds": Whole(most=10**6),
    "n_samples": SAMPLES,
    "n_servers": RANKS,
    "n_shards": RANKS,
    "n_stages": COUNT,
    "n_steps": COUNT,
    "n_tokens": COUNT,
    "n_workers": RANKS,
    "node_size": COUNT,
    "numbers_sent.N": RANKS,
    "numbers_sent.n": COUNT_OR_0,
    "out_channels": COUNT,
    "ports.n_devices": Whole(most=MOST_ACTIONS),
    "prefetch": COUNT_OR_0,
    "rank": COUNT,
    "reference": SAMPLES,
    "resnet.depth": Whole(None, MOST_LAYERS),
    "small": SAMPLES,
    "transformer.n_layers": OF_NAMED_NETWORKS,
    "width": COUNT,
    # times, bytes and speeds
    "all_reduce_ticks.n": AT_LEAST_0,
    "bandwidth": Real(above=0, note=" bytes per tick", clock=True),
    "delay": TICKS,
    "gamma": TICKS,
    "latency": TICKS,
    "n_bytes": BYTES,
    "replicated_stages.bandwidth": ABOVE_0,
    "ticks": TICKS,
    "update": TICKS,
    "update_ticks": TICKS,
    # numbers of a training
    "BatchNorm.gamma": Real(),
    "clip": ABOVE_0,
    "compensation": AT_LEAST_0,
    "critical": ABOVE_0,
    "last": AT_LEAST_0,
    "learning_rate": ABOVE_0,
    "proximal": AT_LEAST_0,
    "rates.n_epochs": ABOVE_0,
    "seed": Whole(0, 2**128 - 1),
    "target": ABOVE_0,
    "TopK.k": ABOVE_0,
    "trust": ABOVE_0,
    "weight_decay": AT_LEAST_0,
    # shares
    "drop_out": SHARE,
    "dropout": SHARE,
    "fraction": Real(above=0, most=1),
    "kept_for_W": SHARE_OR_1,
    "momentum": SHARE,
    "negative_slope": SHARE_OR_1,
    "p": Real(least=0, below=1, note=", the probability of 0"),
    "rho": SHARE,
    "test_share": SHARE_OR_1,
    # yes or no
    "bias": TRUTH,
    "causal": TRUTH,
    "decoupled": TRUTH,
    "keep_memory": TRUTH,
    "masked": TRUTH,
    "nesterov": TRUTH,
    "on_workers": TRUTH,
    "rows": TRUTH,
    "secure": TRUTH,
    "sequence": TRUTH,
    "skewed": TRUTH,
    "sync_batch_norm": TRUTH,
    "tied": TRUTH,
    "weights_only": TRUTH,
    # the fields of a recipe
    "Recipe.base": ABOVE_0,
    "Recipe.n_epochs": COUNT,
    "Recipe.reference": SAMPLES,
    "Recipe.warm_up": ABOVE_0,
    "Recipe.weight_decay": AT_LEAST_0,
    # objects
    "trace": Made("minipipe.cluster.trace", "Trace", "take the trace of a network, or simulate(schedule)"),
}


def argument(name, value):
    """Return `value` as the row of `name` wants it; raise `ValueError` with a sentence otherwise.

    name: of the argument, or "function.name" for a row of that function alone.

    >>> argument("n_rounds", 3), argument("bias", 0)
    (3, False)
    """
    return ARGUMENTS[name].checked(name.rpartition(".")[2], value)
