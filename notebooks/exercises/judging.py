"""How a part of the learner's pipeline is judged: its numbers against the solution's, its mistakes by name.

A `Part` has scenes, which call it and yield what came out. A part is right if each scene yields what it
yields for the course's solution. A typical mistake is an *edit of the solution*, with a sentence.
A part makes that mistake if each scene yields what it yields for the edited solution, however it is written.
"""

import ast
import io
import linecache
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from copy import deepcopy
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib import import_module
from inspect import isgenerator
from pkgutil import iter_modules
from types import SimpleNamespace

import numpy as np

from . import nothing_in, short, stopped
from .folds import is_definition, solution

YOURS, COURSE = "<your cell>", "<course>"
LINES = 300_000  # lines that a part may run in all its scenes


class Endless(Exception):
    """A part has run more than `LINES` lines: one of its loops has no end."""


class Stopped:
    """An error of a part, which stands in the place of what a scene would yield.

    Two are equal if the errors have one type, and if it is the same name that is missing. Their messages may
    differ, since NumPy says the same of `@` and of `np.dot` in other words.
    """

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stopped):
            return NotImplemented
        mine, theirs = self.error, other.error
        return type(mine) is type(theirs) and getattr(mine, "name", None) == getattr(theirs, "name", None)

    __hash__ = None


@dataclass(frozen=True, eq=False)
class Part:
    """A function or class that the learner writes.

    name: what it is called.
    notebook: the number of the notebook that asks for it.
    scenes: a function of a module with all parts, which yields (what was called, in words; what came out).
    mistakes: (text of the solution, what stands there instead, the sentence), of each typical mistake.
    right: what to say of a right one, after "Right: ".
    variant: what a part has when it is written again, such as "with recompute".
    kept: whether it belongs into the learner's file.
    given: (name, object) of what the notebook has imported and a part that is not kept may use.
    """

    name: str
    notebook: int
    scenes: Callable[[SimpleNamespace], Iterator[tuple[str, object]]]
    mistakes: list[tuple[str, str, str]]
    right: str
    variant: str = ""
    kept: bool = False
    given: tuple[tuple[str, object], ...] = ()

    @property
    def title(self) -> str:
        """Name and variant, such as "Stage with recompute"."""
        return f"{self.name} {self.variant}".strip()

    @property
    def solution(self) -> str:
        """The course's code of this part, from its notebook."""
        return solution(self.notebook, self.title)


def calls(name: str, arguments: str, cases: list[tuple]) -> Callable:
    """Return the scenes that call the function `name` once for each of `cases`.

    arguments: what its arguments are called, in one text.
    """
    def scenes(my):
        for case in cases:
            words = ", ".join(f"{key}={value}" for key, value in zip(arguments.split(), case))
            yield f"{name}({words})", getattr(my, name)(*deepcopy(case))

    return scenes


def truth(said: object) -> object:
    """Return a truth value without NumPy's type; None as it is; for any other value a word for its type."""
    if isinstance(said, (bool, np.bool_)):
        return bool(said)
    return None if said is None else f"a {type(said).__name__}"


@cache
def all_parts() -> tuple[Part, ...]:
    """Return all parts of all modules in `exercises/parts`, in the order of the course."""
    from . import parts

    modules = [import_module(f"{parts.__name__}.{module.name}") for module in iter_modules(parts.__path__)]
    found = [part for module in modules for part in module.PARTS]
    return tuple(sorted(found, key=lambda part: part.notebook))


def part_named(title: str) -> Part:
    """Return the part with that title; `LookupError` if there is none."""
    for part in all_parts():
        if part.title == title:
            return part
    raise LookupError(f"no notebook asks for {title!r}: {', '.join(part.title for part in all_parts())}")


def module_of(part: Part, code: str, name: str = COURSE) -> SimpleNamespace:
    """Return what `code`, in the place of the course's own `part`, defines beside all parts before it.

    Parts that do not belong into the learner's file are there in their own notebook only.
    """
    names = {"__name__": "my_pipeline", "np": np, "Fraction": Fraction} | dict(part.given)
    for other in all_parts()[: all_parts().index(part)]:
        if other.kept or other.notebook == part.notebook:
            exec(compile(other.solution, COURSE, "exec"), names)
    if name == YOURS:  # so that an error can name the line
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    tree = ast.parse(code)
    tree.body = [node for node in tree.body if is_definition(node)]
    exec(compile(tree, name, "exec"), names)
    return SimpleNamespace(**names)


