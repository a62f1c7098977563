"""What devices hold at most, in closed form: every D x T x K, with ZeRO 0 to 3, in units of any size."""

import numpy as np
import pytest

import minipipe as mp

N = 12                 # units of each layer, which D and T divide
NUMBERS = 4 * N * N    # the parameters of a stage: four square layers, in two pairs that T devices share
SPLITS = [(1, 1, 1), (1, 2, 2), (2, 1, 1), (3, 1, 1), (2, 2, 1), (2, 1, 2), (3, 1, 2), (2, 2, 2), (3, 2, 2)]
X = np.random.default_rng(0).standard_normal((N, 12))
BUCKETS = {1: 8 * NUMBERS, 2: 4 * NUMBERS, 4: "layer"}  # units of a stage: bytes, of whole layers


def peaks(D, T, K, zero, n_units):
    """Return {kind: the most bytes of it on each device}, in the second of two updates by Adam.

    With ZeRO 1, messages take a tick, so that one sees what is there before they travel.
    """
    layers = [layer for _ in range(4 * K) for layer in (mp.Linear(N, N, bias=False), mp.ReLU())]
    machine = mp.Machine(costs=mp.Costs(B=20, U=1), link=mp.Link(latency=1)) if zero == 1 else mp.Machine()
    net = mp.Parallel(
        layers, mp.MeanSquaredError(), mp.Split(D, T, K), memory=mp.Memory(zero=zero),
        sums=mp.Sums(buckets=BUCKETS[n_units]), on=machine,
    )
    net.train([(X, X)] * 2, mp.Adam(0.1))
    kinds = "parameters", "gradients", "optimizer state"
    return {kind: net.trace.peak_bytes([kind]) for kind in kinds}


@pytest.mark.parametrize("n_units", BUCKETS)
@pytest.mark.parametrize("D, T, K, zero", [
    pytest.param(*split, zero, marks=[pytest.mark.slow] * bool(np.prod(split) > 4))
    for split in SPLITS for zero in (range(4) if split[0] > 1 else [0])
])
def test_peaks_are_closed_forms(D, T, K, zero, n_units):
    """A device of T has P = numbers / T of a stage, in n units of u = P / n.

    ZeRO 1 keeps 1/D of what Adam remembers, 2 P; 2, of the gradients, too, but for the unit that was just
    computed; 3, of the parameters, too, but for the unit at work and the one that is fetched meanwhile.
    """
    P = NUMBERS // T
    u, share = P // n_units, P // D
    parameters = share + min(2, n_units) * u if zero == 3 else P
    gradients = u + (P - u) // D if zero >= 2 else P
    remembered = 2 * (share if zero else P)
    in_bytes = {"parameters": parameters, "gradients": gradients, "optimizer state": remembered}
    assert peaks(D, T, K, zero, n_units) == {kind: [8 * n] * (D * T * K) for kind, n in in_bytes.items()}


@pytest.mark.parametrize("D, T, K", SPLITS[2:])
def test_without_a_word_about_buckets_units_of_zero_3_are_layers(D, T, K):
    layers = [mp.Linear(N, N, bias=False) for _ in range(4 * K)]
    nets = [
        mp.Parallel(layers, mp.MeanSquaredError(), mp.Split(D, T, K), memory=mp.Memory(zero=3), sums=sums)
        for sums in (mp.Sums(), mp.Sums(buckets="layer"))
    ]
    assert nets[0].schedule == nets[1].schedule and nets[0].n_stages == 4 * K
