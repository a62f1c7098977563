"""The floors of the house: who may import whom, how long a module may be, how long an import takes, and how
far one step leads; the teaching material stands outside.
"""

import ast
import re
import os
import subprocess
import sys
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import minipipe as mp

HOUSE = Path(mp.__file__).parent
NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
EXERCISES = [path for path in sorted((NOTEBOOKS / "exercises").glob("*.py")) if path.stem != "__init__"]

FLOORS = {
    "tiny": 0, "checks": 0, "registry": 0, "watching": 0, "meta": 0,
    "exact": 1, "sums": 1, "state": 1,
    "arrays": 2, "cluster": 2, "rates": 2,
    "collectives": 3, "engines": 3, "ties": 3, "datasets": 3,
    "order": 4, "layers": 4, "losses": 4,
    "schedules": 5, "network": 5, "optimizers": 5, "training": 5, "models": 5, "description": 5,
    "checkpoints": 6, "experiments": 6, "partitioning": 6, "graph": 6,
    "parallel": 7,
    "servers": 8, "planning": 8, "verification": 8,
    "plots": 9, "papers": 9,
    "site": 10, "comparison": 10,
    "cli": 11,
}
NEVER = {("plots", "parallel")}  # plots draw traces, whoever made them


@cache
def imports():
    """[(room, room that it imports, where)] for every import of the package by itself, also in functions."""
    found = []
    for path in sorted(HOUSE.rglob("*.py")):
        parts = path.relative_to(HOUSE).with_suffix("").parts
        for node in statements_of(path):
            for target in targets(node, parts):
                if parts[0] != target:
                    found.append((parts[0], target, f"{path.name}:{node.lineno}"))
    return found


def targets(node, parts):
    if isinstance(node, ast.Import):
        return [alias.name.split(".")[1] for alias in node.names if alias.name.startswith("minipipe.")]
    if not isinstance(node, ast.ImportFrom):
        return []
    if node.level == 0:
        return [node.module.split(".")[1]] if node.module.startswith("minipipe.") else []
    package = parts[:len(parts) - node.level]
    full = (*package, *(node.module.split(".") if node.module else ()))
    return [full[0]] if full else [alias.name for alias in node.names if alias.name != "__version__"]


def test_a_package_imports_only_packages_below_it():
    rooms = [found for found in imports() if found[0] not in ("__init__", "__main__")]
    assert len(rooms) > 30
    for room, target, where in rooms:
        assert FLOORS[target] < FLOORS[room] and (room, target) not in NEVER, (
            f"{where}: {room} (floor {FLOORS[room]}) must not import {target} (floor {FLOORS[target]})"
        )


def test_time_and_order_know_nothing_of_networks():
    """The cluster has the clock, `order` the order of work, and neither has heard of a layer."""
    outside = {room: set() for room in ("cluster", "collectives", "order", "schedules")}
    for room, target, _ in imports():
        if room in outside:
            outside[room].add(target)
    doors = {"checks", "registry"}
    time = doors | {"arrays", "cluster", "sums"}  # collectives ask arrays where they are handed some
    assert outside == {
        "cluster": doors, "collectives": time, "order": time - {"arrays"} | {"collectives", "watching"},
        "schedules": {"checks", "order"},
    }


def test_no_modules_import_each_other_in_a_circle():
    graph = {name: set() for name in modules()}
    for name, path in modules().items():
        package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
        for node in statements_of(path):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = ".".join(package[:len(package) + 1 - node.level] + [node.module] * bool(node.module))
                inside = {f"{base}.{alias.name}" for alias in node.names}
                graph[name] |= (inside & graph.keys()) or {base}
    graph = {name: targets - {name} for name, targets in graph.items()}
    assert sum(map(len, graph.values())) > 500
    while ends := {name for name, targets in graph.items() if not targets}:  # import nothing of the rest
        graph = {name: targets - ends for name, targets in graph.items() if name not in ends}
    assert not graph, f"these import each other, or what does: {sorted(graph)}"


