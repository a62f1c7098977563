"""`minipipe site`: the schedules, the reference and the notebooks as a static site."""

from pathlib import Path

from ..site import write_site

PURPOSE = (
    "write a web site with runs of all schedules to step through and compare, a page for each public name, "
    "and the notebooks"
)
EPILOG = """\
The site needs no server and no network: open FOLDER/index.html, or put the folder on any web server. The
reference, a page for each public name, needs pdoc: pip install -e ".[docs]". The notebooks become pages if
nbconvert and latex2mathml are installed: pip install -e ".[notebooks]".

example:
  python3 -m minipipe site public
"""
NOTEBOOKS = "notebooks"


def add_options(parser):
    parser.add_argument("folder", metavar="FOLDER",
                        help="where to write it: a new or an empty folder, or a site to be written again")
    parser.add_argument("--notebooks", metavar="FOLDER",
                        help=f"where the notebooks are (default: {NOTEBOOKS}, if there is such a folder)")


def run(options):
    given = options.notebooks
    write_site(options.folder, NOTEBOOKS if given is None and Path(NOTEBOOKS).is_dir() else given)
