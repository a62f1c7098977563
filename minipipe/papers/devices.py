"""The accelerators of GPipe's tables."""

from dataclasses import dataclass

from ..cluster import Link
from .hardware import HARDWARE


@dataclass(frozen=True)
class Device:
    """What a device is, as far as the tables need it; times in seconds.

    name: of the device.
    memory: bytes.
    peak: floating-point operations per second, as specified.
    share: of the peak that the products of a layer reach, everything else included; the only number here
        that is not specified or measured.
    link: between two devices.
    early: whether recomputation runs before the gradient is there; if not, it is a part of the backward.
    source: where the numbers come from.
    """

    name: str
    memory: int
    peak: float
    share: float
    link: Link
    early: bool
    source: str

    def seconds(self, macs):
        """The time of so many multiply-accumulates, each of them two operations."""
        return 2 * macs / (self.share * self.peak)


# A device is one core of a chip with two. AmoebaNet-D ran on TPUv2 and the Transformer on TPUv3 in table 1 of
# GPipe; table 2 is taken to say the same.
# share: a guess. Any from 0.05 to 1 moves a cell of the Transformer in table 2 by 0.5 % at most, and one of
#     AmoebaNet-D by 1.1 % for M = 32, by 9 % for fewer, since links are fast.
# link: without latency here, for want of a source.
# early: GPipe, section 2.3, and its row M = 1, which would be 1 for all K otherwise.
TPU_V2 = Device(
    "TPUv2 core", 8 << 30, 45e12 / 2, 0.5, HARDWARE["TPUv2 to TPUv2"].link(), True,
    "Google: 180 TFLOP/s for 4 chips",
)
TPU_V3 = Device(
    "TPUv3 core", 16 << 30, 123e12 / 2, 0.5, HARDWARE["TPUv3 to TPUv3"].link(), True,
    "Google Cloud: 123 TFLOP/s a chip",
)
# share: the one free number of table 3, chosen for AmoebaNet-D: its convolutions are narrow, and its pooling
#     and normalisation have no products at all. Any share moves the Transformer's cells by 1.3 % at most.
# link: blocking, since a copy through the host is work of the device's own.
# early: no, a choice between two that the Transformer's cells make; the paper does not say.
P100 = Device(
    "P100", 16 << 30, 9.3e12, 0.1, HARDWARE["GPU to GPU through the host"].link(blocking=True), False,
    "NVIDIA: PCIe, 9.3 TFLOP/s in float32, 16 GB",
)
