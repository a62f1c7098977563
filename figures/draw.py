"""Draw the pictures of this folder from runs of the package.

    python3 figures/draw.py                     all that take seconds, into this folder
    python3 figures/draw.py zoo cut             these two alone
    python3 figures/draw.py tables              print published tables with our cells
    python3 figures/draw.py --folder FOLDER     into another folder
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from figures.drawing import ASKED_FOR, FIGURES
from minipipe.cluster import Trace
from minipipe.plots.saving import write_picture
from minipipe.watching import say, watched, with_progress

HERE = Path(__file__).parent


def main(arguments=None):
    """Write each picture in `arguments` as a PNG, a film as a GIF; print a table."""
    known = FIGURES | ASKED_FOR
    parser = argparse.ArgumentParser(
        description="Draw the pictures of this folder from runs of the package.",
        epilog=f"names: {', '.join(FIGURES)}; and, only if asked for: {', '.join(ASKED_FOR)}",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="see below (default: all but the slow ones)")
    parser.add_argument("--folder", type=Path, default=HERE, help="where to write them (default: this one)")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in known]
    if unknown:
        parser.error(f"there is no picture {unknown[0]!r}: choose from {', '.join(known)}")
    options.folder.mkdir(exist_ok=True)
    with watched():
        for name in with_progress(options.names or list(FIGURES), "pictures"):
            drawn = known[name]()
            if isinstance(drawn, str):
                say(drawn)
                continue
            if isinstance(drawn, Trace):
                path = options.folder / f"{name}.gif"
                drawn.save(path)
            else:
                path = options.folder / f"{name}.png"
                write_picture(drawn, path)
            say(f"written: {path}")


if __name__ == "__main__":
    main()
