"""GPipe's table 1, the largest network that fits, from `describe`.

Memory of a device that holds a stage, with N samples in M micro-batches:
    parameters       12 bytes each: the value, its gradient, and RMSProp's mean square, in float32
    activations      without recomputation, N times what all its layers keep for their backward;
                     with it, N stage inputs, and what its layers keep for one micro-batch of N / M: O(N + L/K N/M)
What a layer keeps is counted in real arrays of this package, in float32. Assumed, because the paper does not say: M = 32, and
stages cut by the histogram of their multiply-accumulates. Working memory of an operation, and messages, are not counted.
"""

from itertools import accumulate
from typing import NamedTuple

from ..pipeline import histogram
from .devices import TPU_V2, TPU_V3
from .networks import amoebanet, amoebanet_kept, blocks, stages_of, transformer_family, transformer_kept
from .published import MEMORY_UNIT, TABLE_1, Largest

BYTES_PER_PARAMETER = 12
M = 32
N_SAMPLES = {"AmoebaNet-D": 128, "Transformer": 32}
DEVICES = {"AmoebaNet-D": TPU_V2, "Transformer": TPU_V3}


class Estimate(NamedTuple):
    """A column of table 1: what is published, and what is computed for the same network.

    parameters: their number. parameter_memory, activation_memory: on all devices together, in the unit of the column.
    errors: computed / published - 1 for each of the three. fullest: the bytes of both kinds on the device with the most, which
    has limit bytes.
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


def _estimate(column):
    rows, kept = _network(column.family, column.size)
    counts = histogram([row.macs for row in rows], column.n_devices)
    N, unit = N_SAMPLES[column.family], MEMORY_UNIT[column.family]
    at_once = N / M if column.pipeline else N
    ends = list(accumulate(counts[:-1]))
    inputs = [0] + [N * rows[end - 1].n_bytes if column.pipeline else 0 for end in ends]
    parameters = [sum(row.parameters for row in stage) for stage in stages_of(rows, counts)]
    activations = [n_bytes + at_once * sum(sizes) for n_bytes, sizes in zip(inputs, stages_of(kept, counts))]
    computed = sum(parameters), BYTES_PER_PARAMETER * sum(parameters) / unit, sum(activations) / unit
    printed = column.parameters, column.parameter_memory, column.activation_memory
    errors = tuple(here / there - 1 for here, there in zip(computed, printed))
    fullest = max(BYTES_PER_PARAMETER * n + n_bytes for n, n_bytes in zip(parameters, activations))
    return Estimate(column, *computed, errors, fullest, DEVICES[column.family].memory)


def _network(family, size):
    """(rows, bytes that each of them keeps for one sample)"""
    if family == "AmoebaNet-D":
        return amoebanet(*size).rows, amoebanet_kept(*size)
    first, block, norm, last = transformer_kept()
    description = transformer_family(*size)
    return description.rows, [first, *[block] * len(blocks(description)), norm, last + description.rows[-1].n_bytes]


def blocks_that_fit(n_devices, device=TPU_V3):
    """The most Transformer blocks that `n_devices` hold, under the assumptions above; the first also holds the embedding.

    The last one also holds the final norm, the last Linear and the logits. Raises `ValueError` if not even these fit.
    """
    (embedding, block, norm, last), kept = transformer_family(1).rows, transformer_kept()
    micro_batch = N_SAMPLES["Transformer"] / M
    of_a_block = BYTES_PER_PARAMETER * block.parameters + micro_batch * kept[1]
    n_blocks = 0
    for stage in range(n_devices):
        taken = N_SAMPLES["Transformer"] * embedding.n_bytes if stage else 0
        if stage == 0:
            taken += BYTES_PER_PARAMETER * embedding.parameters + micro_batch * kept[0]
        if stage == n_devices - 1:
            taken += BYTES_PER_PARAMETER * (norm.parameters + last.parameters) + micro_batch * (kept[2] + kept[3] + last.n_bytes)
        if taken > device.memory:
            raise ValueError(
                f"stage {stage} needs {taken / 2**30:.2f} GiB without any block, and a {device.name} has {device.memory / 2**30:g}: "
                "use a device with more memory"
            )
        n_blocks += int((device.memory - taken) / of_a_block)
    return n_blocks
