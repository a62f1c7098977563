"""Gradients summed in one running buffer: as exact where nothing is rounded, and its bytes are foreseen."""

from functools import reduce

import numpy as np
import pytest
from cases import compositions, valid_schedules
from compared import assert_same, difference
from hypothesis import given, settings
from hypothesis import strategies as st
from memory.test_foresight import (
    CONNECTED, LAYERS, LOSS, assert_same_bytes, footprints, in_halves, mini_batch,
)

import minipipe as mp
from minipipe.functions import leaves
from minipipe.layers.through import backward_through, forward_through
from minipipe.schedules import (
    RECOMPUTE,
    build,
    build_for_stages,
    in_copies,
    names_for_stages,
    with_recompute,
    with_updates,
)
from minipipe.sums import SUMS

DENSE = mp.Sequential([mp.Linear(5, 6), mp.Tanh(), mp.Linear(6, 3)], LOSS).layers


def gradients(schedule, X, Y, accumulate="running", layers=DENSE):
    pipe = mp.Pipeline(
        layers, LOSS, schedule.n_stages, schedule.n_microbatches, schedule, accumulate=accumulate
    )
    pipe.forward_backward(X, Y)
    return leaves(pipe.gradients)


def terms(X, Y, M):
    """For each micro-batch, its gradients."""
    found, m = [], X.shape[-1]
    for columns in np.array_split(range(m), M):
        LOSS.forward(forward_through(DENSE, X[:, columns], {}), Y[:, columns], m)
        found.append(leaves(backward_through(DENSE, LOSS.backward(), {})[1]))
    return found


def added(terms):
    """Their sum, from the first to the last."""
    return reduce(lambda total, term: [a + b for a, b in zip(total, term, strict=True)], terms)


def test_it_adds_in_order_of_arrival():
    X, Y = mini_batch(24)
    of_each = terms(X, Y, 6)
    for name, order in (("gpipe-fifo", range(6)), ("gpipe", reversed(range(6)))):
        assert_same(gradients(build(name, 1, 6), X, Y), added([of_each[i] for i in order]))
    found = {name: gradients(build(name, 1, 6), X, Y) for name in ("gpipe", "gpipe-fifo")}
    assert difference(found["gpipe"], found["gpipe-fifo"])  # so the bits do depend on the schedule
    assert_same(*(gradients(build(name, 1, 6), X, Y, "tree") for name in found))


@pytest.mark.parametrize("D", [2, 3, 5])
def test_the_buffers_of_copies_are_added_in_the_order_of_the_copies(D):
    X, Y = mini_batch(24)
    schedule, of_each = in_copies(build("1f1b", 1, 2), D), terms(X, Y, 2 * D)
    of_copies = [added(of_each[2 * copy:2 * copy + 2]) for copy in range(D)]
    assert_same(gradients(schedule, X, Y), added(of_copies))


GIVEN = []  # (gradients, copies of them)


class Keeps(mp.Linear):
    """A user's layer, which gives its gradients away and still reads them."""

    def backward_weight(self, dZ):
        found = super().backward_weight(dZ)
        GIVEN.append((found, [array.copy() for array in found]))
        return found


@pytest.mark.parametrize("accumulate", SUMS)
def test_no_sum_is_put_into_an_array_that_a_users_layer_may_hold(accumulate):
    layers = [Keeps(5, 6), mp.Tanh(), Keeps(6, 3)]
    GIVEN.clear()
    gradients(build("1f1b", 3, 5), *mini_batch(15), accumulate, layers)
    assert len(GIVEN) == 10
    assert_same(*zip(*GIVEN))


@pytest.mark.slow
@settings(max_examples=25)
@given(st.data())
def test_its_bytes_are_foreseen_at_every_tick(data):
    """Schedules with a name, or any that can run; copies, recomputation, ragged sizes, tied weights."""
    layers = data.draw(st.sampled_from([LAYERS, CONNECTED]))
    if data.draw(st.booleans()):
        n_copies, M = data.draw(st.integers(1, 3)), 4
        partition = data.draw(st.sampled_from([[2, 2, len(layers) - 6, 2], [1, 3, len(layers) - 5, 1]]))
        schedule = build_for_stages(data.draw(st.sampled_from(names_for_stages(4, M))), 4, M)
        schedule = in_copies(with_recompute(schedule, data.draw(st.sampled_from(list(RECOMPUTE)))), n_copies)
    else:
        partition = data.draw(compositions(len(layers)))
        schedule = data.draw(valid_schedules(len(partition), data.draw(st.integers(1, 6))))
    M = schedule.n_microbatches
    m, link = data.draw(st.integers(2 * M, 3 * M - 1)), mp.Link(latency=data.draw(st.integers(0, 2)))
    pipe = mp.Pipeline(
        layers, LOSS, len(partition), M, schedule, partition=partition, link=link, accumulate="running"
    )
    pipe.forward_backward(*mini_batch(m))
    sizes = running(footprints(partition, m, M, layers=layers))
    assert_same_bytes(mp.simulate(schedule, link=link, footprints=sizes), pipe.trace)


