"""The settings of a search for what fits: how long each takes, what it holds, and which is the best."""

from heapq import heapify, heappop, heappush
from itertools import accumulate
from typing import NamedTuple

from ..cluster import Link
from ..order import Costs, Schedule
from ..order.simulate import simulate
from ..parallel import Parallel
from ..parallel.options import Cut, Machine, Memory, Split, Sums, Weights
from ..parallel.units import recomputed
from ..partitioning import loads, min_max
from ..schedules import build
from ..watching import with_progress
from .foresight import patterns_of


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

    network: the `Network`, which counts them.
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


class Network:
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