def modules():
    """Return {full name: path} of all modules of the package."""
    paths = {".".join(path.relative_to(HOUSE.parent).with_suffix("").parts): path
             for path in HOUSE.rglob("*.py")}
    return {name.removesuffix(".__init__"): path for name, path in paths.items()}


def test_the_top_level_package_defines_no_public_name():
    tree = ast.parse((HOUSE / "__init__.py").read_text(encoding="utf-8"))
    defined = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    assert not [name for name in defined if name[0] != "_"]
    assert mp.__all__ == sorted(set(mp.__all__))
    assert all(hasattr(mp, name) for name in mp.__all__)
    assert {*dir(mp)} == {*mp.__all__, "__version__"}


def test_the_top_level_package_lists_few_names_and_reaches_every_module():
    """Also a module that it does not list, and names of modules that are not handed on."""
    assert len(mp.__all__) <= 85
    found = {path.stem if path.suffix else path.name for path in HOUSE.iterdir() if path.name[0] not in "_."}
    code = "import minipipe; print(*[getattr(minipipe, name).__name__ for name in {!r}])"
    names = sorted(name for name in found if name in FLOORS)
    printed = subprocess.check_output([sys.executable, "-c", code.format(names)], text=True).split()
    assert printed == [f"minipipe.{name}" for name in names] and len(names) > 30
    for hidden in ("Compute", "Stage", "he"):
        assert not hasattr(mp, hidden), hidden


def test_importing_minipipe_loads_only_the_modules_that_are_used():
    """A package alone, then more with each name; matplotlib with none of them."""
    count = "print(sum(name.startswith('minipipe.') for name in sys.modules))"
    steps = ["import sys, minipipe", "minipipe.cluster", "minipipe.Linear", "minipipe.Pipeline"]
    code = "".join(f"{step}; {count}\n" for step in steps) + "print('matplotlib' in sys.modules)"
    *loaded, drawn = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert loaded[0] == "0" and drawn == "False"
    assert [int(n) for n in loaded] == sorted({int(n) for n in loaded}), loaded


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'minipipe' has no attribute 'Linaer'"):
        _ = mp.Linaer
    with pytest.raises(ImportError, match="cannot import name 'Linaer'"):
        exec("from minipipe import Linaer")


@cache
def statements_of(path):
    """Return all statements of a file, also those inside functions and classes, but none for types alone."""
    def inside(tree):
        for node in ast.iter_child_nodes(tree):
            if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
                continue  # it never runs
            if isinstance(node, (ast.stmt, ast.ExceptHandler)):
                yield node
                yield from inside(node)

    return list(inside(ast.parse(path.read_text(encoding="utf-8"))))


def imported(path):
    """The full names of all modules that the file imports, or imports from."""
    nodes = statements_of(path)
    whole = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return whole | {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.level == 0}


def test_the_package_does_without_the_teaching_material():
    tests = Path(__file__).parents[1]
    taught = {"exercises", "figures", "notebooks", "tests"} | {path.stem for path in tests.rglob("*.py")}
    for path in HOUSE.rglob("*.py"):
        assert not taught & {name.split(".")[0] for name in imported(path)}, path


def test_exercises_import_from_public_packages():
    """By that of the package or of a room. Only `mine` goes inside: it records a run of another clock."""
    for path in EXERCISES:
        for name in imported(path):
            inside = name.startswith("minipipe.") and name.count(".") > 1
            allowed = path.stem == "mine" and name.startswith("minipipe.cluster.record")
            assert not inside or allowed, f"{path.name} imports from {name}, inside a room"


