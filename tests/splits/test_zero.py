"""ZeRO 1 to 3: devices that update, or have, a shard of the parameters give the results of one device.

How their orders read, when their exchanges travel, and what is wrong with other orders. At the end, ZeRO in
bytes: what devices hold at most and send, in closed form and as published.
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from cases import Rounding, eighths, exact
from compared import assert_same, parameters
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import one_in

import minipipe as mp
from minipipe.cluster import ports
from minipipe.exact import Rational
from minipipe.meta import MetaArray
from minipipe.order import (
    Action, Schedule, ScheduleError, in_copies, with_all_reduce, with_recompute, with_updates, with_zero,
)
from minipipe.schedules import build, data_parallel

LOSS = mp.MeanSquaredError()
LAYERS = mp.Sequential(
    [mp.Linear(2, 8), mp.ReLU(), mp.Linear(8, 8), mp.Tanh(), mp.Linear(8, 8), mp.ReLU(), mp.Linear(8, 2)],
    None,
).layers
EXACT = exact([  # in rational numbers that stay short
    mp.Linear(2, 5), mp.ReLU(), Rounding(), mp.Linear(5, 4), mp.Tanh(), Rounding(), mp.Linear(4, 4),
    mp.ReLU(), Rounding(), mp.Linear(4, 2),
])
SGD = mp.SGD(0.1)
TWO_STAGES = data_parallel(2, 4, stages=2)


def mini_batch(m, dtype=np.float64, seed=0):
    rng = np.random.default_rng([seed, m])
    return rng.standard_normal((2, m)).astype(dtype), rng.standard_normal((2, m)).astype(dtype)


@settings(max_examples=12)
@given(st.data())
def test_two_updates_equal_those_of_the_full_batch(data):
    """In rational numbers, on every replica: any number of replicas, shards, stages, micro-batches, samples.

    With `zero`, in buckets or not; or in an order that `with_zero` has made, which prefetches.
    """
    level, D, T, K, n = (data.draw(st.integers(*ends)) for ends in ((1, 3), (2, 3), (1, 2), (1, 3), (1, 2)))
    M, optimizer = n * D, mp.SGD(Rational(1, 4), momentum=Rational(1, 2))
    recompute = data.draw(st.sampled_from(["never", "always", "except_last"]))
    split, order = dict(replicas=D, shards=T, stages=K, microbatches=M), data.draw(st.sampled_from([
        data_parallel(D, M, K), in_copies(build("1f1b", K, n), D), in_copies(build("zb-h1", K, n), D),
    ]))
    if data.draw(st.booleans()):
        sums = mp.Sums(buckets=data.draw(st.sampled_from([None, 1, 200, "ddp"])))
        net = mp.Parallel(EXACT, LOSS, **split, schedule=order, recompute=recompute, zero=level, sums=sums)
    else:
        order = with_zero(with_recompute(order, recompute), level, data.draw(st.integers(0, 2)))
        net = mp.Parallel(EXACT, LOSS, **split, schedule=order)
    full, own = mp.Sequential(EXACT, LOSS), optimizer.fresh()
    for seed in range(2):
        X, Y = map(eighths, mini_batch(data.draw(st.integers(M, M + 1)), seed=seed))
        assert net.train([(X, Y)], own) == [full.forward_backward(X, Y)]
        full.step(optimizer)
    assert_same(parameters(net.layers), parameters(full.layers))
    assert_same(dict(own.memory), optimizer.memory)
    for stage in net._run.stages.values() if T == 1 else ():
        whole = full.layers[sum(len(before.layers) for before in net.stages[:stage.index]):]
        assert_same(parameters(stage.layers), parameters(whole[:len(stage.layers)]))


@pytest.mark.parametrize("level", [1, 2, 3])
@pytest.mark.parametrize("K", [1, 2])
@pytest.mark.parametrize("D", [2, 3])
def test_tied_layers_are_updated_wherever_a_shard_has_them(level, K, D):
    """A device's shard may have other entries before or after those of the tied W."""
    layers = exact([
        mp.Linear(2, 3), mp.ReLU(), mp.Linear(3, 3, tie="W"), Rounding(), mp.Linear(3, 3), mp.ReLU(),
        Rounding(), mp.Linear(3, 3, tie="W"), mp.Linear(3, 2),
    ])
    net = mp.Parallel(layers, LOSS, replicas=D, stages=K, zero=level, sums=mp.Sums(buckets="ddp"))
    full = mp.Sequential(layers, LOSS)
    own, optimizer = mp.SGD(Rational(1, 4)), mp.SGD(Rational(1, 4))
    X, Y = map(eighths, mini_batch(4))
    assert net.train([(X, Y)], own) == [full.forward_backward(X, Y)]
    full.step(optimizer)
    assert_same(parameters(net.layers), parameters(full.layers))


