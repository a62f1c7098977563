"""Exercises of notebooks 28 to 31: other solutions than the notebooks', and what the judges say to typical
wrong answers.
"""

import numpy as np
import pytest
from notebooks.checkers import are_named, are_right, edits, judge_of
from pitfalls.bugs import BUGS

import minipipe as mp
from exercises import clocks, suspects

SECONDS, EPOCHS, WAIT, BOUND = map(judge_of, ("seconds", "healthy_epochs", "must_wait", "bound"))
TIMED = """
def seconds(start, wait, clock, n):
    times = []
    for _ in range(1 + n):
        begin = clock()
        start()
        wait()
        times.append(clock() - begin)
    return np.median(times[1:])
"""
ALL_AT_ONCE = """
def seconds(start, wait, clock, n):
    start()
    begin = clock()
    for _ in range(n):
        start()
    wait()
    return (clock() - begin) / n
"""
IN_SETS = """
def healthy_epochs(epochs, m):
    orders = [tuple(k for shard in shards for k in shard) for shards in epochs]
    differ = len(set(orders)) == len(orders)
    return np.bool_(differ and not any(sorted(order) != list(range(m)) for order in orders))
"""
SHARED = """
def must_wait(one, two):
    return not two[1].isdisjoint(one[0] | one[1]) or not one[1].isdisjoint(two[0])
"""

test_solutions = are_right({
    SECONDS: [TIMED],
    EPOCHS: [IN_SETS],
    WAIT: [SHARED],
    BOUND: ["def bound(base, K, M):\n    return base / 3 * min(K, M)"],
})
test_mistakes = are_named({
    SECONDS: [
        *edits(
            TIMED,
            ("times[1:]", "times", "The seconds of runs that take"),
            ("        wait()\n", "", "how long it takes to *ask* for a run"),
            ("np.median(times[1:])", "np.mean(times[1:])", "That is the mean"),
            ("np.median(times[1:])", "min(times[1:])", "That is the fastest run"),
            ("np.median(times[1:])", "max(times[1:])", "yours is 9.001, it must be 2.001."),
            ("np.median(times[1:])", "times[:1]", "yours is [30.001], it must be 2.001."),
        ),
        (ALL_AT_ONCE, "asking takes 0.001: yours is 9.4"),
    ],
    EPOCHS: edits(
        IN_SETS,
        ("differ and not", "not", "two epochs in one order pass, bug F"),
        ("differ and not any(sorted(order) != list(range(m)) for order in orders)", "differ",
         "in which sample 0 comes twice and 3 never"),
        ("for order in orders)", "for order in orders[:1])", "a bad second epoch"),
        ("np.bool_(differ", "[differ]; (differ", "yours is a list, it must be True"),
    ),
    WAIT: edits(
        SHARED,
        ("one[0] | one[1]", "one[1]", "has still to read"),
        ("one[0] | one[1]", "one[0]", "write one array in any order"),
        (" or not one[1].isdisjoint(two[0])", "", "before what it reads is written"),
        ("isdisjoint(two[0])", "isdisjoint(two[0] | one[1])", "must_wait of calls that read a"),
    ),
    BOUND: [("def bound(base, K, M):\n    return base / 3 * K", "with M = 1 only one device works")],
})


def test_a_suspect_is_in_for_a_block_by_letter_or_by_name():
    assert set(suspects.BUGS.values()) <= set(BUGS)
    images = np.ones((2, 4))
    net = mp.Pipeline([mp.Linear(2, 2)], mp.MeanSquaredError(), 1, 2)
    right = net.forward_backward(images, images)
    for name in ("B", "gradient_scale"):
        with suspects.bug(name):
            assert net.forward_backward(images, images) == 2 * right
        assert net.forward_backward(images, images) == right


def test_the_machine_is_drawn_beside_the_book():
    plt = pytest.importorskip("matplotlib.pyplot")
    own = {name: 2 * book for name, (book, _) in clocks.ROWS.items()}
    fig = clocks.beside_the_book(own)
    book, here = (line.get_xdata() for line in fig.axes[0].lines)
    assert list(here) == [own[name] for name in clocks.ROWS] == [2 * x for x in book]
    plt.close(fig)
