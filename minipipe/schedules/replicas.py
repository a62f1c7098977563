"""Whole copies of the network, each on a device of its own."""

from itertools import pairwise

from .actions import Action
from .limits import check_sizes
from .schedule import Schedule


def data_parallel(n_devices, n_microbatches, n_stages=1):
    """Each device has the whole network, and takes a run of the micro-batches, one after the other.

        0F0 1F0 1B0 0B0 0F1 1F1 1B1 0B1
        0F2 1F2 1B2 0B2

    n_devices: D, the copies; at most as many as there are micro-batches.
    n_microbatches: M, of the whole mini-batch. The runs are as equal as can be, the first ones longer.
    n_stages: in how many parts each copy is cut. Their gradients then can travel one after the other, see
        `with_all_reduce`.

    Makespan ceil(M/D) (F + B) ticks, and the time of the all-reduce; 1 micro-batch is alive on each device.
    """
    n_devices, n_microbatches, n_stages, _ = check_sizes(n_devices, n_microbatches, n_stages)
    if n_devices > n_microbatches:
        raise ValueError(
            f"{n_devices} copies of the network, but {n_microbatches} micro-batches: "
            "each copy needs at least one"
        )
    size, longer = divmod(n_microbatches, n_devices)
    begins = [copy * size + min(copy, longer) for copy in range(n_devices + 1)]
    runs = [range(*run) for run in pairwise(begins)]
    stages = range(n_stages)
    devices = tuple(
        tuple(
            Action(kind, stage, i)
            for i in run for kind, way in (("F", stages), ("B", reversed(stages))) for stage in way
        )
        for run in runs
    )
    copy_of = tuple(copy for copy, run in enumerate(runs) for _ in run) if n_devices > 1 else ()
    return Schedule(devices, n_stages, n_microbatches, "data-parallel", copy_of)
