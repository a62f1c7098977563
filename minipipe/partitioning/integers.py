"""Costs of any kind as integers in proportion to them, so that what is computed with them is exact."""

import math
from fractions import Fraction
from itertools import accumulate

from ..checks import listed, real_number


def checked(name, numbers, length=None, of="layers", least=0):
    """`numbers` as a list of Python numbers; `ValueError` if they cannot be costs.

    name: what they are called in an error.
    numbers: finite, each at least `least`.
    length: how many there must be; None for any number of them.
    of: what they belong to, in an error.
    least: the lowest that each may be.
    """
    numbers = listed(name, numbers, least=0)
    if length is not None and len(numbers) != length:
        raise ValueError(
            f"{name} has {len(numbers)} numbers for {length} {of}: give one for each, {length} in all"
        )
    return [real_number(f"{name}[{index}]", number, least) for index, number in enumerate(numbers)]


def in_proportion(*lists):
    """(lists of integers, scale): all numbers times the smallest `scale` that makes integers of them.

    >>> in_proportion([0.5, 2], [Fraction(1, 3)])
    ([[3, 12], [2]], 6)
    """
    ratios = [[number.as_integer_ratio() for number in numbers] for numbers in lists]
    scale = math.lcm(*(denominator for numbers in ratios for _, denominator in numbers))
    return [
        [numerator * (scale // denominator) for numerator, denominator in numbers] for numbers in ratios
    ], scale


def sums(numbers):
    """[0, n_0, n_0 + n_1, ...]: where each layer ends, and the next one begins."""
    return list(accumulate(numbers, initial=0))


def readable(integer, scale):
    """`integer / scale` as a number to be typed in: an int, or a float that is not below it.

    >>> readable(6, 3), readable(1, 3) >= Fraction(1, 3)
    (2, True)
    """
    if integer % scale == 0:
        return integer // scale
    number = integer / scale
    return number if Fraction(number) >= Fraction(integer, scale) else math.nextafter(number, math.inf)
