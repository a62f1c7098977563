"""Long work says how far it is, in a terminal and in a notebook and nowhere else; nothing of it stays."""

import io
import re
from types import SimpleNamespace

import numpy as np
import pytest

import minipipe as mp
from minipipe import watching
from minipipe.cli.main import main
from minipipe.order import best_schedule
from minipipe.watching import say, watched, with_progress


class Terminal(io.StringIO):
    def isatty(self):
        return True

    def screen(self):
        """What is to be seen in the end, and all that was shown before."""
        lines = [""]
        for written in self.getvalue().split("\r")[1:]:
            lines.append(written + lines[-1][len(written):])
        return lines[-1].strip(), [line.strip() for line in lines if line.strip()]


class OfANotebook(io.StringIO):
    __module__ = "ipykernel.iostream"


@pytest.fixture
def stderr(monkeypatch):
    monkeypatch.setattr(watching, "PATIENCE", 0)
    monkeypatch.setattr(watching, "PAUSE", 0)
    terminal = Terminal()
    monkeypatch.setattr(watching, "sys", SimpleNamespace(stderr=terminal))  # pytest sets sys.stderr itself
    return terminal


def shown(stderr):
    """All lines that were shown; none of them is there any more."""
    screen, lines = stderr.screen()
    assert screen == ""
    return lines


def test_a_line_says_how_many_are_done_and_goes(stderr):
    with watched():
        assert list(with_progress("abcd", "letters")) == list("abcd")
    assert shown(stderr) == [f"{done} of 4 letters, 0 s left" for done in (1, 2, 3)]


@pytest.mark.parametrize("stream, lines", [(Terminal, True), (OfANotebook, True), (io.StringIO, False)])
def test_it_is_shown_where_somebody_can_see_it(monkeypatch, stderr, stream, lines):
    monkeypatch.setattr(watching.sys, "stderr", stream())
    with watched():
        list(with_progress("abcd", "letters"))
    assert bool(watching.sys.stderr.getvalue()) == lines


def test_a_training_needs_no_stderr(monkeypatch):
    """It is None where a program has no console, and may be closed."""
    closed = io.StringIO()
    closed.close()
    net, X = mp.Sequential([mp.Linear(1, 1)], mp.MeanSquaredError()), np.ones((1, 4))
    for stream in None, closed:
        monkeypatch.setattr(watching, "sys", SimpleNamespace(stderr=stream))
        assert len(mp.fit(net, X, X, mp.SGD(0.1), 2, 2, report=lambda line: None)) == 2


def test_nobody_is_shown_what_he_did_not_ask_for(stderr):
    assert with_progress("abcd", "letters") == "abcd"
    with watched(False):
        assert with_progress("abcd", "letters") == "abcd"
    best_schedule(2, 2)
    assert stderr.getvalue() == ""


def test_of_work_inside_work_the_outer_one_is_shown(stderr):
    with watched():
        for _ in with_progress("ab", "outer"):
            with watched():
                list(with_progress("abcd", "inner"))
        list(with_progress("ab", "then"))
    assert shown(stderr) == ["1 of 2 outer, 0 s left", "1 of 2 then, 0 s left"]


def test_an_error_wipes_the_line(stderr):
    with pytest.raises(ZeroDivisionError), watched():
        for letter in with_progress("abc", "letters"):
            1 / (letter != "c")
    assert len(shown(stderr)) == 2


def test_what_is_printed_takes_the_place_of_the_line(stderr, capsys):
    with watched():
        for letter in with_progress("ab", "letters"):
            say(letter)
            assert stderr.screen()[0] == ""
    assert capsys.readouterr().out == "a\nb\n"


def test_an_epoch_says_how_long_it_takes(stderr):
    X, Y = np.ones((2, 12)), np.ones((1, 12))
    arguments = mp.Sequential([mp.Linear(2, 1)], mp.MeanSquaredError()), X, Y, mp.SGD(0.1), 1, 4
    reports = []
    mp.fit(*arguments, report=reports.append)
    assert shown(stderr) == [f"{done} of 3 mini-batches of this epoch, 0 s left" for done in (1, 2)]
    assert re.fullmatch(r"epoch 1/1   J [\d.]+   0 s left", *reports)
    mp.fit(*arguments, report=None)
    mp.fit(*arguments, progress=lambda batches: batches, report=reports.append)
    assert len(shown(stderr)) == 2


@pytest.mark.parametrize("command, words", [
    ("verify", r"\d+ of \d+ runs, \d+ s left"),
    ("search --devices 3 --micro-batches 4 --most-alive 3 2 1",
     r"[\d,]+ of 20,000 partial schedules at most, .* left"),
    ("papers hardware devices", "1 of 2 tables, 0 s left"),
    ("fit --memory 1GiB --model mlp([4,4,4]) --input 4 --batch 4 --devices 1 2 --schedules gpipe",
     r"\d+ of \d+ looks at runs on 2 devices, at most, 0 s left"),
])
def test_commands_say_how_long_they_take(stderr, capsys, monkeypatch, command, words):
    monkeypatch.setattr("minipipe.cli.verify.PIPELINE_SIZES", [(2, 2, 8)])
    for name, few in (("VERIFIED_SCHEDULES", ["gpipe"]), ("SPLITS", [])):
        monkeypatch.setattr(f"minipipe.cli.verify.{name}", few)
    assert main(command.split()) == 0
    lines = shown(stderr)
    assert lines and all(re.fullmatch(r".* left", line) for line in lines)
    assert any(re.fullmatch(words, line) for line in lines), lines


def test_the_version(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"minipipe {mp.__version__}\n"
