"""The arguments that functions have in common: for each name its kind, its bounds and its largest size.

A door asks `argument("n_rounds", n_rounds)`. A function in which the name means something else has a row of
its own, "function.name". The hostile tests of tests/doors draw from the same rows.
"""

import sys
from dataclasses import dataclass

from .checks import function, listed, real_number, shown, truth, whole_number


# The kinds of arguments: each checks a value, and refuses it in a sentence.

@dataclass(frozen=True)
class Whole:
    """A whole number from `least` to `most`; None for no lower bound."""

    least: int | None = 1
    most: int = 10**9  # devices, micro-batches, units: more than any run could hold

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


@dataclass(frozen=True)
class Has:
    """An object with some methods or attributes, of any class. how: to get one."""

    names: tuple
    how: str

    def checked(self, name, value):
        """Return `value`; raise `ValueError` if it lacks one of the names, or is a class."""
        missing = [one for one in self.names if isinstance(value, type) or not hasattr(value, one)]
        if missing:
            raise ValueError(f"{name}={shown(value)} has no {missing[0]}: {self.how}")
        return value


@dataclass(frozen=True)
class Function:
    """What can be called."""

    def checked(self, name, value):
        """Return `value`; raise `ValueError` if it cannot be called."""
        return function(name, value)


@dataclass(frozen=True)
class Each:
    """A list, or another sequence, in which each item is as `kind` wants it; of at least `least` items."""

    kind: object
    least: int = 0

    def checked(self, name, value):
        """Return a list of the items; raise `ValueError` for what has none, or for a wrong one."""
        items = listed(name, value, self.least)
        return [self.kind.checked(f"{name}[{index}]", item) for index, item in enumerate(items)]


# Which argument is of which kind.

MOST_LAYERS = 10_000  # of a network with a name
MOST_RANKS = 10**6  # of a group that meets
MOST_THREADS = 64
MOST_ACTIONS = 4_000_000  # of a schedule, of all devices: a run of them takes gigabytes
MOST_SAMPLES = 10**12  # of a mini-batch: far more than anybody has, and far less than would overflow

COUNT, COUNT_OR_0, TRUTH = Whole(), Whole(0), Truth()
TIME_IN_TICKS = Real(least=0, note=" ticks", clock=True)
BYTES = Real(least=0, note=" bytes", clock=True)
ABOVE_0, AT_LEAST_0 = Real(above=0), Real(least=0)
BANDWIDTH = Real(
    above=0, note=" bytes per tick: leave it out for no limit", infinite=True, clock=True
)
SHARE, SHARE_OR_1 = Real(least=0, below=1), Real(least=0, most=1)
SAMPLES, RANKS = Whole(most=MOST_SAMPLES), Whole(most=MOST_RANKS)
OF_NAMED_NETWORKS = Whole(most=MOST_LAYERS)
LINK = Made("minipipe.cluster.links", "Link", "pass one, such as Link(latency=1)")
PLOT_AXES = Has(("plot", "set_xlim"), "pass matplotlib axes, such as those of plt.subplots()")

