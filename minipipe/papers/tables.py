"""The cells of published tables, as they are printed, and the tables as text.

GPipe: Huang et al. 2018, arXiv 1811.06965 v5.
"""

from collections.abc import Iterable
from typing import NamedTuple


class Largest(NamedTuple):
    """A column of GPipe's table 1: the largest network that fits.

    Args:
        family: "AmoebaNet-D" or "Transformer".
        n_devices: K.
        pipeline: whether GPipe runs it, with recomputation.
        size: (L, D) of AmoebaNet-D, (L,) of the Transformer.
        parameters: their number.
        parameter_memory, activation_memory: on all devices together, in `MEMORY_UNIT`
            bytes.
    """

    family: str
    n_devices: int
    pipeline: bool
    size: tuple
    parameters: float
    parameter_memory: float
    activation_memory: float


# AmoebaNet-D: 224 x 224 images, mini-batches of 128, devices of 8 GB. Transformer: 1024 tokens of 32,000,
# mini-batches of 32, d = 2048, feed-forward 8192, 32 heads, devices of 16 GB. 12 bytes a parameter.
# In the column of the Transformer on one device without GPipe the paper prints 11.7G of parameters and 3.15G
# of activations. 282.2M parameters of 12 bytes are 3.15 GiB, so the two cells have changed places there,
# and are put back here.
TABLE_1 = (
    Largest("AmoebaNet-D", 1, False, (18, 208), 82e6, 1.05, 6.26),
    Largest("AmoebaNet-D", 1, True, (18, 416), 318e6, 3.8, 3.46),
    Largest("AmoebaNet-D", 2, True, (18, 544), 542e6, 6.45, 8.11),
    Largest("AmoebaNet-D", 4, True, (36, 544), 1.05e9, 12.53, 15.21),
    Largest("AmoebaNet-D", 8, True, (72, 512), 1.8e9, 24.62, 26.24),
    Largest("Transformer", 1, False, (3,), 282.2e6, 3.15, 11.7),
    Largest("Transformer", 1, True, (13,), 785.8e6, 8.8, 6.4),
    Largest("Transformer", 8, True, (103,), 5.3e9, 59.5, 50.9),
    Largest("Transformer", 32, True, (415,), 21.0e9, 235.1, 199.9),
    Largest("Transformer", 128, True, (1663,), 83.9e9, 937.9, 796.1),
)
# What the paper writes as GB for AmoebaNet-D is 10^9 bytes, and as G for the Transformer 2^30 bytes:
# then 12 bytes a parameter fit best.
MEMORY_UNIT = {"AmoebaNet-D": 1e9, "Transformer": 2 ** 30}

# {family: {(K, M): throughput}}. Table 2: AmoebaNet-D (18, 256) and a Transformer of 48 layers on TPUs,
# relative to K = 2, M = 1, "batch size was adjusted to fit memory if necessary". Table 3: AmoebaNet-D (18,
# 128) and a Transformer of 24 layers on P100s in one computer, without NVLink, relative to K = 2.
TABLE_2 = {
    "AmoebaNet-D": {
        (2, 1): 1, (4, 1): 1.13, (8, 1): 1.38,
        (2, 4): 1.07, (4, 4): 1.26, (8, 4): 1.72,
        (2, 32): 1.21, (4, 32): 1.84, (8, 32): 3.48,
    },
    "Transformer": {
        (2, 1): 1, (4, 1): 1.07, (8, 1): 1.3,
        (2, 4): 1.7, (4, 4): 3.2, (8, 4): 4.8,
        (2, 32): 1.8, (4, 32): 3.4, (8, 32): 6.3,
    },
}
TABLE_3 = {
    "AmoebaNet-D": {(2, 32): 1, (4, 32): 1.7, (8, 32): 2.7},
    "Transformer": {(2, 32): 1, (4, 32): 1.8, (8, 32): 3.3},
}


class Accuracy(NamedTuple):
    """A row of GPipe's table 4: images that one large network recognised after tuning.

    Args:
        dataset: its name.
        n_train, n_test, n_classes: its size.
        accuracy: the top-1 accuracy of GPipe's network, in percent of the test images.
        previous: the best that was published before, in percent.
    """

    dataset: str
    n_train: int
    n_test: int
    n_classes: int
    accuracy: float
    previous: float


# AmoebaNet-B (18, 512), 557 million parameters, for images of 480 x 480, trained on ImageNet, and from there
# tuned to each of the seven others. 84.4 stands in version 5 of the paper; the first version, and most that
# cite it, have 84.3 (97.0 top-5). The previous best of ImageNet is without data from elsewhere.
ACCURACIES = (
    Accuracy("ImageNet-2012", 1_281_167, 50_000, 1000, 84.4, 83.9),
    Accuracy("CIFAR-10", 50_000, 10_000, 10, 99.0, 98.5),
    Accuracy("CIFAR-100", 50_000, 10_000, 100, 91.3, 89.3),
    Accuracy("Stanford Cars", 8_144, 8_041, 196, 94.6, 94.8),
    Accuracy("Oxford Pets", 3_680, 3_369, 37, 95.9, 93.8),
    Accuracy("Food-101", 75_750, 25_250, 101, 93.0, 90.4),
    Accuracy("FGVC Aircraft", 6_667, 3_333, 100, 92.7, 92.9),
    Accuracy("Birdsnap", 47_386, 2_443, 500, 83.6, 80.2),
)


def text_of_hardware(rows: Iterable) -> str:
    """Return a line for each `Hardware` in `rows`: latency, bandwidth, time of 1 MB.

    >>> from minipipe.papers import HARDWARE
    >>> print(text_of_hardware([HARDWARE["Ethernet, 1 Gbit/s"]]))
                                       latency     bandwidth  1 MB takes
    Ethernet, 1 Gbit/s                  250 us    0.125 GB/s     8.25 ms
    """
    lines = [f"{'':32}{'latency':>10}{'bandwidth':>14}{'1 MB takes':>12}"]
    for row in rows:
        bandwidth = "" if row.bandwidth is None else f"{row.bandwidth / 1e9:,.3g} GB/s"
        whole = _with_unit(row.seconds(1e6)) if row.bandwidth else ""
        lines.append(f"{row.name:32}{_with_unit(row.latency):>10}{bandwidth:>14}{whole:>12}".rstrip())
    return "\n".join(lines)


def _with_unit(seconds):
    """Return `seconds` with three digits in s, ms, us or ns; "" if there are none."""
    if not seconds:
        return ""
    units = (1, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")
    unit, name = next((pair for pair in units if seconds >= pair[0]), units[-1])
    return f"{seconds / unit:.3g} {name}"
