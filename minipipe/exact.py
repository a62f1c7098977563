"""Rational numbers that NumPy arrays can hold.

A float rounds after every operation, so two sums of the same numbers in a different
order may differ. A `Rational` never rounds, so "the micro-batch gradients add up to the
full-batch gradient" becomes a statement that `==` can decide. The layers need no
change: NumPy applies `+`, `*`, `@` and `sum` to the elements of an object array one by
one, and `np.exp(array)` calls each element's `exp`.
"""

from __future__ import annotations  # so that help() shows names, not what they stand for

from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from math import gcd
from numbers import Rational as AnyRational
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .checks import shown

SIGNIFICANT_BITS = 64
LARGEST_EXPONENT = 100_000
_working = Context(prec=120, Emax=MAX_EMAX, Emin=MIN_EMIN)  # decimal digits, far beyond 64 bits
_empty = object.__new__
# looking up an earlier result is a hundred times as fast as computing 120 digits
_remembered = lru_cache(maxsize=100_000)


class Rational(Fraction):
    """An exact fraction: `+ - * / **` with other exact numbers return a `Rational`.

    With a float, and `**` with an exponent that is not whole, they raise `TypeError`,
    because the result would not be exact.

    `exp`, `log`, `log1p`, `tanh` and `sqrt` are irrational almost everywhere. Each is
    computed to 120 digits and rounded once, to 64 significant bits. So the result
    depends on the argument alone, and is equal in every batch, on every machine.

    >>> Rational(1, 10) + Rational(2, 10) == Rational(3, 10)
    True
    >>> Rational(1, 3) * 6
    Rational(2, 1)
    """

    __slots__ = ()
    _numerator: int
    _denominator: int

    def __add__(self, other: Any) -> Any:
        if type(other) is not Rational:
            return _closed(Rational.__add__, self, other)
        return _sum(self._numerator, self._denominator, other._numerator, other._denominator)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if type(other) is not Rational:
            return _closed(Rational.__sub__, self, other)
        return _sum(self._numerator, self._denominator, -other._numerator, other._denominator)

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __mul__(self, other: Any) -> Any:
        if type(other) is not Rational:
            return _closed(Rational.__mul__, self, other)
        # p/q * r/s: a common factor of p r and q s is one of p and s, or of r and q
        p, q, r, s = self._numerator, self._denominator, other._numerator, other._denominator
        left, right = gcd(p, s), gcd(r, q)
        if left != 1:
            p, s = p // left, s // left
        if right != 1:
            r, q = r // right, q // right
        return _new(p * r, q * s)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        if type(other) is not Rational:
            return _closed(Rational.__truediv__, self, other)
        return self * Rational(other._denominator, other._numerator)

    def __rtruediv__(self, other: Any) -> Any:
        return _closed(lambda right, left: left / right, self, other)

    def _refuse(self, other: Any) -> Any:  # a Fraction's // and % would take floats
        raise TypeError("exact arithmetic has no //, % and divmod: use those of fractions.Fraction")

    __floordiv__: Any = _refuse
    __rfloordiv__ = __mod__ = __rmod__ = __divmod__ = __rdivmod__ = __floordiv__

    def __pow__(self, exponent: Any) -> Any:
        if not isinstance(exponent, AnyRational) or exponent.denominator != 1:
            raise TypeError(
                f"exact arithmetic has whole exponents only, got {exponent!r}: use sqrt(), or exp() and log()"
            )
        return Rational(Fraction.__pow__(self, int(exponent.numerator)))

    def __rpow__(self, base: Any) -> Any:
        return _closed(lambda exponent, base: base**exponent, self, base)

    def __pos__(self) -> Rational:
        return self

    def __neg__(self) -> Rational:
        return _new(-self._numerator, self._denominator)

    def __abs__(self) -> Rational:
        return _new(abs(self._numerator), self._denominator)

    def __repr__(self) -> str:
        """Return the number with all digits, or its size if there are too many."""
        try:
            return f"Rational({self._numerator}, {self._denominator})"
        except ValueError:
            over, under = self._numerator.bit_length(), self._denominator.bit_length()
            return f"Rational(a number of {over} bits, over one of {under})"

    @_remembered
    def exp(self) -> Rational:
        """Return e^x."""
        if abs(self) > LARGEST_EXPONENT:
            raise ValueError(
                f"exp of {shown(self)} has too many digits: "
                f"scale the numbers below {LARGEST_EXPONENT:,}"
            )
        return _round(_working.exp(_decimal(self)))

    @_remembered
    def log(self) -> Rational:
        """Return the natural logarithm."""
        if self <= 0:
            raise ValueError(f"log of {shown(self)} is not defined: the logarithm needs a number above 0")
        return _round(_working.ln(_decimal(self)))

    def log1p(self) -> Rational:
        """Return log(1 + x)."""
        if abs(self) < Rational(1, 2**64):
            return _round(self)  # log(1 + x) = x - x^2/2 + ..., which is x to 64 bits
        return (self + 1).log()

    @_remembered
    def tanh(self) -> Rational:
        """Return (e^x - e^-x) / (e^x + e^-x)."""
        if abs(self) > 100:
            return Rational(1 if self > 0 else -1)  # equal to far more than 64 bits
        if abs(self) < Rational(1, 2**64):
            return _round(self)  # tanh x = x - x^3/3 + ..., which is x to 128 bits
        e = _working.exp(_decimal(-2 * abs(self)))  # e^(-2|x|), so that nothing grows large
        magnitude = _round(_working.divide(_working.subtract(1, e), _working.add(1, e)))
        return magnitude if self > 0 else -magnitude

    @_remembered
    def sqrt(self) -> Rational:
        """Return the square root."""
        if self < 0:
            raise ValueError(f"sqrt of {shown(self)} is not defined: the root needs a number from 0 upwards")
        return _round(_working.sqrt(_decimal(self)))


