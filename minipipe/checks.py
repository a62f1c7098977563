"""Checks of what a user passes; numbers are returned as Python's own."""

import operator
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterable
from fractions import Fraction
from math import inf
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeAlias

Number: TypeAlias = float | Fraction  # a real number; an int is a float to type checkers

# Within these bounds, no sum of ticks, and no product or quotient of two numbers, becomes infinite.
SMALLEST, LARGEST = 1e-100, 10**100
PYTHONS: frozenset[Any] = frozenset([int, float, Fraction])
LONGEST = 100  # characters of a value that an error shows


def shown(value: object) -> str:
    """Return the repr of `value` for an error, cut to 100 characters.

    >>> shown("2"), shown(list(range(1000)))[-8:], shown(10**5000)
    ("'2'", '5, 26...', 'a number of too many digits to be shown')
    """
    try:
        text = repr(value)
    except ValueError:  # Python writes at most 4,300 digits
        return "a number of too many digits to be shown"
    text = text if len(text) <= LONGEST else f"{text[:LONGEST - 3]}..."
    return f"{text} of a minipipe that was loaded twice (restart the kernel)" if _is_of_two(value) else text


def _is_of_two(value):
    """Tell whether a class of `value`, or this module, was loaded twice.

    After `importlib.reload`, for instance, `isinstance` returns False for old objects.
    """
    def current(module, name):
        return getattr(sys.modules.get(module), name, None)

    package = __name__.partition(".")[0]
    ours = [kind for kind in type(value).__mro__ if str(kind.__module__).partition(".")[0] == package]
    changed = (kind for kind in ours if current(kind.__module__, kind.__qualname__) is not kind)
    return bool(ours) and (current(__name__, "shown") is not shown or any(changed))


def whole_number(name: str, value: Any, least: int | None = None, most: int | None = None) -> int:
    """Return `value` as an int in `least`..`most`; errors call it `name`.

    >>> import numpy as np
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


def whole_numbers(name: str, values: Any, least: int | None = None) -> tuple[int, ...]:
    """Return `values` as ints of at least `least`; errors call them `name`."""
    items = items_of(values)
    if items is None:
        raise ValueError(f"{name}={shown(values)} must be a list of whole numbers, even of one")
    return tuple(whole_number(f"{name}[{index}]", value, least) for index, value in enumerate(items))


def real_number(
    name: str, value: Any, least: Number | None = None, above: Number | None = None,
    below: Number | None = None, most: Number | None = None, note: str = "", infinite: bool = False,
    clock: bool = False,
) -> Any:
    """Return `value` as an int, a float or an exact fraction; refuse anything else.

    Args:
        name: the name of the value in errors.
        value: the number.
        least, above, below, most: its bounds.
        note: what an error adds after the bounds, such as a unit, or a remedy.
        infinite: whether infinity is allowed.
        clock: whether it is a time or a cost. Then it must be 0, or from 1e-100 to
            1e+100, so that no tick of a run becomes infinite.

    >>> import numpy as np
    >>> real_number("share", np.float32(0.5), least=0, below=1)
    0.5
    """
    number = python_number(value)
    bounds: list[tuple] = [
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
        return Fraction(number)  # a `Rational` refuses the floats of other times
    return number


def is_plain(number: Any) -> bool:
    """Tell whether `number` is a Python number within the bounds for times."""
    if number.__class__ is int:
        return 0 <= number <= LARGEST
    return number.__class__ in PYTHONS and (SMALLEST <= number <= LARGEST or number == 0)


def python_number(value: Any) -> Any:
    """Return `value` as a Python number, or None if it is not a real number.

    >>> import numpy as np
    >>> type(python_number(np.int8(1))), type(python_number(np.longdouble(1))), python_number("1")
    (<class 'int'>, <class 'float'>, None)
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    if hasattr(value, "item"):  # a number of NumPy
        return int(value) if isinstance(value, Integral) else float(value)
    return value


