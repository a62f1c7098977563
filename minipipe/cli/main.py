"""`python -m minipipe ...`: parse the arguments, run the command, report mistakes.

Until the arguments are parsed, only the standard library is imported, so that `--help`
and `--version` answer at once.
"""

import argparse
import os
import re
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from difflib import get_close_matches
from importlib import import_module
from io import StringIO
from typing import NoReturn

from .. import __version__
from ..checks import plain, spelled
from ..watching import watched
from .options import COMMANDS, TRAIN, Command

PACKAGE = os.path.dirname(os.path.dirname(__file__))
MISTAKES = ValueError, RuntimeError, MemoryError, OSError, ArithmeticError  # errors with a sentence for users
INTERRUPTED = 130  # the status of a program that Ctrl-C has ended: 128 + SIGINT
RANK_VARIABLES = "PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"  # set by mpiexec to a process's rank
RANK_0_GRACE = 5.0  # seconds that other ranks wait, while rank 0 reports the error and ends the job


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `arguments`; return 0, 1 for a negative verdict, 2 for a user's mistake."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        command, options = read(words)
        module, _, function = command.place.partition(".")
        run = getattr(import_module(f".{module}", __package__), function)
        with warnings.catch_warnings(), watched():
            warnings.simplefilter("always", import_module("minipipe.order").ScheduleWarning)
            warnings.showwarning = note_once()
            return run(options) or 0
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("minipipe: stopped", file=sys.stderr)
        return INTERRUPTED
    except (Exception, SystemExit) as error:  # SystemExit: from a user's file, or from argparse
        message = mistake_in_file(error, words)
        if message is None and not isinstance(error, MISTAKES):
            raise
        print(f"minipipe: error: {message or str(error) or 'out of memory'}", file=sys.stderr)
        return 2


def mistake_in_file(error: BaseException, words: list[str]) -> str | None:
    """Return line and text of an `error` raised by a file in `words`, or None."""
    files = {os.path.realpath(f"{word.partition('.py')[0]}.py") for word in words if ".py" in word}
    if isinstance(error, SyntaxError):  # for bytes that are not text, Python names no file
        file = error.filename or min(files, default="")
        if os.path.realpath(file) in files:
            return f"{file}, line {error.lineno or 1}: {type(error).__name__}: {error.msg}"
    found = None
    for frame in traceback.extract_tb(error.__traceback__):
        if os.path.realpath(frame.filename) in files:
            found = frame
        elif frame.filename.startswith(PACKAGE + os.sep):  # called by the file: its own message is enough
            found = None
    if found is None:
        return None
    return f"{found.filename}, line {found.lineno}, in {found.name}: {type(error).__name__}: {error}"