def test_exercises_check_or_draw_for_a_notebook():
    """They hold nothing that the package could need."""
    lines = re.compile(r'^ *"from exercises.*', re.MULTILINE)
    texts = [notebook.read_text(encoding="utf-8") for notebook in NOTEBOOKS.glob("*.ipynb")]
    cells = "\n".join(line for text in texts for line in lines.findall(text))
    modules = {path.stem: path.read_text(encoding="utf-8") for path in EXERCISES}
    for name in modules:
        in_cells = re.search(rf"from exercises import .*\b{name}\b|from exercises\.{name} import", cells)
        others = [text for other, text in modules.items() if other != name]
        used = in_cells or any(re.search(rf"from \.+{name} import", text) for text in others)
        assert used, f"no notebook uses exercises/{name}.py"


def test_a_warning_that_points_to_our_code_is_an_error():
    for module in ("minipipe.layers.linear", "exercises.zoo", "house.test_house", "test_x"):
        with pytest.raises(UserWarning, match=f"of {module}"):
            warnings.warn_explicit(f"of {module}", UserWarning, "file.py", 1, module)
    with pytest.raises(RuntimeWarning, match="overflow"):
        np.mean(np.full(2, np.finfo(float).max))
    for module in ("another.package", "_pytest.config", "numpy.lib", "pluggy._callers"):
        with warnings.catch_warnings(record=True) as shown:
            warnings.warn_explicit("theirs", DeprecationWarning, "file.py", 1, module)
        assert [str(warning.message) for warning in shown] == ["theirs"], module


def test_modules_stay_short():
    """A file is as long as its idea; past 500 lines, it has two."""
    paths = [*HOUSE.rglob("*.py"), *EXERCISES]
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
    assert max(lengths.values()) <= 500, max(lengths, key=lengths.get)


@pytest.mark.slow
def test_the_import_is_quick(tmp_path):
    """A network and its layers take at most as much CPU time as NumPy, which they import; machines differ.

    In the best of five runs after the one that compiles: Python keeps what it compiles, unless it is told
    not to.
    """
    code = (
        "import time; begin = time.process_time(); import numpy; middle = time.process_time(); "
        "from minipipe import Linear, ReLU, SoftmaxCrossEntropy, Pipeline; "
        "print((time.process_time() - middle) / (middle - begin))"
    )
    env = {name: value for name, value in os.environ.items()
           if name != "PYTHONDONTWRITEBYTECODE"} | {"PYTHONPYCACHEPREFIX": str(tmp_path)}
    run = [sys.executable, "-c", code]
    ratios = [float(subprocess.run(run, capture_output=True, text=True, check=True, env=env).stdout)
              for _ in range(6)]
    assert min(ratios[1:]) <= 1


# What a reader passes who follows one step of a network: few frames, few files.

MOST_FRAMES, MOST_FILES = 14, 6  # from forward_backward down to Linear.forward, both of them included


def pipeline():
    layers = [mp.Linear(4, 4), mp.ReLU(), mp.Linear(4, 4), mp.Linear(4, 4)]
    return mp.Pipeline(layers, mp.MeanSquaredError(), 4, 4, schedule="1f1b")


X = np.ones((4, 8))


def test_few_frames_lie_between_forward_backward_and_a_layer(monkeypatch):
    """In the second mini-batch; the first counts bytes on the way."""
    pipe, ways, forward = pipeline(), [], mp.Linear.forward
    pipe.forward_backward(X, X)

    def look(self, A_prev):
        frame, way = sys._getframe(1), [("Linear.forward", str(HOUSE / "layers" / "linear.py"))]
        while way[-1][0] != "forward_backward":
            way.append((frame.f_code.co_name, frame.f_code.co_filename))
            frame = frame.f_back
        ways.append(way)
        return forward(self, A_prev)

    monkeypatch.setattr(mp.Linear, "forward", look)
    pipe.forward_backward(X, X)
    assert len(ways) == 12  # three layers, four micro-batches
    for way in ways:
        names = " > ".join(name for name, _ in reversed(way))
        assert len(way) <= MOST_FRAMES, names
        assert len({file for _, file in way}) <= MOST_FILES, names
