"""GPipe's tables as text: each published cell, ours, and what explains the error."""

from functools import lru_cache
from math import inf

from minipipe.papers import TPU_V3, Compared, equal_stages, table_2
from minipipe.papers.gpipe import CELLS, RUNS, M, bytes_of_stages, makespan, stages_for

BOUNDS = {"table 2": 0.07, "table 3": 0.05}  # of relative errors that need no reason
GIB = 2 ** 30

# The same network as in table 2, run by torchgpipe on other devices (README of kakaobrain/torchgpipe,
# "AmoebaNet-D (18, 256) Speed Benchmark"), relative to K = 2, M = 1; its cut is by hand.
TORCHGPIPE = {
    (2, 1): 1, (4, 1): 1.006, (8, 1): 0.932,
    (2, 4): 1.546, (4, 4): 1.680, (8, 4): 2.625,
    (2, 32): 1.780, (4, 32): 2.711, (8, 32): 4.966,
}


def blocks_that_fit(devices):
    """Return the most Transformer blocks that `devices` TPUv3 hold, as for table 1.

    The first device also holds the embedding, the last one the final norm, the last
    Linear and the loss's cache. A block takes what the second block of a stage adds.
    """
    found = []
    for n in (1, 2):  # blocks in each stage
        counts = [n] * devices
        counts[0] += 1   # the embedding
        counts[-1] += 2  # the final norm, the last Linear
        parameters, activations = bytes_of_stages("Transformer", (n * devices,), counts, M)
        found.append(map(sum, zip(parameters, activations)))
    n_blocks = 0
    for one, two in zip(*found):
        of_a_block = two - one
        others = one - of_a_block
        n_blocks += int((TPU_V3.memory - others) / of_a_block)
    return n_blocks


def torchgpipe_table():
    """Return what torchgpipe measured, with our simulation of table 2's AmoebaNet-D."""
    ours = {(cell.K, cell.M): cell.simulated for cell in table_2() if cell.family == "AmoebaNet-D"}
    return [
        Compared("torchgpipe", "AmoebaNet-D", K, M, published, ours[K, M])
        for (K, M), published in TORCHGPIPE.items()
    ]


def share_of_slowest(family, size, K):
    """Return the largest of K stages' share in the MACs of `family` and `size`."""
    macs = [sum(row.macs for row in stage) for stage in stages_for(family, size, K)]
    return max(macs) / sum(macs)


def relative_throughput(share, K, M, base_share):
    """Return the throughput over that of K = 2, M = 1, with `base_share` for stage 0.

    The other stages share the rest equally.
    """
    def seconds(K, share):
        return [share] + [(1 - share) / (K - 1)] * (K - 1)

    return M * makespan(seconds(2, base_share), 1, early=True) / makespan(seconds(K, share), M, early=True)


@lru_cache
def slowest_share(K, M, published, base_share=None):
    """Return the slowest stage's share of time that would explain a cell of table 2.

    K, M: stages and micro-batches of the cell.
    published: the cell, relative to K = 2, M = 1.
    base_share: the same for two stages; None where K is 2.

    By bisection.
    """
    low, high = 1 / K, 1 - 1e-9
    for _ in range(30):
        share = (low + high) / 2
        slower = relative_throughput(share, K, M, share if base_share is None else base_share) < published
        low, high = (low, share) if slower else (share, high)
    return share


def reason_of(cell):
    """Return what explains the error of `cell` beyond its bound in `BOUNDS`, or ""."""
    if abs(cell.error) <= BOUNDS.get(cell.table, inf):
        return ""
    K, M, cells = cell.K, cell.M, CELLS[cell.table][cell.family]
    best = max(equal_stages(K, M))
    if cell.published > best:
        return f"equal stages and free links give {best:.2f}; batch sizes were adjusted"
    two = slowest_share(2, 32, cells[2, 32])
    share = two if K == 2 else slowest_share(K, 32, cells[K, 32], two)
    _, size = RUNS[cell.table][cell.family]
    macs, time = (f"{100 * part:.0f} %" for part in (share_of_slowest(cell.family, size, K), share))
    if M == 32:
        return f"slowest stage: {macs} of the MACs; {time} of the time would give this cell"
    here = relative_throughput(share, K, M, two)
    return f"slowest stage: {macs} of the MACs; {time} of the time give {here:.2f}; batch sizes were adjusted"


def text_of_cells(cells, bound=None):
    """Return a line for each of `cells`: published, simulated, error, explanation.

    A star marks what is off by more than `bound`.

    >>> from minipipe.papers import table_3
    >>> print(text_of_cells(table_3()[3:], bound=0.03))
                  K   M  published  simulated     error
    Transformer   2  32          1      1.000    +0.0 %
    Transformer   4  32        1.8      1.885    +4.7 %  *
    Transformer   8  32        3.3      3.380    +2.4 %
    * off by more than 3 %
    """
    reasons = {cell: reason_of(cell) for cell in cells}
    lines = [f"{'':13}{'K':>2}{'M':>4}{'published':>11}{'simulated':>11}{'error':>10}"]
    if any(reasons.values()):
        lines[0] += "    explained by"
    for cell, reason in reasons.items():
        mark = "  " if bound is None or abs(cell.error) <= bound else "* "
        numbers = (
            f"{cell.K:>2}{cell.M:>4}{cell.published:>11g}{cell.simulated:>11.3f}{100 * cell.error:>+8.1f} %"
        )
        lines.append(f"{cell.family:13}{numbers}  {mark}{reason}".rstrip())
    if bound is not None:
        lines.append(f"* off by more than {100 * bound:g} %")
    return "\n".join(lines)


def text_of_largest(estimates):
    """Return a line for each of `estimates`, the `Computed` of table 1.

    It has parameters, their memory, activations, and the fullest device.
    """
    memory = f"{'published':>10}{'here':>8}{'error':>9}"
    lines = [
        f"{'':32}{'parameters (millions)':^29}"
        f"{'parameter memory (GB)':^27}{'activations (GB)':^28}{'fullest':>9}",
        f"{'network':28}{'K':>4}{'published':>11}{'here':>10}{'error':>8}{memory}{memory}{'device':>9}",
    ]
    for estimate in estimates:
        column = estimate.published
        size = column.size if len(column.size) > 1 else column.size[0]
        name = f"{column.family} {size}" if column.pipeline else f"{column.family} {size}, alone"
        errors = [f"{100 * error:+.1f} %" for error in estimate.errors]
        numbers = f"{column.parameters / 1e6:>11g}{estimate.parameters / 1e6:>10.1f}{errors[0]:>8}"
        weights = f"{column.parameter_memory:>10g}{estimate.parameter_memory:>8.2f}{errors[1]:>9}"
        activations = f"{column.activation_memory:>10g}{estimate.activation_memory:>8.2f}{errors[2]:>9}"
        sizes = f"{numbers}{weights}{activations}{estimate.fullest / GIB:>9.1f}"
        lines.append(f"{name:28}{column.n_devices:>4}{sizes}")
    return "\n".join(lines)
