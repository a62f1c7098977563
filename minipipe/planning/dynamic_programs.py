"""Which consecutive layers on how many devices: the dynamic programs of PipeDream and of Alpa."""

from fractions import Fraction
from functools import cache
from math import inf
from typing import NamedTuple

from ..arguments import argument
from ..checks import shown, whole_numbers
from ..partitioning.integers import checked, sums


class Shared(NamedTuple):
    """A cut whose stages have several devices each.

    stages: [(how many layers, how many devices)], stage by stage.
    time: what was minimised.
    """

    stages: list
    time: float


def replicated_stages(times, output_bytes, parameter_bytes, bandwidth, n_devices):
    """PipeDream's cut: stages of consecutive layers, each on several devices that share its mini-batches.

    It minimises the time of the slowest part, be it a stage or a place between two,

        stage of the layers i..j on m devices:  max(sum T_l, 4 (m - 1)/m sum w_l / bandwidth) / m
        between the layers i and i + 1:         2 a_i / bandwidth

    where all devices have work: that is the time for each mini-batch, once the pipeline is full.

    times: T_l, of a forward and backward of each layer.
    output_bytes: a_l, of each layer's output.
    parameter_bytes: w_l, of each layer's parameters.
    bandwidth: bytes in a unit of time.
    n_devices: at least 1.

    The dynamic program is A(j, m) = min(T(1..j, m), min over i, m' of max(A(i, m - m'), 2 a_i / bandwidth,
    T(i+1..j, m'))), O(L^2 n^2); nothing is rounded. Source: Harlap et al. 2018, arXiv 1806.03377, section
    3.2; its published code adds where the formula has a max.

    >>> replicated_stages([4, 4, 2], [8, 4, 1], [1, 1, 30], 4, 4)
    Shared(stages=[(2, 3), (1, 1)], time=Fraction(8, 3))
    """
    times, n_devices = checked("times", times), argument("replicated_stages.n_devices", n_devices)
    n_layers = len(times)
    output_bytes = checked("output_bytes", output_bytes, n_layers)
    parameter_bytes = checked("parameter_bytes", parameter_bytes, n_layers)
    bandwidth = Fraction(argument("replicated_stages.bandwidth", bandwidth))
    T, w = (sums(map(Fraction, numbers)) for numbers in (times, parameter_bytes))

    def of_stage(i, j, m):
        exchange = Fraction(4 * (m - 1), m) * (w[j] - w[i]) / bandwidth
        return max(T[j] - T[i], exchange) / m

    best = {}  # (layers, devices) -> (time, stages)
    for j in range(1, n_layers + 1):
        for m in range(1, n_devices + 1):
            found = [(of_stage(0, j, m), [(j, m)])]
            for i in range(1, j):
                between = 2 * Fraction(output_bytes[i - 1]) / bandwidth
                for last in range(1, m):
                    before, stages = best[i, m - last]
                    slowest = max(before, between, of_stage(i, j, last))
                    if slowest < found[0][0]:
                        found = [(slowest, [*stages, (j - i, last)])]
            best[j, m] = found[0]
    time, stages = best[n_layers, n_devices]
    return Shared(stages, time)


def meshed_stages(stage_time, n_layers, n_devices, n_microbatches, sizes=None):
    """Alpa's cut: stages of consecutive layers on meshes of devices, for a whole mini-batch.

    It minimises

        sum over the stages of t + (M - 1) max over the stages of t

    the time of M micro-batches through a pipeline in which each micro-batch takes t on a stage, over all cuts
    into consecutive stages, with sizes of meshes that add up to the devices.

    stage_time: stage_time(first, end, size, n_behind) is t of the layers first..end-1 on a mesh of `size`
        devices, with n_behind stages behind it; infinity where it does not fit: a stage keeps the activations
        of n_behind + 1 micro-batches, as in 1F1B.
    n_layers, n_devices, n_microbatches: L, the devices, and M.
    sizes: of meshes; left out, 1, 2, 4, ... up to all devices.

    For each limit t_max out of all stage times, F(s, k, d) = min over i and sizes n of t(k..i, n) + F(s - 1,
    i + 1, d - n) with each t <= t_max; the search over t_max ends where M t_max alone is no better. Raises
    `ValueError` where nothing fits. Source: Zheng et al. 2022, arXiv 2201.12023, section 5.2.

    >>> work = [6, 2, 4, 4]
    >>> meshed_stages(lambda first, end, d, n_behind: sum(work[first:end]) / d + d - 1, 4, 4, 4)
    Shared(stages=[(2, 2), (2, 2)], time=25.0)
    """
    n_layers = argument("meshed_stages.n_layers", n_layers)
    n_devices = argument("meshed_stages.n_devices", n_devices)
    M = argument("n_microbatches", n_microbatches)
    if sizes is None:
        sizes = [2**power for power in range(n_devices.bit_length())]
    sizes = sorted(set(whole_numbers("sizes", sizes, 1)))
    if not sizes or sizes[0] > n_devices:
        raise ValueError(f"sizes={shown(sizes)} are all above n_devices={n_devices}: use smaller ones")
    time = cache(argument("stage_time", stage_time))
    most = min(n_layers, n_devices // sizes[0])
    limits = sorted({
        time(first, end, size, behind)
        for first in range(n_layers) for end in range(first + 1, n_layers + 1)
        for size in sizes if size <= n_devices
        for behind in range(min(most, n_layers - end + 1))
    } - {inf})
    best = Shared([], inf)
    for limit in limits:
        if M * limit >= best.time:
            break
        found = _within(time, limit, n_layers, n_devices, sizes, most)
        if found is not None:
            total, slowest, stages = found
            best = min(best, Shared(stages, total + (M - 1) * slowest), key=lambda one: one.time)
    if not best.stages:
        raise ValueError(
            f"no cut of {n_layers} layers fits {n_devices} devices in meshes of "
            f"{', '.join(map(str, sizes))}: use more devices, or more memory"
        )
    return best


def _within(time, limit, n_layers, n_devices, sizes, most):
    """(sum, largest, stages) of the least sum with no stage above `limit`; None if there is none."""
    behind = {(n_layers, 0): (0, 0, [])}  # (first layer, devices) of all stages behind -> the best of them
    found = []
    for n_behind in range(most):
        before = {}
        for (end, used), (total, slowest, stages) in behind.items():
            for first in range(end):
                for size in sizes:
                    t = time(first, end, size, n_behind)
                    if used + size > n_devices or t > limit:
                        continue
                    one = total + t, max(slowest, t), [(end - first, size), *stages]
                    key = first, used + size
                    if key not in before or one[:2] < before[key][:2]:
                        before[key] = one
        found += [before[0, n_devices]] if (0, n_devices) in before else []
        behind = before
    return min(found, key=lambda one: one[0]) if found else None
