"""`python -m minipipe ...`: read the words, import what the command needs, run it, and answer a mistake.

Until the words are read, nothing but the standard library is imported: `--help` and `--version` are there at
once.
"""

import os
import sys
import time
import warnings
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from io import StringIO

from .. import __version__
from ..checks import spelled
from ..watching import watched
from .options import COMMANDS, TRAIN
from .parsing import Parser, instead_of_command

INTERRUPTED = 130  # what a shell reports of a program that Ctrl-C has ended: 128 + SIGINT
RANK_VARIABLES = "PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"  # in which an mpiexec says the number
RANK_0_GRACE = 5.0  # seconds that the other ranks wait: rank 0 says what is wrong, and its end ends them


def main(arguments=None):
    """Run the command line; return 0, 1 where a verdict is negative, or 2 for a mistake of the user's."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        command, options = read(words)
        module, _, function = command.place.partition(".")
        run = getattr(import_module(f".{module}", __package__), function)
        with warnings.catch_warnings(), watched():
            warnings.simplefilter("always", import_module("minipipe.order").ScheduleWarning)
            warnings.showwarning = note_once()
            return run(options) or 0
    except BrokenPipeError:  # the reader, such as `head`, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, RuntimeError, MemoryError, OSError, ArithmeticError) as error:
        print(f"minipipe: error: {str(error) or 'out of memory'}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("minipipe: stopped", file=sys.stderr)
        return INTERRUPTED


def read(words):
    """Return (`Command`, its options); raise `SystemExit` for words that nothing takes, and after a help.

    Of several MPI ranks, only rank 0 says what is wrong.
    """
    is_rank_0 = all(os.environ.get(name, "0") == "0" for name in RANK_VARIABLES)
    if is_rank_0 or not {"mpi", "--engine=mpi"} & {*words}:
        return _read(words)
    try:
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            return _read(words)
    except SystemExit:
        time.sleep(RANK_0_GRACE)
        raise


def _read(words):
    if words[:1] in (["help"], ["version"]):
        words = [*words[1:2], f"--{words[0]}"]
    command = TRAIN
    if words and not words[0].startswith("-"):
        name = spelled(words[0], COMMANDS)
        if name is None:
            print(f"minipipe: error: {instead_of_command(words[0])}", file=sys.stderr)
            raise SystemExit(2)
        command, words = COMMANDS[name], words[1:]
    parser = Parser(command)
    parser.add_argument("--version", action="version", version=f"minipipe {__version__}")
    return command, parser.read(words)


def note_once():
    """Return a function that prints a warning as a note, each of them once."""
    said = set()

    def note(message, *where):
        if str(message) not in said:
            said.add(str(message))
            print(f"minipipe: note: {message}", file=sys.stderr)

    return note
