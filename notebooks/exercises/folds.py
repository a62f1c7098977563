"""What the notebooks keep folded away: `<details>` in their Markdown, found by the words of their summary."""

import ast
import json
import re
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1]
FOLD = re.compile(
    r"<details><summary>(?P<title>[^<]+)</summary>\n+(?P<body>(?:(?!</?details>).)*)", re.DOTALL
)
CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)


@cache
def cells_of(number):
    """Return the cells of the notebook with that number, as [(type, source)]."""
    cells = [cell for path in sorted(FOLDER.glob(f"{number:02d}_*.ipynb"))
             for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]]
    return [(cell["cell_type"], "".join(cell["source"])) for cell in cells]


def fold(number, title):
    """Return the Markdown that notebook `number` has in the fold with that title.

    >>> fold(7, "Answer 7z")
    Traceback (most recent call last):
    LookupError: notebook 07 has no fold 'Answer 7z'
    """
    for kind, text in cells_of(number):
        if kind == "markdown":
            for found in FOLD.finditer(text):
                if found["title"] == title:
                    return found["body"].strip()
    raise LookupError(f"notebook {number:02d} has no fold {title!r}")


def solution(number, title):
    """Return the code in the fold "Solution: title"; if the notebook gives the code, that of its cell."""
    try:
        return CODE.search(fold(number, f"Solution: {title}"))[1]
    except LookupError:
        name, given = title.split()[0], []
        for kind, text in cells_of(number):
            if kind == "code" and not text.startswith("%") and f"mine.check({name}" in text:
                given.append(definitions(text))
        if len(given) != 1:
            raise
        return given[0]


def definitions(code):
    """Return the imports, functions, classes and constants of a cell, without what checks and shows them.

    >>> print(definitions("def f():\\n    return 1  # one\\n\\n\\nf = mine.check(f)\\nprint(f())"))
    def f():
        return 1  # one
    """
    lines = code.splitlines()
    kept = []
    body = ast.parse(code).body
    for node in body:
        if is_definition(node):
            first = min([node.lineno, *(item.lineno for item in getattr(node, "decorator_list", []))])
            shared = any(other is not node and other.lineno <= node.end_lineno and other.end_lineno >= first
                         for other in body)
            text = "\n".join(lines[first - 1: node.end_lineno])  # with the comments at its ends
            kept.append(ast.get_source_segment(code, node) if shared else text)
    return "\n\n\n".join(kept)


def is_definition(node):
    """Return whether a statement of a cell defines something: not a call, and not `f = mine.check(f)`."""
    if isinstance(node, ast.Assign):
        return not any(isinstance(part, ast.Call) for part in ast.walk(node.value))
    return isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom))
