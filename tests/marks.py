"""The marks of a learner's file, finished or not: what `mine.check` says of each of its parts, as JSON.

    MY_PIPELINE=notebooks/my_pipeline.py python3 -m pytest tests/test_my_pipeline.py --marks marks.json

A part is judged with the course's own parts before it, so that no mistake counts twice.
"""

import ast
import json
import re
from functools import partial
from multiprocessing import TimeoutError, get_context
from types import ModuleType
from typing import NamedTuple

from exercises import mine, short
from exercises.judging import all_parts, empty_function, judged

SECONDS = 30  # for one part; a loop in Python alone is ended sooner, since its lines are counted
START = re.compile(r"(?!(?:elif|else|except|finally)\b)[@\w]")  # a line with which a statement may begin


class Piece(NamedTuple):
    """A statement of a file, and what belongs to it.

    title, owner: what the mark above it says, "" without one.
    start: the number of its first line, from 0.
    name: what it defines, if that is a function or a class.
    """

    title: str
    owner: str
    start: int
    lines: list[str]

    @property
    def name(self):
        found = re.search(r"^(?:def|class) (\w+)", "\n".join(self.lines), re.MULTILINE)
        return found[1] if found else f"line {self.start}"


def pieces_of(text):
    """Return the `Piece`s of a file. A syntax error in one of them leaves the others as they are."""
    title = owner = before = ""
    found = [Piece(title, owner, 0, [])]
    for number, line in enumerate(text.splitlines()):
        mark = mine.BLOCK.match(f"{line}\n")
        title, owner = mark.groups() if mark else (title, owner)
        if mark or (START.match(line) and not before.startswith("@")):
            found.append(Piece(title, owner, number, []))
        found[-1].lines.append(line)
        before = line
    return found


def code_for(own, pieces, text):
    """Return the text of a file with other parts left blank, so that the numbers of lines stay."""
    lines, names = [""] * len(text.splitlines()), {part.name for part in all_parts()}
    near_last = sorted(pieces, key=lambda piece: piece.title == own.title)
    helpers = {piece.name: piece for piece in near_last if piece.name not in names}
    for piece in [*helpers.values(), own]:
        code = "\n" * piece.start + "\n".join(piece.lines)
        try:
            if ast.parse(code) and piece is not own and empty_function(code) is not None:
                continue
        except SyntaxError:
            if piece is own:
                raise
            continue
        lines[piece.start: piece.start + len(piece.lines)] = piece.lines
    return "\n".join(lines)


def sentence_on(name, text):
    """Return the sentence about the part with that name in the text of a file."""
    parts = [part for part in all_parts() if part.name == name and part.kept]
    pieces = pieces_of(text)
    found = [piece for piece in pieces if piece.name == name]
    written = [piece for piece in found if piece.owner != "lent"]
    if not written:
        return "Lent by the course." if found else f"Not there: notebook {parts[0].notebook:02d} asks for it."
    own = written[-1]
    code = code_for(own, pieces, text)
    asked = [part for part in parts if part.title == own.title] or parts
    for part in reversed(asked):  # without a mark, the newest version that it fulfils
        sentence = judged(part, code)
        if sentence.startswith("Right: "):
            break
    return sentence


def sentence_on_all(text):
    """Return whether the file runs from top to bottom, in a sentence."""
    exec(compile(text, "the file", "exec"), ModuleType("my_pipeline").__dict__)
    return "The file runs from top to bottom."


def guarded(judge, text):
    """Return the sentence of `judge`, or the one about what stopped it."""
    try:
        return judge(text)
    except SyntaxError as error:
        line = f", in line {error.lineno}: `{short(error.text, 100)}`" if error.lineno else ""
        return f"This is not Python: {error.msg}{line}."
    except BaseException as error:  # also of `sys.exit()`: a mark is given in any case
        return f"It stops with {type(error).__name__}: {short(error, 200)}."


def marks_of(text):
    """Return the marks of a file with that text, as plain data.

    They are made in a process of its own, which is ended where a part takes more than `SECONDS`.
    """
    notebooks = {}
    for part in all_parts():
        if part.kept:
            notebooks.setdefault(part.name, part.notebook)
    judges = {"": sentence_on_all} | {name: partial(sentence_on, name) for name in notebooks}
    context, found = get_context("spawn"), {}
    pool = context.Pool(1)
    for name, judge in judges.items():
        try:
            found[name] = pool.apply_async(guarded, (judge, text)).get(SECONDS)
        except TimeoutError:
            found[name] = f"It finds no end, or ends the whole program: there is no result after {SECONDS} s."
            pool.terminate()
            pool = context.Pool(1)
    pool.terminate()
    whole = found.pop("")
    parts = {name: {"notebook": notebooks[name], "right": words.startswith("Right: "), "sentence": words}
             for name, words in found.items()}
    right = sum(part["right"] for part in parts.values())
    return {"right": right, "of": len(parts), "file": whole, "parts": parts}


def write_marks(path, target):
    """Write the marks of the file `path` into the file `target`, and print them."""
    marks = marks_of(path.read_text(encoding="utf-8-sig", errors="replace"))
    target.write_text(json.dumps(marks, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for name, part in marks["parts"].items():
        print(f"{part['notebook']:02d} {name}: {part['sentence']}")
    print(f"{path.name}: {marks['right']} of {marks['of']} parts are right. {marks['file']}")
