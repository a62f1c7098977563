"""Rational numbers stay rational, and their few irrational functions round once, always in the same way."""

import decimal
import math
import operator as op
from fractions import Fraction

import numpy as np
from compared import assert_refused
from hypothesis import given
from hypothesis import strategies as st

from minipipe.exact import SIGNIFICANT_BITS, Rational, rational

fractions = st.fractions(min_value=-8, max_value=8, max_denominator=64)


def computed(function, x):
    """What the function gives when it does not remember x."""
    return getattr(getattr(Rational, function), "__wrapped__", getattr(Rational, function))(x)


@given(fractions, fractions)
def test_arithmetic_matches_fractions_and_stays_rational(a, b):
    x, y = Rational(a), Rational(b)
    for mine, expected in ((-x, -a), (abs(x), abs(a)), (+x, a), (x**2, a * a)):
        assert type(mine) is Rational and mine == expected
    for calculate in (op.add, op.sub, op.mul, *([op.truediv] if b else [])):
        for left, right in ((x, y), (a, y), (x, b)):
            mine = calculate(left, right)
            assert type(mine) is Rational and mine == calculate(a, b)


@given(fractions)
def test_functions_are_right_to_the_last_place_of_a_double(x):
    """The 64-bit result, rounded to the 53 bits of a double, against libm's, which may be 1 place off."""
    domains = {"exp": x, "tanh": x, "log": abs(x), "log1p": x if x > -1 else x / 9, "sqrt": abs(x)}
    for function, x in domains.items():
        if function == "log" and x == 0:
            continue
        mine = getattr(Rational(x), function)()
        expected = getattr(math, function)(float(x))
        assert type(mine) is Rational, function
        # few bits, so that sums stay short: an odd number of 64 bits at most, times a power of two
        power_of_two = mine.numerator & -mine.numerator
        assert (mine.numerator // (power_of_two or 1)).bit_length() <= SIGNIFICANT_BITS, function
        assert mine.denominator & (mine.denominator - 1) == 0, function
        # the argument rounded to a double, times the steepest slope, e^8
        argument = abs(Fraction(float(x)) - x) * 3000
        assert abs(mine - Fraction(expected)) <= Fraction(math.ulp(expected)) * 2 + argument, function
        assert mine == computed(function, Rational(x.numerator, x.denominator)), function


def test_results_are_the_nearest_number_with_64_bits():
    """e lies in 2..4, so its 64-bit neighbours are 2^-62 apart: at most half of that is lost."""
    e = Fraction("2.71828182845904523536028747135266249775724709369995957496696763")
    log_3 = Fraction("1.09861228866810969139524523692252570464749055782274945173469433")
    assert abs(Rational(1).exp() - e) <= Fraction(1, 2**63)
    assert abs(Rational(3).log() - log_3) <= Fraction(1, 2**64)


def test_functions_do_not_depend_on_the_decimal_context():
    functions = "tanh", "exp"
    expected = [computed(function, Rational(1, 3)) for function in functions]
    with decimal.localcontext(decimal.Context(prec=5)):
        assert [computed(function, Rational(1, 3)) for function in functions] == expected


def test_arrays_of_rationals_pass_through_numpy():
    A = rational([[0.5, 0.25], [1, 2]])
    assert np.array_equal(A @ A, rational([[0.5, 0.625], [2.5, 4.25]]))
    assert np.exp(A).dtype == object and np.array_equal(A.sum(axis=1), rational([0.75, 3]))
    assert np.array_equal(Rational(1, 2) * A, A / 2) and np.array_equal(A * Rational(1, 2), A / 2)


def test_a_float_cannot_slip_in():
    x = Rational(1, 3)
    mixed = (
        lambda: x * 0.5, lambda: 0.5 * x, lambda: x + np.float32(1), lambda: x - np.float64(1),
        lambda: rational([x]) * np.array([0.5]), lambda: 2.0**x,
    )
    assert_refused([(call, "exact arithmetic met the float") for call in mixed], TypeError)
    remainders = lambda: x // 0.5, lambda: 0.5 // x, lambda: x % 2, lambda: 2 % x, lambda: divmod(x, x)
    assert_refused([(call, "exact arithmetic has no //, % and divmod") for call in remainders], TypeError)


def test_whole_numbers_of_numpy_and_powers_stay_rational():
    x = Rational(1, 2)
    for value in (
        x + np.int64(1), np.int64(1) + x, rational([1, 2]).mean(), x ** Rational(2),
    ):
        assert type(value) is Rational
    assert x**-2 == 4 and 2 ** Rational(3) == 8
    assert type(x**-2) is type(2 ** Rational(3)) is Rational
    powers = lambda: x**0.5, lambda: x**x, lambda: 2**x, lambda: x ** Fraction(1, 2)
    assert_refused([(power, "whole exponents only") for power in powers], TypeError)


def test_extreme_arguments_are_answered_at_once():
    assert Rational(10**9).tanh() == 1 and Rational(-(10**9)).tanh() == -1
    tiny = Rational(1, 2**400)
    assert tiny.tanh() == tiny.log1p() == tiny


def test_undefined_results_raise_errors():
    assert_refused([
        (Rational(10**6).exp, "has too many digits"), (Rational(0).log, "above 0"),
        (Rational(-1).sqrt, "from 0 upwards"), (lambda: rational([1.0, np.nan]), "NaN and infinity"),
    ])


def test_rational_takes_floats_exactly():
    assert rational([0.1])[0] == Fraction(0.1) != Fraction(1, 10) == rational(["1/10"])[0]
