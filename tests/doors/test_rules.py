"""Options that do not go together: each rule of `minipipe.parallel.rules` has a network that breaks it."""

import pytest

import minipipe as mp
from minipipe.order import Schedule
from minipipe.parallel.rules import REFUSALS
from minipipe.schedules import data_parallel, gpipe, replicated_stages

LAYERS = [mp.Linear(2, 4), mp.ReLU(), mp.Linear(4, 2)]
TIED = [mp.Linear(2, 2, tie="W"), mp.Tanh(), mp.Linear(2, 2, tie="W")]
COPIES, STAGES = mp.Split(replicas=2), mp.Split(stages=2)
SYNC = mp.Sums(sync_batch_norm=True)


def network(split, schedule="1f1b", layers=LAYERS, **options):
    return mp.Parallel(layers, mp.MeanSquaredError(), split, schedule, **options)


BROKEN = {  # name of a rule -> (a call that breaks it, words of its sentence)
    "schedule, replicas": (
        lambda: network(mp.Split(replicas=2, stages=2, microbatches=4), gpipe(2, 4)),
        "the order of 'gpipe' has 1 copies of the network on 2 devices, which are not 2 replicas: pass the "
        "order of one replica",
    ),
    "limit, engine": (
        lambda: network(STAGES, memory=mp.Memory(limit=100), on=mp.Machine("threads")),
        "a limit needs the bytes that only the cluster counts: use on=Machine('cluster')",
    ),
    "grain, accumulate": (
        lambda: network(STAGES, sums=mp.Sums("running", grain=2)),
        "grain=2 needs accumulate='tree', not 'running', to keep its bits",
    ),
    "grain, all_reduce": (
        lambda: network(COPIES, sums=mp.Sums(all_reduce="ring", grain=2)),
        "grain=2 needs all_reduce='owners', not 'ring', to keep its bits",
    ),
    "grain, sync_batch_norm": (
        lambda: network(COPIES, sums=mp.Sums(grain=2, sync_batch_norm=True)),
        "sync_batch_norm=True with grain=2: the copies meet in each micro-batch, not in each grain",
    ),
    "replicas, sync_batch_norm": (
        lambda: network(mp.Split(replicas=2, microbatches=3), sums=SYNC),
        "sync_batch_norm=True with 3 micro-batches over 2 replicas: the copies meet in each micro-batch, so "
        "use a multiple of 2",
    ),
    "copies, sync_batch_norm": (
        lambda: network(mp.Split(microbatches=4), data_parallel(2, 4), sums=SYNC),
        "sync_batch_norm=True with the 2 copies that the order of 'data-parallel' has itself: only replicas",
    ),
    "schedule, sync_batch_norm": (
        lambda: network(STAGES, "pipedream", sums=SYNC),
        "sync_batch_norm=True with 'pipedream', which has no flush: the statistics would be of other weights",
    ),
    "zero, all_reduce": (
        lambda: network(COPIES, memory=mp.Memory(zero=1), sums=mp.Sums(all_reduce="ring")),
        "all_reduce='ring', but with zero, or an S in the order, each device owns a part of the sum: use "
        "'owners'",
    ),
    "zero, microbatches": (
        lambda: network(mp.Split(replicas=2, microbatches=3), memory=mp.Memory(zero=3)),
        "zero=3 with 3 micro-batches over 2 replicas: all of them gather parameters for each",
    ),
    "zero, copies": (
        lambda: network(mp.Split(stages=2, microbatches=3), replicated_stages([2, 1], 3),
                        memory=mp.Memory(zero=1)),
        "zero=1 with 'replicated-stages', in which some stages are on one device only",
    ),
    "schedule, ties": (
        lambda: network(STAGES, "pipedream", TIED),
        "tie='W': tied weights need a flush, which the order of 'pipedream' does not have on each device",
    ),
    "schedule, zero": (
        lambda: network(STAGES, "pipedream", memory=mp.Memory(zero=1)),
        "the order of 'pipedream' says itself what is summed or updated when: leave out zero",
    ),
}


def test_each_rule_has_a_name_of_its_own_and_a_network_that_breaks_it():
    assert list(BROKEN) == [rule.name for rule in REFUSALS]


@pytest.mark.parametrize("name", BROKEN)
def test_what_breaks_a_rule_is_refused_by_its_sentence(name):
    call, words = BROKEN[name]
    with pytest.raises(ValueError) as complaint:
        call()
    assert words in str(complaint.value)


def test_copies_that_meet_in_other_micro_batches_are_not_alike():
    """The backwards of the second copy come in another order than its forwards."""
    own = Schedule.from_text(["0F0 0F1 0B0 0B1", "0F2 0F3 0B3 0B2"], 4, copy_of=(0, 0, 1, 1))
    with pytest.raises(ValueError, match="one order for all copies"):
        network(mp.Split(replicas=2, microbatches=4), own, sums=SYNC)


def test_copies_of_some_stages_are_no_replicas():
    with pytest.raises(ValueError, match="2 copies of the network on 3 devices, which are not 2 replicas"):
        network(mp.Split(replicas=2, stages=2, microbatches=4), replicated_stages([2, 1], 4))
