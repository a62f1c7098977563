"""The accelerators of GPipe's tables, and the hardware between and around them."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from ..cluster import Link


# How long data takes from one place to another: numbers that every programmer should know.

DEAN = "J. Dean, talk at Stanford, 2010, \"Numbers everyone should know\""
KIRSCH = "A. Kirsch, 2023, \"Numbers everyone (programmer) should know\""
MICROWAY = "Microway, \"NVIDIA Tesla P100 PCI-E 16GB up close\", bandwidthTest"
P2P_TEST = "published runs of NVIDIA's p2pBandwidthLatencyTest on V100s"
TPU = "Jouppi et al. 2020, Communications of the ACM 63(7)"
D2L = "Zhang et al., Dive into Deep Learning, section 13.4, Hardware"


class Hardware(NamedTuple):
    """The latency and bandwidth of what sends or reads; None if the source has none.

    Args:
        name: what it is.
        latency: seconds to the first byte.
        bandwidth: bytes per second after that.
        how: "rule of thumb", "specified" by the maker in one direction, or "measured".
        source: where the numbers are published.
    """

    name: str
    latency: float | None
    bandwidth: float | None
    how: str
    source: str

    def seconds(self, n_bytes: float) -> float:
        """Return the seconds until `n_bytes` arrive; an unknown number counts as 0."""
        return (self.latency or 0) + (n_bytes / self.bandwidth if self.bandwidth else 0)

    def link(self, blocking: bool = False) -> Link:
        """Return a `Link` of this kind between two devices, in ticks of a second.

        >>> HARDWARE["Ethernet, 1 Gbit/s"].link()
        Link(latency=0.00025, bandwidth=125000000.0, blocking=False, rendezvous=False)
        """
        return Link(self.latency or 0, math.inf if self.bandwidth is None else self.bandwidth, blocking)


_ROWS = (
    Hardware("L1 cache", 0.5e-9, None, "rule of thumb", DEAN),
    Hardware("main memory, DDR5", 100e-9, 50e9, "rule of thumb", KIRSCH),
    Hardware("HBM2 of a P100", None, 732e9, "specified", "NVIDIA, Tesla P100 data sheet"),
    Hardware(
        "NVLink 2, V100", 2e-6, 150e9, "specified",
        f"NVIDIA, Tesla V100: 300 GB/s both ways; latency: {P2P_TEST}",
    ),
    Hardware("PCIe 3.0 x16", None, 15.75e9, "specified", "PCI-SIG: 8 GT/s, 16 lanes, 128b/130b"),
    Hardware(
        "GPU to GPU through the host",
        18e-6,
        1 / (1 / 12.8e9 + 1 / 11.7e9),
        "measured",
        f"12.8 GB/s from a P100 and then 11.7 to one: {MICROWAY}; latency: {P2P_TEST}, peer access off",
    ),
    Hardware("TPUv2 to TPUv2", None, 62e9, "specified", f"{TPU}: 496 Gbit/s a link and direction"),
    Hardware("TPUv3 to TPUv3", None, 82e9, "specified", f"{TPU}: 656 Gbit/s a link and direction"),
    Hardware(
        "InfiniBand HDR", 0.6e-6, 25e9, "specified",
        "Lenovo Press LP1195, ConnectX-6: 200 Gbit/s, below 600 ns",
    ),
    Hardware(
        "Ethernet, 1 Gbit/s", 250e-6, 125e6, "rule of thumb", f"{DEAN}: half a round trip in a data centre"
    ),
    Hardware("Ethernet, 10 Gbit/s", 10e-6, 1e9, "rule of thumb", D2L),
    Hardware("SSD, NVMe", 150e-6, 10e9, "rule of thumb", f"{KIRSCH}; latency: C. Carruth, talk of 2014"),
    Hardware(
        "California to the Netherlands", 75e-3, None, "rule of thumb", f"{DEAN}: half of there and back"
    ),
)
HARDWARE = {row.name: row for row in _ROWS}


# The accelerators.

@dataclass(frozen=True)
class Accelerator:
    """The facts of a device that the tables need; times in seconds.

    Args:
        name: its name.
        memory: bytes.
        peak: floating-point operations per second with numbers of 32 bits, as
            specified. (TPUs round the factors of a product to 16 bits, whatever they
            are stored in.)
        share: the share of `peak` that the products of a layer reach, everything else
            included; the only number here that is not specified or measured.
        link: the `Link` between two devices.
        early: whether recomputation runs before the gradient arrives; if not, it is a
            part of the backward.
        source: where the numbers come from.
    """

    name: str
    memory: int
    peak: float
    share: float
    link: Link
    early: bool
    source: str

    def seconds(self, macs: float) -> float:
        """Return the seconds of `macs` multiply-accumulates, of two operations each."""
        return 2 * macs / (self.share * self.peak)


# A device is one core of a chip with two. AmoebaNet-D ran on TPUv2 and the Transformer on TPUv3 in table 1 of
# GPipe; table 2 is taken to say the same.
# share: a guess. Any from 0.05 to 1 moves a cell of the Transformer in table 2 by 0.5 % at most, and one of
#     AmoebaNet-D by 1.1 % for M = 32, by 9 % for fewer, since links are fast.
# link: without latency here, for want of a source.
# early: GPipe, section 2.3, and its row M = 1, which would be 1 for all K otherwise.
TPU_V2 = Accelerator(
    "TPUv2 core", 8 << 30, 45e12 / 2, 0.5, HARDWARE["TPUv2 to TPUv2"].link(), True,
    "Google: 180 TFLOP/s for 4 chips",
)
TPU_V3 = Accelerator(
    "TPUv3 core", 16 << 30, 123e12 / 2, 0.5, HARDWARE["TPUv3 to TPUv3"].link(), True,
    "Google Cloud: 123 TFLOP/s a chip",
)
# share: the one free number of table 3, chosen for AmoebaNet-D: its convolutions are narrow, and its pooling
#     and normalisation have no products at all. Any share moves the Transformer's cells by 1.3 % at most.
# link: blocking, since a copy through the host is work of the device's own.
# early: no, a choice between two that the Transformer's cells make; the paper does not say.
P100 = Accelerator(
    "P100", 16 << 30, 9.3e12, 0.1, HARDWARE["GPU to GPU through the host"].link(blocking=True), False,
    "NVIDIA: PCIe, 9.3 TFLOP/s in float32, 16 GB",
)
