"""The README is one page: its code runs as pasted, its output is what comes out, its links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path
from runpy import run_path

import pytest

HOUSE = Path(__file__).parents[2]
README = (HOUSE / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
PAGES = [path.relative_to(HOUSE).as_posix() for path in sorted(HOUSE.glob("*/**/README.md"))
         if not any(part.startswith(".") for part in path.relative_to(HOUSE).parts)]


def block(language):
    (text,) = [text for found, text in BLOCKS if found == language]
    return text


def test_it_is_one_page():
    assert len(README.split()) <= 1200


def test_it_has_two_commands_to_install_and_run():
    commands = re.findall(r"^python3 -m pip install .*", README, re.MULTILINE)
    assert [command.rpartition(" python3 -m ")[2] for command in commands] == \
        ["minipipe", 'pytest -n auto -m "not slow"']
    assert all("--no-warn-conflicts" in command and "--target .packages" in command for command in commands)


def test_its_page_of_python_runs_as_pasted(tmp_path, monkeypatch, capsys):
    code = block("python")
    assert len(code.splitlines()) <= 35 and "mp.check(" in code
    monkeypatch.chdir(tmp_path)
    (tmp_path / "page.py").write_text(code, encoding="utf-8")
    run_path("page.py", run_name="__main__")
    printed, complaints = capsys.readouterr()
    assert printed.startswith("True\n[[0], [], [], []]\n") and "  NO" not in printed and complaints == ""
    assert {path.name for path in tmp_path.iterdir()} > {"run.png", "compared.png", "mine.csv"}


def test_the_second_shows_what_the_small_file_prints(tmp_path):
    code = HOUSE / "minipipe" / "tiny.py"
    printed = subprocess.check_output([sys.executable, code], cwd=tmp_path, text=True)
    assert block("text") in printed
    n_lines = int(re.search(r"file of (\d+) lines", README)[1])
    assert abs(len(code.read_text(encoding="utf-8").splitlines()) - n_lines) <= 5


def test_the_picture_is_described():
    pictures = re.findall(r"!\[(.*?)\]\((.*?)\)", README)
    assert [path for _, path in pictures] == ["figures/hero.png"] and len(pictures[0][0]) > 100


def test_it_counts_the_notebooks():
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
