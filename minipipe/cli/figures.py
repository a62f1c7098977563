"""`minipipe figures`: every picture in `figures/`, from runs of the package."""

from pathlib import Path

from ..figures import FIGURES
from .output import write

PURPOSE = "make the pictures of the README again"
EPILOG = """example:
  python3 -m minipipe figures --folder figures
"""


def add_options(parser):
    parser.add_argument("--folder", default="figures", help="where to write them (default: %(default)s)")


def run(options):
    folder = Path(options.folder)
    folder.mkdir(exist_ok=True)
    for name, draw in FIGURES.items():
        write(draw(), folder / f"{name}.png")
