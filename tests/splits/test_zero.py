"""ZeRO 1 to 3: copies that each update, or have, a part of the parameters give the numbers of one device."""

from dataclasses import replace

import numpy as np
import pytest
from cases import eighths, exact
from compared import assert_all_same, assert_same, parameters
from hypothesis import given, settings
from hypothesis import strategies as st
from splits.one_network import EXACT, LAYERS, LOSS, mini_batch

import minipipe as mp
from minipipe.exact import Rational
from minipipe.order import Action, in_copies, with_recompute, with_updates, with_zero
from minipipe.planning.foresight import StandIn
from minipipe.schedules import build, data_parallel

KEPT = ("parameters", "gradients", "optimizer state")
PSI = 960
FOUR = [mp.Linear(*sizes, bias=False) for sizes in [(15, 16), (16, 15)] * 2]  # of PSI parameters in all


def blocks():
    return [
        mp.Linear(2, 7), mp.BatchNorm(7), mp.Residual(mp.Linear(7, 7), mp.Tanh(), mp.Linear(7, 7)),
        mp.Dropout(0.25), mp.Linear(7, 2),
    ]


def of_four(N, n, order, on=mp.Machine()):
    """After two updates of four equal layers on N copies, each with n micro-batches."""
    net, optimizer = mp.Pipeline(FOUR, LOSS, order.n_stages, n * N, order, on=on), mp.Adam()
    for _ in range(2):
        net.train([(np.ones((15, 2 * n * N)), np.ones((15, 2 * n * N)))], optimizer)
    return net


def bytes_sent(trace, device):
    sent = [message for message in trace.messages if message.source == device]
    return sum(message.n_bytes for message in sent if "costs" not in str(message.label))


@settings(max_examples=12)
@given(st.data())
def test_two_updates_equal_those_of_the_full_batch(data):
    """In rational numbers, on every copy: any number of copies, shards, stages, micro-batches and samples.

    With `zero`, in buckets or not; or in an order that `with_zero` has made, which prefetches.
    """
    level, D, T, K, n = (data.draw(st.integers(*ends)) for ends in ((1, 3), (2, 4), (1, 2), (1, 4), (1, 3)))
    M, optimizer = n * D, mp.SGD(Rational(1, 4), momentum=Rational(1, 2))
    recompute = data.draw(st.sampled_from(["never", "always", "except_last"]))
    split, order = mp.Split(D, T, K, M), data.draw(st.sampled_from([
        data_parallel(D, M, K), in_copies(build("1f1b", K, n), D), in_copies(build("zb-h1", K, n), D),
    ]))
    if data.draw(st.booleans()):
        sums = mp.Sums(buckets=data.draw(st.sampled_from([None, 1, 200, "ddp"])))
        net = mp.Parallel(EXACT, LOSS, split, order, mp.Memory(recompute, zero=level), sums)
    else:
        order = with_zero(with_recompute(order, recompute), level, data.draw(st.integers(0, 2)))
        net = mp.Parallel(EXACT, LOSS, split, order)
    full, own = mp.Sequential(EXACT, LOSS), optimizer.fresh()
    for seed in range(2):
        X, Y = map(eighths, mini_batch(data.draw(st.integers(M, M + 2)), seed=seed))
        assert net.train([(X, Y)], own) == [full.forward_backward(X, Y)]
        full.step(optimizer)
    assert_same(parameters(net.layers), parameters(full.layers))
    assert_same(dict(own.memory), optimizer.memory)
    for stage in net._run.stages.values() if T == 1 else ():
        whole = full.layers[sum(len(before.layers) for before in net.stages[:stage.index]):]
        assert_same(parameters(stage.layers), parameters(whole[:len(stage.layers)]))


