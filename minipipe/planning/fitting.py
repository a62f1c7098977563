"""Which way of training a network fits some devices, and is the fastest; nothing is built or run."""

from functools import partial
from itertools import accumulate, groupby, product
from math import gcd
from typing import NamedTuple

import numpy as np

from ..cluster import Link
from ..checks import bytes_of_memory, chosen, listed, whole_number
from ..layers.layer import checked_layers
from ..layers.recomputing import SELECTIVE, can_recompute, recomputing
from ..partitioning import costs_of_layers, loads, min_max
from ..pipeline.every_sqrt import EVERY_SQRT, every_sqrt
from ..schedules import BUILDERS, RECOMPUTE, Costs, Schedule, build, with_recompute
from ..watching import with_progress
from .foresight import patterns_of
from .simulation import simulate
from .without_numbers import WithoutNumbers

MODES = (*RECOMPUTE, EVERY_SQRT, SELECTIVE)
DEVICES = (1, 2, 4, 8)
MOST_MICROBATCHES = 64

MOST_SAMPLES = 10**12  # of a mini-batch: far more than anybody has, and far less than would overflow


class Setting(NamedTuple):
    """A way to train.

    n_devices, n_microbatches: K and M.
    schedule, recompute: by name.
    partition: the number of layers of each stage, for a `Pipeline`.
    costs: of these stages.
    makespan: of a mini-batch, in the unit of the costs.
    peak_bytes: on the device that holds most, at the start or the end of an action.
    inside_bytes: up to so many more are there for a moment inside a layer's action, see `temporaries`.
    fits: whether `peak_bytes` are within the limit.
    accumulate: how gradients are summed over micro-batches, for the `Pipeline`, too.
    precision: the name of the `Precision` whose bytes are counted; "mixed" has no `Pipeline`.
    """

    n_devices: int
    n_microbatches: int
    schedule: str
    recompute: str
    partition: list
    costs: Costs
    makespan: float
    peak_bytes: int
    inside_bytes: int
    fits: bool
    accumulate: str
    precision: str


