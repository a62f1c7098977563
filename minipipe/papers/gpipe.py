"""GPipe's tables 1, 2 and 3, computed: the largest networks that fit, throughput.

`minipipe.papers.devices` says what is assumed of the devices.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..checks import whole_number
from ..cluster import Link
from ..description import Description, describe
from ..losses import SoftmaxCrossEntropy
from ..meta import MetaArray
from ..models import amoebanet_d, transformer
from ..order import Costs, simulate, with_recompute
from ..partitioning import equal_counts, histogram
from ..partitioning.partition import cut_into_stages
from ..parallel import Pipeline
from ..parallel.options import Cut
from ..planning.measuring import without_values
from ..schedules import gpipe
from .devices import P100, TPU_V2, TPU_V3, Accelerator
from .tables import MEMORY_UNIT, TABLE_1, TABLE_2, TABLE_3, Largest


# The two networks of GPipe's tables.

IMAGE = 224
N_TOKENS, WIDTH, N_HEADS, LENGTH = 32_000, 2048, 32, 1024
FAMILIES: dict[str, Callable] = {  # functions that make (layers, shape of a sample) from a size
    "AmoebaNet-D": lambda L, D: (amoebanet_d(L, D), (3, IMAGE, IMAGE)),
    "Transformer": lambda n_layers: (transformer(N_TOKENS, WIDTH, N_HEADS, n_layers), (LENGTH,)),
}


@lru_cache
def described(family: str, size: tuple[int, ...]) -> Description:
    """Return the `Description` of a network.

    Args:
        family: "AmoebaNet-D", for 224 x 224 images and 1000 classes; or "Transformer",
            with d = 2048, 32 heads, 32,000 tokens and sequences of 1024.
        size: (L, D) of AmoebaNet-D, (layers,) of the Transformer.

    >>> [described("Transformer", (L,)).parameters for L in (3, 13, 103)]
    [282182912, 785765632, 5318010112]
    """
    return describe(*FAMILIES[family](*size))


# GPipe's table 1, the largest network that fits, from `describe` and a run without values.
#
# Memory of a device that holds a stage, with N samples in M micro-batches:
#
#     parameters       12 bytes each: the value, its gradient, and RMSProp's mean square, in float32
#     activations      without recomputation, the caches of all N samples, O(N L); with it, N stage inputs,
#                      and the caches of one micro-batch of N / M, O(N + L/K N/M)
#
# Caches are what a stage of this package keeps for its backward, in float32: the arrays of its layers, and,
# in the last stage, of the loss. They are counted for each stage at full size, so that an array that layers
# share counts once. (A run holds one stage input fewer beside them: that of the micro-batch which it
# recomputes.) Assumed, because the paper does not say: M = 32, and stages cut by the histogram of their
# multiply-accumulates. Working memory of an operation, and messages, are not counted.

BYTES_PER_PARAMETER = 12
M = 32
N_SAMPLES = {"AmoebaNet-D": 128, "Transformer": 32}
ACCELERATOR_OF = {"AmoebaNet-D": TPU_V2, "Transformer": TPU_V3}


class Computed(NamedTuple):
    """A column of table 1: what is published, and what is computed here.

    Args:
        published: the column, a `Largest`.
        parameters: the number of parameters.
        parameter_memory, activation_memory: on all devices together, in the unit of the
            column.
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


def table_1() -> list[Computed]:
    """Return `Computed` for each column of the table."""
    return [_estimate(column) for column in TABLE_1]


@lru_cache
def _estimate(column):
    unit, network = MEMORY_UNIT[column.family], described(column.family, column.size)
    counts = histogram([row.macs for row in network.rows], column.n_devices)
    parameters, activations = bytes_of_stages(column.family, column.size, counts, M if column.pipeline else 1)
    computed = network.parameters, sum(parameters) / unit, sum(activations) / unit
    printed = column.parameters, column.parameter_memory, column.activation_memory
    errors = tuple(here / there - 1 for here, there in zip(computed, printed))
    fullest = max(map(sum, zip(parameters, activations)))
    return Computed(column, *computed, errors, fullest, ACCELERATOR_OF[column.family].memory)


def bytes_of_stages(
    family: str, size: tuple[int, ...], counts: Sequence[int], M: int
) -> tuple[list[int], list[int]]:
    """Return (bytes of parameters, bytes of activations), each a list over the stages.

    Args:
        family, size: which network, see `described`.
        counts: the number of layers of each stage.
        M: the micro-batches; of one, nothing is recomputed.
    """
    layers, shape = FAMILIES[family](*size)
    stages = cut_into_stages(described(family, size).rows, counts)
    parameters = [BYTES_PER_PARAMETER * sum(row.parameters for row in stage) for stage in stages]
    net = Pipeline(
        without_values(layers), SoftmaxCrossEntropy(), Cut(counts), 1, dtype="float32", count_bytes=True
    )
    m = N_SAMPLES[family] // M
    X: Any = np.zeros((*shape, m), int) if layers[0].takes == "tokens" else MetaArray((*shape, m), "float32")
    Y: Any = MetaArray((*described(family, size).rows[-1].output_shape, m))
    net.forward_backward(X, Y)
    caches = net.trace.peak_bytes(["caches"])
    if M == 1:
        return parameters, caches
    sent = [message.n_bytes for message in net.trace.messages if message.source < message.to]
    return parameters, [M * kept + of_one for kept, of_one in zip([X.nbytes, *sent], caches, strict=True)]