@pytest.mark.parametrize("zero", [1, 2, 3])
@pytest.mark.parametrize("D, T, K", [(2, 1, 1), (3, 1, 2), (2, 2, 1), (2, 2, 2)])
def test_tied_layers_are_updated_with_the_sum_of_their_gradients(zero, D, T, K):
    """In rational numbers; the layers are on one device or on two, in one unit or in several."""
    first, last = (mp.Linear(2, 4, tie="W") for _ in "12")
    layers = exact([first, mp.Tanh(), mp.Linear(4, 2), last, mp.Linear(4, 2)])
    net = mp.Parallel(layers, LOSS, mp.Split(D, T, K), memory=mp.Memory(zero=zero))
    full, optimizers = mp.Sequential(layers, LOSS), [mp.SGD(Rational(1, 4), Rational(1, 2)) for _ in "12"]
    batches = [tuple(map(eighths, mini_batch(3, seed=seed))) for seed in range(2)]
    assert net.train(batches, optimizers[0]) == full.train(batches, optimizers[1])
    assert_same(parameters(net.layers), parameters(full.layers))
    assert_all_same(map(parameters, net.replicas))


@pytest.mark.parametrize("D, M, zero, buckets", [
    (2, 2, 1, None), (3, 8, 1, 100), (5, 6, 2, 1), (3, 6, 3, 100),
])
def test_any_floats_have_the_bits_of_plain_data_parallelism(D, M, zero, buckets):
    """With blocks of layers, batch norm and dropout, over several steps; on every copy."""
    sums = mp.Sums(buckets=buckets)
    net, plain = (
        mp.DataParallel(blocks(), LOSS, D, M, level, dtype=np.float32, sums=sums) for level in (zero, 0)
    )
    adam, other = mp.Adam(0.01), mp.Adam(0.01)
    for seed in range(4):
        batch = mini_batch(25, np.float32, seed)
        assert net.train([batch], adam) == plain.train([batch], other)
        copies = [parameters(layers) for layers in net.replicas]
        assert len(copies) == D
        assert_all_same(copies, parameters(plain.layers))
    arrays = [array for copy in copies for array in copy.values()]
    assert not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])
    assert np.array_equal(net.layers[1].running_var, plain.layers[1].running_var)


def test_between_two_runs_all_parameters_can_be_read_and_changed():
    net, plain = (mp.DataParallel(LAYERS, LOSS, 3, zero=zero) for zero in (3, 0))
    X, Y = mini_batch(7)
    for model in (net, plain):
        model.train([(X, Y)], mp.SGD(0.1))
        model.layers[0].W = model.layers[0].W / 2
    assert np.array_equal(net.predict(X), plain.predict(X))
    assert net.train([(X, Y)], mp.SGD(0.1)) == plain.train([(X, Y)], mp.SGD(0.1))
    assert_all_same(map(parameters, net.replicas), parameters(plain.layers))


def test_a_device_has_no_numbers_of_what_it_has_freed():
    """Tick by tick: each array is whole, or has no memory and no number that is not NaN."""
    net = mp.DataParallel(LAYERS, LOSS, 2, zero=3, on=mp.Machine(link=mp.Link(latency=1)))
    net.start(*mini_batch(4), mp.SGD(0.1))
    seen = set()
    while net.tick():
        for stage in net._run.stages.values():
            arrays = parameters(stage.layers).values()
            gone = [not any(array.strides) and np.isnan(array).all() for array in arrays]
            assert len(set(gone)) <= 1 and gone.count(False) == len(stage.owned.whole)
            seen |= {(stage.index, one) for one in gone}
    assert seen == {(stage, one) for stage in range(4) for one in (True, False)}


# Bytes


