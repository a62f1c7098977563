"""The way from notebook 26 to the bugs of `tests/pitfalls/`, and the checker of its exercise."""

import sys
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import numpy as np

import minipipe as mp
from minipipe.arrays import leaves
from minipipe.exact import rational

from . import called

TESTS = Path(__file__).parents[2] / "tests"
CASES = {  # number: the name of a bug; do not read on if you want to find them
    1: "gradient_scale",
    2: "unequal_microbatches",
    3: "reused_receive_buffer",
    4: "replicas_agree_on_a_wrong_gradient",
    5: "dtype_promotion",
    6: "gradients_kept_M_wide",
    7: "batch_norm_statistics_leak",
    8: "dropout_differs_on_recomputation",
    9: "stale_weights_in_a_synchronous_schedule",
    10: "momentum_after_a_rate_change",
    11: "missing_and_phantom_actions",
    12: "the_picture_is_not_the_run",
}
SUSPECTS = "PJANELCHBMFD"  # the letters of the cases 1 to 12 in the list of the notebook


@contextmanager
def case(number):
    """The package with the bug of that number in it; the bug is taken out at the end of the block."""
    from pytest import MonkeyPatch

    with MonkeyPatch.context() as monkeypatch:
        _of_the_tests("pitfalls.bugs").BUGS[CASES[number]](monkeypatch)
        yield


def letters(*numbers):
    """What these cases are called in the notebook's list of suspects."""
    return [SUSPECTS[number - 1] for number in numbers]


def proof(number):
    """A few lines about the bug of that number: its name, what it does, and its check, with the bug and
    without, each really run.
    """
    name = CASES[number]
    check = _of_the_tests("pitfalls.bugs").CHECKS[name]
    with case(number):
        with_bug = "red" if _fails(check) else "green"
    without = "red" if _fails(check) else "green"
    words = " ".join(_of_the_tests("pitfalls.bugs").BUGS[name].__doc__.split())
    test = f"tests/pitfalls/test_pitfalls.py::test_turns_red[{name}]"
    return f"case {number}, {name}: {words}\n   {test}: {with_bug} with the bug, {without} without"


def agree(copies):
    """Whether the copies of a network that has run hold the same gradients, bit for bit, in each stage."""
    sums = _of_the_tests("pitfalls.copies").sums_of_copies(copies)
    return all((one is None and other is None) or np.array_equal(one, other)
               for first, *others in sums.values() for rest in others
               for one, other in zip(leaves(first), leaves(rest), strict=True))


def _fails(check):
    try:
        check()
    except AssertionError:
        return True
    return False


def _of_the_tests(name):
    """A module of the tests, whose folder need not be on Python's path."""
    if str(TESTS) not in sys.path:
        sys.path.append(str(TESTS))
    return import_module(name)


def check_healthy(healthy):
    """Judge `healthy(pipe, X, Y)`: whether a pipeline of fractions gives the cost and the gradients of the
    full batch. It is tried on one that does, and on four that do not.

    >>> check_healthy(lambda pipe, X, Y: True)
    'It lets a pipeline pass whose gradients are M times too large.'
    """
    rng = np.random.default_rng(0)
    X, Y = rational(rng.integers(-4, 5, (3, 8))), mp.one_hot(rng.integers(0, 4, 8), n_classes=4).astype(int)
    layers = [mp.Linear(3, 4), mp.ReLU(), mp.Linear(4, 4), mp.ReLU(), mp.Linear(4, 4)]
    layers = [layer.copy(lambda part: rational(np.round(8 * part) / 8))
              for layer in mp.Sequential(layers, None).layers]

    def said(microbatches=3):
        pipe = mp.Pipeline(layers, mp.SoftmaxCrossEntropy(), 5, microbatches, schedule="gpipe")
        return called(healthy, pipe, X, Y)

    value, sentence = said()
    if sentence is not None:
        return sentence
    if not isinstance(value, (bool, np.bool_)):
        return f"Return True or False: this is a {type(value).__name__}."
    if not value:
        return ("It calls a healthy pipeline broken. In fractions nothing is rounded: compare J, and each dW "
                "and db, with those of mp.Sequential on the same layers, loss and mini-batch.")
    for number, what in PASSED.items():
        with case(number):
            value, sentence = said(3 if number == 2 else 4)         # ragged micro-batches show case 2
        if sentence is not None:
            return f"With a bug in the pipeline: {sentence}"
        if value:
            return f"It lets a pipeline pass {what}."
    return "Right: it sees all four, and would see any bug that changes a gradient: the first test to write."


PASSED = {
    1: "whose gradients are M times too large",
    2: "in which samples of short micro-batches count more than others. Compare in fractions, with ==",
    3: "in which messages overwrite what a layer has kept. Compare every dW and db",
    9: "that changes its weights before the mini-batch is done. Compare every dW and db",
}
