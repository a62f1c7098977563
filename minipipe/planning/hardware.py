"""GPUs and nodes of GPUs: the seconds of a matrix product, and of messages."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import ceil, inf, log2
from typing import Any

from ..checks import checked_name, items_of, real_number, shown, truth, whole_number

# Z = A W^T with A (rows, d) and W (n, d) on one NVIDIA H200, bf16, PyTorch 2.11 with CUDA 13, November 2026,
# medians of three: {(d, n): {rows: (F, I, W)}} in 10^12 operations a second. F = A W^T, I = dZ W, W = dZ^T A.
MEASURED = {
    (1024, 4096): {
        16: (10, 9, 7), 128: (80, 68, 79), 512: (337, 366, 317), 1024: (590, 625, 590),
        2048: (668, 706, 700), 8192: (627, 700, 685),
    },
    (4096, 4096): {
        64: (150, 173, 140), 256: (478, 521, 405), 512: (693, 701, 484), 1024: (697, 678, 586),
        4096: (687, 688, 684),
    },
    (4096, 16384): {
        16: (61, 60, 49), 64: (237, 223, 199), 128: (438, 403, 313), 256: (693, 563, 407),
        512: (726, 658, 528), 1024: (669, 705, 601), 4096: (639, 700, 662),
    },
    (8192, 28672): {16: (63, 69, 55), 128: (482, 418, 343), 512: (673, 688, 557), 4096: (681, 692, 677)},
}
MEASURED_TOP = 690e12  # operations per second of large products on that GPU
LARGEST = 10**9  # the largest size or count, so that no product of several exceeds a float
MOST = {"layers": 10_000, "heads": 10_000}  # numbers whose divisors a plan tries in turn


def checked(thing: Any, least: Any = (), infinite: Sequence[str] = (), below_one: Sequence[str] = ()) -> None:
    """Check the fields of a frozen dataclass by their types; make numbers Python's.

    Args:
        thing: the object. Its numbers must be finite and above 0, but for:
        least: {name of a field: the smallest value allowed}.
        infinite: names of fields that may be infinite.
        below_one: names of shares, which are at most 1.

    Raises:
        ValueError: a field is wrong; the message is about the first one.
    """
    for field in fields(thing):
        value, name = getattr(thing, field.name), f"{type(thing).__name__}.{field.name}"
        lowest = dict(least).get(field.name)
        if field.type is str:
            checked_name(name, value)
        elif field.type is bool:
            value = truth(name, value)
        elif field.type is int:
            value = whole_number(name, value, 1 if lowest is None else lowest, MOST.get(field.name, LARGEST))
        elif field.type is float:
            value = float(real_number(
                name, value, least=lowest, above=0 if lowest is None else None,
                most=1 if field.name in below_one else None, infinite=field.name in infinite,
            ))
        object.__setattr__(thing, field.name, value)


@dataclass(frozen=True)
class GPU:
    """The speed and memory of one GPU.

    Args:
        name: its name in `GPUS`.
        peak: operations a second of its matrix units, as specified.
        memory: bytes.
        hbm: bytes a second of its memory, as specified.
        top: share of `peak` that the largest products reach in a training. Fitted to
            published runs, one for each type of GPU.
        flash: shares of `peak` that fused attention reaches, forward and backward.
        hbm_share: share of `hbm` that elementwise kernels reach.
        reserved: bytes that CUDA, NCCL and the allocator keep.
    """

    name: str
    peak: float
    memory: float
    hbm: float
    top: float
    flash: tuple
    hbm_share: float = 0.85
    reserved: float = 2e9

    def __post_init__(self):
        checked(self, least={"reserved": 0}, below_one=("top", "hbm_share"))
        shares = items_of(self.flash)
        if shares is None or len(shares) != 2:
            raise ValueError(f"GPU.flash={shown(self.flash)} must be two shares: (forward, backward)")
        shares = (real_number("GPU.flash", share, above=0, most=1) for share in shares)
        object.__setattr__(self, "flash", tuple(map(float, shares)))

    @property
    def bandwidth(self) -> float:
        """Bytes a second that elementwise kernels reach."""
        return self.hbm_share * self.hbm


GPUS = {
    "h100": GPU("h100", 989e12, 80e9, 3.35e12, 0.56, (0.50, 0.42)),
    "h100-500w": GPU("h100-500w", 989e12, 80e9, 3.35e12, 0.45, (0.50, 0.42)),
    "h200": GPU("h200", 989e12, 141e9, 4.8e12, 0.56, (0.50, 0.42)),
    "a100": GPU("a100", 312e12, 80e9, 2.04e12, 0.75, (0.58, 0.52)),
}
LINKS = {"a100": (300e9, 25e9)}  # (NVLink, NIC) that come with a GPU
OTHER_LINKS = 450e9, 50e9


@dataclass(frozen=True)
class Nodes:
    """Nodes of GPUs: NVLink inside a node, a NIC for each GPU between nodes.

    Args:
        nodes: the number of nodes.
        gpus: GPUs in each node.
        gpu: the `GPU`.
        nvlink: bytes a second of one GPU in one direction.
        nic: bytes a second outward of one GPU in one direction.
        rails: NICs of a node that one exchange uses at once.
        nvlink_share, nic_share: share of the specified rate that exchanges reach.
        nvlink_latency, nic_latency: seconds of a step of an exchange.
    """

    nodes: int
    gpus: int
    gpu: GPU
    nvlink: float
    nic: float
    rails: float = inf
    nvlink_share: float = 0.75
    nic_share: float = 0.80
    nvlink_latency: float = 3e-6
    nic_latency: float = 10e-6

    def __post_init__(self):
        if not isinstance(self.gpu, GPU):
            raise ValueError(f"Nodes.gpu={shown(self.gpu)} must be a GPU: one of GPUS, or GPU(...)")
        checked(
            self, least={"rails": 1, "nvlink_latency": 0, "nic_latency": 0},
            infinite=("nvlink", "nic", "rails"), below_one=("nvlink_share", "nic_share"),
        )

    @property
    def n(self) -> int:
        """GPUs in all nodes."""
        return self.nodes * self.gpus

    @property
    def inward(self) -> float:
        """Bytes a second of a GPU to others of its node."""
        return self.nvlink_share * self.nvlink

    @property
    def outward(self) -> float:
        """Bytes a second of a GPU to another node."""
        return self.nic_share * self.nic


def between(x: float, points: list[tuple[float, float]]) -> float:
    """Return the value at `x` on lines through sorted `points`, flat outside."""
    i = bisect_right(points, (x, inf))
    if i in (0, len(points)):
        return points[min(i, len(points) - 1)][1]
    (x0, y0), (x1, y1) = points[i - 1], points[i]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def _columns(value):
    """Return [(log2 size, [(log2 rows, log2 speed)])], speeds by `MEASURED_TOP`.

    A product with more rows never takes less time, so a speed is at most rows / the
    longest time of fewer rows.
    """
    columns = []
    for (d, n), speeds in MEASURED.items():
        column, longest = [], 0.0
        for rows, of_rows in speeds.items():
            longest = max(longest, rows / value(of_rows))
            column.append((log2(rows), log2(rows / longest * 1e12 / MEASURED_TOP)))
        columns.append((log2(d * n), column))
    return columns


# F and I are averaged: the F of a product in x out is the I of one out x in.
SPEEDS = {
    False: _columns(lambda speeds: (speeds[0] + speeds[1]) / 2), True: _columns(lambda speeds: speeds[2]),
}
SMALLEST_SIZE, FEWEST_ROWS = 1024 * 4096, 16


def product(gpu: GPU, rows: float, size: float, weight: bool = False) -> float:
    """Return the seconds of a product: 2 rows size / (top peak shape).

    shape is the speed of a product of these rows and parameters, divided by that of the
    largest: `MEASURED`, with straight lines between the log2 of rows, size and speed,
    flat outside. Products that take equal times are equally efficient, so for a GPU
    that is x times slower, rows are multiplied by x. A smaller product than the
    smallest that was measured takes the time of that one.

    Args:
        gpu: the `GPU`.
        rows: tokens.
        size: parameters of the matrix on this GPU, in x out / T.
        weight: whether it is W = dZ^T A, which needs more rows.

    Source: measured, see `MEASURED`.
    """
    speed = gpu.top * gpu.peak
    slower = MEASURED_TOP / speed
    rows, size = max(rows, FEWEST_ROWS / slower), max(size, SMALLEST_SIZE)
    row = log2(rows * slower)
    shape = 2 ** between(log2(size), [(x, between(row, column)) for x, column in SPEEDS[weight]])
    return 2 * rows * size / (speed * shape)


def half_ring(nodes: Nodes, n_bytes: float, n: int, n_in: int) -> float:
    """Return the seconds of a reduce-scatter or an all-gather, half of an all-reduce.

    (n_in - 1) (B / n_in / NVLink + alpha)
    + (n_out - 1) / n_out B / min(n_in, rails) / NIC + ceil(log2 n_out) alpha',
    with n = n_in n_out.

    Args:
        nodes: the `Nodes`.
        n_bytes: B, of the whole array.
        n: GPUs that take part.
        n_in: those of them in one node.

    Source: Thakur, Rabenseifner and Gropp 2005, in two levels.
    """
    seconds = (n_in - 1) * (n_bytes / n_in / nodes.inward + nodes.nvlink_latency)
    if n > n_in:
        n_out = n / n_in
        share = n_bytes / min(n_in, nodes.rails)
        seconds += (n_out - 1) / n_out * share / nodes.outward + ceil(log2(n_out)) * nodes.nic_latency
    return seconds
