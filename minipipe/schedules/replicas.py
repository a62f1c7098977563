"""Whole copies of the network, each on a device of its own; and copies of some of its stages."""

from itertools import accumulate, pairwise
from math import lcm

from ..checks import listed, whole_number
from ..order.actions import Action
from ..order.costs import check_sizes
from ..order.schedule import Schedule


def data_parallel(devices, microbatches, stages=1):
    """Each device has the whole network, and takes a run of the micro-batches, one after the other.

        0F0 1F0 1B0 0B0 0F1 1F1 1B1 0B1
        0F2 1F2 1B2 0B2

    devices: D, the copies; at most as many as there are micro-batches.
    microbatches: M, of the whole mini-batch. The runs are as equal as can be, the first ones longer.
    stages: in how many parts each copy is cut. Their gradients then can travel one after the other, see
        `with_all_reduce`.

    Makespan ceil(M/D) (F + B) ticks, and the time of the all-reduce; 1 micro-batch is alive on each device.
    """
    devices, microbatches, stages, _ = check_sizes(devices, microbatches, stages)
    if devices > microbatches:
        raise ValueError(
            f"{devices} copies of the network, but {microbatches} micro-batches: "
            "each copy needs at least one"
        )
    size, longer = divmod(microbatches, devices)
    begins = [copy * size + min(copy, longer) for copy in range(devices + 1)]
    runs = [range(*run) for run in pairwise(begins)]
    places = range(stages)
    orders = tuple(
        tuple(
            Action(kind, stage, i)
            for i in run for kind, way in (("F", places), ("B", reversed(places))) for stage in way
        )
        for run in runs
    )
    copy_of = tuple(copy for copy, run in enumerate(runs) for _ in run) if devices > 1 else ()
    return Schedule(orders, stages, microbatches, "data-parallel", copy_of)


def replicated_stages(replicas, microbatches):
    """A pipeline in which stage s is on `replicas[s]` devices, which take its micro-batches in turn.

    replicas: r_s for each stage, at least 1; the devices are numbered stage by stage.
    microbatches: M.

    Micro-batch i goes through replica i mod r_s of stage s, and back the same way. Each device goes forward
    with as many micro-batches as it takes to keep all devices from its stage on at work, ceil((r_s + r_s+1
    + ...) / r_s), and then in turn backward and forward, as in 1F1B. At the end, the gradients of a stage are
    added up over its replicas. Source: Narayanan et al. 2019, SOSP, section 3.2, 1F1B-RR, here with a flush.

    >>> print(replicated_stages([2, 1], 4))
    device 0: 0F0 0F2 0B0 0B2
    device 1: 0F1 0F3 0B1 0B3
    device 2: 1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3
    """
    replicas = [whole_number("replicas", r, 1) for r in listed("replicas", replicas)]
    _, microbatches, n_stages, _ = check_sizes(sum(replicas), microbatches, len(replicas))
    if max(replicas) > microbatches:
        raise ValueError(
            f"a stage on {max(replicas)} devices, but {microbatches} micro-batches: each needs at least one"
        )
    behind = list(accumulate(reversed(replicas)))[::-1]  # the devices from each stage on
    devices = [
        tuple(_in_turn(s, range(first, microbatches, r), -(-behind[s] // r)))
        for s, r in enumerate(replicas) for first in range(r)
    ]
    n_copies = min(lcm(*replicas), microbatches)
    copy_of = tuple(i % n_copies for i in range(microbatches)) if n_copies > 1 else ()
    return Schedule(tuple(devices), n_stages, microbatches, "replicated-stages", copy_of)


def _in_turn(stage, microbatches, n_ahead):
    """So many forwards ahead, then a backward and a forward in turn."""
    ahead = microbatches[:n_ahead]
    yield from (Action("F", stage, i) for i in ahead)
    for k, i in enumerate(microbatches):
        yield Action("B", stage, i)
        if k + n_ahead < len(microbatches):
            yield Action("F", stage, microbatches[k + n_ahead])
