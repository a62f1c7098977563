"""The recipes of minipipe/README.md, followed to the letter: one new file each, and its command is green."""

import os
import re
import shlex
import shutil
import subprocess
import sys
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
    assert passed and int(passed[1]) >= 5, done.stdout
