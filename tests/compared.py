"""Two results are the same, or the first difference is told by name, with both values; a call is refused in
these words, or a failure shows each that is not.
"""

import re
from fractions import Fraction
from numbers import Number

import numpy as np

from minipipe.arrays import leaves
from minipipe.layers import every_layer
from minipipe.verification import against_full_batch, against_one_device, against_same_groups

NAME = "the result"


def assert_same(found, expected, name=NAME):
    """Raise `AssertionError` unless both are equal in form, keys, lengths, dtypes, shapes and all entries.

    found, expected: arrays, numbers and None, in lists, tuples and dicts of any depth. A tuple equals a list.
    name: what they are; the first that differs is then `part 1 of` it, or the key of a dict.
    """
    message = difference(found, expected, name)
    if message is not None:
        raise AssertionError(message)


def assert_all_same(several, expected=None):
    """Raise `AssertionError` unless there are results, all equal to `expected`, or to the first."""
    several = list(several)
    assert several, "there is no result to compare"
    for index, found in enumerate(several):
        assert_same(found, several[0] if expected is None else expected, f"result {index} of {len(several)}")


def difference(found, expected, name=NAME):
    """Return a sentence about the first difference, or None if both are the same.

    >>> difference({"dW": [1, None]}, {"dW": [1, 2]})
    'part 1 of dW differs: found None, expected 2'
    >>> print(difference(np.array([Fraction(1, 2)]), np.array([Fraction(1, 4)]), "db"))
    db differs at [0], in 1 of 1 entries: found 1/2, expected 1/4
    found:
    [1/2]
    expected:
    [1/4]
    """
    form = _form(expected)
    if _form(found) != form:
        return f"{name} differs: found {_text(found)}, expected {_text(expected)}"
    if form in ("dict", "list"):
        return _difference_of_parts(found, expected, name)
    if form == "numbers":
        return _difference_of_arrays(np.asarray(found), np.asarray(expected), name)
    return None if found == expected else f"{name} differs: found {found!r}, expected {expected!r}"


def assert_within(found, expected, roundings=None, of=None, bound=None, because=""):
    """Raise `AssertionError` unless each entry of `found` is close enough to that of `expected`.

    roundings: how many roundings lie between the two, each by at most half a unit in the last place of the
        coarser dtype. n of them move a result by at most n u / (1 - n u) of its size.
    of: the size of what is rounded, where that is larger than the result: sums that cancel.
    bound: instead of roundings, how far the two may lie apart.
    because: why that bound is right, in words.
    """
    assert (roundings is None) != (bound is None) and bool(because) == (bound is not None), "state one bound"
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape, f"found shape {found.shape}, expected {expected.shape}"
    apart = abs(np.asarray(found - expected, np.float64))
    if bound is None:
        floats = [a.dtype for a in (found, expected) if a.dtype.kind == "f"]
        u = max(np.finfo(dtype).eps for dtype in floats) / 2
        size = abs(np.asarray(expected if of is None else of, np.float64))
        bound = roundings * u / (1 - roundings * u) * size
        because = f"{roundings} roundings by {u:.3g} each"
    assert (apart <= bound).all(), (
        f"found {_text(found)}, expected {_text(expected)}: {apart.max():.3g} apart, "
        f"but at most {np.max(bound):.3g} is allowed, because of {because}"
    )


def state(layers, names=None):
    """Return {"running_mean of BatchNorm 1": array, ...}: all arrays, also of the layers inside of layers.

    Layers are numbered with those inside of them; None is left out. names: those of the arrays, if not all.
    """
    return {
        f"{name} of {type(layer).__name__} {index}": getattr(layer, name)
        for index, layer in enumerate(every_layer(layers)) for name in layer.arrays
        if getattr(layer, name) is not None and (names is None or name in names)
    }


def parameters(layers):
    """Return {"W of Linear 0": W, "b of Linear 0": b, ...}, as `state` does."""
    return state(layers, ("W", "b"))


def gradients(net):
    """Return {"dW of layer 0": dW, "db of layer 0": db, ...} of the last mini-batch, where there are any."""
    return {
        f"{name} of layer {index}": array
        for index, pair in enumerate(net.gradients) for name, array in zip(("dW", "db"), pair)
    }


def J_and_gradients(net, X, Y):
    """Return {"J": J, "dW of layer 0": dW, "db of layer 0": db, ...} of a mini-batch."""
    return {"J": net.forward_backward(X, Y), **gradients(net)}


