"""Exercises of notebooks 28 to 31: other solutions than the notebooks', and what the checkers say to typical
wrong answers.
"""

from statistics import mean, median

import numpy as np
import pytest
from notebooks.checkers import are_named, are_right
from pitfalls.bugs import BUGS

import minipipe as mp
from exercises import clocks, suspects, tasks


def joined(epochs):
    return [sum(shards, []) for shards in epochs]


def all_once(epochs, m):
    return all(sorted(order) == list(range(m)) for order in joined(epochs))


def all_differ(orders):
    return len({tuple(order) for order in orders}) == len(orders)


def timed(warm=1, waits=True, of=median, late=False):
    """Return a `seconds` with so many runs to warm up, which waits or not, and returns `of` what it found.

    late: whether it reads the clock after it has asked.
    """
    def seconds(start, wait, clock, n):
        found = []
        for _ in range(warm + n):
            begin = clock()
            start()
            begin = clock() if late else begin
            if waits:
                wait()
            found.append(clock() - begin)
        return of(found[warm:])
    return seconds


def first_run(start, wait, clock, n):
    return timed(warm=0)(start, wait, clock, 1)


def all_at_once(start, wait, clock, n):
    start()
    begin = clock()
    for _ in range(n):
        start()
    wait()
    return (clock() - begin) / n


test_solutions = are_right({
    clocks.check_seconds: [timed(), timed(of=lambda found: np.median(found))],
    suspects.check_healthy_epochs: [
        lambda epochs, m: np.bool_(all_once(epochs, m) and all_differ(joined(epochs))),
    ],
})
test_mistakes = are_named({
    tasks.check_must_wait: [
        (lambda one, two: bool(one[1] & two[0]), "write over what an earlier one has still to read"),
        (lambda one, two: bool(one[0] & two[1]), "start before what it reads is written"),
        (lambda one, two: bool(one[1] & two[0] or one[0] & two[1]), "two calls write one array"),
        (lambda one, two: bool(set.union(*one) & set.union(*two)), "Two calls may read the same array"),
        (lambda one, two: True, "Two calls may read the same array"),
        (lambda one, two: len(one[1]) == 1 and bool(one[1] & (two[0] | two[1]) or one[0] & two[1]),
         "one that is read is enough: earlier reads nothing and writes a, b"),
        (lambda one, two: one[1] & two[0], "Return True or False: this is {'c'}."),
    ],
    clocks.check_seconds: [
        (timed(warm=0), "The first run is in it"),
        (timed(waits=False), "how long it takes to *ask* for a run"),
        (timed(of=mean), "That is the mean"),
        (timed(of=min), "That is the fastest run"),
        (timed(of=max), "Without the first one the median is 2.001, yours is 9.001."),
        (timed(late=True), "Read the clock before you ask"),
        (first_run, "That is the first run alone"),
        (all_at_once, "Without the first one the median is 2.001"),
        (lambda start, wait, clock, n: [1.0], "must have shape ()"),
    ],
    suspects.check_healthy_epochs: [
        (lambda epochs, m: all_once(epochs, m), "two epochs in one order, bug F: [[[2, 0], [3, 1]], [[2,"),
        (lambda epochs, m: all_differ(joined(epochs)), "in which sample 0 comes twice and 3 never"),
        (lambda epochs, m: all_once(epochs[:1], m) and all_differ(joined(epochs)), "a bad second epoch"),
        (lambda epochs, m: all(set(order) == set(range(m)) for order in joined(epochs))
         and all_differ(joined(epochs)), "in which all samples come, but sample 1 twice"),
        (lambda epochs, m: all(order == list(range(m)) for order in joined(epochs)),
         "It calls two healthy epochs broken"),
        (lambda epochs, m: epochs[0] != epochs[1] and all_once(epochs, m), "stopped with IndexError"),
        (lambda epochs, m: len(epochs) > 1 and all_once(epochs, m), "It calls a single healthy epoch broken"),
        (lambda epochs, m: joined(epochs), "Return True or False: this is [[2, 0, 3, 1]"),
    ],
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
