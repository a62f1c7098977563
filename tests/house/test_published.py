"""What a published project has: a README of one page, whose code runs as pasted; one source for its commands,
a changelog, extras, and nothing left behind.
"""

import re
import subprocess
import sys
from pathlib import Path
from runpy import run_path
from shutil import which

import pytest
from house import address

import minipipe

HOUSE = Path(__file__).parents[2]
README = (HOUSE / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
PAGES = [path.relative_to(HOUSE).as_posix() for path in sorted(HOUSE.glob("*/**/*.md"))
         if not any(part.startswith(".") for part in path.relative_to(HOUSE).parts)]


def block(language):
    (text,) = [text for found, text in BLOCKS if found == language]
    return text


def test_the_readme_is_one_page_with_the_words_searched_for():
    assert len(README.split()) <= 1100
    for word in ("pipeline parallelism", "data parallel", "tensor parallel", "ZeRO"):
        assert word in README


def test_the_readme_has_two_commands_to_install_and_run():
    commands = re.findall(r"^python3 -m pip install .*", README, re.MULTILINE)
    assert [command.rpartition(" python3 -m ")[2] for command in commands] == \
        ["minipipe", 'pytest -n auto -m "not slow"']
    assert all("--no-warn-conflicts" in command and "--target .packages" in command for command in commands)


def test_the_readmes_page_of_python_runs_as_pasted(tmp_path, monkeypatch, capsys):
    code = block("python")
    assert len(code.splitlines()) <= 35 and "mp.check(" in code
    monkeypatch.chdir(tmp_path)
    (tmp_path / "page.py").write_text(code, encoding="utf-8")
    run_path("page.py", run_name="__main__")
    printed, complaints = capsys.readouterr()
    ours, pytorch = printed.split("<Schedule 'custom' of 2 devices")
    assert ours.startswith("True\n") and "  NO" not in ours and complaints == ""
    assert pytorch.count("\n- ") == 2 and "device 1: 1F3 is unknown" in pytorch
    assert {path.name for path in tmp_path.iterdir()} > {"run.png", "compared.png"}


def test_the_chinese_edition_has_the_same_code_and_links():
    page = HOUSE / "notebooks" / "README.zh.md"
    chinese = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", chinese, re.DOTALL | re.MULTILINE)
    code, theirs = ([(kind, re.sub("#.*", "", text)) for kind, text in each] for each in (BLOCKS, blocks))
    assert theirs == code, "change the code in both editions"
    links, theirs = (
        {link if "://" in link else (folder / link).resolve() for link in re.findall(r"\]\(([^#)]+)", text)}
        for text, folder in ((README, HOUSE), (chinese, page.parent))
    )
    assert theirs ^ links == {(HOUSE / "README.md").resolve(), page.resolve()}  # each names the other one


def test_the_readme_shows_what_the_small_file_prints(tmp_path):
    code = HOUSE / "minipipe" / "tiny.py"
    printed = subprocess.check_output([sys.executable, code], cwd=tmp_path, text=True)
    assert block("text") in printed
    n_lines = int(re.search(r"file of (\d+) lines", README)[1])
    assert abs(len(code.read_text(encoding="utf-8").splitlines()) - n_lines) <= 5


def test_the_readme_describes_its_picture_and_counts_notebooks():
    pictures = re.findall(r"!\[(.*?)\]\((.*?)\)", README)
    assert [Path(path).name for _, path in pictures] == ["hero.png", "1f1b.gif", "playground.png"]
    assert len(pictures[0][0]) > 100
    assert "twelve [notebooks]" in README
    assert len([path for path in (HOUSE / "notebooks").glob("*.ipynb") if "01" <= path.name < "13"]) == 12


@pytest.mark.parametrize("page", ["README.md", *PAGES, ".github/CONTRIBUTING.md", ".github/CHANGELOG.md"])
def test_links_lead_somewhere(page):
    text = (HOUSE / page).read_text(encoding="utf-8")
    for link in re.findall(r"\]\((?!https?://)([^)]*)\)", text):
        path, _, anchor = link.partition("#")
        target = (HOUSE / page).parent / path if path else HOUSE / page
        assert target.exists(), f"{page}: there is no {link}"
        if anchor:
            headings = re.findall(r"^#+ (.*)", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in map(anchor_of, headings), f"{page}: there is no heading {link}"


def anchor_of(heading):
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


# ---- one address ----

def test_badges_and_first_cells_match_the_address():
    for path, text in address.written(address.ADDRESS).items():
        assert path.read_text(encoding="utf-8") == text, "python3 tests/house/address.py"


def test_an_address_makes_badges_and_cells_that_clone_it():
    place = "https://github.com/someone/minipipe"
    for path, text in address.written(place).items():
        there = address.with_badges if path.suffix == ".md" else address.with_first_cell
        assert place in text and there(text, place) == text, path.name
        assert there(text, "") == path.read_text(encoding="utf-8"), path.name


# ---- one source for each command ----

TESTS = 'pytest -n auto -m "not slow"'


def text_of(path):
    return (HOUSE / path).read_text(encoding="utf-8")


def extras():
    """Return the names of the extras in pyproject.toml; Python 3.10 has no reader of such files."""
    section = text_of("pyproject.toml").partition("[project.optional-dependencies]\n")[2].partition("\n\n")[0]
    return re.findall(r"^(\w+) = ", section, re.MULTILINE)


def test_the_workflow_runs_only_the_documented_commands():
    """Linux runs what `.ci/run` does, the others the tests of the README's command."""
    steps = re.findall(r"- run: (.*)", text_of(".github/workflows/test.yml"))
    install, tests = 'pip install --editable ".[test]"', f"python -m {TESTS}"
    lowest = f"uv {install}".replace("--editable", "--system --resolution lowest-direct --editable")
    assert steps == [".ci/run", f"python -m {install}", tests, "python -m pip install uv", lowest, tests]
    assert all(f"python3 -m {TESTS}" in text_of(path) for path in ("README.md", "tests/README.md"))


def test_the_extras_that_are_named_are_there():
    """All of them where everything is run; and in a message, as in `pip install -e ".[docs]"`."""
    for path in (".ci/run", ".github/CONTRIBUTING.md"):
        (found,) = re.findall(r'(?:-e|--editable) "\.\[(.*?)\]"', text_of(path))
        assert sorted(found.split(",")) == sorted(extras())
    for path in sorted((HOUSE / "minipipe").rglob("*.py")):
        for found in re.findall(r"\.\[([\w,]+)\]", path.read_text(encoding="utf-8")):
            assert {*found.split(",")} <= {*extras()}, f"{path.name} names {found}"


def test_no_text_says_to_install_the_minipipe_of_pypi():
    """`minipipe` on PyPI is another project, and `minipipe-learn` is not published: a clone is installed."""
    assert 'name = "minipipe-learn"' in text_of("pyproject.toml")
    folders = ("minipipe", "tests", "figures", "notebooks", ".github")
    paths = [path for folder in folders for kind in ("py", "md", "html", "ipynb", "yml")
             for path in (HOUSE / folder).rglob(f"*.{kind}")]
    for path in [HOUSE / "README.md", *paths]:
        found = re.search(r"pip install (\S*[\w.\]] )*[\"'\\]*minipipe\b", path.read_text(encoding="utf-8"))
        assert not found, f"{path.name}: {found}"


def test_changelog_and_readme_name_this_version():
    versions = re.findall(r"^## (\S+)", text_of(".github/CHANGELOG.md"), re.MULTILINE)
    assert versions[0] == minipipe.__version__ and f"version {minipipe.__version__}," in text_of("README.md")
    assert f"\nversion: {minipipe.__version__}\n" in text_of(".github/CITATION.cff")


def test_the_oldest_python_is_the_same_everywhere():
    project, workflow = text_of("pyproject.toml"), text_of(".github/workflows/test.yml")
    (oldest,) = re.findall(r'requires-python = ">=(.*)"', project)
    named = re.findall(r"Python :: (3\.\d+)", project)
    assert named[0] == oldest and f'python: ["{oldest}", "{named[-1]}"]' in workflow
    assert f"Python {oldest} or later" in text_of("README.md")


def test_git_ignores_what_the_commands_write():
    if not (HOUSE / ".git").exists() or which("git") is None:
        pytest.skip("this is not a clone, or there is no git")
    names = ["timeline.png", "zb-v.csv", "run.png", "public/index.html", ".packages/numpy",
             ".venv/bin/python"]
    done = subprocess.run(["git", "check-ignore", *names], cwd=HOUSE, capture_output=True, text=True)
    if done.returncode == 128:
        pytest.skip(done.stderr)  # such as a clone that belongs to somebody else
    assert sorted(done.stdout.splitlines()) == sorted(names), "these would be added: see .gitignore"
