"""The training loop, for both kinds of network.

Long work says how far it is, in a terminal and in a notebook and nowhere else; nothing of it stays.
"""

import io
import re
from types import SimpleNamespace

import numpy as np
import pytest
from compared import assert_same, parameters

import minipipe as mp
from minipipe import watching
from minipipe.cli.check import Run
from minipipe.cli.main import main
from minipipe.order import best_schedule
from minipipe.verification.examples import EXAMPLES
from minipipe.watching import say, watched, with_progress

LAYERS = [mp.Linear(2, 4), mp.Tanh(), mp.Linear(4, 2)]
X = np.random.default_rng(0).standard_normal((2, 30))
Y = mp.one_hot((X[0] > X[1]).astype(int), 2)


@pytest.mark.parametrize("model", [
    lambda: mp.Sequential(LAYERS, mp.SoftmaxCrossEntropy()),
    lambda: mp.Pipeline(LAYERS, mp.SoftmaxCrossEntropy(), 3, 4, schedule="1f1b"),
], ids=["Sequential", "Pipeline"])
def test_fit_learns_and_reports_one_line_an_epoch(model):
    lines, net = [], model()
    history = mp.fit(net, X, Y, mp.SGD(1.0), 15, 8, validation=(X, Y), report=lines.append)
    assert len(history) == len(lines) == 15 and net.n_steps == 15 * 4
    assert history[-1].J < history[0].J and history[-1].score > 0.9
    for number, line in enumerate(lines, 1):
        assert re.fullmatch(rf"epoch +{number}/15   J \d+\.\d{{4}}   score \d+\.\d %   \d+ s left", line)


def test_the_time_left_counts_the_remaining_epochs(monkeypatch):
    """With a clock that shows 0 s at the start and 10 s more at each end of an epoch."""
    clock = iter(range(0, 100, 10))
    monkeypatch.setattr("minipipe.training.time.perf_counter", lambda: next(clock))
    lines = []
    mp.fit(mp.Sequential(LAYERS, mp.SoftmaxCrossEntropy()), X, Y, mp.SGD(0.1), 4, 10, report=lines.append)
    assert [line.split("   ")[-1] for line in lines] == ["30 s left", "20 s left", "10 s left", "0 s left"]


def test_the_cost_of_an_epoch_is_the_mean_over_samples():
    """Mini-batches of 8, 8, 7 and 7 samples, each with its weight; a few dozen roundings of numbers near 1.
    """
    class Still(mp.SGD):
        def update(self, layers, gradients):
            pass

    net = mp.Sequential(LAYERS, mp.SoftmaxCrossEntropy())
    (epoch,) = mp.fit(net, X, Y, Still(1), 1, 8, report=None)
    assert abs(epoch.J - net.forward_backward(X, Y)) < 100 * np.finfo(float).eps


def test_mini_batches_are_shuffled_anew_in_each_epoch():
    seen = []

    class Spy(mp.Sequential):
        def forward_backward(self, X, Y):
            seen.append(X[0].tolist())
            return super().forward_backward(X, Y)

    mp.fit(Spy(LAYERS, mp.SoftmaxCrossEntropy()), X, Y, mp.SGD(0.1), 2, 7, report=None)
    first, second = seen[:5], seen[5:]
    assert [len(batch) for batch in first] == [6, 6, 6, 6, 6]
    assert sorted(sum(first, [])) == sorted(sum(second, [])) == sorted(X[0].tolist()) and first != second


def refuses_and_keeps(model, error, words, X, Y, n_epochs=1, batch_size=5, **options):
    """`fit` raises this error, and no parameter has moved."""
    before = parameters([layer.copy() for layer in model.layers])
    with pytest.raises(error, match=words):
        mp.fit(model, X, Y, mp.SGD(0.1), n_epochs, batch_size, report=None, **options)
    assert_same(parameters(model.layers), before)


HALVES = np.full((2, 4), 0.5)


@pytest.mark.parametrize("options, words", [
    ({"n_epochs": 0}, "epochs=0 must be at least 1"),
    ({"batch_size": 3}, "leave one of 3, too few for microbatches=4"),
    ({"X": np.where(X == X[1, 29], np.inf, X)},
     r"X holds NaN or infinity in 1 of 60 places, the first at index \(1, 29\)"),
    ({"validation": (np.ones((2, 4)), np.ones((1, 4)))}, "the same shape with at least 2 rows"),
    ({"validation": (np.ones((3, 4)), HALVES)}, "needs A_prev of shape"),
    ({"validation": (np.full((2, 4), np.nan), HALVES)}, "X holds NaN"),
])
def test_fit_refuses_what_does_not_fit_before_the_first_step(options, words):
    pipe = mp.Pipeline(LAYERS, mp.SoftmaxCrossEntropy(), 3, 4)
    refuses_and_keeps(pipe, ValueError, words, **{"X": X, "Y": Y} | options)


def test_fit_stops_before_a_step_that_is_not_finite(monkeypatch):
    net = mp.Sequential(LAYERS, mp.SoftmaxCrossEntropy())
    backward_weight = mp.Linear.backward_weight

    def infinite(self, dZ):
        dW, db = backward_weight(self, dZ)
        return dW + np.inf, db

    monkeypatch.setattr(mp.Linear, "backward_weight", infinite)
    words = r"epoch 1: layer 0, Linear\(.*\): the gradient is not finite"
    refuses_and_keeps(net, FloatingPointError, words, X, Y)


def test_fit_stops_when_the_cost_is_not_finite():
    huge = np.full((1, 4), 1e200)
    net = mp.Sequential([mp.Linear(1, 1, W=[[1.0]], b=[[0.0]])], mp.MeanSquaredError())
    words = "epoch 1: MeanSquaredError.*: the cost is not finite.*learning_rate was 0.1"
    refuses_and_keeps(net, FloatingPointError, words, huge, huge * 0)


# How far long work is


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


def test_a_progress_line_counts_and_is_cleared(stderr):
    with watched():
        assert list(with_progress("abcd", "letters")) == list("abcd")
    assert shown(stderr) == [f"{done} of 4 letters, 0 s left" for done in (1, 2, 3)]


@pytest.mark.parametrize("stream, lines", [(Terminal, True), (OfANotebook, True), (io.StringIO, False)])
def test_progress_is_shown_in_terminals_and_notebooks_only(monkeypatch, stderr, stream, lines):
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


def test_no_progress_is_shown_without_a_request(stderr):
    assert with_progress("abcd", "letters") == "abcd"
    with watched(False):
        assert with_progress("abcd", "letters") == "abcd"
    best_schedule(2, 2)
    assert stderr.getvalue() == ""


def test_of_nested_loops_only_the_outer_one_shows_progress(stderr):
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


def test_printed_text_replaces_the_progress_line(stderr, capsys):
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
    assert len(shown(stderr)) == 2


@pytest.mark.parametrize("command, words", [
    ("check", r"1 of 2 rows, \d+ s left"),
    ("search -K 3 -M 4 --most-alive 3 2 1", r"[\d,]+ partial schedules: 18 ticks found, none .* than [\d.]+"),
])
def test_commands_say_how_long_they_take(stderr, capsys, monkeypatch, command, words):
    rows = {name: [Run(EXAMPLES[0], name)] for name in ("gpipe", "1f1b")}
    monkeypatch.setattr("minipipe.cli.check.table", lambda: rows)
    assert main(command.split()) == 0
    lines = shown(stderr)
    assert any(re.fullmatch(words, line) for line in lines), lines


def test_the_version(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"minipipe {mp.__version__}\n"
