"""The doors: what somebody may hand in as a number, or as one of several choices.

Numbers leave as Python's own: those of NumPy overflow.
"""

import operator
import os
import sys
from fractions import Fraction
from math import inf, isfinite
from numbers import Real
from pathlib import Path

import numpy as np

# With these, no sum of ticks, and no product or quotient of two numbers, becomes infinite.
SMALLEST, LARGEST = 1e-100, 10**100
PYTHONS = frozenset([int, float, Fraction])
LONGEST = 100  # characters of a value that an error shows


def shown(value):
    """`value` as errors show it: its repr, cut where that is long.

    >>> shown("2"), shown(list(range(1000)))[-8:], shown(10**5000)
    ("'2'", '5, 26...', 'a number of too many digits to be shown')
    """
    try:
        text = repr(value)
    except ValueError:  # Python writes at most 4,300 digits
        return "a number of too many digits to be shown"
    return text if len(text) <= LONGEST else f"{text[:LONGEST - 3]}..."


def whole_number(name, value, least=None, most=None):
    """`value` as a Python int; `ValueError` for what is not a whole number, or lies out of `least`..`most`.

    >>> whole_number("m", np.int8(100)) * 100
    10000
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise ValueError(f"{name}={shown(value)} must be a whole number")
    if least is not None and number < least:
        raise ValueError(f"{name}={shown(number)} must be at least {least}")
    if most is not None and number > most:
        raise ValueError(f"{name}={shown(number)} must be at most {most:,}")
    if abs(number) > LARGEST:
        raise ValueError(f"{name}={shown(number)} must be at most {LARGEST:g}, and no less than minus that")
    return number


def whole_numbers(name, values, least=None):
    """A tuple of Python ints; `ValueError` for anything but a list, or another sequence, of whole numbers."""
    items = items_of(values)
    if items is None:
        raise ValueError(f"{name}={shown(values)} must be a list of whole numbers, even of one")
    return tuple(whole_number(f"{name}[{index}]", value, least) for index, value in enumerate(items))


def real_number(
    name, value, least=None, above=None, below=None, most=None, note="", infinite=False, clock=False
):
    """`value` as a Python number: an int, a float or an exact fraction. `ValueError` for anything else.

    name: what it is called in an error.
    least, above, below, most: the bounds that it keeps.
    note: what an error says behind the bounds, such as a unit, or a remedy.
    infinite: whether infinity will do.
    clock: whether it enters the ticks of a run, which must not become infinite: then it is 0, or from 1e-100
        to 1e+100.

    >>> real_number("share", np.float32(0.5), least=0, below=1)
    0.5
    """
    number = python_number(value)
    bounds = [
        (least, "at least", operator.ge), (above, "above", operator.gt),
        (below, "below", operator.lt), (most, "at most", operator.le),
    ]
    given = [(bound, words, holds) for bound, words, holds in bounds if bound is not None]
    if number is None or number != number or not all(holds(number, bound) for bound, _, holds in given):
        kind = "a number, " if number is None else ""
        what = " and ".join(f"{words} {bound}" for bound, words, _ in given) or "finite"
        raise ValueError(f"{name}={shown(value)} must be {kind}{what}{note}")
    if abs(number) == inf and not infinite:
        raise ValueError(f"{name}={shown(value)} must be finite")
    if sys.float_info.max < abs(number) < inf:
        raise ValueError(f"{name}={shown(value)} must be finite, and no more than a float can hold")
    if clock and not (number in (0, inf) or SMALLEST <= number <= LARGEST):
        raise ValueError(
            f"{name}={shown(value)} is out of reach of the clock: use a number from {SMALLEST} to {LARGEST:g}"
        )
    if clock and isinstance(number, Fraction):
        return Fraction(number)  # a `Rational` would refuse to meet a clock in floats
    return number


def is_plain(number):
    """Whether this is a Python number within the clock's reach, which needs no further check.

    It is asked for each action and message of a run.
    """
    if number.__class__ is int:
        return 0 <= number <= LARGEST
    return number.__class__ in PYTHONS and (SMALLEST <= number <= LARGEST or number == 0)


def python_number(value):
    """`value` as a Python number, or None if it is no real number.

    >>> type(python_number(np.int8(1))), type(python_number(np.longdouble(1))), python_number("1")
    (<class 'int'>, <class 'float'>, None)
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    if isinstance(value, np.generic):
        return float(value) if isinstance(value, np.floating) else value.item()
    return value


def is_finite(array):
    """Whether no number of an array, or of a tuple of arrays, is infinite or NaN, as only floats can be.

    The sum of the squares tells so in one pass, unless it overflows where the numbers do not.

    >>> is_finite(np.array([1e200, 1.0])), is_finite(np.array([np.inf, -np.inf])), is_finite(np.array([7]))
    (True, False, True)
    """
    if isinstance(array, tuple):
        return all(map(is_finite, array))
    if array.dtype.kind != "f":
        return True
    return isfinite(np.vdot(array, array)) or bool(np.isfinite(array).all())