def what_fits(
    layers, loss, input_shape, batch_size, memory_limit,
    n_devices=None, n_microbatches=None, schedules=tuple(BUILDERS), recompute=None,
    seconds=float, link=Link(), partition="macs", dtype=np.float32, optimizer=None,
    accumulate="running", precision=None,
):
    """For each number of devices, the fastest `Setting` that fits into the memory: a list.

    Where nothing fits, it is the one with the lowest peak, and `fits` is False. Of equally fast ones, it is
    the one with the lowest peak, too.

    layers, loss: of the network.
    input_shape: of one sample, such as (64,) or (3, 32, 32).
    batch_size: the samples of a mini-batch.
    memory_limit: the bytes of each device.
    n_devices: the numbers to try; left out, 1, 2, 4 and 8, if there are as many layers.
    n_microbatches: the numbers to try, which divide the batch_size; left out, all powers of two that do, up
        to 64, and leave a batch norm its two samples.
    schedules, recompute: the names to try; left out, all, "selective" only for networks with attention.
    seconds: a function (multiply-accumulates) -> time of a forward, such as `papers.TPU_V3.seconds`; a
        backward takes two forwards, its halves one each, and with "selective", what it computes again.
        Left out, time is in multiply-accumulates.
    link: between any two devices.
    partition: what the stages are balanced by, as for `partition`.
    dtype, optimizer: as for `footprints`, which counts the bytes: of the arrays that are held between
        actions, and at the start and the end of each. What a layer needs for a moment in between comes on
        top: `inside_bytes`.
    accumulate: how gradients are summed over micro-batches, as for `Pipeline`, where the default is "tree",
        for the sake of the bits: that keeps up to about log2(M) sums more.
    precision: as for `footprints`, such as "mixed"; left out, that of a run in `dtype`.

    A run of what is found has its makespan and, from the second mini-batch on, its counted peak, to the byte,
    and up to `inside_bytes` more inside a layer's action:

        Pipeline(layers, loss, len(fit.partition), fit.n_microbatches, fit.schedule, fit.recompute,
                 dtype=np.float32, partition=fit.partition, costs=fit.costs, link=link,
                 accumulate=fit.accumulate)

    (Left out, dtype and accumulate are float32 and "running" here, float64 and "tree" in a `Pipeline`.)
    Raises `ValueError` for sizes that cannot be.

    >>> from minipipe.layers import Linear, Tanh
    >>> from minipipe.losses import MeanSquaredError
    >>> layers = [layer for _ in range(16) for layer in (Linear(64, 64), Tanh())]
    >>> network = layers, MeanSquaredError(), (64,)
    >>> for limit in (24, 16, 12, 8):
    ...     (fit,) = what_fits(*network, 32768, limit * 2**20, [4], [8], ["gpipe", "1f1b"])
    ...     peak = f"{fit.peak_bytes / 2**20:.1f} MiB"
    ...     print(f"{limit} MiB: {fit.schedule}, recompute {fit.recompute}, {peak}, {fit.fits}")
    24 MiB: 1f1b, recompute never, 21.1 MiB, True
    16 MiB: gpipe, recompute except_last, 13.1 MiB, True
    12 MiB: 1f1b, recompute always, 9.1 MiB, True
    8 MiB: 1f1b, recompute always, 9.1 MiB, False
    """
    layers, sizes = checked_layers(layers), _checked_sizes(batch_size, n_microbatches)
    if n_devices is None:
        n_devices = [K for K in DEVICES if K <= len(layers)]
    n_devices = [_checked_devices(K, len(layers)) for K in listed("n_devices", n_devices)]
    schedules = chosen("schedules", schedules, BUILDERS)
    recompute = modes_for(layers) if recompute is None else chosen("recompute", recompute, MODES)
    if not callable(seconds):
        raise ValueError(f"seconds={seconds!r} must be a function (multiply-accumulates) -> time")
    memory_limit = bytes_of_memory(memory_limit)
    of_layers = costs_of_layers(layers, partition, input_shape)

    def network(layers, modes):
        counted = WithoutNumbers(layers, loss, input_shape, dtype, optimizer, accumulate, precision)
        return _Network(counted, modes, of_layers, seconds, link)

    networks = [network(layers, [mode for mode in recompute if mode != SELECTIVE])]
    if SELECTIVE in recompute:
        networks.append(network(recomputing(layers), [SELECTIVE]))
    if n_microbatches is None and batch_size > 1:
        sizes = [(M, m) for M, m in sizes if m > 1 or networks[0].takes_single_samples()]
    found = []
    for K in n_devices:
        choices = []
        for (M, m), name in with_progress(list(product(sizes, schedules)), f"kinds of runs on {K} devices"):
            choices += [choice for of_modes in networks for choice in of_modes.choices(K, M, m, name)]
        if not choices:
            raise ValueError(
                f"none of the schedules {', '.join(schedules)} exists for {K} devices, {len(layers)} layers "
                f"and any of {', '.join(str(M) for M, _ in sizes)} micro-batches: try others"
            )
        found.append(_best(choices, memory_limit))
    return found


def modes_for(layers):
    """The names of the modes of recomputation that a network with these layers can have."""
    return [mode for mode in MODES if mode != SELECTIVE or can_recompute(layers)]


class _Choice(NamedTuple):
    """A setting, without its bytes, and the schedule that it leads to.

    network: the `_Network`, which counts them.
    m: the samples of a micro-batch.
    counts, costs: the number of layers and the costs of the schedule's stages, which are more than the
        setting's if these are recomputed in segments.
    """

    setting: Setting
    network: object
    m: int
    schedule: Schedule
    counts: list
    costs: Costs


