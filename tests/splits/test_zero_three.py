"""ZeRO 3, FSDP: copies that each have a part of the parameters, and gather the others when they need them."""

from dataclasses import replace

import numpy as np
import pytest
from cases import eighths
from compared import assert_all_same, assert_same, parameters
from hypothesis import given, settings
from hypothesis import strategies as st
from splits.one_network import LAYERS, LOSS, mini_batch

import minipipe as mp
from minipipe.cluster import ports
from minipipe.exact import Rational
from minipipe.schedules import Action, Schedule, ScheduleError, build, data_parallel, in_copies, with_zero

OTHER = "0G1 0F1 0X1 0G1 0B1 0X1 0S1 0U1"  # the order of device 1
FOUR = [mp.Linear(*sizes, bias=False) for sizes in [(15, 16), (16, 15)] * 2]  # of 240 parameters each


def of_four(N, n, prefetch, **options):
    """After two updates of four equal layers on N copies, each with n micro-batches."""
    order = with_zero(data_parallel(N, n * N, n_stages=4), 3, prefetch)
    net = mp.Pipeline(FOUR, LOSS, 4, n * N, order, optimizer=mp.Adam(), **options)
    for _ in range(2):
        net.train([(np.ones((15, 2 * n * N)), np.ones((15, 2 * n * N)))])
    return net


def bytes_sent(trace, device):
    sent = [message for message in trace.messages if message.source == device]
    return sum(message.n_bytes for message in sent if "costs" not in str(message.label))


@pytest.mark.slow
@settings(max_examples=8)
@given(st.data())
def test_in_rational_arithmetic_two_updates_are_those_of_the_full_batch(data):
    """Any number of copies, micro-batches, stages and samples, on every copy; pipelines among them."""
    D, n, K = data.draw(st.integers(2, 4)), data.draw(st.integers(1, 3)), data.draw(st.integers(1, 4))
    M, optimizer = n * D, mp.SGD(Rational(1, 4), momentum=Rational(1, 2))
    orders = [data_parallel(D, M, K), in_copies(build("1f1b", K, n), D), in_copies(build("zb-h1", K, n), D)]
    order = with_zero(data.draw(st.sampled_from(orders)), 3, data.draw(st.integers(0, 2)))
    recompute = data.draw(st.sampled_from(["never", "always", "except_last"]))
    layers = [layer.copy(eighths) for layer in LAYERS]
    net = mp.Pipeline(layers, LOSS, K, M, order, recompute, optimizer=optimizer)
    full = mp.Sequential(layers, LOSS)
    for seed in range(2):
        X, Y = map(eighths, mini_batch(data.draw(st.integers(M, 2 * M)), seed=seed))
        assert net.train([(X, Y)]) == [full.forward_backward(X, Y)]
        full.step(optimizer)
    for stage in net._run.stages.values():
        whole = full.layers[sum(len(before.layers) for before in net.stages[:stage.index]):]
        assert_same(parameters(stage.layers), parameters(whole[:len(stage.layers)]))


def test_between_two_runs_all_parameters_can_be_read_and_changed():
    net = mp.DataParallel(LAYERS, LOSS, 3, optimizer=mp.SGD(0.1), zero=3, buckets=1)
    plain = mp.DataParallel(LAYERS, LOSS, 3, optimizer=mp.SGD(0.1))
    X, Y = mini_batch(7)
    for model in (net, plain):
        model.train([(X, Y)])
        model.layers[0].W = model.layers[0].W / 2
    assert np.array_equal(net.predict(X), plain.predict(X))
    assert net.train([(X, Y)]) == plain.train([(X, Y)])
    assert_all_same(map(parameters, net.replicas), parameters(plain.layers))


