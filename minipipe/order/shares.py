"""Parts of a device's share of the network, exact where numbers can be."""

from fractions import Fraction
from itertools import chain
from numbers import Integral, Rational


def share(whole, n):
    """An n-th of `whole`: exactly, for whole numbers and fractions.

    >>> share(6, 3), share(1, 3), share(Fraction(6), 3), share(1.5, 3)
    (2, Fraction(1, 3), Fraction(2, 1), 0.5)
    """
    if not isinstance(whole, Integral):
        return whole / n
    return int(whole) // n if whole % n == 0 else Fraction(int(whole), n)


def adds_up_in_floats(number):
    """Whether 2**23 numbers like this one add up without any rounding in floats.

    Multiples of 1/1024 below 2**20 do: their sum is one of 2**53 multiples of 1/1024.
    """
    return not isinstance(number, Rational) or (1024 % number.denominator == 0 and number < 2**20)


def as_float(number):
    """A `Fraction` as the float that is equal, if there is one that adds up; any other number as it is.

    >>> as_float(Fraction(51, 2)), as_float(Fraction(1, 3)), as_float(4)
    (25.5, Fraction(1, 3), 4)
    """
    return float(number) if isinstance(number, Fraction) and adds_up_in_floats(number) else number


def in_floats(table, beside):
    """`table`, {kind: list of ticks}, with floats for its fractions, if sums of its ticks stay exact.

    beside: the times with which these will be added up.
    """
    if not all(map(adds_up_in_floats, chain(*table.values(), beside))):
        return table
    return {kind: list(map(as_float, ticks)) for kind, ticks in table.items()}
