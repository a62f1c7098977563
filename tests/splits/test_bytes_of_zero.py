"""ZeRO in bytes: what devices hold at most and send, in closed form and as published."""

from dataclasses import replace

import numpy as np
import pytest
from sampling import one_in
from splits.one_network import LOSS

import minipipe as mp
from minipipe.order import Action, with_updates, with_zero
from minipipe.schedules import data_parallel

N = 12                 # units of each layer, which D and T divide
NUMBERS = 4 * N * N    # the parameters of a stage: four square layers, in two pairs that T devices share
SPLITS = [(1, 1, 1), (1, 2, 2), (2, 1, 1), (3, 1, 1), (2, 2, 1), (2, 1, 2), (3, 1, 2), (2, 2, 2), (3, 2, 2)]
X = np.random.default_rng(0).standard_normal((N, 12))
BUCKETS = {1: 8 * NUMBERS, 2: 4 * NUMBERS, 4: "layer"}  # units of a stage: bytes, of whole layers
KEPT = ("parameters", "gradients", "optimizer state")
PSI = 960
FOUR = [mp.Linear(*sizes, bias=False) for sizes in [(15, 16), (16, 15)] * 2]  # of PSI parameters in all


def peaks(D, T, K, zero, n_units):
    """Return {kind: the most bytes of it on each device}, in the second of two updates by Adam.

    With ZeRO 1, messages take a tick, so that one sees what is there before they travel.
    """
    layers = [layer for _ in range(4 * K) for layer in (mp.Linear(N, N, bias=False), mp.ReLU())]
    machine = dict(costs=mp.Costs(B=20, U=1), link=mp.Link(latency=1)) if zero == 1 else dict()
    net = mp.Parallel(
        layers, mp.MeanSquaredError(), replicas=D, shards=T, stages=K, zero=zero, count_bytes=True,
        sums=mp.Sums(buckets=BUCKETS[n_units]), **machine,
    )
    net.train([(X, X)] * 2, mp.Adam(0.1))
    return {kind: net.trace.peak_bytes([kind]) for kind in KEPT}


CASES = [(*split, zero) for split in SPLITS for zero in (range(4) if split[0] > 1 else [0])]


@pytest.mark.parametrize("case, n_units", one_in(6, CASES, BUCKETS), ids=repr)
def test_peaks_are_closed_forms(case, n_units):
    """A device of T has P = numbers / T of a stage, in n units of u = P / n.

    ZeRO 1 keeps 1/D of what Adam remembers, 2 P; 2, of the gradients, too, but for the unit that was just
    computed; 3, of the parameters, too, but for the unit at work and the one that is fetched meanwhile.
    """
    D, T, K, zero = case
    P = NUMBERS // T
    u, share = P // n_units, P // D
    parameters = share + min(2, n_units) * u if zero == 3 else P
    gradients = u + (P - u) // D if zero >= 2 else P
    remembered = 2 * (share if zero else P)
    in_bytes = {"parameters": parameters, "gradients": gradients, "optimizer state": remembered}
    assert peaks(D, T, K, zero, n_units) == {kind: [8 * n] * (D * T * K) for kind, n in in_bytes.items()}


def test_without_a_word_about_buckets_units_of_zero_3_are_layers():
    for D, T, K in SPLITS[2:]:
        layers = [mp.Linear(N, N, bias=False) for _ in range(4 * K)]
        nets = [
            mp.Parallel(layers, LOSS, replicas=D, shards=T, stages=K, zero=3, sums=sums)
            for sums in (mp.Sums(), mp.Sums(buckets="layer"))
        ]
        assert nets[0].schedule == nets[1].schedule and nets[0].n_stages == 4 * K, (D, T, K)


def of_four(N, n, order, **on):
    """After two updates of four equal layers on N copies, each with n micro-batches."""
    net, optimizer = mp.Pipeline(
        FOUR, LOSS, order.n_stages, n * N, schedule=order, **on, count_bytes=True
    ), mp.Adam()
    for _ in range(2):
        net.train([(np.ones((15, 2 * n * N)), np.ones((15, 2 * n * N)))], optimizer)
    return net


