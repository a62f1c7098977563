"""Every pair of values of two options gives exactly the right numbers, or is refused in a sentence.

The table is in `tests/pairs.md`. A row that fails is printed; `outcome(filled(row))` runs it again. With
PAIRS_SEED=1, 2, ... in the environment other rows are drawn.
"""

import os
from random import Random

import pytest
from pairs.outcomes import Wrong, outcome
from pairs.table import FILE, all_pairs, covered, drawn, text_of
from pitfalls.copies import statistics_averaged_over_copies
from pitfalls.large_batches import norm_counts_shared_weights_twice
from settings import OPTIONS

from minipipe import Dropout, ties
from minipipe.optimizers import Optimizer
from minipipe.parallel import batches, run
from minipipe.parallel.layout import ParameterShard
from minipipe.parallel.totals import Versions

SEED = int(os.environ.get("PAIRS_SEED", "0"))
WERE_WRONG = {  # what the net has found, in rows as it printed them
    "a stream of a network in shards ran with a flush":
        {"network": "signal", "schedule": "pipedream-2bw", "T": 2, "how": "train", "updates": "order"},
    "ZeRO of an optimizer that remembers nothing could not be saved":
        {"dtype": "float64", "schedule": "data-parallel", "D": 2, "M": 2, "zero": 3, "checkpoint": True,
         "updates": "order"},
    "copies of a stream in grains waited for the gradients of another mini-batch":
        {"schedule": "pipedream", "D": 2, "K": 2, "M": 2, "grain": 1, "how": "train", "updates": "order"},
    "tied layers were updated before their sum was there, where ZeRO has one copy":
        {"ties": True, "M": 2, "zero": 3, "updates": "order"},
    "copies that recomputed all but the last micro-batch of all met in different micro-batches":
        {"network": "normal", "D": 2, "M": 4, "sync_batch_norm": True, "recompute": "except_last"},
}


@pytest.mark.parametrize("what", WERE_WRONG)
def test_what_was_wrong_is_right_or_refused(what):
    outcome(WERE_WRONG[what])


def test_random_settings_are_right_or_refused():
    """Through two updates or more, against a plain loop in fractions, or the bits of one device."""
    rng = Random(SEED)
    ran = [outcome(drawn(rng)).oracle for _ in range(25)]
    assert {"a plain loop", "Sequential(grain)"} <= {*ran}


@pytest.mark.slow
def test_every_pair_is_right_or_refused_as_the_table_says():
    """If only sentences or options have changed, write it anew: `python3 tests/pairs/table.py`."""
    ran, refused, rows = covered(SEED)
    assert len(rows) > len(OPTIONS)
    assert {*all_pairs()} <= {*ran, *refused}
    assert text_of(refused) == FILE.read_text()


# Bugs of pairs of options, and for each a row that finds it; two more are of `pitfalls`

def tie_summed_twice(monkeypatch):
    """The gradient of the first tied layer is in the sum twice."""
    total = ties.sum_in_order
    monkeypatch.setattr(ties, "sum_in_order", lambda parts: total([*parts, next(iter(parts))]))


def mask_by_device(monkeypatch):
    """The samples of a dropout mask are counted from the first of each micro-batch."""
    kept = Dropout._kept

    def of_own_samples(self, shape):
        self.first_sample = 0
        return kept(self, shape)

    monkeypatch.setattr(Dropout, "_kept", of_own_samples)


def decay_of_b(monkeypatch):
    """With weights_only, biases decay, too."""
    after = Optimizer._after

    def with_decay(self, *arguments):
        own, self.weights_only = self.weights_only, False
        try:
            return after(self, *arguments)
        finally:
            self.weights_only = own

    monkeypatch.setattr(Optimizer, "_after", with_decay)


def lost_sample(monkeypatch):
    """The micro-batches of a ragged mini-batch are cut as short as the shortest."""
    even = batches.even_slices
    monkeypatch.setattr(batches, "even_slices", lambda m, n: even(m - (m % n if m > n else 0), n))


def stale_gather(monkeypatch):
    """ZeRO-3 hands on the parameters that it gathered first, from before the update."""
    gather = ParameterShard.gather

    def first_again(self, parts):
        layer = next(layer for layer in self._layers if layer.index is not None)
        KEPT.setdefault(str(layer), parts)
        gather(self, KEPT[str(layer)])

    KEPT = {}
    monkeypatch.setattr(ParameterShard, "gather", first_again)


def no_stash(monkeypatch):
    """A backward without a flush uses the newest weights, rather than those of its forward."""
    monkeypatch.setattr(Versions, "of", lambda self, i: self[self.newest])


def parts_of_ties_apart(monkeypatch):
    """With ZeRO, tied layers are each updated with the sum of their own gradient alone."""
    monkeypatch.setattr(ties, "exchange_tied_shards", lambda *arguments: iter(()))


def statistics_of_one_copy(monkeypatch):
    """A synchronised batch norm meets itself alone, rather than those of the other copies."""
    join = run.join_replicas
    monkeypatch.setattr(run, "join_replicas", lambda stages, ranks, D: join(stages, ranks, 1))


COPIES = {"schedule": "data-parallel", "D": 2, "M": 2}
FOUND_BY = {
    tie_summed_twice: {"ties": True, "K": 2},
    norm_counts_shared_weights_twice: {"ties": True, "clip": 0.25},
    mask_by_device: COPIES | {"dropout": True},
    decay_of_b: {"network": "image", "weights_only": True, "optimizer": "adam"},
    lost_sample: {"M": 2, "samples": "ragged"},
    stale_gather: COPIES | {"zero": 3, "updates": "order", "n_updates": 3},
    statistics_averaged_over_copies: {"network": "image normal", "M": 2, "samples": "ragged"},
    no_stash: {"schedule": "pipedream", "K": 3, "how": "train", "updates": "order", "n_updates": 3},
    parts_of_ties_apart: {"ties": True, "D": 2, "K": 2, "M": 2, "zero": 2, "updates": "order"},
    statistics_of_one_copy: {"network": "normal", "D": 2, "T": 2, "M": 2, "sync_batch_norm": True},
}


@pytest.mark.parametrize("bug", FOUND_BY)
def test_the_net_catches_a_bug_of_a_pair(bug, monkeypatch):
    outcome(FOUND_BY[bug])
    bug(monkeypatch)
    with pytest.raises(Wrong):
        outcome(FOUND_BY[bug])