@pytest.mark.parametrize("N", [2, 3])
@pytest.mark.parametrize("level, n, times", [(0, 1, 2), (1, 1, 2), (2, 1, 2), (3, 1, 3), (3, 2, 5)])
def test_a_copy_sends_as_much_as_without_and_for_stage_3_once_for_each_gather(level, n, times, N):
    """2 Psi (N - 1)/N numbers; of stage 3, (2 n + 1) Psi (N - 1)/N for n micro-batches a copy."""
    order = data_parallel(N, n * N, n_stages=4)
    trace = of_four(N, n, with_zero(order, level) if level else with_updates(order)).trace
    assert [bytes_sent(trace, device) for device in range(N)] == [8 * times * PSI * (N - 1) // N] * N


def test_what_stays_whole_between_forward_and_backward_is_gathered_once():
    """Without the X and the G between the last stage's F and B, as FSDP may leave them out: 240 fewer."""
    order = with_zero(data_parallel(2, 2, 4), 3, 0)
    devices = [list(actions) for actions in order.devices]
    for i, actions in enumerate(devices):
        place = actions.index(Action("X", 3, i))
        assert list(map(str, actions[place:place + 2])) == [f"3X{i}", f"3G{i}"]
        del actions[place:place + 2]
    trace = of_four(2, 1, replace(order, devices=devices)).trace
    assert [bytes_sent(trace, device) for device in range(2)] == [8 * (3 * 960 - 240) // 2] * 2


@pytest.mark.parametrize("N", [2, 3])
@pytest.mark.parametrize("level, K, prefetch, parameters, gradients", [
    (1, 1, 0, lambda N: PSI, lambda N: PSI),
    (1, 4, 0, lambda N: PSI, lambda N: PSI),
    (2, 4, 0, lambda N: PSI, lambda N: PSI / 2 + PSI / 2 / N),
    (3, 4, 0, lambda N: PSI / N + PSI / 4, lambda N: PSI / 4 + 3 * PSI / 4 / N),
    (3, 4, 1, lambda N: PSI / N + PSI / 2, lambda N: PSI / 2 + PSI / 2 / N),
])
def test_a_copy_has_its_part_at_most(level, K, prefetch, parameters, gradients, N):
    """Of Adam's memory always; with stage 2 of gradients, too, and with stage 3 of parameters.

    With stage 2, two of four layers' gradients are in parts when the third's is on its way and the last is
    made. With stage 3, one stage is whole, or with prefetching two.
    """
    order = with_zero(data_parallel(N, N, n_stages=K), level, prefetch)
    machine = mp.Machine(costs=mp.Costs(B=20, U=1), link=mp.Link(latency=1))
    trace = of_four(N, 1, order, machine).trace
    assert trace.peak_bytes(["parameters"]) == [8 * parameters(N)] * N
    assert trace.peak_bytes(["gradients"]) == [8 * gradients(N)] * N
    assert trace.peak_bytes(["optimizer state"]) == [16 * PSI // N] * N
    assert trace.peak_bytes(["weight versions"]) == [0] * N  # no copy waits for others' micro-batches
    for device in range(N) if K == 1 else ():  # when S is over
        assert 8 * PSI // N in [held.get("gradients") for _, held in trace.ledger(device)]
    for device in range(N) if level == 3 else ():
        assert trace.ledger(device)[0][1]["parameters"] in (8 * PSI // N, 8 * PSI // N + 2 * PSI)
        assert trace.ledger(device)[-1][1]["parameters"] == 8 * PSI // N


def of_published(*shape):
    """Mixed precision with Adam: 2 + 2 + 12 bytes for each parameter. arXiv 1910.02054, table 1."""
    return mp.footprints(
        [mp.Linear(*shape)], LOSS, 1, shape[:1], 1, optimizer=mp.Adam(), precision="mixed", patterns=["FB"]
    )


@pytest.mark.parametrize("N, stage_1, stage_2, stage_3", [(4, 52.5, 41.25, 30), (16, 35.625, 21.5625, 7.5)])
def test_the_published_gigabytes_of_a_network_of_7_5_billion_parameters(N, stage_1, stage_2, stage_3):
    """120 GB without ZeRO; those of stages 2 and 3 once all gradients are in parts, of stage 1 at most."""
    order, sizes = data_parallel(N, N), of_published(74_999, 100_000)

    def ledger(order):
        trace = mp.simulate(order, mp.Costs(U=1), mp.Link(latency=1), sizes)
        return [sum(held.get(kind, 0) for kind in KEPT) / 1e9 for _, held in trace.ledger(N - 1)]

    assert max(ledger(with_updates(order))) == 120
    assert max(ledger(with_zero(order, 1))) == stage_1
    assert stage_2 in ledger(with_zero(order, 2))
    assert stage_3 in ledger(with_zero(order, 3))


@pytest.mark.parametrize("shape, N, gigabytes", [  # in the three stages, as printed
    ((74_999, 100_000), 4, "52.5 41.25 30"),
    ((74_999, 100_000), 64, "31.4 16.6 1.88"),
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
    sizes, found = of_published(*shape), []
    for level in (1, 2, 3):
        device = StandIn(sizes, ["FB"], 1, wanted={0: 0}, place=(N - 1, N), in_parts=level == 3)
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