def read(words: list[str]) -> tuple[Command, argparse.Namespace]:
    """Return (`Command`, options) of `words`; raise `SystemExit` for unknown ones.

    Of several MPI ranks, only rank 0 reports the error.
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


def note_once() -> Callable[..., None]:
    """Return a function that prints each different warning once, as a note."""
    said = set()

    def note(message, *where):
        if str(message) not in said:
            said.add(str(message))
            print(f"minipipe: note: {message}", file=sys.stderr)

    return note


# The parser of a command line; for an unknown word, it tells what to type instead.

TYPE = "python3 -m minipipe"
SAID_ELSEWHERE = {  # other or earlier name of a command -> what to use
    **dict.fromkeys(
        ["timeline", "simulate", "draw", "plot", "trace", "visualize", "profile"], f"{TYPE} show 1f1b"
    ),
    "explain": f"{TYPE} show 1f1b --explain", "export": f"{TYPE} show 1f1b --output 1f1b.csv",
    **dict.fromkeys(["bench", "benchmark", "bubble", "list"], f"{TYPE} compare gpipe 1f1b"),
    **dict.fromkeys(["validate", "lint"], f"{TYPE} check mine.csv"),
    **dict.fromkeys(["verify", "prove", "test"], f"{TYPE} check"),
    **dict.fromkeys(["optimize", "tune", "solve"], f"{TYPE} search -K 3 -M 4"),
    **dict.fromkeys(["docs", "serve", "web"], f"{TYPE} site public"),
    **dict.fromkeys(["train", "run", "launch"], f"{TYPE} --schedule 1f1b"),
    "threads": f"{TYPE} --engine threads", "mpi": f"mpiexec -n 4 {TYPE} --engine mpi",
    "server": "mp.ParameterServer in Python, see notebook 21",
    **dict.fromkeys(["fit", "memory", "estimate"], "mp.without_values in Python, see notebook 23"),
    "federated": "mp.FederatedAveraging in Python, see notebook 28",
    "papers": "python3 figures/draw.py throughput",
    "batch-size": "python3 figures/draw.py error_against_batch_size",
}
OPTIONS_ELSEWHERE = {  # other name of an option, in plain letters -> what to type
    **dict.fromkeys(["pp", "gpus", "ndevices", "nprocpernode", "pipelinemodelparallelsize"], "-K"),
    **dict.fromkeys(["tp", "nshards", "tensormodelparallelsize"], "-T"),
    **dict.fromkeys(["dp", "nreplicas", "dataparallelsize"], "-D"),
    **dict.fromkeys(["chunks", "nmicrobatches", "nummicrobatches", "gradientaccumulationsteps"], "-M"),
    **dict.fromkeys(["stages", "nstages"], "-K, for a schedule knows how many stages a device has"),
    "format": "--output FILE, whose ending says the format", "backend": "--engine", "lr": "--learning-rate",
    "nepochs": "--epochs", "order": "a file, with a line for each device: show mine.txt",
    "csv": "the file alone: show mine.csv",
}


class Parser(argparse.ArgumentParser):
    """The parser of a `Command`; options in any order, hints for unknown words."""

    def __init__(self, command: Command):
        super().__init__(
            prog=f"minipipe {command.name}".strip(), description=command.purpose, epilog=command.epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_options(self)

    @property
    def options(self) -> list[str]:
        """All options, with their dashes."""
        return [name for action in self._actions for name in action.option_strings]

    def read(self, words: list[str]) -> argparse.Namespace:
        """Return the options in `words`; raise `SystemExit` for an unknown word."""
        found, rest = self.parse_known_intermixed_args(words)
        unknown = [word.partition("=")[0] for word in rest if re.match("--?[A-Za-z]", word)]
        if unknown:
            self.error(f"unknown option {unknown[0]}{self._instead_of_option(unknown[0])}")
        schedules = getattr(found, "schedules", [getattr(found, "schedule", None)])
        for word in filter(None, schedules):
            if word.isdigit():
                self.error(f"{word!r} is not a schedule: write -K {word} for as many devices")
            if "=" in word:
                self.error(f"{word!r} is not a schedule: costs are one word, --costs F=1,B=2")
        if rest:
            self.error(f"there is no place for {' '.join(map(repr, rest))}{self._instead_of_words(rest)}")
        return found

    def error(self, message: str) -> NoReturn:
        """End with status 2 and one line, the `message`."""
        help_of = f"{TYPE} {self.prog.partition(' ')[2]} --help".replace("  ", " ")
        self.exit(2, f"{self.prog}: error: {message} ({help_of} lists all)\n")

    def _instead_of_option(self, name):
        words = [action.dest for action in self._actions if not action.option_strings]
        if any(plain(name) in (word, f"{word}s") for word in words):
            return f": leave out {name}, and keep what follows it"
        elsewhere = OPTIONS_ELSEWHERE.get(plain(name), "")
        if elsewhere and (elsewhere[0] != "-" or elsewhere.split(",")[0].split()[0] in self.options):
            return f": type {elsewhere}"
        near = nearest(name, self.options)
        if near:
            return f": did you mean {near}?"
        others = [
            command.name or "training" for command in (TRAIN, *COMMANDS.values())
            if {name, elsewhere} & {*Parser(command).options}
        ]
        return f": it is an option of {', '.join(others)}" if others else ""

    def _instead_of_words(self, words):
        if any(re.fullmatch(r"([A-Z]=)?\d+", word) for word in words) and "-K" in self.options:
            return ": write -K 4 -M 8 for 4 devices and 8 micro-batches"
        if words[0] in COMMANDS:
            return f": the options of {words[0]} come after its name"
        if import_module("minipipe.schedules").is_name(words[0]):
            return ": show and check take one schedule, and compare several"
        return f": write --output {words[0]}" if "." in words[0] and "--output" in self.options else ""


def instead_of_command(word: str) -> str:
    """Return the error text for a word that is not a command."""
    known = spelled(word, SAID_ELSEWHERE)
    if known:
        return f"`{known}` is not a command: use {SAID_ELSEWHERE[known]}"
    if import_module("minipipe.schedules").is_name(word):
        return f"{word} is a schedule: type show {word} to see its run, or --schedule {word} to train by it"
    near = nearest(word, [*COMMANDS, *SAID_ELSEWHERE, "help"])
    if near in SAID_ELSEWHERE:
        return f"there is no command {word!r}, nor `{near}`: use {SAID_ELSEWHERE[near]}"
    hint = f"did you mean {near}? " if near else ""
    return f"there is no command {word!r}: {hint}there are {', '.join(COMMANDS)}"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the word in `known` with the spelling nearest to `name`, or None.

    >>> nearest("compair", ["compare", "check"]), nearest("--LATNCY", ["-K", "--latency"])
    ('compare', '--latency')
    """
    keys = {plain(one): one for one in known}
    found = get_close_matches(plain(name), keys, n=1, cutoff=0.6)
    return keys[found[0]] if found else None