def seen(part: Part, code: str, name: str = COURSE) -> list[tuple[str, object]]:
    """Return all that the scenes of `part` yield of `code`, up to the first error.

    Lines are counted, not seconds: a slow machine gives the same sentence.
    """
    found, left, before = [], LINES, sys.gettrace()

    def trace(frame, event, argument):
        nonlocal left
        if frame.f_code.co_filename not in (YOURS, COURSE):
            return None
        left -= event == "line"
        if left < 0:
            raise Endless(f"no result after {LINES} lines")
        return trace

    sys.settrace(trace)
    try:
        with redirect_stdout(io.StringIO()), np.errstate(all="ignore"):
            for words, value in part.scenes(module_of(part, code, name)):
                found.append((words, "a generator, not a list" if isgenerator(value) else deepcopy(value)))
    except Exception as error:  # whatever the learner's code does wrong becomes a sentence
        found.append(("", Stopped(error)))
    finally:
        sys.settrace(before)
    return found


@cache
def known(part: Part) -> tuple[list, list]:
    """Return (what is seen of the solution, [(what is seen of a mistake, its sentence)])."""
    code = part.solution
    for old, new, _ in part.mistakes:
        if code.count(old) != 1:
            raise ValueError(f"the solution of {part.title} has {old!r} {code.count(old)} times, not once")
        ast.parse(code.replace(old, new))
    mistakes = [(seen(part, code.replace(old, new)), sentence) for old, new, sentence in part.mistakes]
    right = seen(part, code)
    if right and isinstance(right[-1][1], Stopped):  # else every part that stops in its scenes would be right
        raise right[-1][1].error
    return right, mistakes


def judged(part: Part, code: str) -> str:
    """Return one sentence about the learner's `code`: "Right: ...", "Not solved yet: ...", or the mistake."""
    hole = empty_function(code)
    if hole is not None:
        return f"Not solved yet: the body of `{hole}` is empty."
    for name in returning(part.solution) - returning(code):
        if name in functions_of(code):
            return f"`{name}` has no `return`, so it returns nothing."
    right, mistakes = known(part)
    yours = seen(part, code, YOURS)
    if same(yours, right):
        return f"Right: {part.right}"
    difference = first_difference(part.title, yours, right)
    for theirs, sentence in mistakes:
        if same(yours, theirs):
            return f"{difference} Perhaps: {sentence}" if _is_crash_alone(theirs, right) else sentence
    return difference


def _is_crash_alone(seen_of_it, right):
    """Return whether a mistake shows by an error and no more: others end with the same error."""
    *before, (_, last) = seen_of_it
    names_something = getattr(getattr(last, "error", None), "name", None) is not None
    return isinstance(last, Stopped) and not names_something and same(before, right[:len(before)])


def empty_function(code: str) -> str | None:
    """Return the name of the first function that holds a docstring, None or dots and no more, or None.

    >>> empty_function("def f(x):\\n    'Add 1.'\\n    return None")
    'f'
    """
    found = functions_of(code).items()
    return next((name for name, function in found if all(map(_is_nothing, function.body))), None)


def functions_of(code: str) -> dict[str, ast.FunctionDef]:
    """Return the functions and methods of some code, by their names."""
    return {node.name: node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef)}


def returning(code: str) -> set[str]:
    """Return the names of the functions in which something is returned.

    >>> returning("def f(x):\\n    return x\\n\\n\\ndef g(x):\\n    print(x)")
    {'f'}
    """
    def gives(node):
        return isinstance(node, (ast.Yield, ast.YieldFrom)) or (isinstance(node, ast.Return) and node.value)

    return {name for name, function in functions_of(code).items() if any(map(gives, ast.walk(function)))}


def _is_nothing(line):
    """Return whether a statement is a docstring, `...`, `pass`, `return` or `return None`."""
    if isinstance(line, ast.Pass):
        return True
    if isinstance(line, ast.Expr):
        return isinstance(line.value, ast.Constant)
    return isinstance(line, ast.Return) and (line.value is None or ast.unparse(line.value) == "None")


