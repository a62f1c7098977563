"""Which way of training a network fits some devices, and is the fastest; nothing is built or run.

First the settings, how long each takes and what it holds, then the search.
"""

from heapq import heapify, heappop, heappush
from itertools import accumulate, product
from math import gcd
from typing import NamedTuple

from ..arguments import argument
from ..checks import chosen, listed, shown, whole_number
from ..cluster import Link
from ..layers.layer import checked_layers
from ..layers.recomputing import SELECTIVE, can_recompute, recomputing
from ..order import Costs, Schedule
from ..order.names import chosen_schedules
from ..order.simulate import simulate
from ..parallel import Parallel
from ..parallel.options import RECOMPUTE_MODES, Cut, Machine, Memory, Split, Sums, Weights
from ..parallel.orders import recomputed
from ..partitioning import costs_of_layers, loads, min_max
from ..schedules import build, names_having
from ..watching import with_progress
from .foresight import patterns_of
from .without_numbers import WithoutNumbers


class Setting(NamedTuple):
    """A way to train.

    n_devices, n_microbatches: K and M.
    schedule, recompute: by name.
    partition: the number of layers of each stage.
    costs: of these stages.
    makespan: of a mini-batch, in the unit of the costs.
    peak_bytes: on the device that holds most, at the start or the end of an action.
    inside_bytes: up to so many more are there for a moment inside a layer's action, see `temporaries`.
    fits: whether `peak_bytes` are within the limit.
    accumulate: how gradients are summed over micro-batches.
    precision: the name of the `Precision` whose bytes are counted; no network computes in "mixed".
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

    def pipeline(self, layers, loss, link=Link(), seed=0, dtype="float32", engine="cluster"):
        """The network that trains so; its trace has the makespan and, once updated, the peak.

        layers, loss, link: those that the setting was found for.
        seed, dtype: as for `Weights`.
        engine: as for `Machine`.
        """
        split = Split(stages=Cut(self.partition), microbatches=self.n_microbatches)
        machine = Machine(engine, self.costs, link)
        return Parallel(
            layers, loss, split, self.schedule, Memory(self.recompute), Sums(self.accumulate), machine,
            Weights(seed, dtype),
        )


class Choice(NamedTuple):
    """A setting, without its makespan and its bytes, and the schedule that it leads to.

    network: the `Estimator`, which counts them.
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


class Estimator:
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

    def choices(self, K, M, m, name):
        """A `Choice` for each mode of recomputation, if the schedule exists for these sizes."""
        try:
            whole = build(name, K, M)
            counts = min_max(self.sizes, whole.n_stages)
        except ValueError:
            return []
        costs, choices = self._costs(counts, m), []
        for mode in self.modes:
            stages = recomputed(whole, counts, costs, mode)
            counted = self.network.accumulate, self.network.precision.name
            setting = Setting(K, M, name, mode, counts, costs, None, None, None, None, *counted)
            choices.append(Choice(setting, self, m, *stages))
        return choices

    def inside_bytes(self, choice):
        """The most that an action of any stage takes for a moment."""
        patterns = sorted(set(patterns_of(choice.schedule).values()))
        of_stages = self.network.temporaries(choice.counts, choice.m, patterns)
        return max(max(of_stage.values()) for of_stage in of_stages)

    def work(self, choice):
        """Of the device with the longest actions: the makespan cannot be below."""
        duration = choice.costs.duration(choice.schedule.sharing)
        return max(sum(map(duration, actions)) for actions in choice.schedule.devices)

    def least_makespan(self, choice):
        """A time below which its makespan cannot be: messages take their latency at least.

        Finding their bytes takes time. The `costs` say those of an A, and of a dA of the same shape; only
        footprints know what else is sent: by skip connections, by tied layers, by copies of a stage; or less,
        where half of a pair has no derivative. On free links it makes no difference.
        """
        schedule = choice.schedule
        known = not self.sends_more and schedule.n_copies == 1
        link = self.link if known else Link(latency=self.link.latency)
        return simulate(schedule, choice.costs, link).makespan

    def foreseen(self, choice):
        """The `Trace` of its run, with all bytes."""
        patterns = sorted(set(patterns_of(choice.schedule).values()))
        footprints = self.network.footprints(choice.counts, choice.m, patterns)
        return simulate(choice.schedule, choice.costs, self.link, footprints)

    def _costs(self, counts, m):
        """Those of each stage for a micro-batch of m samples."""
        F = [self.seconds(m * max(macs, 1)) for macs in loads(self.macs, counts)]
        Costs(F=F).table([1] * len(F))  # checked before they are doubled
        again = [self.seconds(m * macs) if macs else 0 for macs in loads(self.macs_again, counts)]
        message_bytes = [m * self.n_bytes[end - 1] for end in accumulate(counts)]
        B = [2 * f + more for f, more in zip(F, again)]
        return Costs(F=F, B=B, W=F, message_bytes=message_bytes)


