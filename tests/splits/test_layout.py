"""Where the numbers of a network lie, however it is split: each is somewhere, and comes back unchanged."""

import copy
import pickle

import numpy as np
import pytest
from compared import assert_all_same, assert_same, parameters
from hypothesis import given, settings
from hypothesis import strategies as st

import minipipe as mp
from minipipe.layers.layer import parameters_with
from minipipe.order import in_copies, with_updates, with_zero
from minipipe.parallel.layout import MemoryInParts, join_pieces, memories_in, parts
from minipipe.schedules import build, data_parallel

LOSS = mp.MeanSquaredError()


@st.composite
def networks(draw):
    """Networks of D copies of T shards of K stages, of widths that T need not divide; ZeRO or not."""
    n = [draw(st.integers(1, 9)) for _ in range(4)]
    block = mp.Residual(mp.Linear(12, n[1]), mp.Tanh(), mp.Linear(n[1], 12))
    layers = draw(st.sampled_from([
        [mp.Linear(n[0], n[1]), mp.ReLU(), mp.Linear(n[1], n[2]), mp.Linear(n[2], n[3], bias=False)],
        [mp.Linear(n[0], 12), mp.BatchNorm(12), block, mp.Linear(12, n[3])],
        [mp.Embedding(n[0] + 4, 12), mp.TransformerBlock(12, 12, n[1]), mp.ReLU(), mp.Linear(12, 9)],
        [mp.Conv1d(2, n[1], 3, padding=1), mp.ReLU(), mp.Flatten(), mp.Linear(4 * n[1], n[2])],
    ]))
    T, K = draw(st.integers(1, 4)), draw(st.integers(1, 2))
    D = draw(st.integers(1, 3 if T < 3 else 2))
    order = draw(st.sampled_from([data_parallel(D, D, K), in_copies(build("1f1b", K, 1), D)]))
    if draw(st.booleans()):
        D, order = 1, build("chimera", 2, 2)  # two copies on the same devices
    zero = draw(st.integers(0, 3)) if order.n_copies > 1 else 0
    order = with_zero(order, zero) if zero else with_updates(order)
    memory = dict(count_bytes=True)
    try:
        return mp.Parallel(
            layers, LOSS, replicas=D, shards=T, stages=order.n_stages, microbatches=order.n_microbatches,
            schedule=order, **memory
        )
    except ValueError as error:  # T splits nothing of it
        assert "shards=" in str(error), error
        return mp.Parallel(
            layers, LOSS, replicas=D, shards=1, stages=order.n_stages, microbatches=order.n_microbatches,
            schedule=order, **memory
        )


def trained(net):
    """Return `net` after two updates with Adam."""
    first, m = net.layers[0], 2 * net.n_microbatches
    rng, kind = np.random.default_rng(0), type(first)
    if kind is mp.Embedding:
        X = rng.integers(0, first.n_tokens, (2, m))
    else:
        X = rng.standard_normal((2, 4, m) if kind is mp.Conv1d else (first.W.shape[1], m))
    net.train([(X, net.predict(X) + 1)] * 2, mp.Adam())
    return net


def laid_out(net):
    """Return the layout of a network, and the stages of its shards."""
    net._prepare(net.schedule)
    net._share_layers()
    return net._layout(), net._in_shards.stages


def keyed(layers, gradients=None):
    """Return {key of a parameter: the parameter, or its gradient}."""
    gradients = [(layer.W, layer.b) for layer in layers] if gradients is None else gradients
    return {key: array for key, (_, _, array) in parameters_with(layers, gradients).items()}


def numbered(net):
    """Return {key of a parameter: two arrays of its shape, in which no number occurs twice}."""
    found, first = {}, 0
    for key, array in keyed(net.layers).items():
        found[key] = [np.arange(first, first + array.size, dtype=float).reshape(array.shape) for _ in "12"]
        found[key][1] += 0.5
        first += array.size
    return found


@given(networks())
def test_the_whole_comes_back_from_its_parts(net):
    """Of blocks and of ranges; also from the pieces that count alone, in which each number is once.

    No part keeps more than its numbers, and a block is what the layers of a shard have.
    """
    memory, (layout, shards) = numbered(net), laid_out(net)
    for pieces in layout:
        found = parts(pieces, memory)
        assert_same(join_pieces(pieces, found), memory)
        alone = {place: {key: arrays for key, arrays in here.items() if pieces[place][key].counts}
                 for place, here in found.items()}
        assert_same(join_pieces(pieces, alone), memory)
        counted = [arrays[0].ravel() for here in alone.values() for arrays in here.values()]
        n_numbers = sum(arrays[0].size for arrays in memory.values())
        assert_same(np.sort(np.concatenate(counted)), np.arange(float(n_numbers)))
        for array in [array for here in found.values() for arrays in here.values() for array in arrays]:
            assert array.flags.c_contiguous and array.dtype == float
            assert array.base is None or any(array is one for arrays in memory.values() for one in arrays)
    found = parts(layout.work, {key: [array] for key, array in keyed(net.layers).items()})
    for stages, wires in zip(shards, net._wires, strict=True):
        for stage in stages:
            for device in wires.holders(stage.index):
                expected = {key: [array] for key, array in keyed(stage.layers).items()}
                assert_same(found[stage.index, device], expected)


