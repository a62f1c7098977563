"""What can be extended by one file is found: every layer, loss and optimizer of the package is registered.
And the recipes of minipipe/README.md, followed to the letter: one new file each, and its command is green.
"""

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest

import minipipe as mp
from minipipe.layers import LAYERS, Layer
from minipipe.losses import LOSSES, Loss
from minipipe.optimizers import OPTIMIZERS, Optimizer
from minipipe.registry import Examples, Registry
from house.stubs import PACKAGES, path_of, stub_of

ROOMS = [(LAYERS, Layer), (LOSSES, Loss), (OPTIMIZERS, Optimizer)]
every_room = pytest.mark.parametrize("registry, base", ROOMS, ids=[base.__name__ for _, base in ROOMS])


# the forms of a layer or a loss that its `part` or `synchronised` makes
FORMS = "DropoutPart", "EmbeddingPart", "SoftmaxCrossEntropyPart", "SynchronisedBatchNorm"
BETWEEN = "minipipe.layers.exchanging"  # has layers that stand between others where devices share these


def classes_below(base):
    for kind in base.__subclasses__():
        yield kind
        yield from classes_below(kind)


@every_room
def test_every_class_of_the_package_is_registered_or_a_base(registry, base):
    for kind in classes_below(base):
        in_room = kind.__module__.startswith(f"{registry.room}.") and kind.__module__ != BETWEEN
        if in_room and kind.__name__ not in FORMS:
            registered = [name for name, entry in registry.items() if issubclass(entry, kind)]
            assert registered, f"{kind.__name__} of {kind.__module__}: give it a decorator"


@every_room
def test_the_package_exports_every_entry_of_the_registry(registry, base):
    for name, kind in registry.items():
        if kind.__module__.startswith(f"{registry.room}."):
            assert name in mp.__all__ and getattr(mp, name) is kind


@every_room
def test_each_entry_states_examples_of_itself(registry, base):
    for name, kind in registry.items():
        examples = registry.facts[name].examples()
        assert examples and all(type(shown) is kind for shown, *_ in map(as_tuple, examples)), name


def as_tuple(example):
    return example if isinstance(example, tuple) else (example,)


def test_a_missing_fact_is_an_error_where_the_entry_is_defined():
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'examples'"):
        @LAYERS()
        class Forgotten(Layer):
            pass
    assert "Forgotten" not in LAYERS


def test_an_unknown_fact_is_an_error():
    with pytest.raises(TypeError, match="unexpected keyword argument 'exmples'"):
        LAYERS(exmples=lambda: [])


def test_two_entries_of_one_name_are_refused_with_both_places():
    registry = Registry("minipipe.layers", Examples)

    def entry(module):
        kind = type("Same", (), {})
        kind.__module__ = module
        return kind

    register = registry(examples=lambda: [])
    first = register(entry("a"))
    with pytest.raises(ValueError, match=r"'Same' is registered twice .* by a\.Same and by b"):
        register(entry("b"))
    assert registry == {"Same": first}
    again = register(entry("a"))  # a cell of a notebook that runs again
    assert registry["Same"] is again


def test_the_files_of_a_package_are_found(tmp_path, monkeypatch):
    """A file beside the others is all that a new entry needs."""
    room = tmp_path / "found_room"
    room.mkdir()
    (room / "__init__.py").write_text(
        "from minipipe.registry import Examples, Registry\nALL = Registry('found_room', Examples)\n"
    )
    (room / "one.py").write_text(
        "from . import ALL\n@ALL('a name', examples=list)\ndef function():\n    return 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    found = import_module("found_room").ALL
    assert found == {}
    assert found.load() is found and found["a name"]() == 1 and found.facts["a name"].examples is list


def test_examples_with_equal_reprs_get_different_names():
    @dataclass
    class Thing:
        n: int

    registry = Registry("minipipe.layers", Examples)
    registry("thing", examples=lambda: [(Thing(1), (2,)), (Thing(1), (3,)), Thing(2)])(Thing)
    assert [name.rpartition("locals>.")[2] for name in registry.examples()] == [
        "Thing(n=1)", "Thing(n=1) of (3,)", "Thing(n=2)",
    ]
    examples = [(Thing(2), 1)] * 3
    registry("twice", examples=lambda: examples)(Thing)
    with pytest.raises(ValueError, match="is an example of twice already: leave one of them out"):
        registry.examples()


@pytest.mark.parametrize("package", PACKAGES)
def test_the_stubs_for_editors_are_as_fresh_ones(package):
    written = path_of(package).read_text(encoding="utf-8")
    assert written == stub_of(package), "run `python3 tests/house/stubs.py`"


def test_a_stub_has_every_name_of_the_package():
    lines = stub_of("minipipe").splitlines()
    assert {line.split()[-1] for line in lines if " as " in line} >= set(mp.__all__)


# ---- recipes ----

HOUSE = Path(__file__).parents[2]
RECIPES = (HOUSE / "minipipe" / "README.md").read_text(encoding="utf-8")
# the room -> (the file's path, its text, the command that tests it)
FOUND = {
    Path(path).parent.name: (path, text, command)
    for path, text, command in re.findall(
        r"```python\n# (minipipe/\S+)\n(.*?)```\n\n`python3 -m (pytest .*?)`\n", RECIPES, re.DOTALL
    )
}


def test_each_registry_has_a_recipe_for_a_new_entry():
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


def test_the_first_evening_has_the_lines_that_it_says():
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
    assert total <= 2000


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