def best_of(choices, memory_limit):
    """The fastest `Setting` that fits, or the one with the lowest peak.

    Choices are taken up in the order of what their makespans cannot be below: the work of a device; then the
    makespan without the bytes of messages; then all is foreseen. The search ends when none that is left can
    be as fast as one that fits.
    """
    left = [(_rounded(choice.network.work(choice)), place, 0) for place, choice in enumerate(choices)]
    heapify(left)
    found, fastest = [], float("inf")
    what = f"looks at runs on {choices[0].setting.n_devices} devices, at most"
    for _ in with_progress(range(2 * len(choices)), what):
        if not left or left[0][0] > fastest * (1 + 1e-8):  # sums in another order may round otherwise
            break
        bound, place, level = heappop(left)
        choice = choices[place]
        if level == 0:
            least = _rounded(choice.network.least_makespan(choice))
            heappush(left, (max(bound, least), place, 1))
            continue
        trace = choice.network.foreseen(choice)
        makespan, peak = _rounded(trace.makespan), max(trace.peak_bytes())
        setting = choice.setting._replace(
            makespan=trace.makespan, peak_bytes=peak, fits=bool(peak <= memory_limit)
        )
        found.append((makespan, peak, place, setting))
        if setting.fits:
            fastest = min(fastest, makespan)
    fitting = [one for one in found if one[-1].fits]
    *_, place, setting = min(fitting) if fitting else min(found, key=lambda one: (one[1], one[0], one[2]))
    choice = choices[place]
    return setting._replace(inside_bytes=choice.network.inside_bytes(choice))


def _rounded(makespan):
    """To 9 digits: which of two equally fast schedules comes out as the faster one is chance."""
    return float(f"{float(makespan):.9g}")


# The search.

DEVICE_COUNTS = (1, 2, 4, 8)
MOST_MICROBATCHES = 64


def what_fits(
    layers, loss, input_shape, batch_size, memory_limit,
    n_devices=None, n_microbatches=None, schedules=None, recompute=None,
    seconds=float, link=Link(), by="macs", dtype="float32", optimizer=None, accumulate="running",
    precision=None,
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
    by: what the stages are balanced by, as for `partition`.
    dtype, optimizer: as for `footprints`, which counts the bytes: of the arrays that are held between
        actions, and at the start and the end of each. What a layer needs for a moment in between comes on
        top: `inside_bytes`.
    accumulate: how gradients are summed over micro-batches, as for `Sums`, where the default is "tree",
        for the sake of the bits: that keeps up to about log2(M) sums more.
    precision: as for `footprints`, such as "mixed"; left out, that of a run in `dtype`.

    A run of what is found has its makespan and, from the second mini-batch on, its counted peak, to the byte,
    and up to `inside_bytes` more inside a layer's action:

        pipe = fit.pipeline(layers, loss, link)

    (Left out, dtype and accumulate are "float32" and "running" here, "float64" and "tree" in a `Parallel`.)
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
        n_devices = [K for K in DEVICE_COUNTS if K <= len(layers)]
    n_devices = [_checked_devices(K, len(layers)) for K in listed("n_devices", n_devices)]
    names = names_having(flush=True, late_w=False)
    schedules = chosen_schedules(names if schedules is None else schedules, names)
    recompute = modes_for(layers) if recompute is None else chosen("recompute", recompute, RECOMPUTE_MODES)
    if not callable(seconds):
        raise ValueError(f"seconds={shown(seconds)} must be a function (multiply-accumulates) -> time")
    argument("what_fits.link", link)
    memory_limit = argument("memory_limit", memory_limit)
    of_layers = costs_of_layers(layers, by, input_shape)

    def network(layers, modes):
        counted = WithoutNumbers(layers, loss, input_shape, dtype, optimizer, accumulate, precision)
        return Estimator(counted, modes, of_layers, seconds, link)

    networks = [network(layers, [mode for mode in recompute if mode != SELECTIVE])]
    if SELECTIVE in recompute:
        networks.append(network(recomputing(layers), [SELECTIVE]))
    if n_microbatches is None and batch_size > 1:
        sizes = [(M, m) for M, m in sizes if m > 1 or networks[0].network.takes_single_samples()]
    found = []
    for K in n_devices:
        choices = []
        for (M, m), name in product(sizes, schedules):
            choices += [choice for of_modes in networks for choice in of_modes.choices(K, M, m, name)]
        if not choices:
            raise ValueError(
                f"none of the schedules {', '.join(schedules)} exists for {K} devices, {len(layers)} layers "
                f"and any of {', '.join(str(M) for M, _ in sizes)} micro-batches: try others"
            )
        found.append(best_of(choices, memory_limit))
    return found


def modes_for(layers):
    """The names of the modes of recomputation that a network with these layers can have."""
    return [mode for mode in RECOMPUTE_MODES if mode != SELECTIVE or can_recompute(layers)]


def _checked_sizes(batch_size, n_microbatches):
    """[(micro-batches, samples of each)]"""
    batch_size = argument("batch_size", batch_size)
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
