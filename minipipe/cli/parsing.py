"""Read the words of a command line; for an unknown word, say what to type instead."""

import argparse
import re
from difflib import get_close_matches
from importlib import import_module

from ..checks import plain, spelled
from .options import COMMANDS, TRAIN

TYPE = "python3 -m minipipe"
SAID_ELSEWHERE = {  # what others call a command, or an earlier version did: what to use
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
    **dict.fromkeys(["fit", "plan", "memory", "estimate"], "mp.footprints in Python, see notebook 34"),
    "server": "mp.ParameterServer in Python, see notebook 44",
    "federated": "mp.FederatedAveraging in Python, see notebook 45",
    "papers": "python3 figures/draw.py throughput",
    "batch-size": "python3 figures/draw.py error_against_batch_size",
}
OPTIONS_ELSEWHERE = {  # what others call an option, by its plain letters: what to type
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
    """The parser of a `Command`: options stand in any order, and an unknown word is answered."""

    def __init__(self, command):
        super().__init__(
            prog=f"minipipe {command.name}".strip(), description=command.purpose, epilog=command.epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_options(self)

    @property
    def options(self):
        """All options, with their dashes."""
        return [name for action in self._actions for name in action.option_strings]

    def read(self, words):
        """Return what the words say; raise `SystemExit` with status 2 for one that nothing takes."""
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

    def error(self, message):
        """End with status 2 and one line."""
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
            return f": the options of {words[0]} stand behind its name"
        if import_module("minipipe.schedules").is_name(words[0]):
            return ": show takes one schedule, and compare several"
        return f": write --output {words[0]}" if "." in words[0] and "--output" in self.options else ""


def instead_of_command(word):
    """Return the sentence about a word that is not a command."""
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


def nearest(name, known):
    """Return the one out of `known` that is spelled most like `name`, or None.

    >>> nearest("compair", ["compare", "check"]), nearest("--LATNCY", ["-K", "--latency"])
    ('compare', '--latency')
    """
    keys = {plain(one): one for one in known}
    found = get_close_matches(plain(name), keys, n=1, cutoff=0.6)
    return keys[found[0]] if found else None
