"""Bytes in other precisions, counted and not computed in; and the devices whose speed they decide."""

import numpy as np
import pytest
from memory.test_foresight import CONNECTED, LAYERS, LOSS, assert_same_bytes

import minipipe as mp
from minipipe.papers import A100, H100, P100, TPU_V2, TPU_V3, V100
from minipipe.planning import PRECISIONS, Precision
from minipipe.schedules import build

ADAM = mp.Adam()


def counted(precision, layers=LAYERS, m=6, optimizer=ADAM, **options):
    return mp.footprints(layers, LOSS, 2, (5,), m, optimizer=optimizer, precision=precision, **options)


def numbers_of(layers):
    return sum(row.parameters for row in mp.describe(layers, (5,)).rows)


def test_sixteen_bytes_for_each_of_7_5_billion_parameters():
    """ZeRO's example: 120 GB, of parameters 15, of gradients 15, and of the optimizer's state 90."""
    layers = [mp.Linear(74_999, 100_000)]
    network = layers, mp.MeanSquaredError()
    (stage,) = mp.footprints(*network, 1, (74_999,), 1, optimizer=ADAM, precision="mixed")
    parts = stage.parameters, stage.gradients, stage.optimizer_state
    assert parts == (15 * 10**9, 15 * 10**9, 90 * 10**9) and sum(parts) == 120 * 10**9
    for limit in (120 * 10**9, 120 * 10**9 - 1):  # at the end of the backward no activation is left
        (found,) = mp.what_fits(
            *network, (74_999,), 1, limit, [1], [1], ["gpipe"], optimizer=ADAM, precision="mixed"
        )
        assert (found.precision, found.peak_bytes) == ("mixed", 120 * 10**9)
        assert found.fits == (limit == 120 * 10**9)


@pytest.mark.parametrize(("optimizer", "n_memories"), [
    (None, 0), (mp.SGD(0.1), 0), (mp.SGD(0.1, momentum=0.9), 1), (ADAM, 2),
])
def test_mixed_precision_keeps_parameters_and_moments_in_32_bits(
    optimizer, n_memories
):
    """Of all that is trained; a batch norm's running mean and variance are not."""
    n = numbers_of(LAYERS)
    stages = counted("mixed", optimizer=optimizer)
    assert sum(stage.optimizer_state for stage in stages) == (4 + 4 * n_memories) * n
    assert sum(stage.gradients for stage in stages) == 2 * n
    assert PRECISIONS["mixed"].of_a_parameter(n_memories) == 2 + 2 + 4 + 4 * n_memories


@pytest.mark.parametrize("layers", [LAYERS, CONNECTED], ids=["layers", "connected"])
def test_all_else_is_what_a_run_in_16_bits_holds_to_the_byte(layers):
    """NumPy's float16 takes the 2 bytes of every such format."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((5, 16)).astype(np.float16), mp.one_hot(rng.integers(0, 3, 16), 3, np.float16)
    pipe = mp.Pipeline(layers, LOSS, 2, 4, "1f1b", dtype=np.float16)
    pipe.forward_backward(X, Y)
    sizes = [of_stage._replace(optimizer_state=0) for of_stage in counted("mixed", layers, 4)]
    assert_same_bytes(mp.simulate(build("1f1b", 2, 4), footprints=sizes), pipe.trace)


def test_a_precision_of_one_kind_is_that_of_a_run_in_this_dtype():
    for name in ("float32", "float64"):
        assert counted(name) == counted(None, dtype=name)
        assert {stage.precision for stage in counted(name)} == {name}
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((5, 6)).astype(np.float32), mp.one_hot(rng.integers(0, 3, 6), 3, np.float32)
    measured = mp.measure(LAYERS, LOSS, 2, X, Y, dtype=np.float32, optimizer=ADAM, n_rounds=1).footprints
    assert counted("float32") == measured


def test_a_precision_of_ones_own():
    """Gradients and moments in 16 bits, nothing beside: 8 bytes a parameter with Adam."""
    lean = Precision("lean", 2, 2)
    stages = counted(lean)
    assert sum(stage.parameters + stage.gradients + stage.optimizer_state for stage in stages) == (
        sum(stage.parameters for stage in stages) + 6 * numbers_of(LAYERS)
    )
    network = LAYERS, LOSS, (5,), 32, 10**6, [2], [4], ["1f1b"], ["never"]
    found = {name: mp.what_fits(*network, optimizer=ADAM, precision=name)[0] for name in PRECISIONS}
    assert [fit.precision for fit in found.values()] == ["float64", "float32", "mixed"]
    assert mp.what_fits(*network, optimizer=ADAM)[0] == found["float32"]
    peaks = [fit.peak_bytes for fit in found.values()]
    assert peaks[0] > peaks[1] > peaks[2]
    for wrong in ("bf16", 16, np.float16):
        with pytest.raises(ValueError, match=r"precision=.* not known: use one of float64, float32, mixed"):
            counted(wrong)


@pytest.mark.parametrize("device, gib, peak, share, peak_16, latency, bandwidth, early", [
    (TPU_V2, 8, 22.5, 0.5, 0, 0, 62, True), (TPU_V3, 16, 61.5, 0.5, 0, 0, 82, True),  # half of a chip each
    (P100, 16, 9.3, 0.1, 18.7, 18e-6, 1 / (1 / 12.8 + 1 / 11.7), False),
    (V100, 32, 15.7, 0.48, 125, 2e-6, 150, False),
    (A100, 80, 19.5, 0.44, 312, 0, 300, False), (H100, 80, 67, 0.43, 989, 0, 380, False),
], ids=lambda given: getattr(given, "name", None))
def test_devices_are_those_of_their_data_sheets(
    device, gib, peak, share, peak_16, latency, bandwidth, early
):
    """GiB, TFLOP/s with 32 and 16 bits, seconds, GB/s; a copy through the host is the device's own work."""
    assert device.memory == gib * 2**30 and device.early is early
    assert (device.peak, device.peak_16) == (peak * 10**12, peak_16 * 10**12) and device.share == share
    assert device.link.latency == latency and device.link.blocking is (device is P100)
    assert abs(device.link.bandwidth - bandwidth * 10**9) < 1e-5  # the rounding of 10^9 times a float


def test_devices_say_their_peak_its_share_and_who_says_so():
    for device in (V100, A100, H100, P100):
        assert device.seconds(1, n_bytes=2) == 2 / (device.share * device.peak_16)
        assert device.seconds(1) == device.seconds(1, n_bytes=8) == 2 / (device.share * device.peak)
        assert device.peak_16 > device.peak
    for device in (TPU_V2, TPU_V3):
        assert device.seconds(1, n_bytes=2) == device.seconds(1)
    # the speeds that were published, in TFLOP/s
    for device, published in ((A100, 137), (H100, 430)):
        assert abs(device.share * device.peak_16 / 1e12 / published - 1) < 0.015
        assert f"{published} TFLOP/s, {device.share:.0%}".replace("%", " %") in device.source
    assert "62.4 TFLOP/s, 48 % of the peak" in V100.source