def test_a_device_has_no_numbers_of_what_it_has_freed():
    """Tick by tick: each array is whole, or has no memory and no number that is not NaN."""
    net = mp.DataParallel(LAYERS, LOSS, 2, optimizer=mp.SGD(0.1), zero=3, buckets=1, link=mp.Link(latency=1))
    net.start(*mini_batch(4))
    seen = set()
    while net.tick():
        for stage in net._run.stages.values():
            arrays = parameters(stage.layers).values()
            gone = [not any(array.strides) and np.isnan(array).all() for array in arrays]
            assert len(set(gone)) <= 1 and gone.count(False) == len(stage.owned.whole)
            seen |= {(stage.index, one) for one in gone}
    assert seen == {(stage, one) for stage in range(4) for one in (True, False)}


# Bytes


@pytest.mark.parametrize("N", [2, 3, 4])
@pytest.mark.parametrize("n", [1, 2])
def test_a_copy_sends_its_part_once_for_each_forward_and_each_backward_and_for_the_sum(N, n):
    """(2 n + 1) Psi (N - 1)/N for n micro-batches a copy; Psi = 960 numbers of 8 bytes."""
    trace = of_four(N, n, prefetch=1).trace
    assert [bytes_sent(trace, device) for device in range(N)] == [8 * (2 * n + 1) * 960 * (N - 1) // N] * N


def test_what_stays_whole_between_forward_and_backward_is_gathered_once():
    """Without the X and the G between the last stage's F and B, as FSDP may leave them out: 240 fewer."""
    order = with_zero(data_parallel(2, 2, 4), 3, 0)
    devices = [list(actions) for actions in order.devices]
    for i, actions in enumerate(devices):
        place = actions.index(Action("X", 3, i))
        assert list(map(str, actions[place:place + 2])) == [f"3X{i}", f"3G{i}"]
        del actions[place:place + 2]
    net = mp.Pipeline(FOUR, LOSS, 4, 2, replace(order, devices=devices), optimizer=mp.SGD(0.1))
    net.train([(np.ones((15, 2)), np.ones((15, 2)))])
    assert [bytes_sent(net.trace, device) for device in range(2)] == [8 * (3 * 960 - 240) // 2] * 2


@pytest.mark.parametrize("N", [2, 3, 4])
@pytest.mark.parametrize("prefetch", [0, 1])
def test_a_copy_has_its_part_of_everything_and_one_stage_or_two_of_the_parameters(N, prefetch):
    """8 Psi/N + 8 Psi/4 (1 + prefetch) bytes of parameters, and 16 Psi/N that Adam keeps."""
    trace = of_four(N, 1, prefetch, costs=mp.Costs(B=20, U=1), link=mp.Link(latency=1)).trace
    Psi = 960
    assert trace.peak_bytes(["parameters"]) == [8 * Psi // N + (1 + prefetch) * 2 * Psi] * N
    whole = (1 + prefetch) * Psi // 4  # gradients that are made, or on their way
    assert trace.peak_bytes(["gradients"]) == [8 * whole + 8 * (Psi - whole) // N] * N
    assert trace.peak_bytes(["optimizer state"]) == [16 * Psi // N] * N
    assert trace.peak_bytes(["weight versions"]) == [0] * N
    for device in range(N):
        assert trace.ledger(device)[0][1]["parameters"] in (8 * Psi // N, 8 * Psi // N + 2 * Psi)
        assert trace.ledger(device)[-1][1]["parameters"] == 8 * Psi // N


# Orders


def test_the_order_reads_as_it_is_drawn():
    """A gather begins one piece of work early, but not before its stage was freed."""
    order = with_zero(data_parallel(2, 4, n_stages=2), 3)
    assert str(order).splitlines()[0] == (
        "device 0: 0G0 1G0 0F0 0X0 1F0 1X0 1G0 0G0 1B0 1X0 0B0 0X0 0G1 1G1 0F1 0X1 1F1 1X1 1G1 0G1 1B1 1X1 "
        "1S1 0B1 0X1 0S1 1U1 0U1"
    )


def test_recomputation_shares_the_gather_of_its_backward():
    order = with_zero(mp.schedules.with_recompute(data_parallel(2, 2)), 3)
    assert str(order).splitlines()[1] == "device 1: 0G1 0F1 0X1 0G1 0R1 0B1 0X1 0S1 0U1"


def test_a_prefetched_gather_travels_while_the_stage_before_is_computed():
    """Two copies of 4 stages, F = 4, B = 8, an exchange of 16 bytes each way at 8 bytes a tick: 2 ticks.

    Without prefetching, each of the 8 pieces of work waits for its own gather, which in three backwards also
    waits for a reduce-scatter; with it, the first and the first backward, which follows its own forward, do.
    """
    layers = [mp.Linear(2, 2, bias=False) for _ in range(4)]
    makespan = []
    for prefetch in (0, 1):
        order = with_zero(data_parallel(2, 2, 4), 3, prefetch)
        net = mp.Pipeline(
            layers, LOSS, 4, 2, order, optimizer=mp.SGD(0.1), costs=mp.Costs(F=16, B=32), ports=ports(2, 8)
        )
        net.train([mini_batch(2)])
        last = max(span.end for span in net.trace.spans if str(span.label) in ("0B0", "0B1"))
        makespan.append(last)
    assert makespan == [48 + 8 * 2 + 3 * 2, 48 + 2 * 2]


def test_the_picture_has_the_gathers_in_their_lane_and_the_freeing_as_a_line():
    trace = mp.simulate(with_zero(data_parallel(2, 4, n_stages=2), 3))
    assert {str(span.label)[1] for span in trace.spans if span.lane == "communication"} == {"S", "G"}
    labels = [text.get_text() for text in trace.plot().get_legend().get_texts()]
    assert {"reduce-scatter", "gather of parameters", "freeing of parameters"} <= set(labels)


@pytest.mark.parametrize("devices, words", [
    (("0G0 0F0 0X0 0B0 0S0 0U0", OTHER), "device 0: 0B0 needs all parameters of its stage, but the device "
     "has its own part since 0X0: put 0G0 before it"),
    (("0F0 0G0 0B0 0X0 0S0 0U0", OTHER), "0F0 needs all .* has its own part: put 0G0 before it"),
    (("0G0 0F0 0G0 0B0 0X0 0S0 0U0", OTHER), "0G0 gathers .* leave it out, or put 0X0 before it"),
    (("0G0 0F0 0B0 0X0 0X0 0S0 0U0", OTHER), "0X0 needs all .* since 0X0: leave it out"),
    (("0G0 0F0 0B0 0X0 0S0 0U0 0G0", OTHER), "0G0 leaves the parameters whole at the end: put 0X0 behind"),
    (("0G0 0F0 0B0 0X0 0S0 0U0", OTHER), "devices 0, 1 have 1, 2 gathers of stage 0: each of them is a"),
    (("0F0 0B0 0A0 0X0 0U0", "0F1 0B1 0A1 0U1"), "an X leaves what devices update in parts: put an S in"),
])
def test_each_fault_of_an_order_has_a_sentence(devices, words):
    with pytest.raises(ScheduleError, match=words):
        Schedule.from_text(list(devices), copy_of=(0, 1)).validate()


def test_copies_with_unequal_work_are_refused():
    with pytest.raises(ValueError, match="devices 0, 1 have 4, 2 gathers of stage 0: each of them is a"):
        mp.DataParallel(LAYERS, LOSS, 2, 3, optimizer=mp.SGD(0.1), zero=3)


def test_gathers_in_other_orders_are_a_deadlock_that_names_both():
    one, two = with_zero(data_parallel(2, 2, n_stages=2), 3).devices
    swapped = (two[1], two[0], *two[2:])
    with pytest.raises(ValueError, match="device 0 cannot end 0G0 before 0G1 on device 1, behind 1G1"):
        Schedule((one, swapped), 2, 2, copy_of=(0, 1)).validate()


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_one_copy_has_all_of_it(zero):
    net = mp.DataParallel(LAYERS, LOSS, 1, 2, optimizer=mp.Adam(), zero=zero)
    assert net.schedule.kinds == set("FBU")