def assert_equals_full_batch(pipe, X, Y):
    """Raise with the first of J, dW and db that is not `==` to that of one full-width batch."""
    _assert_same_runs(*against_full_batch(pipe, X, Y))


def assert_equals_same_groups(pipe, X, Y):
    """Raise with the first of J, dW and db that is not `==` to that of a loop over the micro-batches."""
    _assert_same_runs(*against_same_groups(pipe, X, Y))


def assert_same_bits(pipe, X, Y):
    """Raise with the first of J, dW and db that does not have the bits of one device."""
    _assert_same_runs(*against_one_device(pipe, X, Y))


def _assert_same_runs(run, reference):
    """Compare two (J, gradients); a layer's gradients may be a pair or a flat list without the Nones."""
    (J, found), (J_expected, expected) = run, reference
    assert_same(J, J_expected, "J")
    assert len(found) == len(expected), f"found gradients of {len(found)} layers, expected {len(expected)}"
    for index, (pair, its) in enumerate(zip(found, expected)):
        names = [name for name, part in zip(("dW", "db"), pair) for _ in leaves(part)]
        mine, its = leaves(pair), leaves(its)
        assert len(mine) == len(its), f"layer {index} has {len(mine)} gradients, expected {len(its)}"
        for name, array, expected_array in zip(names, mine, its):
            assert_same(array, expected_array, f"{name} of layer {index}")


def _difference_of_parts(found, expected, name):
    """Return what `difference` says of the first parts that differ, or of the first key or length."""
    if isinstance(expected, dict):
        if list(found) != list(expected):
            more, missing = [k for k in found if k not in expected], [k for k in expected if k not in found]
            return f"{name} has other keys: {more} too many, {missing} missing, in the order {list(found)}"
        of = "" if name == NAME else f" of {name}"
        parts = [(f"{key}{of}", found[key], expected[key]) for key in expected]
    else:
        if len(found) != len(expected):
            return f"{name} has length {len(found)}, expected {len(expected)}"
        parts = [(f"part {i} of {name}", *pair) for i, pair in enumerate(zip(found, expected))]
    return next(filter(None, (difference(*pair, part) for part, *pair in parts)), None)


def _difference_of_arrays(found, expected, name):
    for what in ("shape", "dtype"):
        if getattr(found, what) != getattr(expected, what):
            return f"{name} has {what} {getattr(found, what)}, expected {getattr(expected, what)}"
    wrong = np.argwhere(found != expected)
    if not len(wrong):
        return None
    place = tuple(wrong[0])
    told = f"found {_text(found[place])}, expected {_text(expected[place])}"
    if not place:
        return f"{name} differs: {told}"
    return (
        f"{name} differs at [{', '.join(map(str, place))}], in {len(wrong)} of {found.size} entries: {told}\n"
        f"found:\n{_text(found)}\nexpected:\n{_text(expected)}"
    )


def _form(value):
    if isinstance(value, dict):
        return "dict"
    if isinstance(value, (list, tuple)):
        return "list"
    return "numbers" if isinstance(value, (np.ndarray, np.generic, Number)) else "other"


def _text(value):
    """Return fractions as 3/8, and floats with all digits by which they can differ."""
    if isinstance(value, np.ndarray):
        return np.array2string(value, floatmode="unique", formatter={"object": _text})
    if isinstance(value, Fraction) and len(str(value)) > 40:
        return f"a fraction of {len(str(value))} characters, about {float(value)!r}"
    return str(value) if isinstance(value, (Number, np.generic)) else repr(value)


def assert_refused(rows, error=ValueError):
    """Raise `AssertionError` with all rows whose call is not refused in these words.

    rows: pairs (call, words of its error). In the words, "..." stands for anything, and a "^" in front for
        the beginning of the message.
    error: the class of the error, or several.
    """
    faults = [fault_of(call, words, error) for call, words in rows]
    wrong = [fault for fault in faults if fault is not None]
    assert faults and not wrong, "\n".join([f"{len(wrong)} of {len(faults)} are refused wrongly:", *wrong])


def fault_of(call, words, error):
    """Return what is wrong with how `call` is refused, in a sentence, or None."""
    try:
        call()
    except error as refusal:
        pattern = ".*".join(map(re.escape, words.removeprefix("^").split("...")))
        look = re.match if words[0] == "^" else re.search
        return None if look(pattern, str(refusal), re.DOTALL) else f"{words!r} is not in {refusal!r}"
    except Exception as other:
        return f"{words!r} was expected, but {other!r} came"
    return f"{words!r} was expected, but nothing is refused"