def test_a_device_has_no_values_of_freed_parameters():
    """Tick by tick: each array is whole, or has no memory and no number that is not NaN."""
    net = mp.DataParallel(LAYERS, LOSS, 2, zero=3, link=mp.Link(latency=1))
    net.start(*mini_batch(4), mp.SGD(0.1))
    seen = set()
    while net.tick():
        for stage in net._run.stages.values():
            arrays = parameters(stage.layers).values()
            gone = [not any(array.strides) and np.isnan(array).all() for array in arrays]
            assert len(set(gone)) <= 1 and gone.count(False) == len(stage.shard.whole)
            seen |= {(stage.index, one) for one in gone}
    assert seen == {(stage, one) for stage in range(4) for one in (True, False)}


# Orders


@pytest.mark.parametrize("order, level, device, text", [
    (TWO_STAGES, 1, 1, "0F2 1F2 1B2 0B2 0F3 1F3 1B3 0B3 1S3 0S3 1U3 1G3 0U3 0G3"),
    (TWO_STAGES, 2, 1, "0F2 1F2 1B2 0B2 0F3 1F3 1B3 1S3 0B3 0S3 1U3 1G3 0U3 0G3"),
    (TWO_STAGES, 3, 0, "0G0 1G0 0F0 0X0 1F0 1X0 1G0 0G0 1B0 1X0 0B0 0X0 0G1 1G1 0F1 0X1 1F1 1X1 1G1 0G1 1B1 "
     "1X1 1S1 0B1 0X1 0S1 1U1 0U1"),
    (with_recompute(data_parallel(2, 2)), 3, 1, "0G1 0F1 0X1 0G1 0R1 0B1 0X1 0S1 0U1"),
], ids=["1", "2", "3", "3, recomputed"])
def test_with_zero_makes_the_orders_that_are_drawn(order, level, device, text):
    """With stage 3 a gather begins one piece of work early, but not before its stage was freed."""
    assert str(with_zero(order, level)).splitlines()[device] == f"device {device}: {text}"


@pytest.mark.parametrize("level, words", [
    (2, {"reduce-scatter", "gather of parameters"}),
    (3, {"reduce-scatter", "gather of parameters", "freeing of parameters"}),
])
def test_the_picture_has_its_exchanges_in_their_lane(level, words):
    trace = mp.simulate(with_zero(TWO_STAGES, level), mp.Costs(U=1))
    assert {str(span.label)[1] for span in trace.spans if span.lane == "communication"} == {"S", "G"}
    assert words <= {text.get_text() for text in trace.plot().get_legend().get_texts()}


def test_a_gather_overlaps_with_the_next_stages_update():
    """Two equal stages of 8 numbers on 2 devices: each exchange sends 32 bytes, 4 ticks at 8 bytes a tick."""
    layers = [mp.Linear(2, 4, bias=False), mp.Linear(4, 2, bias=False)]
    net = mp.DataParallel(
        layers, LOSS, 2, zero=1, sums=mp.Sums(buckets=1),
        costs=mp.Costs(U=10), ports=ports(2, 8),
    )
    net.train([mini_batch(2)], SGD)
    start = {str(span.label): span.start for span in net.trace.spans_of(0)}
    end = {str(span.label): span.end for span in net.trace.spans}
    assert end["1G0"] - end["1U0"] == Fraction(4) and end["1G0"] < end["0U0"]
    assert start["0U0"] == end["1U0"]


def test_a_prefetched_gather_overlaps_with_the_stage_before():
    """Two copies of 4 stages, F = 4, B = 8, an exchange of 16 bytes each way at 8 bytes a tick: 2 ticks.

    Without prefetching, each of the 8 pieces of work waits for its own gather, which in three backwards also
    waits for a reduce-scatter; with it, the first and the first backward, which follows its own forward, do.
    """
    layers, ends = [mp.Linear(2, 2, bias=False) for _ in range(4)], []
    for prefetch in (0, 1):
        order = with_zero(data_parallel(2, 2, 4), 3, prefetch)
        net = mp.Pipeline(
            layers, LOSS, 4, 2, schedule=order, costs=mp.Costs(F=16, B=32), ports=ports(2, 8))
        net.train([mini_batch(2)], SGD)
        ends.append(max(span.end for span in net.trace.spans if str(span.label) in ("0B0", "0B1")))
    assert ends == [48 + 8 * 2 + 3 * 2, 48 + 2 * 2]


