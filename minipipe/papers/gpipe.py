"""GPipe's tables 2 and 3 by simulation: its schedule, with recomputation.

A stage costs what its products cost. AmoebaNet-D is cut by the rule of GPipe's released code, the histogram,
over the multiply-accumulates (MACs) of its layers. The Transformer is its blocks alone, equally many on each
device: the last matrix, for 32,000 words, costs as much as 1.2 blocks, and a stage that had it as well would
be slower than the cells of K = 8 leave room for; `other_assumptions` shows that. A micro-batch has as many
samples as table 1 gives 32 of them: 4 images, 1 sequence. A backward costs two forwards, a recomputation one.
`minipipe.papers.devices` says what is assumed of the devices.
"""

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from ..arguments import argument, arguments
from ..order import Costs, simulate, with_recompute
from ..partitioning import equal_counts, histogram
from ..partitioning.partition import cut
from ..schedules import gpipe
from .devices import P100, TPU_V2, TPU_V3
from .networks import amoebanet, transformer_family
from .tables import TABLE_2, TABLE_3, TORCHGPIPE

WITH_SOFTMAX = "Transformer with its last matrix"
SAMPLES = {"AmoebaNet-D": 4, "Transformer": 1, WITH_SOFTMAX: 1}
BOUNDS = {"table 2": 0.07, "table 3": 0.05}  # of relative errors that need no reason


class Compared(NamedTuple):
    """A published cell beside the simulated one, relative to that of K = 2 with the fewest micro-batches.

    table, family, K, M: which cell.
    published, simulated: the throughputs.
    reason: of an error that is larger than its table's bound in `BOUNDS`, "" otherwise.

    Its error is simulated / published - 1.
    """

    table: str
    family: str
    K: int
    M: int
    published: float
    simulated: float
    reason: str

    @property
    def error(self):
        return self.simulated / self.published - 1


def table_2():
    """The cells of table 2, as a list of `Compared`."""
    return _compared("table 2", TABLE_2, {"AmoebaNet-D": (TPU_V2, (18, 256)), "Transformer": (TPU_V3, (48,))})


def table_3():
    """The cells of table 3, as a list of `Compared`."""
    return _compared("table 3", TABLE_3, {"AmoebaNet-D": (P100, (18, 128)), "Transformer": (P100, (24,))})


def torchgpipe_table():
    """What torchgpipe measured, beside the simulation of table 2's AmoebaNet-D; no errors are explained."""
    ours = {(cell.K, cell.M): cell.simulated for cell in table_2() if cell.family == "AmoebaNet-D"}
    return [
        Compared("torchgpipe", "AmoebaNet-D", K, M, published, ours[K, M], "")
        for (K, M), published in TORCHGPIPE.items()
    ]


def other_assumptions():
    """What the Transformer's cells of M = 32 would be otherwise: a list of `Compared`.

    The reason of each is the assumption.
    """
    by_histogram = "the last matrix counts, cut by the histogram"
    early = "recomputation before the gradient is there"
    runs = [
        ("table 2", TABLE_2["Transformer"], WITH_SOFTMAX, (48,), TPU_V3, by_histogram),
        ("table 3", TABLE_3["Transformer"], WITH_SOFTMAX, (24,), P100, by_histogram),
        ("table 3", TABLE_3["Transformer"], "Transformer", (24,), replace(P100, early=True), early),
    ]
    return [
        Compared(
            table, family, K, 32, cells[K, 32], speed_up(family, size, K, 32, device, cells), assumption
        )
        for table, cells, family, size, device, assumption in runs
        for K in (2, 4, 8)
    ]


def _compared(table, published, runs):
    compared = []
    for family, cells in published.items():
        device, size = runs[family]
        for (K, M), value in cells.items():
            cell = Compared(table, family, K, M, value, speed_up(family, size, K, M, device, cells), "")
            if abs(cell.error) > BOUNDS[table]:
                cell = cell._replace(reason=_reason(family, size, K, M, value, cells))
            compared.append(cell)
    return compared


def speed_up(family, size, K, M, device, cells):
    """The throughput, relative to that of the fewest stages and micro-batches among the published `cells`."""
    base = samples_per_second(family, size, *min(cells), device)
    return samples_per_second(family, size, K, M, device) / base