ARGUMENTS = {
    # how many
    "amoebanet_d.L": Whole(None, MOST_LAYERS),
    "amoebanet_d.D": Whole(None, 10**6),
    "at_once": Whole(most=MOST_THREADS),
    "batch": SAMPLES,
    "batch_size": SAMPLES,
    "bigram_cross_entropy.n": Whole(most=0x110000),  # characters that Unicode has
    "blas_threads.n": Whole(most=MOST_THREADS),
    "blocks_that_fit.n_devices": Whole(most=1000),
    "d": COUNT,
    "Cut.stages": COUNT,
    "grain": SAMPLES,
    "groups": COUNT,
    "index": COUNT_OR_0,
    "in_channels": COUNT,
    "in_nodes.n_devices": Whole(most=2000),  # a Link for each two
    "list_schedule.n_devices": Whole(most=MOST_ACTIONS),
    "m": SAMPLES,
    "most": COUNT,
    "most_nodes": COUNT,
    "n": COUNT,
    "N": RANKS,
    "n_classes": Whole(None),
    "n_devices": COUNT,
    "n_epochs": Whole(most=10**6),
    "n_groups": COUNT,
    "n_heads": COUNT,
    "n_layers": COUNT,
    "n_microbatches": COUNT,
    "n_places": COUNT,
    "n_prev": COUNT,
    "n_repeats": COUNT,
    "n_replicas": RANKS,
    "n_rounds": Whole(most=10**6),
    "n_shards": RANKS,
    "n_stages": COUNT,
    "n_tokens": COUNT,
    "Split.replicas": RANKS,
    "Split.shards": RANKS,
    "Split.stages": COUNT,
    "microbatches": COUNT,
    "zero": Whole(0, 3),
    "node_size": COUNT,
    "numbers_sent.N": RANKS,
    "numbers_sent.n": COUNT_OR_0,
    "out_channels": COUNT,
    "ports.n_devices": Whole(most=MOST_ACTIONS),
    "prefetch": COUNT_OR_0,
    "reference": SAMPLES,
    "resnet.depth": Whole(None, MOST_LAYERS),
    "small": SAMPLES,
    "transformer.n_layers": OF_NAMED_NETWORKS,
    "width": COUNT,
    "measured_link.n_bytes": Whole(0, 2**27),
    "measured_link.n_devices": RANKS,
    "describe_path.most": COUNT,
    # in papers: K devices with v stages each, M micro-batches
    "K": RANKS,
    "M": COUNT,
    "per": COUNT,
    "v": RANKS,
    # times, bytes and speeds
    "all_reduce_ticks.n": AT_LEAST_0,
    "bandwidth": Real(above=0, note=" bytes per tick", clock=True),
    "gamma": TIME_IN_TICKS,
    "latency": TIME_IN_TICKS,
    "Link.bandwidth": BANDWIDTH,
    "Port.bandwidth": BANDWIDTH,
    "n_bytes": BYTES,
    "buckets": Real(above=0, note=" bytes, 'ddp' or 'layer'", infinite=True),
    "limit": Real(above=0, note=" bytes, such as 8 * 2**30", infinite=True),
    "memory_limit": Real(above=0, note=" bytes, such as 8 * 2**30", infinite=True),
    "put_off": COUNT_OR_0,
    "T_B": TIME_IN_TICKS,
    "T_comm": TIME_IN_TICKS,
    "T_F": TIME_IN_TICKS,
    "T_W": TIME_IN_TICKS,
    # numbers of a training
    "BatchNorm.momentum": Real(above=0, most=1, note=": it is the share of the newest mini-batch"),
    "BatchNorm.gamma": Real(),
    "clip": ABOVE_0,
    "last": AT_LEAST_0,
    "text_of_cells.bound": AT_LEAST_0,
    "text_of_rates.bound": AT_LEAST_0,
    "learning_rate": ABOVE_0,
    "learning_rates.n_updates": Whole(most=10**5),
    "learning_rates.epochs": Whole(most=10**4),
    "rates.epochs": ABOVE_0,
    "rates_of.n_updates": Each(COUNT_OR_0),
    "seed": Whole(0, 2**128 - 1),
    "target": ABOVE_0,
    "trust": ABOVE_0,
    "weight_decay": AT_LEAST_0,
    "longest": TIME_IN_TICKS,
    "ticks_per_frame": Real(infinite=True),
    "until": TIME_IN_TICKS,
    # shares
    "dropout": SHARE,
    "kept_for_W": SHARE_OR_1,
    "momentum": SHARE,
    "negative_slope": SHARE_OR_1,
    "p": Real(least=0, below=1, note=", the probability of 0"),
    "rho": SHARE,
    "test_share": SHARE_OR_1,
    # yes or no
    "bias": TRUTH,
    "causal": TRUTH,
    "classic": TRUTH,
    "decoupled": TRUTH,
    "exact": TRUTH,
    "halves": TRUTH,
    "legend": TRUTH,
    "nesterov": TRUTH,
    "sources": TRUTH,
    "sync_batch_norm": TRUTH,
    "count_bytes": TRUTH,
    "tied": TRUTH,
    "vertical_sync": TRUTH,
    "weights_only": TRUTH,
    # the fields of a recipe
    "Recipe.base": ABOVE_0,
    "Recipe.epochs": COUNT,
    "Recipe.reference": SAMPLES,
    "Recipe.warm_up": ABOVE_0,
    "Recipe.weight_decay": AT_LEAST_0,
    # objects, and functions
    "axes": Each(PLOT_AXES, 1),
    "ax": PLOT_AXES,
    "cut.costs": Each(AT_LEAST_0, 1),
    "cut.counts": Each(COUNT_OR_0, 1),
    "styles": Has(("items", "get"), "leave it out, or write {kind: colour and words}"),
    "describe_path.path": Each(Has(("what", "start", "end"), "critical_path(trace) makes a list of them")),
    "engine": Function(),
    "group": Made("minipipe.collectives.group", "Group", "Group(rank, devices) makes one"),
    "holdings": Each(Function()),
    "part_of": Function(),
    "rng": Has(("standard_normal",), "np.random.default_rng(seed) makes one"),
    "total": Has(("pending", "n"), "add terms to a TreeSum or a RunningSum of minipipe.sums"),
    "world": Has(("size",), "minipipe.engines.world() returns it"),
    "cells": Each(Made("minipipe.papers.gpipe", "Compared", "table_2() makes a list of them")),
    "blocks_that_fit.device": Made(
        "minipipe.papers.devices", "Accelerator", "take one such as papers.TPU_V3"
    ),
    "estimates": Each(Made("minipipe.papers.gpipe", "Estimate", "table_1() makes a list of them")),
    "profiles": Each(Made("minipipe.papers.tables", "Profile", "minipipe.papers.ZERO_BUBBLE has some")),
    "rates": Each(Made("minipipe.papers.zero_bubble", "Rate", "zero_bubble_table() makes a list")),
    "text_of_hardware.rows": Each(Made("minipipe.papers.devices", "Hardware", "papers.HARDWARE has some")),
    "in_nodes.between": LINK,
    "in_nodes.inside": LINK,
    "model": Has(("check_fit", "checked_batch", "train"), "pass a network, such as Sequential(layers, loss)"),
    "against_one_device.pipe": Has(("checked_batch", "n_microbatches"), "pass a pipeline, or copies"),
    "same_bits.pipe": Has(("checked_batch", "n_microbatches"), "pass a pipeline, or copies"),
    "pipe": Has(("checked_batch", "forward_backward", "step"), "pass a network, such as a Pipeline"),
    "grid": Made("minipipe.site.grid", "Grid", "Grid() makes the standard one"),
    "Stage.layers": Each(Has(("forward", "backward_input", "layers"), "pass layers, such as ReLU()")),
    "Stage.loss": Has(("forward", "backward", "cache"), "pass one, such as MeanSquaredError()"),
    "player.run": Made("minipipe.cluster.trace", "Trace", "pass a Trace or a Schedule"),
    "trace": Made("minipipe.cluster.trace", "Trace", "take the trace of a network, or simulate(schedule)"),
}


def arguments(**values):
    """Return a list of the values, each as the row of its name wants it.

    >>> arguments(K=4, M=8)
    [4, 8]
    """
    return [argument(name, value) for name, value in values.items()]


def optional(name, value):
    """Return None for None, and what `argument` returns for all else."""
    return None if value is None else argument(name, value)


def argument(name, value):
    """Return `value` as the row of `name` wants it; raise `ValueError` with a sentence otherwise.

    name: of the argument, or "function.name" for a row of that function alone.

    >>> argument("n_rounds", 3), argument("bias", 0)
    (3, False)
    """
    return ARGUMENTS[name].checked(name.rpartition(".")[2], value)