def checked_name(name: str, value: Any) -> str:
    """Return `value` if it is a non-empty text; errors call it `name`."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name}={shown(value)} must be a text of at least 1 character")
    return value


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file whole or not at all; it keeps its mode, and a link stays a link.

    Args:
        path: the file.
        write: writes the content, as `write(path)`. It is called with the path of a
            temporary file in the same folder, which is then renamed. If `write` fails,
            the old file stays.

    The temporary name contains the computer, the process and a random number, so no two
    writers share it. Temporary files of killed processes are removed. A device or a
    pipe, such as /dev/stdout, is written to directly.
    """
    target = Path(os.path.realpath(path))
    start = f".{target.stem[:30]}.{platform.node()}-"  # names end at 255 bytes; a character may have 4
    beside = target.with_name(f"{start}{os.getpid()}-{os.urandom(6).hex()}{target.suffix}")
    try:
        if path.exists() and not path.is_file():  # a device must not be replaced
            write(path)
            return
        for name in os.listdir(target.parent):
            process = name.removeprefix(start).partition("-")[0]
            if name.startswith(start) and process.isdigit() and _is_gone(int(process)):
                target.with_name(name).unlink(missing_ok=True)
        write(beside)  # with the suffix of `path`, by which writers choose a format
        if target.exists():
            shutil.copymode(target, beside)
        beside.replace(target)
    except BaseException as error:
        beside.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(path)) from None  # with the user's path
        raise


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path`, whole or not at all, in UTF-8 with \\n as line ends."""
    write_whole(path, lambda beside: beside.write_text(text, encoding="utf-8", newline="\n"))


def _is_gone(process: int) -> bool:
    """Tell whether no process has the number `process`; False if that is unknown."""
    if os.name != "posix":
        return False  # on Windows, signal 0 is Ctrl-C
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass
    return False


def listed(name: str, values: Any, least: int = 1) -> list:
    """Return `values` as a list of at least `least` items; errors call it `name`."""
    items = items_of(values)
    if items is None:
        raise ValueError(f"{name}={shown(values)} must be a list, even of one: [{shown(values)}]")
    if len(items) < least:
        raise ValueError(f"{name} is an empty list: give it at least one")
    return items


def items_of(values: Any) -> list | None:
    """Return `values` as a list, or None if it is a text or not iterable."""
    try:
        return None if isinstance(values, (str, bytes)) else list(values)
    except TypeError:
        return None


def function(name: str, value: Any) -> Callable:
    """Return `value` if it can be called; errors call it `name`."""
    if not callable(value):
        raise ValueError(f"{name}={shown(value)} must be a function")
    return value


def plain(name: str) -> str:
    """Return `name` in lower case, without spaces, "_" and "-", for comparisons."""
    return re.sub(r"[\s_-]", "", name).lower()


def spelled(name: str, known: Iterable[str]) -> str | None:
    """Return the name in `known` that equals `name`, or else does in `plain` form.

    Return None if there is none.

    >>> spelled("zb_H1", ["1f1b", "zb-h1"]), spelled("zb", ["1f1b", "zb-h1"])
    ('zb-h1', None)
    """
    if name in known:
        return name
    return next((one for one in known if plain(one) == plain(name)), None)


def truth(name: str, value: Any) -> bool:
    """Return `value`, True, False, 0 or 1, as a bool; errors call it `name`."""
    plain = value.item() if hasattr(value, "item") and not getattr(value, "shape", ()) else value  # NumPy's
    if isinstance(plain, bool) or python_number(plain) in (0, 1):
        return bool(plain)
    raise ValueError(f"{name}={shown(value)} must be True or False")


def one_of(name: str, value: Any, known: Iterable[str]) -> str:
    """Return `value` if it is one of the texts `known`; errors call it `name`."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name}={shown(value)} must be one of {', '.join(map(repr, known))}")
    return value


def to_be_written(part: object, base: str, method: str, answer: str) -> NotImplementedError:
    """Return the error for an object `part` whose class lacks a `method`.

    `base` is the name of its base class, and `answer` what the method returns.
    """
    kind = type(part).__name__
    return NotImplementedError(
        f"{kind} has no {method.partition('(')[0]}: write `def {method}` in class {kind}({base}), "
        f"which returns {answer}"
    )


def without_return(part: object, method: str, answer: str, returned: object | None = None) -> TypeError:
    """Return the error for a `method` of `part` that `returned` no `answer`."""
    name = f"{type(part).__name__}.{method}"
    return TypeError(f"{name} has returned {shown(returned)}: end it with `return {answer}`")