@lru_cache
def samples_per_second(family, size, K, M, device):
    """The throughput of GPipe's schedule.

    family, size: which network.
    K, M: stages and micro-batches.
    device: a `Device`.
    """
    stages = stages_for(family, size, K)
    n = SAMPLES[family]
    seconds = [device.seconds(n * max(sum(row.macs for row in stage), 1)) for stage in stages]
    sent = [n * stage[-1].n_bytes for stage in stages]
    return n * M / _makespan(seconds, M, device.early, sent, device.link)


def stages_for(family, size, K):
    """The rows of each of K stages."""
    if family == "Transformer":
        rows = [row for row in transformer_family(*size).rows if row.name.startswith("TransformerBlock")]
        return cut(rows, equal_counts(len(rows), K))
    rows = (transformer_family if family == WITH_SOFTMAX else amoebanet)(*size).rows
    return cut(rows, histogram([row.macs for row in rows], K))


def share_of_slowest(family, size, K):
    """The MACs of the stage with the most, as a share of all."""
    macs = [sum(row.macs for row in stage) for stage in stages_for(family, size, K)]
    return max(macs) / sum(macs)


def _makespan(seconds, M, early, sent=0, link=None):
    """Of GPipe's schedule; `seconds` is the forward of a micro-batch, stage by stage."""
    schedule = gpipe(len(seconds), M)
    if early:
        schedule = with_recompute(schedule)
    costs = Costs(F=seconds, B=[(2 if early else 3) * F for F in seconds], message_bytes=sent)
    return (simulate(schedule, costs) if link is None else simulate(schedule, costs, link)).makespan


def _relative(share, K, M, base_share):
    """Throughput relative to K = 2, M = 1, if the first stage takes `share` of the time.

    The other stages share the rest equally.
    """
    def seconds(K, share):
        return [share] + [(1 - share) / (K - 1)] * (K - 1)

    return M * _makespan(seconds(2, base_share), 1, early=True) / _makespan(seconds(K, share), M, early=True)


def equal_stages(K, M):
    """Throughput relative to K = 2, M = 1 if all stages cost the same and messages nothing.

    A pair: with recomputation before the gradient is there, and when it is.
    """
    return _equal_stages(*arguments(K=K, M=M))


@lru_cache
def _equal_stages(K, M):
    return tuple(
        M * _makespan([1 / 2] * 2, 1, early) / _makespan([1 / K] * K, M, early) for early in (True, False)
    )


def slowest_share(K, M, published, base_share=None):
    """The share of a network's time that the slowest of K stages takes, if that explains a cell of table 2.

    K, M: stages and micro-batches of the cell.
    published: the cell, relative to K = 2, M = 1.
    base_share: the same for two stages; None where K is 2.

    By bisection.
    """
    K, M, published = arguments(K=K, M=M, published=published)
    if K < 2:
        raise ValueError(f"K={K}: throughputs are relative to 2 stages, so use at least 2")
    base_share = None if base_share is None else argument("base_share", base_share)
    return _slowest_share(K, M, published, base_share)


@lru_cache
def _slowest_share(K, M, published, base_share):
    low, high = 1 / K, 1 - 1e-9
    for _ in range(30):
        share = (low + high) / 2
        slower = _relative(share, K, M, share if base_share is None else base_share) < published
        low, high = (low, share) if slower else (share, high)
    return share


def _reason(family, size, K, M, published, cells):
    best = max(equal_stages(K, M))
    if published > best:
        return f"equal stages and free links give {best:.2f}; batch sizes were adjusted"
    two = slowest_share(2, 32, cells[2, 32])
    share = two if K == 2 else slowest_share(K, 32, cells[K, 32], two)
    macs, time = (f"{100 * part:.0f} %" for part in (share_of_slowest(family, size, K), share))
    if M == 32:
        return f"slowest stage: {macs} of the MACs; {time} of the time would give this cell"
    return (
        f"slowest stage: {macs} of the MACs; {time} of the time give {_relative(share, K, M, two):.2f}; "
        "batch sizes were adjusted"
    )
