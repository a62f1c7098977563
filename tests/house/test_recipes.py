"""The recipes of minipipe/README.md, followed to the letter: one new file each, and its command is green."""

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[2]
RECIPES = (HOUSE / "minipipe" / "README.md").read_text(encoding="utf-8")
# the room -> (the file's path, its text, the command that tests it)
FOUND = {
    Path(path).parent.name: (path, text, command)
    for path, text, command in re.findall(
        r"```python\n# (minipipe/\S+)\n(.*?)```\n\n`python3 -m (pytest .*?)`\n", RECIPES, re.DOTALL
    )
}


def test_there_is_a_recipe_for_each_room_that_is_found():
    assert sorted(FOUND) == ["collectives", "layers", "losses", "optimizers", "schedules"]
    for path, text, command in FOUND.values():
        assert not (HOUSE / path).exists(), f"{path} is in the package already: take another example"
        assert max(map(len, text.splitlines())) <= 110
        files = [word for word in shlex.split(command) if word.startswith("tests/")]
        assert files and all((HOUSE / file).exists() for file in files), command


@pytest.mark.slow
@pytest.mark.parametrize("room", FOUND)
def test_a_recipe_makes_its_checks_and_they_are_green(room, tmp_path):
    """In a copy of the package and its tests, to which nothing is added but the file."""
    for folder in ("minipipe", "tests"):
        shutil.copytree(HOUSE / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md"):
        shutil.copy(HOUSE / file, tmp_path)
    path, text, command = FOUND[room]
    (tmp_path / path).write_text(text, encoding="utf-8")
    options = ["-n0", "-q", "-p", "no:cacheprovider", "-m", "not slow"]
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(command), *options],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed and int(passed[1]) >= 4, done.stdout


def test_the_first_evening_is_about_two_thousand_lines():
    """The lines that the table names are those of the files, and the classes, that it names."""
    rows = re.findall(r"^\| `(\S+\.py)`(?:: (.*?))? \| (\d+) \|", RECIPES, re.MULTILINE)
    assert len(rows) > 10
    total = 0
    for file, names, n_lines in rows:
        text = (HOUSE / "minipipe" / file).read_text(encoding="utf-8")
        found = len(text.splitlines())
        if names:
            nodes = dict(named_nodes(ast.parse(text)))
            parts = [nodes[name] for name in re.findall(r"`([\w.]+)`", names)]
            found = sum(part.end_lineno - part.lineno + 1 for part in parts)
        assert abs(found - int(n_lines)) <= 15, f"{file} {names}: {found} lines, not {n_lines}"
        total += found
    assert total <= 2300


def named_nodes(tree, prefix=""):
    """Yield (name, node) of functions, classes, their methods and constants."""
    for node in tree.body:
        for target in getattr(node, "targets", [node]):
            yield f"{prefix}{getattr(target, 'name', None) or getattr(target, 'id', '')}", node
        if isinstance(node, ast.ClassDef):
            yield from named_nodes(node, f"{node.name}.")


def test_the_table_of_places_names_what_is_there():
    places = re.findall(r"`([\w.]+)` in `(\S+\.py)`", RECIPES)
    assert len(places) > 10
    for name, file in places:
        part = import_module("minipipe." + file.removesuffix(".py").replace("/", "."))
        for attribute in name.split("."):
            part = getattr(part, attribute)
