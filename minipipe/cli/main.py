"""Which command does what, and how a mistake is answered."""

import os
import sys
import warnings

from .. import __version__
from ..order import ScheduleWarning
from ..watching import watched
from . import (
    compare, explain, export, mpi, search, site, threads, timeline, train, validate, verify,
)
from .parsing import Parser

INTERRUPTED = 130  # what a shell reports of a program that Ctrl-C has ended: 128 + SIGINT
COMMANDS = {
    "timeline": timeline,
    "compare": compare,
    "explain": explain,
    "search": search,
    "validate": validate,
    "export": export,
    "verify": verify,
    "threads": threads,
    "mpi": mpi,
    "site": site,
}
DESCRIPTION = "Pipeline-parallel training in pure NumPy: one trace is the run, the proof and the picture."
EXAMPLE_COMMANDS = """examples:
  python3 -m minipipe                                      prove the gradients, draw the run, train on digits
  python3 -m minipipe timeline 1f1b -K 4 -M 8              4 devices, 8 micro-batches
  python3 -m minipipe compare naive gpipe 1f1b zb-v -K 4 -M 8
  python3 -m minipipe export zb-v --output zb-v.csv        a table that PyTorch loads
  python3 -m minipipe validate zb-v.csv
  python3 -m minipipe verify                               a table of verdicts
each command shows more with --help; case, "_" and "-" do not matter in names
"""


def main(arguments=None):
    """Run the command line; returns 0, 1 where a verdict is negative, or 2 for a mistake of the user's."""
    try:
        options = options_from(sys.argv[1:] if arguments is None else list(arguments))
        with warnings.catch_warnings(), watched():
            warnings.simplefilter("always", ScheduleWarning)
            warnings.showwarning = note_once()
            return options.run(options) or 0
    except BrokenPipeError:  # the reader, such as `head`, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, RuntimeError, MemoryError, OSError, ArithmeticError) as error:
        print(f"minipipe: error: {str(error) or 'out of memory'}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("minipipe: stopped", file=sys.stderr)
        return INTERRUPTED


def note_once():
    """Return a function that shows warnings to those who did not call a function, each of them once."""
    said = set()

    def note(message, *where):
        if str(message) not in said:
            said.add(str(message))
            print(f"minipipe: note: {message}", file=sys.stderr)

    return note


def options_from(arguments):
    """What the user wants; a mistake ends the program with status 2."""
    parser = command_line()
    if arguments and arguments[0].startswith("-") and COMMANDS.keys() & set(arguments):
        parser.fail(f"the options of a command come after its name, got {' '.join(arguments)}")
    with mpi.one_voice(arguments):
        return parser.parse_args(arguments)


def command_line():
    """What reads the command line."""
    parser = Parser(prog="minipipe", description=DESCRIPTION, epilog=EXAMPLE_COMMANDS)
    parser.add_argument("--version", action="version", version=f"minipipe {__version__}")
    train.add_options(parser)
    parser.set_defaults(run=train.run)
    parser.others = parser.commands
    commands = parser.add_subparsers(title="commands (without one: train on the digits)", metavar="COMMAND")
    for name, module in COMMANDS.items():
        purpose = f"{module.PURPOSE[0].upper()}{module.PURPOSE[1:]}."
        command = commands.add_parser(name, help=module.PURPOSE, description=purpose, epilog=module.EPILOG)
        module.add_options(command)
        command.set_defaults(run=module.run)
        parser.commands[name], command.others = command, parser.commands
    return parser