def real_numbers(name, values):
    """`values` as an array of finite real numbers; `ValueError` for anything else.

    Objects that are plain numbers become float64; where a fraction is among them, they stay objects.

    >>> real_numbers("X", np.array([[1, 2.5]], dtype=object))
    array([[1. , 2.5]])
    """
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError(f"{name} is a masked array, whose mask would be lost: fill it, or leave samples out")
    try:
        array = np.asarray(values)
    except ValueError as error:  # lists of different lengths
        raise ValueError(f"{name}={shown(values)} is no array: {error}") from None
    if array.dtype == object:
        array = _of_objects(name, array)
    if array.dtype.kind not in "fiubO":
        raise ValueError(f"{name} is an array of {array.dtype}: pass real numbers")
    if not is_finite(array):
        bad = np.argwhere(~np.isfinite(array))
        raise ValueError(
            f"{name} holds NaN or infinity in {len(bad)} of {array.size} places, the first at index "
            f"{tuple(bad[0].tolist())}: clean the data first"
        )
    return array


def _of_objects(name, array):
    exact = False
    for index, value in np.ndenumerate(array):
        if not isinstance(value, (Real, np.bool_)) or not -inf < value < inf:
            raise ValueError(f"{name} holds {shown(value)} at index {index}: pass numbers, and finite ones")
        exact = exact or isinstance(value, Fraction)
    try:
        return array if exact else array.astype(np.float64)
    except OverflowError:
        raise ValueError(f"{name} holds an integer beyond all floats: scale it, or use fractions") from None


def floats(dtype):
    """The `np.dtype` of `dtype`; `ValueError` unless its numbers are floats."""
    found = known_dtype(dtype)
    if found.kind != "f":
        raise ValueError(
            f"dtype={shown(dtype)} must be one of floats, such as np.float32; "
            "for exact numbers, use layer.copy(minipipe.exact.rational)"
        )
    return found


def not_zero_in(dtype, name, number):
    """`ValueError` for a number above 0 that is 0 among the floats of `dtype`."""
    if dtype.kind == "f" and dtype.type(number) == 0:
        raise ValueError(
            f"{name}={number} is 0 in {dtype}: use a larger one, such as {np.finfo(dtype).eps:.0e}"
        )


def known_dtype(dtype):
    """The `np.dtype` of `dtype`; `ValueError` if there is none."""
    try:
        return np.dtype(dtype)
    except (TypeError, ValueError):
        raise ValueError(f"dtype={shown(dtype)} is not known: use one such as np.float32") from None


def checked_name(name, value):
    """`value`, if it is a text of one character or more; `ValueError` for anything else."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name}={shown(value)} must be a text of at least 1 character")
    return value


def path_of(name, value):
    """`value` as a `Path`; `ValueError` for what is no path."""
    try:
        path = Path(value).expanduser()
        can_be = b"\0" not in os.fsencode(path)
    except (RuntimeError, TypeError, UnicodeEncodeError):  # nobody's home, no text, half a character
        can_be = False
    if not can_be:
        raise ValueError(f"{name}={shown(value)} must be a path")
    return path


def listed(name, values, least=1):
    """`values` as a list of at least `least`; `ValueError` for anything else."""
    items = items_of(values)
    if items is None:
        raise ValueError(f"{name}={shown(values)} must be a list, even of one: [{shown(values)}]")
    if len(items) < least:
        raise ValueError(f"{name} is an empty list: give it at least one")
    return items


def items_of(values):
    """`values` as a list; None for a text, and for what has no items."""
    try:
        return None if isinstance(values, (str, bytes)) else list(values)
    except TypeError:
        return None


def function(name, value):
    """`value`, if it can be called; `ValueError` for anything else."""
    if not callable(value):
        raise ValueError(f"{name}={shown(value)} must be a function")
    return value


def chosen(name, values, known):
    """`values` as a list of at least one out of `known`; `ValueError` for anything else."""
    wrong = ValueError(f"{name}={shown(values)} must be a list of names out of {', '.join(known)}")
    if isinstance(values, str):
        raise wrong
    values = listed(name, values)
    if any(not isinstance(value, str) or value not in list(known) for value in values):
        raise wrong
    return values


def truth(name, value):
    """`value` as True or False; `ValueError` for what is neither one of them nor 0 or 1."""
    if isinstance(value, (bool, np.bool_)) or (python_number(value) is not None and value in (0, 1)):
        return bool(value)
    raise ValueError(f"{name}={shown(value)} must be True or False")


def one_of(name, value, known):
    """`value`, if it is one of the names `known`; `ValueError` for anything else."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name}={shown(value)} must be one of {', '.join(map(repr, known))}")
    return value


def to_be_written(part, base, method, answer):
    """Return the error for an object whose class lacks a method that its base leaves to it.

    base: the name of the base. method: with its arguments. answer: what it returns.
    """
    kind = type(part).__name__
    return NotImplementedError(
        f"{kind} has no {method.partition('(')[0]}: write `def {method}` in class {kind}({base}), "
        f"which returns {answer}"
    )


def without_return(part, method, answer, returned=None):
    """Return the error for a method that has `returned` something else than its `answer`."""
    name = f"{type(part).__name__}.{method}"
    return TypeError(f"{name} has returned {shown(returned)}: end it with `return {answer}`")
