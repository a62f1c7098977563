"""`python -m minipipe ...`: read the words, import what the command needs, run it, and answer a mistake.

Until the words are read, nothing but the standard library is imported: `--help` and `--version` are there at
once.
"""

import os
import sys
import time
import traceback
import warnings
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from io import StringIO

from .. import __version__
from ..checks import spelled
from ..watching import watched
from .options import COMMANDS, TRAIN
from .parsing import Parser, instead_of_command

PACKAGE = os.path.dirname(os.path.dirname(__file__))
MISTAKES = ValueError, RuntimeError, MemoryError, OSError, ArithmeticError  # errors with a sentence for users
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
    except KeyboardInterrupt:
        print("minipipe: stopped", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        message = mistake_in_file(error, words)
        if message is None and not isinstance(error, MISTAKES):
            raise
        print(f"minipipe: error: {message or str(error) or 'out of memory'}", file=sys.stderr)
        return 2


def mistake_in_file(error, words):
    """Return the line and the text of an error that a file named in `words` has raised; None for others."""
    files = {os.path.realpath(f"{word.partition('.py')[0]}.py") for word in words if ".py" in word}
    if isinstance(error, SyntaxError) and os.path.realpath(error.filename or "") in files:
        return f"{error.filename}, line {error.lineno}: {type(error).__name__}: {error.msg}"
    found = None
    for frame in traceback.extract_tb(error.__traceback__):
        if os.path.realpath(frame.filename) in files:
            found = frame
        elif frame.filename.startswith(PACKAGE + os.sep):  # called by the file: its error says what is wrong
            found = None
    if found is None:
        return None
    return f"{found.filename}, line {found.lineno}, in {found.name}: {type(error).__name__}: {error}"


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
