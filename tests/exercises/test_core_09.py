"""What notebook 09 says to orders that are not written as its solution is: right ones and wrong ones."""

import pytest

from exercises.judging import judged, part_named

PART = part_named("one_f_one_b")

COUNTED = """def one_f_one_b(device, K, M):
    ahead, f, b, order = {ahead}, 0, 0, []
    while {going}:
        if f < M and f - b < ahead + {more}:
            order.append(("F", f))
            f += 1
        else:
            order.append(("B", {which}))
            b += 1
    return order
"""
RULES = {"ahead": "K - 1 - device", "going": "b < M", "more": "1", "which": "b"}
WRONG = {
    "one forward too far ahead": {"more": "2"},
    "the wrong way round": {"ahead": "device"},
    "All your devices warm up alike": {"ahead": "K - 1"},
    "is the naive order": {"ahead": "0"},
    "Your order stops when the forwards are used up": {"going": "f < M or f - b > ahead"},
    "it must be": {"which": "M - 1 - b"},
    "finds no end": {"going": "True"},
}


@pytest.mark.parametrize("code", [
    COUNTED.format(**RULES),
    """def one_f_one_b(device, K, M):
    w = min(M, K - device - 1)
    up, down = [("F", i) for i in range(M)], [("B", i) for i in range(M)]
    turns = [action for pair in zip(up[w:], down) for action in pair]
    return up[:w] + turns + down[M - w:]
""",
])
def test_other_right_orders(code):
    assert judged(PART, code) == f"Right: {PART.right}"


@pytest.mark.parametrize("words", WRONG)
def test_wrong_orders_are_named(words):
    assert words in judged(PART, COUNTED.format(**RULES | WRONG[words]))
