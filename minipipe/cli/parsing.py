"""A parser that reads what was meant: names in any spelling, -K and -M; and names what is near."""

import argparse
import re
import sys
from difflib import get_close_matches

from ..checks import plain, spelled
from ..schedules import is_name

ALSO = {  # what the options are called in Python, and by others
    "K": "--devices", "M": "--micro-batches", "n_devices": "--devices", "n_stages": "--stages",
    "n_microbatches": "--micro-batches", "n_epochs": "--epochs", "gpus": "--devices", "lr": "--learning-rate",
}
MEGATRON = {"pp": ("-K", "--devices"), "tp": ("--shards",), "dp": ("--replicas",)}  # its letters for a split
COMMANDS_ELSEWHERE = {
    "train": "training is what happens without a command, so leave train out; ",
    **dict.fromkeys(["simulate", "draw", "plot"], "did you mean timeline? "),
}
OPTION = re.compile(r"--[A-Za-z][\w-]*|-[A-Za-z][A-Za-z_-]+|-[A-Za-z]")
SHORT = re.compile(r"(?:-|(?=.=))([KMkm])=?(\d*)")  # -K 4, -K4, -K=4 and K=4


class Parser(argparse.ArgumentParser):
    """The parser of the program, or of one of its commands.

    Case, "_" and "-" do not matter in the name of an option or a command. -K and -M are --devices and
    --micro-batches. A word that nothing takes is an error that names the nearest one, after the usage of the
    command that it was typed for.

    commands: {name: `Parser`} of the program; {} of a command.
    others: the `commands` of the program, for a command.
    instead: what to type instead of a word or an option that a command does not have; or "".
    """

    def __init__(self, **options):
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **options)
        self.commands, self.others, self.instead = {}, {}, ""

    @property
    def options(self):
        """All options, with their dashes."""
        return [name for action in self._actions for name in action.option_strings]

    def parse_known_args(self, args=None, namespace=None):
        """Read the words; raise `SystemExit` with status 2 for a word that nothing takes."""
        words = [*(sys.argv[1:] if args is None else args)]
        if self.commands and words and not words[0].startswith("-"):
            if words[0] in ("help", "version"):
                return self.parse_known_args([*words[1:2], f"--{words[0]}"], namespace)
            return self._command(words[0]).parse_known_args(words[1:], namespace)
        words = [self._as_option(word) for word in words]
        for word in words[:words.index("--")] if "--" in words else words:
            name = word.partition("=")[0]
            if OPTION.fullmatch(name) and name not in self.options:
                self.error(self._about_option(name))
        found, rest = super().parse_known_args(words, namespace)
        many = [action for action in self._actions if not action.option_strings and action.nargs == "*"]
        if rest and not many:
            self.error(self._about_word(rest))
        for action in many:  # words after an option, which argparse leaves over
            setattr(found, action.dest, getattr(found, action.dest) + rest)
        return found, []

    def _as_option(self, word):
        """Return `word` with the name of the option that it spells, if it does."""
        short = SHORT.fullmatch(word)
        if short:
            option, value = ALSO[short[1].upper()], short[2]
            return word if option not in self.options else f"{option}={value}" if value else option
        name, sign, value = word.partition("=")
        return f"{self._spelled(name) or name}{sign}{value}" if OPTION.fullmatch(name) else word

    def _spelled(self, name):
        """Return the option that `name` spells, or None. A beginning will do that no other option has."""
        if name in self.options:
            return name
        also = spelled(name, [f"--{key}" for key in ALSO])
        if also and ALSO[also[2:]] in self.options:
            return ALSO[also[2:]]
        beginning = self._beginning(name)
        return spelled(name, self.options) or (beginning[0] if len(beginning) == 1 else None)

    def _beginning(self, name):
        """Return the options that begin like `name`."""
        return [option for option in self.options if plain(option).startswith(plain(name))]

    def _about_option(self, name):
        """Return the sentence about an option that this command does not have."""
        several, here = self._beginning(name), MEGATRON.get(plain(name), ("",))
        if here[-1] in self.options:
            return f"unknown option {name}: Megatron's {plain(name).upper()} is {' or '.join(here)} here"
        if len(several) > 1 and len(plain(name)) > 1:
            return f"{name} may be {' or '.join(several)}: write one of them"
        if self._choice(name):
            return f"unknown option {name}: did you mean {self._choice(name)}?"
        word = next((action.metavar for action in self._words() if plain(name) in _names_of(action)), "")
        if word:
            return f"unknown option {name}: write {word} without {name} in front"
        theirs = [one for one, parser in self.others.items() if parser._spelled(name)]
        if theirs and (len(plain(name)) > 1 or spelled(name, ALSO)):
            return f"unknown option {name} of {self.prog}: {', '.join(theirs)} would take it"
        near = nearest(name, self.options)
        hint = f"did you mean {near}?" if near else self.instead
        return f"unknown option {name}{hint and f': {hint}'}"

    def _about_word(self, words):
        """Return the sentence about words for which there is no place."""
        hint = self.instead
        if any(word.isdigit() for word in words) and "--micro-batches" in self.options:
            hint = "write -K 4 -M 8 for 4 devices and 8 micro-batches"
        elif any(map(is_name, words)) and "--schedule" in self.options:
            hint = "one schedule is enough, and compare takes several"
        elif any(map(is_name, words)):
            takes = [name for name, parser in self.others.items() if "--schedule" in parser.options]
            hint = f"a schedule is for {', '.join(takes)} and compare"
        elif self._choice(words[0]):
            hint = f"write {self._choice(words[0])}"
        elif "." in words[0] and "--output" in self.options:
            hint = f"write --output {words[0]}"
        return f"there is no place for {' '.join(map(repr, words))}{hint and f': {hint}'}"

    def _choice(self, word):
        """Return the option that can be given the value `word`, with that value, or ""."""
        for action in self._actions:
            value = spelled(word.lstrip("-"), list(action.choices or ())) if action.option_strings else None
            if value:
                return f"{action.option_strings[0]} {value}"
        return ""

    def _words(self):
        """Return the actions that take words without an option in front."""
        return [action for action in self._actions if not action.option_strings and action.metavar]

    def error(self, message):
        """End with status 2, the usage and one line; numbers are called what they are."""
        kinds = {"int": "a whole number", "float": "a number"}
        found = re.search(r"invalid (int|float) value: (.*)$", message)
        if found:
            several = "; several are written with spaces between" if re.search(r"\w[,-]", found[2]) else ""
            message = f"{message[:found.start()]}{found[2]} is not {kinds[found[1]]}{several}"
        super().error(message)

    def _command(self, word):
        """Return the parser of the command that a word spells."""
        name = spelled(word, self.commands)
        if name is None:
            near = nearest(word, [*self.commands, "help"])
            hint = f"did you mean {near}? " if near else ""
            if plain(word) in COMMANDS_ELSEWHERE:
                hint = COMMANDS_ELSEWHERE[plain(word)]
            if is_name(word):
                hint = f"type timeline {word} to draw that schedule, or --schedule {word} to train by it; "
            self.fail(f"there is no command {word!r}: {hint}there are {', '.join(self.commands)}")
        return self.commands[name]

    def fail(self, message):
        """End with status 2 and one line, without the usage."""
        self.exit(2, f"{self.prog}: error: {message}\n")


def _names_of(action):
    """Return what somebody may call words that need no option in front, in singular and plural."""
    return [plain(word).removesuffix(end) for word in (action.metavar, action.dest) for end in ("", "s")]


def nearest(name, known):
    """Return the one out of `known` that is spelled most like `name`, in any order of its words; or None.

    >>> nearest("timelin", ["timeline", "train"]), nearest("10 Gbit Ethernet", ["Ethernet, 10 Gbit/s"])
    ('timeline', 'Ethernet, 10 Gbit/s')
    """
    keys = {_key(one): one for one in known}
    found = get_close_matches(_key(name), keys, n=1, cutoff=0.6)
    return keys[found[0]] if found else None


def _key(name):
    """Return the words of a name in the order of the alphabet, without what does not matter."""
    return " ".join(sorted(map(plain, re.findall(r"[\w-]+", name))))