def holding(memory):
    """Return an Adam that remembers this."""
    adam = mp.Adam()
    adam.memory = memory
    return adam


@given(networks())
def test_what_is_remembered_goes_from_one_layout_to_another(net):
    """From parts to parts as from the whole to parts; a copy of an optimizer has it in parts, too."""
    memory, (layout, _) = numbered(net), laid_out(net)
    kept = MemoryInParts(layout.memory, parts(layout.memory, memory))
    assert memories_in(layout.memory, holding(kept), net.layers) is kept.parts
    pieces = laid_out(mp.DataParallel(net.layers, LOSS, 3, zero=2))[0].memory
    assert_same(memories_in(pieces, holding(kept), net.layers), parts(pieces, memory))
    for again in (copy.deepcopy(kept), pickle.loads(pickle.dumps(kept))):
        assert memories_in(layout.memory, holding(again), net.layers) is again.parts
        assert_same(dict(again), memory)


@settings(max_examples=25)
@given(networks())
def test_a_device_holds_the_bytes_of_its_pieces(net):
    """8 for each number of a block that it works with, 16 for what Adam remembers for each number.

    And copies have equal bits after updates that each has made.
    """
    layout, _ = laid_out(net)
    trained(net)

    def numbers(pieces, device):
        sizes = [np.prod(piece.shape, dtype=int) if piece.numbers is None else len(piece.numbers)
                 for (_, other), here in pieces.items() if other == device for piece in here.values()]
        return int(sum(sizes))

    for device in range(net.trace.n_devices):
        last = net.trace.ledger(device)[-1][1]
        assert last.get("optimizer state", 0) == 16 * numbers(layout.memory, device)
        if "X" not in net.schedule.kinds:
            here = [stage for (_, other), stage in net._run.stages.items() if other == device]
            statistics = sum(array.nbytes for stage in here for array in stage.statistics())
            assert last.get("parameters", 0) == 8 * numbers(layout.work, device) + statistics
    of_stages = {}
    for (index, device), stage in net._run.stages.items():
        shard = next(t for t, wires in enumerate(net._wires) if device in wires.holders(index))
        of_stages.setdefault((index, shard), []).append(parameters(stage.layers))
    for copies in of_stages.values():
        assert_all_same(copies)


def test_what_lies_on_other_ranks_cannot_be_read():
    net = mp.DataParallel([mp.Linear(2, 2)], LOSS, 2, zero=1)
    pieces = laid_out(net)[0].memory
    some = {place: arrays for place, arrays in parts(pieces, numbered(net)).items() if place[1] == 0}
    with pytest.raises(RuntimeError, match="lies on 1 other MPI ranks, too: use the optimizer that net"):
        len(MemoryInParts(pieces, some))


@pytest.mark.parametrize("make", [
    lambda layers: mp.Sequential(layers, LOSS),
    lambda layers: mp.Pipeline(layers, LOSS, 1, 2, schedule=with_updates(build("gpipe", 1, 2))),
    lambda layers: mp.Pipeline(layers, LOSS, 1, 1, schedule="pipedream"),
    lambda layers: mp.DataParallel(layers, LOSS, 2, zero=1),
    lambda layers: mp.DataParallel(layers, LOSS, 2, zero=3),
    lambda layers: mp.Parallel(
        layers, LOSS, shards=2, microbatches=2, schedule=with_updates(build("gpipe", 1, 2))),
    lambda layers: mp.ParameterServer(layers, LOSS, 2, servers=2),
], ids=["one device", "stages", "a stream", "ZeRO 1", "ZeRO 3", "shards", "servers"])
def test_an_optimizer_that_remembers_another_network_is_refused(make):
    """Of as many layers, but other shapes; nothing moves."""
    batch, adam = [(np.ones((4, 4)), np.ones((2, 4)))], mp.Adam()
    make([mp.Linear(4, 6), mp.Linear(6, 2)]).train(batch, adam)
    net = make([mp.Linear(4, 3), mp.Linear(3, 2)])
    before = copy.deepcopy((parameters(net.layers), dict(adam.memory), adam.n_updates))
    with pytest.raises(ValueError, match="this optimizer remembers the gradients of another network"):
        net.train(batch, adam)
    assert_same((parameters(net.layers), dict(adam.memory), adam.n_updates), before)
