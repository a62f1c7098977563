"""ZeRO: copies that each update, or have, a part of the parameters get the bits of those that have all."""

from contextlib import suppress
from fractions import Fraction

import numpy as np
import pytest
from cases import eighths
from compared import assert_all_same, assert_same, parameters
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import one_in
from splits.one_network import LAYERS, LOSS, mini_batch

import minipipe as mp
from minipipe.cluster import ports
from minipipe.exact import Rational
from minipipe.planning.stand_in import StandIn
from minipipe.schedules import (
    Schedule, ScheduleError, build, data_parallel, in_copies, with_all_reduce, with_late_W, with_updates,
    with_zero,
)

KEPT = ("parameters", "gradients", "optimizer state")


def blocks():
    return [
        mp.Linear(2, 7), mp.BatchNorm(7), mp.Residual(mp.Linear(7, 7), mp.Tanh(), mp.Linear(7, 7)),
        mp.Dropout(0.25), mp.Linear(7, 2),
    ]


@pytest.mark.slow
@settings(max_examples=15)
@given(st.data())
def test_in_rational_arithmetic_two_updates_are_those_of_the_full_batch(data):
    """Any number of copies, micro-batches and samples; parts that are not equal."""
    D = data.draw(st.integers(1, 5))
    M = data.draw(st.integers(D, 7))
    optimizer = mp.SGD(Rational(1, 4), momentum=Rational(1, 2))
    net = mp.DataParallel(
        [layer.copy(eighths) for layer in LAYERS], LOSS, D, M, optimizer=optimizer,
        buckets=data.draw(st.sampled_from([None, 1, 100])), zero=data.draw(st.sampled_from([1, 2])),
        recompute=data.draw(st.booleans()),
    )
    full = mp.Sequential([layer.copy(eighths) for layer in LAYERS], LOSS)
    for seed in range(2):
        X, Y = map(eighths, mini_batch(data.draw(st.integers(M, 2 * M)), seed=seed))
        assert net.train([(X, Y)]) == [full.forward_backward(X, Y)]
        full.step(optimizer)
    assert_all_same(map(parameters, net.replicas), parameters(full.layers))


@pytest.mark.parametrize("optimizer, split", one_in(5, [
    mp.SGD(0.05), mp.SGD(0.05, momentum=0.9, nesterov=True, weight_decay=0.01), mp.RMSProp(0.01),
    mp.Adam(0.01), mp.AdamW(0.01),
], [  # D, M, zero, buckets
    (2, 2, 1, None), (3, 8, 1, 100), (3, 8, 2, 100), (5, 6, 2, 1), (3, 6, 3, 100),
]), ids=lambda value: None if isinstance(value, tuple) else type(value).__name__)
def test_any_floats_have_the_bits_of_plain_data_parallelism(optimizer, split):
    """With blocks of layers, batch norm and dropout, over several steps; on every copy."""
    D, M, zero, buckets = split
    options = dict(optimizer=optimizer, buckets=buckets, dtype=np.float32)
    net = mp.DataParallel(blocks(), LOSS, D, M, zero=zero, **options)
    plain = mp.DataParallel(blocks(), LOSS, D, M, **options)
    for seed in range(6):
        batch = mini_batch(25, np.float32, seed)
        assert net.train([batch]) == plain.train([batch])
        copies = [parameters(layers) for layers in net.replicas]
        assert len(copies) == D
        assert_all_same(copies, parameters(plain.layers))
        assert all(array.dtype == np.float32 for array in copies[0].values())
    arrays = [array for copy in copies for array in copy.values()]
    assert not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])
    assert np.array_equal(net.layers[1].running_var, plain.layers[1].running_var)


@pytest.mark.parametrize("level", [1, 2, 3])
@pytest.mark.parametrize("engine", ["cluster", "threads"])
def test_copies_of_a_pipeline_can_have_it_too(level, engine):
    """Two copies of two stages, by 1F1B."""
    two = in_copies(build("1f1b", 2, 3), 2)
    results = []
    for order in (with_updates(two), with_zero(two, level)):
        pipe = mp.Pipeline(LAYERS, LOSS, 2, 6, order, optimizer=mp.Adam(0.01), engine=engine)
        results.append([pipe.train([mini_batch(13), mini_batch(14)]), parameters(pipe.layers)])
    assert_same(*results)


@pytest.mark.parametrize("zero", [2, 3])
def test_a_run_that_fails_changes_neither_parameters_nor_the_parts_of_the_optimizer(zero):
    def trained(*batches):
        net = mp.DataParallel(LAYERS, LOSS, 3, optimizer=mp.Adam(0.01), zero=zero, buckets=100)
        for batch in batches:
            with suppress(FloatingPointError):
                net.train([batch])
        return parameters(net.layers)

    X, Y = mini_batch(9)
    good, bad = (X, Y), (X, Y * 1e200)
    assert_same(trained(good, bad, good), trained(good, good))


