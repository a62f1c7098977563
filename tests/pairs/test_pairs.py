"""Every pair of values of two options gives exactly the right numbers, or is refused in a sentence.

The table is in `tests/pairs.md`. A row that fails is printed; `outcome(filled(row))` runs it again. With
PAIRS_SEED=1, 2, ... in the environment other rows are drawn.
"""

import os
from random import Random

import pytest
from pairs.bugs import FOUND_BY
from pairs.covering import all_pairs, covered, drawn
from pairs.outcomes import Wrong, outcome
from pairs.table import FILE, text_of
from settings import OPTIONS

SEED = int(os.environ.get("PAIRS_SEED", "0"))
WERE_WRONG = {  # what the net has found, in rows as it printed them
    "a stream of a network in shards ran with a flush":
        {"network": "signal", "schedule": "pipedream-2bw", "T": 2, "how": "train", "updates": "order"},
    "sums over shards of a stream in grains were those of another mini-batch":
        {"network": "image", "schedule": "pipedream-2bw", "T": 2, "rows": True, "grain": 2, "how": "train",
         "updates": "order"},
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


@pytest.mark.parametrize("bug", FOUND_BY)
def test_the_net_catches_a_bug_of_a_pair(bug, monkeypatch):
    outcome(FOUND_BY[bug])
    bug(monkeypatch)
    with pytest.raises(Wrong):
        outcome(FOUND_BY[bug])


@pytest.mark.slow
def test_every_pair_is_right_or_refused_as_the_table_says():
    """If only sentences or options have changed, write it anew: `python3 tests/pairs/table.py`."""
    ran, refused, rows = covered(SEED)
    assert len(rows) > len(OPTIONS)
    assert {*all_pairs()} <= {*ran, *refused}
    assert text_of(refused) == FILE.read_text()