def running(footprints):
    """For each micro-batch, the same with a running buffer."""
    return [[of_stage._replace(accumulate="running") for of_stage in stages] for stages in footprints]


@pytest.mark.parametrize(("name", "M"), [("pipedream", 1), ("pipedream-2bw", 4), ("pipedream-2bw", 5),
                                         (in_halves, 1)])
def test_its_bytes_are_foreseen_where_updates_go_on_without_a_flush(name, M):
    """Behind 2 mini-batches, so that Adam has its state; the same costs as with the tree where M is 1."""
    partition, m, costs = [2, 2, 3, 1], 2 * M + 1, {}
    for accumulate in SUMS:
        pipe = mp.AsynchronousPipeline(
            LAYERS, LOSS, 4, mp.Adam(), name, M, partition=partition, accumulate=accumulate
        )
        costs[accumulate] = [*pipe.train([mini_batch(m)] * 2), *pipe.train([mini_batch(m)] * 5)]
        sizes = 5 * footprints(partition, m, M, mp.Adam())
        sizes = running(sizes) if accumulate == "running" else sizes
        assert_same_bytes(mp.simulate(pipe.schedule, footprints=sizes), pipe.trace)
    assert M > 1 or costs["running"] == costs["tree"]


def test_updates_in_the_order_of_one_mini_batch_are_foreseen_too():
    schedule = with_updates(in_copies(build("1f1b", 4, 4), 2))
    pipe = mp.Pipeline(
        LAYERS, LOSS, 4, 8, schedule, partition=[2, 2, 3, 1], optimizer=mp.SGD(0.1), accumulate="running"
    )
    pipe.train([mini_batch(17)])
    sizes = running(footprints([2, 2, 3, 1], 17, 8))
    assert_same_bytes(mp.simulate(schedule, footprints=sizes), pipe.trace)


@pytest.mark.parametrize("name", names_for_stages(4, 8))
def test_a_stage_never_keeps_more_than_one_sum(name):
    """Where the tree keeps up to four."""
    kept = {}
    for accumulate in SUMS:
        pipe = mp.Pipeline(LAYERS, LOSS, 4, 8, name, accumulate=accumulate)
        pipe.start(*mini_batch(16))
        kept[accumulate] = 0
        while pipe.tick():
            kept[accumulate] = max(kept[accumulate], *(stage.totals.n_held()[0] for stage in pipe.stages))
    assert kept["running"] == 1 < kept["tree"]


def test_the_same_word_means_the_same_everywhere():
    """`footprints`, `measure` and `Pipeline` begin with the tree, and what fits with one buffer."""
    X, Y = mini_batch(4)
    assert mp.Pipeline(LAYERS, LOSS, 2, 2).accumulate == "tree"
    (counted, *_), (measured, *_) = (
        mp.footprints(LAYERS, LOSS, 2, (5,), 4), mp.measure(LAYERS, LOSS, 2, X, Y, n_rounds=1).footprints
    )
    assert counted.accumulate == measured.accumulate == "tree"
    for accumulate in SUMS:
        foreseen = mp.footprints(LAYERS, LOSS, 2, (5,), 4, accumulate=accumulate)
        assert foreseen == mp.measure(
            LAYERS, LOSS, 2, X, Y, n_rounds=1, accumulate=accumulate
        ).footprints
        assert {of_stage.accumulate for of_stage in foreseen} == {accumulate}
    of_network = DENSE, LOSS, (5,), 64, 10**6, [1], [32], ["1f1b"], ["never"]
    (one,), (tree,) = mp.what_fits(*of_network), mp.what_fits(*of_network, accumulate="tree")
    assert (one.accumulate, tree.accumulate) == ("running", "tree")
    n_bytes = 4 * (5 * 6 + 6 + 6 * 3 + 3)
    assert tree.peak_bytes - one.peak_bytes >= 4 * n_bytes  # five sums wait before the last micro-batch


def test_other_words_are_refused():
    for wrong in ("ring", None, 3, ["tree"]):
        for make in (
            lambda wrong: mp.Pipeline(LAYERS, LOSS, 2, 2, accumulate=wrong),
            lambda wrong: mp.footprints(LAYERS, LOSS, 2, (5,), 4, accumulate=wrong),
            lambda wrong: mp.measure(LAYERS, LOSS, 2, *mini_batch(4), accumulate=wrong),
            lambda wrong: mp.what_fits(LAYERS, LOSS, (5,), 4, 10**6, accumulate=wrong),
        ):
            with pytest.raises(ValueError, match=r"accumulate=.* is not known: use one of tree, running"):
                make(wrong)
    tree, one = (mp.footprints(LAYERS, LOSS, 2, (5,), 4, accumulate=word) for word in SUMS)
    with pytest.raises(ValueError, match="accumulate=running and tree: make all with one of them"):
        mp.simulate(build("gpipe", 2, 2), footprints=[tree, one])
