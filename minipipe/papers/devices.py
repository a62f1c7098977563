"""The accelerators of GPipe's tables, and later ones."""

from dataclasses import dataclass

from ..cluster import Link
from .hardware import HARDWARE


@dataclass(frozen=True)
class Device:
    """What a device is, as far as the tables and a plan need it; times in seconds.

    name: of the device.
    memory: bytes.
    peak: floating-point operations per second with numbers of 32 bits, as specified. (TPUs round the factors
        of a product to 16 bits, whatever they are stored in.)
    share: of the peak that the products of a layer reach, everything else included; the only number here
        that is not specified or measured.
    link: between two devices.
    early: whether recomputation runs before the gradient is there; if not, it is a part of the backward.
    source: where the numbers come from.
    peak_16: the peak with numbers of 16 bits; 0: no other.
    """

    name: str
    memory: int
    peak: float
    share: float
    link: Link
    early: bool
    source: str
    peak_16: float = 0

    def peak_of(self, n_bytes):
        """The peak with numbers of so many bytes."""
        return self.peak_16 if n_bytes == 2 and self.peak_16 else self.peak

    def seconds(self, macs, n_bytes=4):
        """The time of so many multiply-accumulates, each of them two operations on numbers of n_bytes."""
        return 2 * macs / (self.share * self.peak_of(n_bytes))


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
    "NVIDIA: PCIe, 9.3 TFLOP/s in float32, 18.7 in float16, 16 GB", 18.7e12,
)

# share: what training a Transformer in 16 bits has reached, with all else that takes time: communication, the
#     optimizer and, for the H100, a pipeline's bubble; so it is a low estimate. In float32 it is taken to be
#     the same, for want of a source.
# link: NVLink in one direction, without latency where its row has none.
V100 = Device(
    "V100", 32 << 30, 15.7e12, 0.48, HARDWARE["NVLink 2, V100"].link(), False,
    "NVIDIA, Tesla V100 SXM2 data sheet: 15.7 TFLOP/s in float32, 125 with tensor cores, 32 GB; share: "
    "NVIDIA, Megatron-LM 1.0, 2020: 62.4 TFLOP/s, 48 % of the peak of one, for 1.2 billion parameters",
    125e12,
)
A100 = Device(
    "A100", 80 << 30, 19.5e12, 0.44, HARDWARE["NVLink 3, A100"].link(), False,
    "NVIDIA, A100 data sheet: 19.5 TFLOP/s in float32, 312 in bfloat16 with tensor cores, 80 GB; share: "
    "Narayanan et al. 2021, arXiv 2104.04473, table 1: 137 TFLOP/s, 44 %, for 1.7 billion parameters",
    312e12,
)
H100 = Device(
    "H100", 80 << 30, 67e12, 0.43, HARDWARE["NVLink 4, H100"].link(), False,
    "NVIDIA, H100 SXM data sheet: 67 TFLOP/s in float32, 989 in bfloat16 with tensor cores, dense, 80 GB; "
    "share: Llama team 2024, arXiv 2407.21783, table 4: 430 TFLOP/s, 43 %, for 405 billion parameters",
    989e12,
)
