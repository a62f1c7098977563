"""A run in which nothing is computed: of any split of any network, or of a schedule in shards."""

from functools import partial
from itertools import product

import numpy as np

from ..arguments import argument
from ..checks import function
from ..cluster import Bytes, Compute, Link
from ..collectives import Group, all_reduce
from ..layers import every_layer
from ..layers.layer import checked_layers
from ..meta import MetaArray
from ..order import Costs
from ..order.actions import AGAIN, FORWARD, INPUT, RULES
from ..order.costs import checked_costs, divide_exactly
from ..order.programs import Wires, cluster_of, programs_of_schedule, sent_without_numbers
from ..order.schedule import checked_schedule
from ..parallel import Parallel
from .without_numbers import NoNumbers, WithoutNumbers


def rehearse(build, layers, loss, input_shape, m, dtype="float64", optimizer=None):
    """The `Trace` of a mini-batch of m samples in the network `build(layers, loss)`, foreseen.

    build: build(layers, loss) makes it: a `Pipeline`, `DataParallel`, `TensorParallel` or `Parallel`.
    layers, loss: of the network; it is handed layers whose parameters are arrays without numbers.
    input_shape: of one sample, such as (64,) or (3, 32, 32).
    dtype: of the parameters and of X; pass it to the network, too.
    optimizer: what `step` or `train` is called with; what it keeps counts, as from the first update on.
        Left out, the mini-batch is the first one, which an order that makes the updates itself cannot be.

    The network runs its own programs, so ticks, messages and the bytes that each device holds are those of a
    training, for all splits and all orders; but nothing is computed, no parameter is drawn, and no array is
    made, so it may be larger than this computer. Raises `ValueError` for what does not fit.

    >>> from minipipe.layers import Linear, ReLU
    >>> from minipipe.losses import MeanSquaredError
    >>> from minipipe.parallel import TensorParallel
    >>> layers = [Linear(10**6, 10**6), ReLU(), Linear(10**6, 10**6)]
    >>> build = lambda layers, loss: TensorParallel(layers, loss, n_shards=8)
    >>> trace = rehearse(build, layers, MeanSquaredError(), (10**6,), m=4)
    >>> [n_bytes / 1e12 for n_bytes in trace.peak_bytes(["parameters"])[:2]]     # 8 bytes of 2 * 10**12 / 8
    [2.000009, 2.000009]
    """
    m = argument("m", m)
    known = WithoutNumbers(checked_layers(layers), loss, input_shape, dtype, optimizer)
    network, batch = function("build", build)(without_arrays(layers, dtype), loss), known.sample(m)
    if not isinstance(network, Parallel):
        raise ValueError(
            f"build returns a {type(network).__name__}, which has no devices: return a Pipeline, "
            "DataParallel, TensorParallel or Parallel"
        )
    if optimizer is None:
        if network.has_updates:
            raise ValueError(
                f"the order of {network.schedule.name!r} updates the stages itself: pass optimizer=..., such "
                "as SGD(learning_rate=0.1)"
            )
        network.run_to_the_end(network.schedule, [batch])
        return network.trace
    optimizer = optimizer.fresh()
    network.check_training(optimizer)
    for _ in range(2):
        network.run_to_the_end(network.schedule, [batch], optimizer if network.has_updates else None)
        if not network.has_updates:
            network.step(optimizer)
    return network.trace


def without_arrays(layers, dtype):
    """Copies of `layers`, whose parameters are arrays without numbers."""
    layers = [layer.copy() for layer in layers]
    for layer in layers:
        layer.initialize(NoNumbers(), dtype)
    for layer, name in product(every_layer(layers), ("W", "b")):  # a scale of ones, for instance
        if isinstance(getattr(layer, name), np.ndarray):
            setattr(layer, name, MetaArray(getattr(layer, name).shape, dtype))
    return layers


# A schedule in shards: several devices share the work inside each layer.

EXCHANGES = 2  # of a Transformer's layer, each way
GOING_THROUGH = FORWARD | INPUT | AGAIN  # the layers; a weight gradient needs no other device


def simulate_in_shards(schedule, n_shards, costs=Costs(), link=Link(), ports=(), exchanges=EXCHANGES):
    """The `Trace` of `schedule`, each device of which stands for T, which share the work inside its layers.

    schedule, costs, link, ports: as for `simulate`; the costs are those of each of the T devices.
    n_shards: T. Device d of the schedule stands for those from T d on.
    exchanges: how many all-reduces over them there are in each forward, recomputation and input gradient of a
        stage: 2 in a layer of a Transformer, 1 in two Linear layers. Each is of as many bytes as the stage
        sends on, `Costs.message_bytes`, and goes by "owners". An action's ticks are shared among its parts.

    Source: Shoeybi et al. 2019, arXiv 1909.08053.

    >>> from minipipe.schedules import gpipe
    >>> trace = simulate_in_shards(gpipe(2, 4), 2, link=Link(latency=1), exchanges=1)
    >>> print(trace.n_devices, trace.makespan)    # 2 ticks of latency in each exchange, 1 between the stages
    4 37
    """
    checked_costs(costs)
    checked_schedule(schedule).validate()
    argument("exchanges", exchanges)
    if argument("n_shards", n_shards) == 1:
        exchanges = 0
    programs, shares = {}, {}
    for shard in range(n_shards):
        ranks = [shard + n_shards * device for device in range(len(schedule.devices))]
        groups = {rank: Group(shard, range(rank - shard, rank - shard + n_shards), f"shards of device {d}: ")
                  for d, rank in enumerate(ranks)}
        wires = Wires(schedule, ranks=ranks)
        programs |= zip(ranks, programs_of_schedule(wires, _performing(wires, groups, costs, exchanges)))
        shares |= zip(ranks, schedule.stages_on)
    programs, shares = ([found[rank] for rank in sorted(found)] for found in (programs, shares))
    return cluster_of(programs, schedule, costs, link, ports=ports, shares=shares).run()


def _performing(wires, groups, costs, exchanges):
    """`perform_on`, as `programs_of_schedule` takes it, for one shard. groups: {device: its `Group`}."""
    schedule = wires.schedule
    sizes, duration = costs.bytes_sent(schedule.n_stages), costs.duration(schedule.sharing)
    sent = sent_without_numbers(costs, schedule.n_stages)

    def perform(group, action, inputs):
        stages = [stage for kind, stage, _ in action.parts if RULES[kind].adds & GOING_THROUGH] * exchanges
        ticks = divide_exactly(duration(action), 1 + len(stages))
        for stage in stages:
            yield Compute(action, ticks=ticks)
            yield from all_reduce(group, Bytes(round(sizes[stage])))
        yield Compute(action, ticks=ticks)
        return [sent[kind][stage] for kind, stage, _ in action.parts]

    return lambda device: partial(perform, groups[device])
