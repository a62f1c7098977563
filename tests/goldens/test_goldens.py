"""What the package computes and says is what was found right once.

What a case is, and how to see one in full or to record all of them anew, says `recorded.py`.
"""

import pytest
from goldens import recorded, traces
from goldens.recorded import KINDS, differences, hashes

RECORDED = recorded.read()


def assert_as_recorded(kind, cases):
    found = []
    for case in cases:
        found += differences(kind, case, RECORDED[kind][case], hashes(kind, case))
    if found:
        pytest.fail("\n".join([
            f"{len(found)} parts are not those that were recorded. If the change is meant, "
            f"`python3 tests/goldens/recorded.py record {kind}` records them anew.", *found[:20],
        ]), pytrace=False)


def one_in(n, kind):
    """Return one in n of the recorded cases; and all of them in four parts, which are slow."""
    cases = list(RECORDED[kind])
    parts = [pytest.param(cases[k::4], id=f"part {k} of 4", marks=pytest.mark.slow) for k in range(4)]
    return [pytest.param(cases[::n], id=f"one in {n}"), *parts]


@pytest.mark.parametrize("cases", one_in(6, "traces"))
def test_schedules_keep_their_recorded_ticks_messages_reasons_and_bytes(cases):
    assert_as_recorded("traces", cases)


@pytest.mark.parametrize("cases", one_in(24, "runs"))
def test_trainings_keep_their_recorded_ticks_messages_reasons_and_bytes(cases):
    assert_as_recorded("runs", cases)


@pytest.mark.parametrize("cases", one_in(6, "texts"))
def test_explanations_pages_and_commands_keep_their_recorded_texts(cases):
    assert_as_recorded("texts", cases)


def test_files_that_were_saved_once_go_on_with_the_same_bits():
    assert_as_recorded("files", RECORDED["files"])


def test_nothing_that_was_recorded_is_left_out():
    """A schedule that no longer exists for some size is a change, too."""
    assert {*RECORDED["traces"]} == {*traces.cases()} and {*RECORDED} == {*KINDS}


def test_a_difference_is_told_with_the_command_that_shows_it():
    show = "python3 tests/goldens/recorded.py show runs 'D=2 K=2'"
    assert differences("runs", "D=2 K=2", {"idle": "1", "spans": "2"}, {"idle": "3", "bytes": "2"}) == [
        f"runs of 'D=2 K=2': idle differs: {show} 'idle'",
        f"runs of 'D=2 K=2': spans is gone: {show} 'spans'",
        f"runs of 'D=2 K=2': bytes is new: {show} 'bytes'",
    ]