def bytes_sent(trace, device):
    sent = [message for message in trace.messages if message.source == device]
    return sum(message.n_bytes for message in sent if "costs" not in str(message.label))


@pytest.mark.parametrize("level, n, times, N", [
    (0, 1, 2, 2), (1, 1, 2, 3), (2, 1, 2, 2), (3, 1, 3, 3), (3, 2, 5, 2), (3, 2, 5, 3),
])
def test_a_copy_sends_twice_psi_and_zero_3_once_a_gather(level, n, times, N):
    """2 Psi (N - 1)/N numbers; of stage 3, (2 n + 1) Psi (N - 1)/N for n micro-batches a copy."""
    order = data_parallel(N, n * N, stages=4)
    trace = of_four(N, n, with_zero(order, level) if level else with_updates(order)).trace
    assert [bytes_sent(trace, device) for device in range(N)] == [8 * times * PSI * (N - 1) // N] * N


def test_what_stays_whole_is_gathered_once():
    """Without the X and the G between the last stage's F and B, as FSDP may leave them out: 240 fewer."""
    order = with_zero(data_parallel(2, 2, 4), 3, 0)
    devices = [list(actions) for actions in order.devices]
    for i, actions in enumerate(devices):
        place = actions.index(Action("X", 3, i))
        assert list(map(str, actions[place:place + 2])) == [f"3X{i}", f"3G{i}"]
        del actions[place:place + 2]
    trace = of_four(2, 1, replace(order, devices=devices)).trace
    assert [bytes_sent(trace, device) for device in range(2)] == [8 * (3 * 960 - 240) // 2] * 2


def test_without_prefetching_one_stage_is_whole_at_a_time():
    """Of four; and no copy waits for the micro-batches of others, so none keeps a version of the weights."""
    machine = dict(costs=mp.Costs(B=20, U=1), link=mp.Link(latency=1))
    trace = of_four(2, 1, with_zero(data_parallel(2, 2, stages=4), 3, 0), **machine).trace
    assert trace.peak_bytes(["parameters"]) == [8 * (PSI // 2 + PSI // 4)] * 2
    assert trace.peak_bytes(["gradients"]) == [8 * (PSI // 4 + 3 * PSI // 4 // 2)] * 2
    assert trace.peak_bytes(["weight versions"]) == [0] * 2
    for device in range(2):
        assert trace.ledger(device)[0][1]["parameters"] in (8 * PSI // 2, 8 * PSI // 2 + 2 * PSI)
        assert trace.ledger(device)[-1][1]["parameters"] == 8 * PSI // 2


def of_published(*shape):
    """Mixed precision with Adam: 2 + 2 + 12 bytes for each parameter. arXiv 1910.02054, table 1."""
    (stage,) = mp.footprints(
        [mp.Linear(*shape)], LOSS, 1, shape[:1], 1, "float16", mp.Adam(), patterns=["FB"]
    )
    return [stage._replace(optimizer_state=6 * stage.parameters)]


@pytest.mark.parametrize("N, stage_1, stage_2, stage_3", [
    (4, 52.5, 41.25, 30), pytest.param(16, 35.625, 21.5625, 7.5, marks=pytest.mark.slow),
])
def test_the_published_gigabytes_of_7_5_billion_parameters(N, stage_1, stage_2, stage_3):
    """120 GB without ZeRO; those of stages 2 and 3 once all gradients are in parts, of stage 1 at most."""
    order, sizes = data_parallel(N, N), of_published(74_999, 100_000)

    def ledger(order):
        trace = mp.simulate(order, mp.Costs(U=1), mp.Link(latency=1), sizes)
        return [sum(held.get(kind, 0) for kind in KEPT) / 1e9 for _, held in trace.ledger(N - 1)]

    assert max(ledger(with_updates(order))) == 120
    assert max(ledger(with_zero(order, 1))) == stage_1
    assert stage_2 in ledger(with_zero(order, 2))
    assert stage_3 in ledger(with_zero(order, 3))
