"""Write what depends on the project's address: the badges of both READMEs, the first cell of all notebooks.

    python3 tests/house/address.py

The project has no address yet, so there are no badges, and on Colab the first cell says what is missing.
"""

import json
import re
from pathlib import Path

ADDRESS = ""  # of the published project, such as "https://github.com/NAME/minipipe"

ROOT = Path(__file__).parents[2]
READMES = [ROOT / "README.md", ROOT / "notebooks" / "README.zh.md"]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
FIRST = "# Run this cell first, and again after each restart of the kernel: all others need it."
FIND = f'''{FIRST}
import sys
from importlib.util import find_spec
from pathlib import Path

for folder in (Path.cwd(), *Path.cwd().parents):
    if (folder / "notebooks/exercises").exists():
        sys.path += [str(folder / "notebooks"), str(folder)]
'''
CLONE = '''if "google.colab" in sys.modules and find_spec("exercises") is None:
    !git clone --quiet --depth 1 ADDRESS && pip install --quiet ./FOLDER
    sys.path += ["FOLDER/notebooks", "FOLDER"]
'''
MISSING = '''if find_spec("exercises") is None:
    raise ImportError("this notebook needs the project around it: start Jupyter in the `notebooks` of a "
                      "clone. On Colab, upload the project, and type %cd and the path of its folder here")'''


def first_cell(address):
    """Return the code that finds the project around a notebook, or, on Colab, clones it from `address`."""
    clone = CLONE.replace("ADDRESS", address).replace("FOLDER", address.rpartition("/")[2])
    return FIND + (clone if address else "") + MISSING


def with_badges(readme, address):
    """Return the text of a README with the badges of `address` after its link to the other language."""
    tests = f"[![tests]({address}/actions/workflows/test.yml/badge.svg)]({address}/actions)"
    notebook = address.replace("https://github.com", "https://colab.research.google.com/github")
    colab = (f"[![Colab](https://colab.research.google.com/assets/colab-badge.svg)]"
             f"({notebook}/blob/main/notebooks/00_start_here.ipynb)")
    badges = f" {tests} {colab}" if address else ""
    return re.sub(r"^(\[(?:中文|English)\]\([^)]*\)).*$", rf"\1{badges}", readme, count=1, flags=re.MULTILINE)


def with_first_cell(notebook, address):
    """Return the text of a notebook's file with `first_cell` in it."""
    content = json.loads(notebook)
    for cell in content["cells"]:
        if "".join(cell["source"]).startswith(FIRST):
            cell["source"] = first_cell(address).splitlines(keepends=True)
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def written(address):
    """Return {path: text} of all files that depend on the address."""
    files = dict.fromkeys(READMES, with_badges) | dict.fromkeys(NOTEBOOKS, with_first_cell)
    return {path: change(path.read_text(encoding="utf-8"), address) for path, change in files.items()}


if __name__ == "__main__":
    for path, text in written(ADDRESS).items():
        path.write_text(text, encoding="utf-8")
