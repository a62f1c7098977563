"""Which ways to train there are, for a number of devices and a mini-batch."""

from typing import NamedTuple

from ..checks import listed, whole_number
from ..schedules import stages_per_device


class Candidate(NamedTuple):
    """D copies on K groups of T devices each, M micro-batches of m samples for each copy.

    n_stages: of a copy: K, or a multiple of it.
    name, mode, zero: the schedule, the recomputation and the level, as in `Plan`.
    """

    D: int
    T: int
    K: int
    M: int
    m: int
    name: str
    n_stages: int
    mode: str
    zero: int


def candidates(
    n_devices, batch_size, schedules, modes, levels, n_replicas, n_shards, n_microbatches, n_buckets
):
    """Every `Candidate` whose sizes go together; `ValueError` if there is none."""
    if n_replicas is None:
        n_replicas = [D for D in range(1, n_devices + 1) if n_devices % D == 0]
    sizes = [
        (D, T, M)
        for D in _numbers("n_replicas", n_replicas)
        for T in _numbers("n_shards", n_shards)
        for M in _numbers("n_microbatches", n_microbatches)
        if n_devices % (D * T) == 0 and batch_size % (D * M) == 0
    ]
    if not sizes:
        raise ValueError(
            f"no number of copies out of {n_replicas}, of shards out of {n_shards} and of "
            f"micro-batches out of {n_microbatches} divides {n_devices} devices and batch_size={batch_size}: "
            "try others"
        )
    buckets = _numbers("n_buckets", n_buckets)
    found = []
    for D, T, M in sizes:
        K, m = n_devices // (D * T), batch_size // (D * M)
        for name in schedules if K > 1 else schedules[:1]:  # on one device, there is one order
            in_parts = buckets if K == 1 and D > 1 else [1]
            for v in in_parts if K == 1 else [stages_per_device(name)]:
                of_name = levels if D > 1 else [0]
                if v == 1 and 1 in of_name:  # with one stage, 2 is 1
                    of_name = [level for level in of_name if level != 2]
                found += [
                    Candidate(D, T, K, M, m, name, K * v, mode, level) for mode in modes for level in of_name
                ]
    return found


def _numbers(name, numbers):
    return [whole_number(name, n, 1) for n in listed(name, numbers)]