def rational(array: ArrayLike) -> np.ndarray:
    """Return an object array of `Rational` with exactly the values of `array`.

    `array` may have any shape, and integers, floats (fractions whose denominator is a
    power of two), fractions, or strings such as "1/3". Raises `ValueError` for NaN,
    infinity, and what is not a number.

    >>> rational([0.5, 3])
    array([Rational(1, 2), Rational(3, 1)], dtype=object)
    """
    array = np.asarray(array)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError("NaN and infinity are not rational numbers: remove them from the array first")
    values = np.empty(array.shape, dtype=object)
    try:
        rationals = [Rational(value) for value in array.astype(object).flat]
        values.flat = rationals  # type: ignore[misc, assignment]  # NumPy has a setter
    except (TypeError, ValueError):
        raise ValueError(f"{shown(array)} holds what is not a number: pass integers, or fractions") from None
    return values


def _new(numerator, denominator):
    """Return the `Rational` of two coprime ints, the denominator above 0, unchecked."""
    number = _empty(Rational)
    number._numerator, number._denominator = numerator, denominator
    return number


def _sum(p, q, r, s):
    """Return p/q + r/s.

    A common factor of p s + r q and q s divides gcd(q, s), which is far smaller.
    Source: Knuth 1997, The Art of Computer Programming, volume 2, section 4.5.1.
    """
    shared = gcd(q, s)
    if shared == 1:
        return _new(p * s + r * q, q * s)
    rest = s // shared
    numerator = p * rest + r * (q // shared)
    common = gcd(numerator, shared)
    if common == 1:
        return _new(numerator, q * rest)
    return _new(numerator // common, q // common * rest)


def _closed(operation, left, right):
    """Return `operation(left, right)` with a `Rational`; refuse a float."""
    if isinstance(right, (int, np.integer)):
        return operation(left, _new(int(right), 1))
    if isinstance(right, AnyRational):
        return operation(left, Rational(right))
    if isinstance(right, (float, np.floating)):
        raise TypeError(
            f"exact arithmetic met the float {right!r}: convert it with minipipe.exact.rational first"
        )
    return NotImplemented  # then Python asks the other operand, such as an array


def _decimal(x):
    return _working.divide(Decimal(x.numerator), Decimal(x.denominator))


def _round(x):
    """Return the nearest fraction with 64 significant bits over a power of two."""
    x = Fraction(x)
    if x == 0:
        return Rational(0)
    unit = Fraction(2) ** (x.numerator.bit_length() - x.denominator.bit_length() - SIGNIFICANT_BITS)
    if abs(x) >= unit * 2**SIGNIFICANT_BITS:
        unit *= 2
    return Rational(round(x / unit) * unit)