# GPipe's tables 2 and 3 by simulation: its schedule, with recomputation.
#
# A stage costs what its products cost. AmoebaNet-D is cut by the rule of GPipe's released code, the
# histogram, over the multiply-accumulates (MACs) of its layers. The Transformer is its blocks alone, equally
# many on each device: the last matrix, for 32,000 words, costs as much as 1.2 blocks, and a stage that had it
# as well would be slower than the paper's cells of K = 8. A micro-batch has as many samples as table 1
# gives 32 of them: 4 images, 1 sequence. A backward costs two forwards, a recomputation one.

MICRO_BATCH_SIZE = {"AmoebaNet-D": 4, "Transformer": 1}
CELLS = {"table 2": TABLE_2, "table 3": TABLE_3}
RUNS = {  # table -> {family: (device, size)}
    "table 2": {"AmoebaNet-D": (TPU_V2, (18, 256)), "Transformer": (TPU_V3, (48,))},
    "table 3": {"AmoebaNet-D": (P100, (18, 128)), "Transformer": (P100, (24,))},
}


class Compared(NamedTuple):
    """A published cell and the simulated one.

    Args:
        table, family, K, M: which cell.
        published, simulated: the throughputs, relative to K = 2 with the fewest
            micro-batches.

    Its error is simulated / published - 1.
    """

    table: str
    family: str
    K: int
    M: int
    published: float
    simulated: float

    @property
    def error(self) -> float:
        return self.simulated / self.published - 1


def table_2() -> list[Compared]:
    """Return the cells of table 2."""
    return _compared("table 2")


def table_3() -> list[Compared]:
    """Return the cells of table 3."""
    return _compared("table 3")


def _compared(table):
    return [
        Compared(table, family, K, M, published, speed_up(family, size, K, M, device, CELLS[table][family]))
        for family, (device, size) in RUNS[table].items()
        for (K, M), published in CELLS[table][family].items()
    ]


def speed_up(
    family: str, size: tuple[int, ...], K: int, M: int, device: Accelerator,
    cells: dict[tuple[int, int], float],
) -> float:
    """Return the throughput, as a multiple of that with the least (K, M) in `cells`.

    Args:
        family, size, K, M, device: as for `samples_per_second`.
        cells: {(K, M): a published throughput}.
    """
    base = samples_per_second(family, size, *min(cells), device)
    return samples_per_second(family, size, K, M, device) / base


@lru_cache
def samples_per_second(family: str, size: tuple[int, ...], K: int, M: int, device: Accelerator) -> float:
    """Return the throughput of GPipe's schedule, in samples per second.

    Args:
        family, size: which network, see `described`.
        K, M: stages and micro-batches.
        device: an `Accelerator`.
    """
    stages = stages_for(family, size, K)
    n = MICRO_BATCH_SIZE[family]
    seconds = [device.seconds(n * max(sum(row.macs for row in stage), 1)) for stage in stages]
    sent = [n * stage[-1].n_bytes for stage in stages]
    return n * M / makespan(seconds, M, device.early, sent, device.link)


def stages_for(family: str, size: tuple[int, ...], K: int) -> list:
    """Return the rows of the network (`family`, `size`) for each of K stages."""
    rows = [*described(family, size).rows]
    if family == "Transformer":
        rows = [row for row in rows if row.name.startswith("TransformerBlock")]
        return cut_into_stages(rows, equal_counts(len(rows), K))
    return cut_into_stages(rows, histogram([row.macs for row in rows], K))


def makespan(seconds: Sequence[float], M: int, early: bool, sent: Any = 0, link: Link = Link()) -> float:
    """Return the makespan of GPipe with M micro-batches.

    Args:
        seconds: the seconds of a micro-batch's forward in each stage; a backward takes
            twice as long.
        M: the micro-batches.
        early: whether recomputation runs before the gradient arrives.
        sent: the bytes of a message: a number for all stages, or one for each.
        link: the `Link` between two devices.
    """
    schedule = gpipe(len(seconds), M)
    if early:
        schedule = with_recompute(schedule)
    costs = Costs(F=seconds, B=[(2 if early else 3) * F for F in seconds], message_bytes=sent)
    return simulate(schedule, costs, link).makespan


def equal_stages(K: int, M: int) -> tuple[float, ...]:
    """Return the throughput of equal stages and free links, relative to K = 2, M = 1.

    It is a pair: one with recomputation before the gradient arrives, one after that.
    """
    K, M = whole_number("K", K, 1), whole_number("M", M, 1)
    return tuple(
        M * makespan([1 / 2] * 2, 1, early) / makespan([1 / K] * K, M, early) for early in (True, False)
    )