def test_zero_with_one_copy_exchanges_nothing():
    for zero in (1, 2, 3):
        assert mp.DataParallel(LAYERS, LOSS, 1, microbatches=2, zero=zero).schedule.kinds == set("FBU")


# What is refused

SECOND = "0F1 0B1 0S1 0U1 0G1"  # the right order of device 1, in stages 1 and 2
THIRD = "0G1 0F1 0X1 0G1 0B1 0X1 0S1 0U1"  # and in stage 3


KINDS = "an order with S, G or X has an S and a U for each stage, no A, no versions: see with_zero"
FAULTS = [
    ("0F0 0B0 0S0 0U0", SECOND, "0U0 is the last of its stage: put 0G0 after it"),
    ("0F0 0B0 0S0 0G0 0U0", SECOND, "0G0 comes when the device has all of the parameters: leave it out"),
    ("0F0 0B0 0U0 0S0 0G0", SECOND, "device 0: 0S0 comes after 0U0, which needs it"),
    ("0F0 0B0 0A0 0U0 0G0", "0F1 0B1 0A1 0U1 0G1", KINDS),
    ("0F0 0B0 0S0", "0F1 0B1 0S1", KINDS),
    ("0F0 0B0 0A0 0U0", SECOND, KINDS),
    ("0F0 0B0 0U0 0G0", SECOND, "0U0 applies gradients that no reduce-scatter has added up: put 0S0"),
    ("0S0 0F0 0B0 0U0 0G0", SECOND, "0S0 comes before the gradient of micro-batch 0 is complete"),
    ("0F0 0B0 0S0 0U0 0G0 0G0", SECOND, "0G0 comes when the device has all of the parameters"),
    ("0G0 0F0 0X0 0B0 0S0 0U0", THIRD, "device 0: 0B0 comes when the device has only its own shard of the "
     "parameters: leave it out, or put 0G0 before it"),
    ("0F0 0G0 0B0 0X0 0S0 0U0", THIRD, "0F0 comes when .* only its own shard"),
    ("0G0 0F0 0G0 0B0 0X0 0S0 0U0", THIRD, "0G0 comes when .* leave it out, or put 0X0 before it"),
    ("0G0 0F0 0B0 0X0 0X0 0S0 0U0", THIRD, "0X0 comes when .* only its own shard .*: leave it out"),
    ("0G0 0F0 0B0 0X0 0S0 0U0 0G0", THIRD, "0G0 is the last of its stage: put 0X0 after it"),
    ("0G0 0F0 0B0 0X0 0S0 0U0", THIRD, "devices 0, 1 have 1, 2 gathers of stage 0: all start each"),
    ("0F0 0B0 0A0 0X0 0U0", "0F1 0B1 0A1 0U1", KINDS),
]


def test_each_fault_of_a_zero_order_is_named():
    for first, second, words in FAULTS:
        with pytest.raises(ScheduleError, match=words):
            Schedule.from_text([first, second], copy_of=(0, 1)).validate()


def crossed(level, kind):
    """An order of two stages, whose second device begins its exchanges of this kind the other way round."""
    one, two = with_zero(data_parallel(2, 2, stages=2), level).devices
    first, other = [place for place, action in enumerate(two) if action.kind == kind][:2]
    swapped = list(two)
    swapped[first], swapped[other] = two[other], two[first]
    return Schedule((one, swapped), 2, 2, copy_of=(0, 1))


@pytest.mark.parametrize("level, kind, words", [
    (1, "S", r"deadlock: .*1S0.*0S1.*same order of stages"),
    (3, "G", "device 0 cannot end 0G0 before 0G1 on device 1, after 1G1"),
])
def test_exchanges_in_different_orders_are_named_as_deadlock(level, kind, words):
    with pytest.raises(ScheduleError, match=words):
        crossed(level, kind).validate()


@pytest.mark.parametrize("make", [
    with_all_reduce, with_updates, lambda order: with_zero(order, 1),
])
def test_all_reduces_and_updates_are_not_added_to_zero(make):
    with pytest.raises(ValueError, match=r"(reduce-scatters|updates|gathers) already|has S, which"):
        make(with_zero(data_parallel(2, 2), 1))


class OwnUpdate(mp.SGD):
    def update(self, layers, gradients):
        super().update(layers, gradients)


def test_optimizers_that_cannot_update_a_shard_are_refused():
    replaced = mp.SGD(0.1)
    replaced.update = lambda layers, gradients: None
    for zero, optimizer, words in [
        (1, mp.LARS(0.1), "LARS looks at whole parameters, but with"),
        (2, mp.LAMB(0.1), "LAMB looks at whole parameters"),
        (3, OwnUpdate(0.1), "OwnUpdate has an update of its own, for whole layers"),
        (1, replaced, "SGD has an update of its own, for whole layers"),
    ]:
        with pytest.raises(ValueError, match=words):
            mp.DataParallel(LAYERS, LOSS, 2, zero=zero).train([mini_batch(4)], optimizer)


