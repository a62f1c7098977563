"""Ticks, messages, reasons to wait, queues and bytes of every schedule are those that were found right once.

What a case is, and how to record all of them anew, says `goldens.py`.
"""

from fractions import Fraction

import pytest
from schedules.goldens import (
    BYTES,
    CLOSED,
    COSTS,
    LINKS,
    NAMES,
    RECOMPUTE,
    cases,
    few_cases,
    hash_of,
    label,
    lines,
    read,
    sizes_of,
)
from sampling import one_in

RECORDED = read()


def assert_as_recorded(found):
    changed = [label(case) for case in found if RECORDED.get(case) != hash_of(case)]
    if changed:
        listed = "".join(f"\n    python3 tests/schedules/goldens.py {case}" for case in changed[:5])
        pytest.fail(
            f"{len(changed)} of {len(found)} traces are not those that were recorded. These commands print "
            f"some, so run one before and after your change, and compare:{listed}\n"
            "If the change is meant, `python3 tests/schedules/goldens.py` records all of them anew.",
            pytrace=False,
        )


@pytest.mark.parametrize("name", one_in(2, [*NAMES, *CLOSED]))
def test_traces_are_those_that_were_recorded(name):
    """Some of the cases, for each size for which the schedule exists."""
    assert_as_recorded([case for size in sizes_of(name) for case in few_cases(name, *size)])


@pytest.mark.slow
@pytest.mark.parametrize("name", [*NAMES, *CLOSED])
def test_all_traces_are_those_that_were_recorded(name):
    assert_as_recorded([case for size in sizes_of(name) for case in cases(name, *size)])


def test_nothing_that_was_recorded_is_left_out():
    """A schedule that no longer exists for some size is a change, too."""
    sizes = [(name, *size) for name in (*NAMES, *CLOSED) for size in sizes_of(name)]
    assert set(RECORDED) == {case for size in sizes for case in cases(*size)}


def test_a_few_cases_have_all_choices():
    few = [case for size in sizes_of("1f1b") for case in few_cases("1f1b", *size)]
    assert {case[3:5] for case in few} == {(costs, link) for costs in COSTS for link in LINKS}
    assert {case[5:] for case in few} == {(mode, counted) for mode in RECOMPUTE for counted in BYTES}


def test_equal_numbers_have_one_text(monkeypatch):
    """An int, a float and a fraction that are equal leave the same trace."""
    case = ("1f1b", 4, 4, "ints", "queueing", "never", "messages")
    texts = []
    for number in (int, float, Fraction):
        costs = COSTS["ints"](4)
        equal = type(costs)(F=number(1), B=number(2), A=number(1), U=number(1), message_bytes=4)
        monkeypatch.setitem(COSTS, "ints", lambda n, equal=equal: equal)
        texts.append(lines(case))
    assert texts[0] == texts[1] == texts[2]
