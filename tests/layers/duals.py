"""Derivatives without a backward pass: numbers that carry their slope along, through the same forward
code, exactly.

A `Dual` v + s e, with e^2 = 0, follows the rules of the derivative: (v + s e)(w + t e) = v w + (v t + s w) e.
Of rational parts, it rounds nowhere but in exp, log, tanh, erf and sqrt, whose slopes are those of the
formulas: exp' = exp, log' = 1/v, tanh' = 1 - tanh^2, erf' = 2 e^(-v^2) / sqrt(pi), sqrt' = 1/(2 sqrt). So
what a backward pass returns is the same number, and `==` decides.
"""

import math
from functools import total_ordering

import numpy as np

from minipipe.exact import Rational


@total_ordering
class Dual:
    """value + slope * e; comparisons look at the value alone, as a branch in a formula does."""

    __slots__ = ("value", "slope")

    def __init__(self, value, slope=Rational(0)):
        self.value, self.slope = value, slope

    def __add__(self, other):
        if isinstance(other, np.ndarray):
            return NotImplemented  # the array takes it from here, number by number
        return Dual(self.value + value(other), self.slope + slope(other))

    __radd__ = __add__

    def __neg__(self):
        return Dual(-self.value, -self.slope)

    def __sub__(self, other):
        return self + -other

    def __rsub__(self, other):
        return -self + other

    def __mul__(self, other):
        if isinstance(other, np.ndarray):
            return NotImplemented
        return Dual(self.value * value(other), self.slope * value(other) + self.value * slope(other))

    __rmul__ = __mul__

    def __truediv__(self, other):
        if isinstance(other, np.ndarray):
            return NotImplemented
        quotient = self.value / value(other)
        return Dual(quotient, (self.slope - quotient * slope(other)) / value(other))

    def __rtruediv__(self, other):
        return Dual(Rational(other)) / self

    def __abs__(self):
        return -self if self.value < 0 else self

    def __eq__(self, other):
        return self.value == value(other)

    def __lt__(self, other):
        return self.value < value(other)

    __hash__ = None

    def exp(self):
        return self._through(self.value.exp(), self.value.exp())

    def log(self):
        return self._through(self.value.log(), 1 / self.value)

    def log1p(self):
        return self._through(self.value.log1p(), 1 / (1 + self.value))

    def tanh(self):
        return self._through(self.value.tanh(), 1 - self.value.tanh() ** 2)

    def erf(self):
        return self._through(self.value.erf(), 2 * Rational(1 / math.sqrt(math.pi)) * (-self.value**2).exp())

    def sqrt(self):
        return self._through(self.value.sqrt(), 1 / (2 * self.value.sqrt()))

    def _through(self, result, derivative):
        return Dual(result, self.slope * derivative)


def value(number):
    return number.value if isinstance(number, Dual) else number


def slope(number):
    return number.slope if isinstance(number, Dual) else 0


def dual(values, slopes):
    """An object array of `Dual`s."""
    made = np.empty(values.shape, object)
    made.flat = [Dual(*pair) for pair in zip(values.flat, slopes.flat, strict=True)]
    return made


def slopes(array):
    return np.vectorize(slope, otypes=[object])(array)