class Frozen(mp.Linear):
    def backward_weight(self, dZ):
        return None, None


def test_frozen_layers_are_refused_with_zero():
    X = np.ones((3, 4))
    with pytest.raises(ValueError, match="for frozen ones, use zero=0"):
        net = mp.DataParallel([Frozen(3, 3), mp.Linear(3, 3)], LOSS, 2, zero=1)
        net.train([(X, X)], mp.SGD(0.1))


# Bytes

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
def test_peak_bytes_of_zero_follow_closed_forms(case, n_units):
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


def test_zero_3_gathers_layer_by_layer_by_default():
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
def test_bytes_sent_by_zero_follow_closed_forms(level, n, times, N):
    """2 Psi (N - 1)/N numbers; of stage 3, (2 n + 1) Psi (N - 1)/N for n micro-batches a replica."""
    order = data_parallel(N, n * N, stages=4)
    trace = of_four(N, n, with_zero(order, level) if level else with_updates(order)).trace
    assert [bytes_sent(trace, device) for device in range(N)] == [8 * times * PSI * (N - 1) // N] * N


def test_parameters_that_are_not_freed_are_gathered_once():
    """Without the X and the G between the last stage's F and B, as FSDP may leave them out: 240 fewer."""
    order = with_zero(data_parallel(2, 2, 4), 3, 0)
    devices = [list(actions) for actions in order.devices]
    for i, actions in enumerate(devices):
        place = actions.index(Action("X", 3, i))
        assert list(map(str, actions[place:place + 2])) == [f"3X{i}", f"3G{i}"]
        del actions[place:place + 2]
    trace = of_four(2, 1, replace(order, devices=devices)).trace
    assert [bytes_sent(trace, device) for device in range(2)] == [8 * (3 * 960 - 240) // 2] * 2


def test_without_prefetch_one_stage_at_a_time_is_gathered():
    """Of four; and no copy waits for the micro-batches of others, so none keeps a version of the weights."""
    machine = dict(costs=mp.Costs(B=20, U=1), link=mp.Link(latency=1))
    trace = of_four(2, 1, with_zero(data_parallel(2, 2, stages=4), 3, 0), **machine).trace
    assert trace.peak_bytes(["parameters"]) == [8 * (PSI // 2 + PSI // 4)] * 2
    assert trace.peak_bytes(["gradients"]) == [8 * (PSI // 4 + 3 * PSI // 4 // 2)] * 2
    assert trace.peak_bytes(["weight versions"]) == [0] * 2
    for device in range(2):
        assert trace.ledger(device)[0][1]["parameters"] in (8 * PSI // 2, 8 * PSI // 2 + 2 * PSI)
        assert trace.ledger(device)[-1][1]["parameters"] == 8 * PSI // 2


class MixedAdam(mp.Adam):
    """Mixed precision with Adam: 2 + 2 + 12 bytes for each parameter. arXiv 1910.02054, table 1."""

    n_memories = 6

    def step(self, g, *memory):
        return g, *memory


@pytest.mark.parametrize("N, stage_1, stage_2, stage_3", [
    (4, 52.5, 41.25, 30), pytest.param(16, 35.625, 21.5625, 7.5, marks=pytest.mark.slow),
])
def test_the_published_gigabytes_of_7_5_billion_parameters(N, stage_1, stage_2, stage_3):
    """120 GB without ZeRO; those of stages 2 and 3 once all gradients are sharded, of stage 1 at most."""
    order, layers = data_parallel(N, N), mp.without_values([mp.Linear(74_999, 100_000)])

    def ledger(order):
        net = mp.Parallel(
            layers, LOSS, microbatches=N, schedule=order, costs=mp.Costs(U=1), link=mp.Link(latency=1),
            dtype="float16", count_bytes=True,
        )
        batch, optimizer = (MetaArray((74_999, N)), MetaArray((100_000, N))), MixedAdam()
        for _ in range(2):
            net.train([batch], optimizer)
        return [sum(held.get(kind, 0) for kind in KEPT) / 1e9 for _, held in net.trace.ledger(N - 1)]

    assert max(ledger(with_updates(order))) == 120
    assert max(ledger(with_zero(order, 1))) == stage_1
    assert stage_2 in ledger(with_zero(order, 2))
    assert stage_3 in ledger(with_zero(order, 3))
