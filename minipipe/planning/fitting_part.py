"""Which way of training a network fits some devices, and is the fastest; nothing is built or run."""

from itertools import product
from math import gcd

from ..cluster import Link
from ..arguments import argument
from ..checks import chosen, listed, shown, whole_number
from ..layers.layer import checked_layers
from ..layers.recomputing import SELECTIVE, can_recompute, recomputing
from ..partitioning import costs_of_layers
from ..parallel.options import MODES
from ..schedules import names_having
from .fitting import Network, best_of
from .without_numbers import WithoutNumbers

DEVICES = (1, 2, 4, 8)
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
        n_devices = [K for K in DEVICES if K <= len(layers)]
    n_devices = [_checked_devices(K, len(layers)) for K in listed("n_devices", n_devices)]
    names = names_having(flush=True, late_w=False)
    schedules = chosen("schedules", names if schedules is None else schedules, names)
    recompute = modes_for(layers) if recompute is None else chosen("recompute", recompute, MODES)
    if not callable(seconds):
        raise ValueError(f"seconds={shown(seconds)} must be a function (multiply-accumulates) -> time")
    argument("what_fits.link", link)
    memory_limit = argument("memory_limit", memory_limit)
    of_layers = costs_of_layers(layers, by, input_shape)

    def network(layers, modes):
        counted = WithoutNumbers(layers, loss, input_shape, dtype, optimizer, accumulate, precision)
        return Network(counted, modes, of_layers, seconds, link)

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
    return [mode for mode in MODES if mode != SELECTIVE or can_recompute(layers)]


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
