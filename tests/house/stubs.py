"""Write the stubs, which tell editors and type checkers the names that registries hand on.

    python3 tests/house/stubs.py

The package finds its layers, losses and optimizers when it runs; who only reads it cannot. So each
room that takes names from its registry, and the package itself, has an `__init__.pyi`. A test compares it
with a fresh one. It is made, and never edited.
"""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

sys.path.insert(0, str(Path(__file__).parents[2]))

ROOMS = ["layers", "losses", "optimizers"]
PACKAGES = ["minipipe", *(f"minipipe.{room}" for room in ROOMS)]
MADE = "# Made from the registries by `python3 tests/house/stubs.py`: do not edit."


def path_of(package):
    return Path(import_module(package).__file__).with_suffix(".pyi")


def stub_of(package):
    """Return the text of a stub: for each name of a package, the file of it where that is defined."""
    module = import_module(package)
    if package == "minipipe":
        names = [*module.__all__, *ROOMS]
    else:
        names = [key for key, value in vars(module).items()
                 if key[0] != "_" and not isinstance(value, ModuleType)]
    places = sorted((_home(getattr(module, name), package), name) for name in names)
    lines = [f"from {home} import {name} as {name}" for home, name in places]
    if hasattr(module, "__version__"):
        lines += ["", "__version__: str"]
    return "\n".join([MADE, "", *lines, "", "__all__: list[str]", ""])


def _home(value, package):
    """Return the module that defines `value`, as the package names it: ".layers.linear"."""
    if isinstance(value, ModuleType):
        return "."
    inside = [key for key in sys.modules if key.startswith(f"{package}.")]
    candidates = [getattr(value, "__module__", None), *sorted(inside, key=lambda key: (key.count("."), key))]
    name = next(key for key in candidates if key in inside and _has(sys.modules[key], value))
    return name[len(package):]


def _has(module, value):
    return any(each is value for each in vars(module).values())


if __name__ == "__main__":
    for package in PACKAGES:
        path_of(package).write_text(stub_of(package), encoding="utf-8")
