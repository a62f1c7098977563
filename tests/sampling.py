"""Grids of cases: the README's command runs a sample of them, a bare `pytest` all."""

from itertools import product

import pytest

# how often hypothesis tries a property: n // share times
a_quarter_of_the_examples = pytest.mark.parametrize(
    "share", [4, pytest.param(1, marks=pytest.mark.slow)], ids="one in {}".format
)


def one_in(n, *axes):
    """The cases of a grid for `parametrize`: one in n as it is, the others `slow`.

    axes: the values of each argument; one axis is a list of cases, each of one argument.

    The sample lies along diagonals: with two axes and n up to the length of the shorter one, each value of
    both is in it.

    >>> [case.values for case in one_in(2, "ab", [1, 2]) if not case.marks]
    [('a', 1), ('b', 2)]
    """
    cases = [zip(*case) for case in product(*map(enumerate, axes))]
    return [
        pytest.param(*values, marks=[pytest.mark.slow] * (sum(places) % n > 0)) for places, values in cases
    ]
