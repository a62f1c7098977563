"""What a published project has: one source for its commands, a changelog, extras, and nothing left behind."""

import re
import subprocess
from pathlib import Path
from shutil import which

import pytest

import minipipe
from minipipe.cli.main import command_line

HOUSE = Path(__file__).parents[2]
TESTS = 'pytest -n auto -m "not slow"'


def text_of(path):
    return (HOUSE / path).read_text(encoding="utf-8")


def extras():
    """Return the names of the extras in pyproject.toml; Python 3.10 has no reader of such files."""
    section = text_of("pyproject.toml").partition("[project.optional-dependencies]\n")[2].partition("\n\n")[0]
    return re.findall(r"^(\w+) = ", section, re.MULTILINE)


def test_the_workflow_has_no_commands_of_its_own():
    """Linux runs what `.ci/run` does, the others the tests of the README's command."""
    steps = re.findall(r"- run: (.*)", text_of(".github/workflows/test.yml"))
    assert steps == [".ci/run", 'python -m pip install --editable ".[test]"', f"python -m {TESTS}"]
    assert all(f"python3 -m {TESTS}" in text_of(path) for path in ("README.md", "tests/README.md"))


@pytest.mark.parametrize("path", [".ci/run", ".github/CONTRIBUTING.md"])
def test_all_extras_are_installed_to_run_everything(path):
    (found,) = re.findall(r'(?:-e|--editable) "\.\[(.*?)\]"', text_of(path))
    assert sorted(found.split(",")) == sorted(extras())


def test_an_extra_that_a_message_names_is_there():
    """As in `pip install -e ".[docs]"`."""
    for path in sorted((HOUSE / "minipipe").rglob("*.py")):
        for found in re.findall(r"\.\[([\w,]+)\]", path.read_text(encoding="utf-8")):
            assert {*found.split(",")} <= {*extras()}, f"{path.name} names {found}"


def test_changelog_and_readme_name_this_version():
    versions = re.findall(r"^## (\S+)", text_of(".github/CHANGELOG.md"), re.MULTILINE)
    assert versions[0] == minipipe.__version__ and f"version {minipipe.__version__}," in text_of("README.md")


def test_the_oldest_python_is_the_same_everywhere():
    project, workflow = text_of("pyproject.toml"), text_of(".github/workflows/test.yml")
    (oldest,) = re.findall(r'requires-python = ">=(.*)"', project)
    named = re.findall(r"Python :: (3\.\d+)", project)
    assert named[0] == oldest and f'python: ["{oldest}", "{named[-1]}"]' in workflow
    assert f"Python {oldest} or later" in text_of("README.md")


def written():
    """Return the files that commands write unless told otherwise, and those that examples name."""
    program = command_line()
    parsers = [program, *program.commands.values()]
    defaults = [parser.get_default("output") for parser in parsers]
    pages = [parser.format_help() for parser in parsers]
    pages += [path.read_text(encoding="utf-8") for path in HOUSE.glob("[a-z]*/**/*.md")]
    pages = "\n".join([*pages, text_of("README.md")])
    named = re.findall(r'(?:--output |savefig\("|\.save\("|to_csv\(")([\w-]+\.[a-z]+)', pages)
    folders = re.findall(r"minipipe site (\w+)", pages)
    names = {*filter(None, defaults), *named, *(f"{folder}/index.html" for folder in folders)}
    return sorted(names - {"FILE.csv"})


def test_git_ignores_what_the_commands_write():
    if not (HOUSE / ".git").exists() or which("git") is None:
        pytest.skip("this is not a clone, or there is no git")
    names = [*written(), ".packages/numpy", ".venv/bin/python"]
    assert {"timeline.png", "zb-v.csv", "run.png", "public/index.html"} <= {*names}
    done = subprocess.run(["git", "check-ignore", *names], cwd=HOUSE, capture_output=True, text=True)
    if done.returncode == 128:
        pytest.skip(done.stderr)  # such as a clone that belongs to somebody else
    assert sorted(done.stdout.splitlines()) == sorted(names), "these would be added: see .gitignore"