# Bytes


@pytest.mark.parametrize("D, M, zero, buckets", [
    (2, 4, 1, None), (3, 8, 1, 300), (4, 8, 1, 300), (2, 4, 2, 300), (3, 8, 2, 1), (4, 8, 2, 300),
    (2, 4, 3, None), (3, 3, 3, 300), (3, 3, 2, 1), (4, 8, 3, 1),
])
def test_bytes_are_foreseen_at_every_tick(D, M, zero, buckets):
    options = dict(link=mp.Link(latency=1), ports=ports(D, 64))
    net = mp.DataParallel(
        blocks(), LOSS, D, M, buckets=buckets, dtype=np.float32, optimizer=mp.Adam(0.01), zero=zero, **options
    )
    for seed in range(2):  # Adam remembers from the first update on
        net.train([mini_batch(5 * M, np.float32, seed)])
    counts = [len(stage.layers) for stage in net.stages]
    sizes = mp.footprints(
        blocks(), LOSS, len(counts), (2,), 5, dtype=np.float32, partition=counts, optimizer=mp.Adam(0.01)
    )
    foreseen = mp.simulate(net.schedule, footprints=sizes, **options)
    assert foreseen.messages == net.trace.messages and foreseen.spans == net.trace.spans
    for device in range(D):
        assert foreseen.ledger(device) == net.trace.ledger(device)


