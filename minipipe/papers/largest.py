"""GPipe's table 1, the largest network that fits, from `describe` and arrays without numbers.

Memory of a device that holds a stage, with N samples in M micro-batches:

    parameters       12 bytes each: the value, its gradient, and RMSProp's mean square, in float32
    activations      without recomputation, the caches of all N samples, O(N L); with it, N stage inputs,
                     and the caches of one micro-batch of N / M, O(N + L/K N/M)

Caches are what a stage of this package keeps for its backward, in float32: the arrays of its layers, and,
in the last stage, of the loss. They are counted for each stage at full size, so that an array that layers
share counts once. (A run holds one stage input fewer beside them: that of the micro-batch which it
recomputes.) Assumed, because the paper does not say: M = 32, and stages cut by the histogram of their
multiply-accumulates. Working memory of an operation, and messages, are not counted.
"""

from functools import lru_cache
from typing import NamedTuple

from ..arguments import argument
from ..partitioning import histogram
from ..partitioning.partition import cut
from .devices import TPU_V2, TPU_V3
from .networks import without_numbers
from .tables import MEMORY_UNIT, TABLE_1, Largest

BYTES_PER_PARAMETER = 12
M = 32
N_SAMPLES = {"AmoebaNet-D": 128, "Transformer": 32}
DEVICES = {"AmoebaNet-D": TPU_V2, "Transformer": TPU_V3}


class Estimate(NamedTuple):
    """A column of table 1: what is published, and what is computed for the same network.

    published: the column, a `Largest`.
    parameters: their number.
    parameter_memory, activation_memory: on all devices together, in the unit of the column.
    errors: computed / published - 1 for each of the three.
    fullest: the bytes of both kinds on the device with the most.
    limit: the bytes that a device has.
    """

    published: Largest
    parameters: int
    parameter_memory: float
    activation_memory: float
    errors: tuple
    fullest: float
    limit: int


def table_1():
    """An `Estimate` for each column of the table."""
    return [_estimate(column) for column in TABLE_1]


@lru_cache
def _estimate(column):
    network, unit = without_numbers(column.family, column.size), MEMORY_UNIT[column.family]
    counts = histogram([row.macs for row in network.description.rows], column.n_devices)
    parameters, activations = _memory(
        network, counts, N_SAMPLES[column.family], M if column.pipeline else None
    )
    computed = network.description.parameters, sum(parameters) / unit, sum(activations) / unit
    printed = column.parameters, column.parameter_memory, column.activation_memory
    errors = tuple(here / there - 1 for here, there in zip(computed, printed))
    fullest = max(map(sum, zip(parameters, activations)))
    return Estimate(column, *computed, errors, fullest, DEVICES[column.family].memory)


def _memory(network, counts, N, M):
    """(bytes of parameters, bytes of activations), each a list over the stages.

    M is None where nothing is recomputed.
    """
    stages = cut(network.description.rows, counts)
    parameters = [BYTES_PER_PARAMETER * sum(row.parameters for row in stage) for stage in stages]
    if M is None:
        return parameters, [caches for _, caches in network.kept(counts, N)]
    return parameters, [M * n_bytes + caches for n_bytes, caches in network.kept(counts, N // M)]


def blocks_that_fit(n_devices, device=TPU_V3):
    """The most Transformer blocks that `n_devices` hold, under the assumptions above.

    The first device also holds the embedding, the last one the final norm, the last Linear and the loss's
    cache. What a block takes is what a stage with 2 of them takes more than one with 1. Raises `ValueError`
    if a device is full without any block.
    """
    n_devices = argument("blocks_that_fit.n_devices", n_devices)
    argument("blocks_that_fit.device", device)
    n_blocks = 0
    for stage, (one, two) in enumerate(zip(*(_stages_of_blocks(n_devices, n) for n in (1, 2)))):
        of_a_block = two - one
        others = one - of_a_block
        if others > device.memory:
            raise ValueError(
                f"stage {stage} needs {others / 2**30:.2f} GiB without any block, "
                f"and a {device.name} has {device.memory / 2**30:g}: use a device with more memory"
            )
        n_blocks += int((device.memory - others) / of_a_block)
    return n_blocks


@lru_cache
def _stages_of_blocks(n_devices, n):
    """The bytes of each stage of a Transformer, if n blocks are in each."""
    counts = [n] * n_devices
    counts[0] += 1   # the embedding
    counts[-1] += 2  # the final norm, the last Linear
    memory = _memory(without_numbers("Transformer", (n * n_devices,)), counts, N_SAMPLES["Transformer"], M)
    return list(map(sum, zip(*memory)))