class _Network:
    """What all settings have in common, but for those of "selective", whose layers keep less.

    network: the layers `WithoutNumbers`.
    modes: of recomputation, by name.
    sizes: of each layer, what the stages are balanced by.
    seconds, link: as for `what_fits`.
    """

    def __init__(self, network, modes, sizes, seconds, link):
        self.network, self.modes, self.sizes, self.seconds, self.link = network, modes, sizes, seconds, link
        rows = network.description.rows
        self.macs, self.n_bytes = [row.macs for row in rows], [row.n_bytes for row in rows]
        self.macs_again = [row.macs_again for row in rows]
        pairs = any(isinstance(part, tuple) for row in rows for part in row.output_shape)  # Forks among them
        self.sends_more = pairs or any(layer.tie for layer in network.layers)

    def takes_single_samples(self):
        """Whether a micro-batch may have one sample.

        A batch norm refuses that, if a sample has one number in each row.
        """
        try:
            self.network.kept([len(self.macs)], 1)
        except ValueError:
            return False
        return True

    def choices(self, K, M, m, name):
        """A `_Choice` for each mode of recomputation, if the schedule exists for these sizes."""
        try:
            whole = build(name, K, M)
            counts = min_max(self.sizes, whole.n_stages)
        except ValueError:
            return []
        costs, choices = self._costs(counts, m), []
        for mode in self.modes:
            if mode == EVERY_SQRT:
                stages = every_sqrt(whole, counts, costs)
            else:
                stages = with_recompute(whole, "never" if mode == SELECTIVE else mode), counts, costs
            counted = self.network.accumulate, self.network.precision.name
            setting = Setting(
                K, M, name, mode, counts, costs, self._makespan(m, *stages), None, None, None, *counted
            )
            choices.append(_Choice(setting, self, m, *stages))
        return choices

    def peak_bytes(self, choice):
        """On the device that holds most."""
        return max(self._foreseen(choice.m, choice.schedule, choice.counts, choice.costs).peak_bytes())

    def inside_bytes(self, choice):
        """The most that an action of any stage takes for a moment."""
        patterns = sorted(set(patterns_of(choice.schedule).values()))
        of_stages = self.network.temporaries(choice.counts, choice.m, patterns)
        return max(max(of_stage.values()) for of_stage in of_stages)

    def _makespan(self, m, schedule, counts, costs):
        """That of a run, without the footprints if these make no difference to it: finding them takes time.

        `costs` say the bytes of an A, and of a dA of the same shape. Only footprints know what else is sent:
        by skip connections, by tied layers, by copies of a stage; or less, where half of a pair has no
        derivative. On free links it takes no time.
        """
        if self.link != Link() and (self.sends_more or schedule.n_copies > 1):
            return self._foreseen(m, schedule, counts, costs).makespan
        return simulate(schedule, costs, self.link).makespan

    def _foreseen(self, m, schedule, counts, costs):
        patterns = sorted(set(patterns_of(schedule).values()))
        return simulate(schedule, costs, self.link, self.network.footprints(counts, m, patterns))

    def _costs(self, counts, m):
        """Those of each stage for a micro-batch of m samples."""
        F = [self.seconds(m * max(macs, 1)) for macs in loads(self.macs, counts)]
        Costs(F=F).table([1] * len(F))  # checked before they are doubled
        again = [self.seconds(m * macs) if macs else 0 for macs in loads(self.macs_again, counts)]
        message_bytes = [m * self.n_bytes[end - 1] for end in accumulate(counts)]
        B = [2 * f + more for f, more in zip(F, again)]
        return Costs(F=F, B=B, W=F, message_bytes=message_bytes)


def _best(choices, memory_limit):
    """The fastest `Setting` that fits, or the one with the lowest peak."""
    best = None  # the one with the lowest peak so far; once it fits, nothing slower is of interest
    choices = sorted(choices, key=_rounded_makespan)
    for _, equally_fast in groupby(choices, key=_rounded_makespan):
        for choice in equally_fast:
            peak = choice.network.peak_bytes(choice)
            if best is None or peak < best.peak_bytes:
                best = choice.setting._replace(peak_bytes=peak, fits=bool(peak <= memory_limit))
                inside = partial(choice.network.inside_bytes, choice)
        if best.fits:
            break
    return best._replace(inside_bytes=inside())


def _rounded_makespan(choice):
    """To 9 digits: which of two equally fast schedules comes out as the faster one is chance."""
    return float(f"{float(choice.setting.makespan):.9g}")


def _checked_sizes(batch_size, n_microbatches):
    """[(micro-batches, samples of each)]"""
    batch_size = whole_number("batch_size", batch_size, 1, MOST_SAMPLES)
    if n_microbatches is None:
        powers = [2**power for power in range(MOST_MICROBATCHES.bit_length())]
        n_microbatches = [M for M in powers if batch_size % M == 0]
    n_microbatches = [whole_number("n_microbatches", M) for M in listed("n_microbatches", n_microbatches)]
    for M in n_microbatches:
        if M < 1 or batch_size % M:
            divisor = gcd(batch_size, max(M, 1))
            raise ValueError(
                f"n_microbatches={M} does not divide batch_size={batch_size}: "
                f"use {divisor}, or another batch_size"
            )
    return [(M, batch_size // M) for M in n_microbatches]


def _checked_devices(K, n_layers):
    K = whole_number("n_devices", K)
    if not 1 <= K <= n_layers:
        raise ValueError(
            f"n_devices={K} does not fit {n_layers} layers: use 1 to {n_layers}, so that each has a layer"
        )
    return K
