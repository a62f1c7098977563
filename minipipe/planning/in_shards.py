"""The run of a schedule without any arithmetic, where several devices share the work inside each layer."""

from functools import partial

from ..arguments import argument
from ..cluster import Bytes, Compute, Link
from ..collectives import Group, all_reduce
from ..order import Costs
from ..order.costs import checked_costs
from ..order.program import cluster_of, programs_of, sent_without_numbers
from ..order.programs import Wires
from ..order.rules import AGAIN, FORWARD, INPUT, RULES
from ..order.schedule import checked_schedule
from ..order.shares import share

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
        programs |= zip(ranks, programs_of(wires, _performing(wires, groups, costs, exchanges)))
        shares |= zip(ranks, schedule.stages_on)
    programs, shares = ([found[rank] for rank in sorted(found)] for found in (programs, shares))
    return cluster_of(programs, schedule, costs, link, ports=ports, shares=shares).run()


def _performing(wires, groups, costs, exchanges):
    """`perform_on`, as `programs_of` takes it, for one shard. groups: {device: its `Group`}."""
    schedule = wires.schedule
    sizes, duration = costs.bytes_sent(schedule.n_stages), costs.duration(schedule.sharing)
    sent = sent_without_numbers(costs, schedule.n_stages)

    def perform(group, action, inputs):
        stages = [stage for kind, stage, _ in action.parts if RULES[kind].adds & GOING_THROUGH] * exchanges
        ticks = share(duration(action), 1 + len(stages))
        for stage in stages:
            yield Compute(action, ticks=ticks)
            yield from all_reduce(group, Bytes(round(sizes[stage])))
        yield Compute(action, ticks=ticks)
        return [sent[kind][stage] for kind, stage, _ in action.parts]

    return lambda device: partial(perform, groups[device])