@pytest.mark.parametrize("N", [2, 3, 4, 6])
@pytest.mark.parametrize("zero, buckets", [(1, None), (1, 1), (2, 1)])
def test_a_copy_has_its_part_of_what_is_remembered_and_then_of_the_gradients(N, zero, buckets):
    """Psi = 960 in four equal layers, Adam in float64: 8 Psi + 8 Psi + 16 Psi/N bytes at most.

    With stage 2, two layers' gradients are in parts when the third's is on its way and the last is made: of
    the gradients, 4 Psi + 4 Psi/N.
    """
    Psi, layers = 960, [mp.Linear(*sizes, bias=False) for sizes in [(15, 16), (16, 15)] * 2]
    net = mp.DataParallel(
        layers, LOSS, N, optimizer=mp.Adam(), zero=zero, buckets=buckets,
        costs=mp.Costs(B=20, U=1), link=mp.Link(latency=1),
    )
    for _ in range(2):
        net.train([(np.ones((15, 2 * N)), np.ones((15, 2 * N)))])
    gradients = 8 * Psi if zero == 1 else 4 * Psi + 4 * Psi // N
    assert net.trace.peak_bytes(["parameters"]) == [8 * Psi] * N
    assert net.trace.peak_bytes(["gradients"]) == [gradients] * N
    assert net.trace.peak_bytes(["optimizer state"]) == [16 * Psi // N] * N
    assert net.trace.peak_bytes(["weight versions"]) == [0] * N  # no copy waits for others' micro-batches
    assert net.trace.peak_bytes(KEPT) == [8 * Psi + gradients + 16 * Psi // N] * N
    for device in range(1, N) if buckets is None else ():  # when S is over; copy 0 has more, for a restore
        assert 8 * Psi // N in [held.get("gradients") for _, held in net.trace.ledger(device)]


@pytest.mark.parametrize("N, stage_1, stage_2, stage_3", [
    (4, 52.5, 41.25, 30), (16, 35.625, 21.5625, 7.5), (64, 31.40625, 16.640625, 1.875),
])
def test_the_published_gigabytes_of_a_network_of_7_5_billion_parameters(N, stage_1, stage_2, stage_3):
    """Mixed precision with Adam: 2 + 2 + 12 bytes for each parameter, 120 GB. arXiv 1910.02054, table 1.

    Those of stages 2 and 3 are there once all gradients are in parts; those of stage 1 at most.
    """
    layers = [mp.Linear(74_999, 100_000)]
    sizes = mp.footprints(
        layers, LOSS, 1, (74_999,), 1, optimizer=mp.Adam(), precision="mixed", patterns=["FB"]
    )
    order = data_parallel(N, N)

    def gigabytes(held):
        return sum(held.get(kind, 0) for kind in KEPT) / 1e9

    def ledger(order):
        trace = mp.simulate(order, mp.Costs(U=1), mp.Link(latency=1), sizes)
        return [gigabytes(held) for _, held in trace.ledger(N - 1)]

    assert max(ledger(with_updates(order))) == 120
    assert max(ledger(with_zero(order, 1))) == stage_1
    assert stage_2 in ledger(with_zero(order, 2))
    assert stage_3 in ledger(with_zero(order, 3))


@pytest.mark.parametrize("shape, N, gigabytes", [  # in the three stages, as printed
    ((74_999, 100_000), 4, "52.5 41.25 30"),
    ((74_999, 100_000), 16, "35.625 21.5625 7.5"),
    ((74_999, 100_000), 1024, "30.0879 15.1025 0.1172"),
    ((127_999, 1_000_000), 4, "896 704 512"),
    ((127_999, 1_000_000), 16, "608 368 128"),
    ((127_999, 1_000_000), 1024, "513.5 257.75 2"),
    ((999_999, 1_000_000), 4, "7000 5500 4000"),
    ((999_999, 1_000_000), 16, "4750 2875 1000"),
    ((999_999, 1_000_000), 1024, "4011.7 2013.7 15.6"),
])
def test_the_published_gigabytes_of_one_of_up_to_1024_devices(shape, N, gigabytes):
    """What stands for a stage on the last device goes through a mini-batch; no million of messages."""
    sizes = mp.footprints(
        [mp.Linear(*shape)], LOSS, 1, shape[:1], 1, optimizer=mp.Adam(), precision="mixed", patterns=["FB"]
    )
    found = []
    for level in (1, 2, 3):
        device = StandIn(sizes, ["FB"], 1, wanted={0: 0}, is_twin=True, place=(N - 1, N), in_parts=level == 3)
        device.gather([])
        for kind in "FB":
            device.take(kind, 0)
            device.act(kind, 0)
            device.let_go()
        if level > 1:  # the gradients of the others are scattered
            device.totals.keep_part(0, device.vectors)
        if level == 3:
            device.act("X", 0)
        found.append(sum(device.holdings()[kind] for kind in KEPT) / 1e9)
    digits = [len(number.partition(".")[2]) for number in gigabytes.split()]
    assert [f"{number:.{n}f}" for number, n in zip(found, digits)] == gigabytes.split()


@pytest.mark.parametrize("N", [2, 3, 4, 6])
@pytest.mark.parametrize("zero", [None, 1, 2])
def test_a_copy_sends_as_many_numbers_as_without(N, zero):
    """2 Psi (N - 1)/N, for Psi = 480 float64."""
    Psi, layers = 480, [mp.Linear(15, 16, bias=False), mp.Linear(16, 15, bias=False)]
    net = mp.DataParallel(layers, LOSS, N, optimizer=mp.Adam(), zero=zero, buckets=1)
    net.train([(np.ones((15, 2 * N)), np.ones((15, 2 * N)))])
    for device in range(N):
        sent = [message for message in net.trace.messages if message.source == device]
        n_bytes = sum(message.n_bytes for message in sent if "costs" not in str(message.label))
        assert n_bytes == 8 * 2 * Psi * (N - 1) // N


# Orders


def test_the_orders_read_as_they_are_drawn():
    order = data_parallel(2, 4, n_stages=2)
    assert str(with_zero(order, 1)).splitlines()[1] == (
        "device 1: 0F2 1F2 1B2 0B2 0F3 1F3 1B3 0B3 1S3 0S3 1U3 1G3 0U3 0G3"
    )
    assert str(with_zero(order, 2)).splitlines()[1] == (
        "device 1: 0F2 1F2 1B2 0B2 0F3 1F3 1B3 1S3 0B3 0S3 1U3 1G3 0U3 0G3"
    )
    trace = mp.simulate(with_zero(order, 2), mp.Costs(U=1))
    assert {str(span.label)[1] for span in trace.spans if span.lane == "communication"} == {"S", "G"}
    labels = [text.get_text() for text in trace.plot().get_legend().get_texts()]
    assert {"reduce-scatter", "gather of parameters"} <= set(labels)


def test_the_first_gather_goes_on_while_the_next_stage_is_updated():
    """Two equal stages of 8 numbers on 2 devices: each exchange sends 32 bytes, 4 ticks at 8 bytes a tick."""
    layers = [mp.Linear(2, 4, bias=False), mp.Linear(4, 2, bias=False)]
    net = mp.DataParallel(
        layers, LOSS, 2, optimizer=mp.SGD(0.1), zero=1, buckets=1, costs=mp.Costs(U=10), ports=ports(2, 8)
    )
    net.train([mini_batch(2)])
    start = {str(span.label): span.start for span in net.trace.spans_of(0)}
    end = {str(span.label): span.end for span in net.trace.spans}
    assert end["1G0"] - end["1U0"] == Fraction(4) and end["1G0"] < end["0U0"]
    assert start["0U0"] == end["1U0"]


GOOD = "0F0 0B0 0S0 0U0 0G0", "0F1 0B1 0S1 0U1 0G1"


@pytest.mark.parametrize("devices, words", [
    (("0F0 0B0 0S0 0U0", GOOD[1]), "a part of stage 0 by 0U0, which no G sends to the others: put 0G0"),
    (("0F0 0B0 0S0 0G0 0U0", GOOD[1]), "0G0 gathers .* device has all: put it behind their update"),
    (("0F0 0B0 0U0 0S0 0G0", GOOD[1]), "device 0: 0S0 comes after 0U0, which needs it"),
    (("0F0 0B0 0A0 0U0 0G0", "0F1 0B1 0A1 0U1 0G1"), "a G gathers what devices update in parts"),
    (("0F0 0B0 0S0", "0F1 0B1 0S1"), "an S leaves each device a part of the sum"),
    (("0F0 0B0 0A0 0U0", GOOD[1]), "the order adds gradients up by A and by S"),
    (("0F0 0B0 0U0 0G0", GOOD[1]), "0U0 applies gradients that no reduce-scatter has added up: put 0S0"),
    (("0S0 0F0 0B0 0U0 0G0", GOOD[1]), "0S0 comes before the gradient of micro-batch 0 is complete"),
    (("0F0 0B0 0S0 0U0 0G0 0G0", GOOD[1]), "0G0 gathers parameters of which the device has all"),
])
def test_each_fault_of_an_order_has_a_sentence(devices, words):
    with pytest.raises(ScheduleError, match=words):
        Schedule.from_text(list(devices), copy_of=(0, 1)).validate()


def test_exchanges_in_other_orders_are_a_deadlock_that_names_both():
    one, two = with_zero(data_parallel(2, 2, n_stages=2), 1).devices
    order = [action for action in two if action.kind != "S"]
    scatters = [action for action in two if action.kind == "S"]
    swapped = (*order[:4], *reversed(scatters), *order[4:])
    with pytest.raises(ScheduleError, match=r"deadlock: .*1S0.*0S1.*same order of stages"):
        Schedule((one, swapped), 2, 2, copy_of=(0, 1)).validate()


@pytest.mark.parametrize("make", [
    with_all_reduce, with_updates, with_late_W, lambda order: with_zero(order, 1),
])
def test_no_other_end_is_added(make):
    with pytest.raises(ValueError, match=r"(reduce-scatters|updates|gathers) already|has S, which"):
        make(with_zero(data_parallel(2, 2), 1))


# Bad input


@pytest.mark.parametrize("options, words", [
    (dict(zero=4, optimizer=mp.SGD(0.1)), "zero=4 must be 1, 2 or 3"),
    (dict(zero=1), "zero=1 divides what an optimizer remembers: pass optimizer="),
    (dict(zero=1, optimizer=mp.SGD(0.1), all_reduce="ring"), "all_reduce='ring', but the order has S"),
])
def test_bad_input_gets_a_sentence(options, words):
    with pytest.raises(ValueError, match=words):
        mp.DataParallel(LAYERS, LOSS, 2, **options)


def test_tied_weights_are_refused():
    layers = [mp.Linear(2, 2, tie="w"), mp.Tanh(), mp.Linear(2, 2, tie="w")]
    with pytest.raises(ValueError, match="tie='w': the gradient of tied weights is a sum over layers"):
        mp.DataParallel(layers, LOSS, 2, optimizer=mp.SGD(0.1), zero=1)


@pytest.mark.parametrize("level", [1, 2, 3])
@pytest.mark.parametrize(("n_replicas", "order"), [
    (2, data_parallel(2, 2, 2)), (2, in_copies(build("1f1b", 2, 1), 2)), (1, build("chimera", 2, 2)),
])
@pytest.mark.parametrize(("option", "layer"), [
    ("sequence", mp.TransformerBlock(2, 2)), ("rows", mp.Conv1d(1, 1, 3, padding=1)),
])
def test_shards_whose_gradients_are_summands_are_refused(level, n_replicas, order, option, layer):
    """A reduce-scatter adds up what replicas have, not what the shards of each of them have."""
    words = f"{option}=True with n_shards=2 and the S .*: use {option}=False, or an order without S"
    with pytest.raises(ValueError, match=words):
        mp.Hybrid(
            [layer, mp.Flatten()], LOSS, n_replicas, 2, 2, 2, with_zero(order, level), optimizer=mp.SGD(0.1),
            **{option: True},
        )