def same(left: object, right: object) -> bool:
    """Return whether two values agree: floats to 9 digits, all else exactly, and shapes too."""
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if is_numbers(left) and is_numbers(right):
        return _same_numbers(np.asarray(left), np.asarray(right))
    return type(left) is type(right) and bool(left == right)


def is_numbers(value: object) -> bool:
    """Return whether a value is a number, a truth value or an array."""
    return isinstance(value, (bool, int, float, Fraction, np.ndarray, np.generic))


def _same_numbers(left, right):
    if left.shape != right.shape:
        return False
    if "O" in (left.dtype.kind, right.dtype.kind):
        return bool(np.all(left == right))
    with np.errstate(all="ignore"):
        return bool(np.allclose(left, right, rtol=1e-9, atol=1e-12, equal_nan=True))


def first_difference(title: str, yours: list, right: list) -> str:
    """Return a sentence about the first scene in which two lists of what was seen differ."""
    for place, (scene, expected) in enumerate(right):
        first = scene.split()[0]
        is_word = len(first) > 2 and first.isalpha() and first.islower()  # names such as dW, db stay
        words = scene[:1].upper() + scene[1:] if is_word else scene
        their_words, value = yours[place] if place < len(yours) else ("", None)
        if their_words == scene and same(value, expected):
            continue
        if their_words != scene and yours and isinstance(yours[-1][1], Stopped):
            value = yours[-1][1]  # on the way to it, a scene tells less or more than of a part that goes on
        if isinstance(value, Stopped):
            return _stopped(title, value.error)
        if nothing_in(value):
            return f"{words}: yours gives None, it must be {short(shown(expected), 160)}."
        if is_numbers(value) and is_numbers(expected) and shape(value) != shape(expected):
            return f"{words}: yours has shape {shape(value)}, it must be {shape(expected)}."
        theirs, wanted = short(shown(value), 160), short(shown(expected), 160)
        factor = "" if words.startswith(("How many", "The number")) else _factor(value, expected)
        return f"{words}: yours is {theirs}, it must be {wanted}{factor}."
    return f"{title} does more than it is asked for."


def _stopped(title, error):
    """Return the sentence about an error. If a name is missing, it says what to do."""
    if isinstance(error, NameError) and error.name:
        return (f"{title} uses `{error.name}`, which is not in its cell and not among the parts before it: "
                "define it in the same cell, or do without it.")
    if isinstance(error, Endless):
        return (f"`{title}` finds no end: a loop in it goes round and round. "
                "What should stop it, and does that ever change?")
    sentence = stopped(f"`{title}`", error)
    if "exact arithmetic met the float" in str(error):
        return (f"{sentence} In floats it may be right, but the notebooks compute in fractions, too, which "
                "take no float. `1 / n` of whole numbers is one: divide last, as in `total / n`, and start "
                "a sum at 0, not 0.0.")
    return sentence if sentence.endswith(".") else f"{sentence}."


def _factor(value, expected):
    """Return ": it is 4 times too large" where a whole number explains all of two values, else ""."""
    kinds = {np.asarray(each).dtype.kind if is_numbers(each) else "" for each in (value, expected)}
    if kinds <= set("iuf"):
        for larger, smaller, word in ((value, expected, "large"), (expected, value, "small")):
            times = float(np.max(np.abs(larger)) / (np.max(np.abs(smaller)) or 1))
            if times > 1 and times == round(times) and same(larger, times * smaller):
                return f": it is {times:g} times too {word}"
    return ""


def shape(value: object) -> tuple | None:
    """Return the shape of an array, () of a number, None of anything else."""
    return np.shape(value) if is_numbers(value) else None


def shown(value: object) -> str:
    """Return a value as a learner reads it: numbers without their types, actions as F0."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, tuple) and len(value) == 2 and value[0] in ("F", "B", "I", "W"):
        return f"{value[0]}{value[1]}"
    if isinstance(value, (list, tuple)):
        inner = [shown(part) for part in value]
        return " ".join(inner) if value and _is_action(value[0]) else f"[{', '.join(inner)}]"
    if isinstance(value, (float, np.floating)):
        return f"{value + 0:.6g}"  # + 0, since 0 times a negative number is -0
    return str(value)


def _is_action(value):
    return isinstance(value, tuple) and len(value) == 2 and value[0] in ("F", "B", "I", "W")
