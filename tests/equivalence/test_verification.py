"""The verdicts can say no."""

import numpy as np
import pytest
from cases import eighths, exact

import minipipe as mp
from minipipe.exact import Rational
from minipipe.parallel.stage import Stage
from minipipe.verification import (
    equals_full_batch, equals_same_groups, last_places_apart, same_bits,
)


def pipe_and_batch():
    X, Y = (part[:, :12] for part in mp.datasets.digits().train)
    layers = [mp.Linear(64, 8), mp.ReLU(), mp.Linear(8, 10)]
    return mp.Pipeline(layers, mp.SoftmaxCrossEntropy(), 3, 4), X, Y


def of_every_gradient(change):
    """A wrong `Stage.gradients`, which changes each array."""
    return lambda found: [tuple(None if part is None else change(part) for part in pair) for pair in found]


def one_entry(place, number):
    """A wrong `Stage.gradients`, whose first stage has another number in one entry of W or b."""
    def change(found):
        part = found[0]["Wb".index(place)]
        part[0, 0] = number(part[0, 0])
        return found

    return change


def one_bit_more(number):
    return np.nextafter(number, np.inf)


BITS, FULL = same_bits, equals_full_batch


@pytest.mark.parametrize("method, change, verdicts", [
    ("gradients", of_every_gradient(np.float32), [BITS, FULL]),
    ("gradients", of_every_gradient(np.longdouble), [BITS]),
    ("gradients", of_every_gradient(lambda part: part * (1 + 1e-9)), [BITS, FULL]),
    ("gradients", one_entry("W", one_bit_more), [BITS, FULL]),
    ("gradients", one_entry("b", one_bit_more), [BITS, FULL]),
    ("cost", one_bit_more, [BITS]),
    ("cost", lambda J: J * (1 + 1e-9), [BITS]),
], ids=["float32", "longdouble", "a billionth", "a bit of W", "a bit of b", "a bit of J", "a billionth of J"])
def test_what_is_wrong_in_a_pipeline_is_noticed(method, change, verdicts, monkeypatch):
    pipe, X, Y = pipe_and_batch()
    assert same_bits(pipe, X, Y)
    spoil(pipe, method, change, monkeypatch)
    assert not any(verdict(pipe, X, Y) for verdict in verdicts)


def spoil(pipe, method, change, monkeypatch):
    """Change what `method` of the first stage of the pipeline returns, or `cost` of any stage."""
    right = getattr(Stage, method)

    def wrong(stage):
        is_meant = stage in pipe.stages and (stage is pipe.stages[0] or method == "cost")
        return change(right(stage)) if is_meant else right(stage)

    monkeypatch.setattr(Stage, method, wrong)


@pytest.mark.parametrize("layer, place", [(0, 0), (2, 0), (2, 1), (6, 1), ("J", None)])
def test_what_is_off_by_anything_is_not_that_of_the_same_groups(layer, place, monkeypatch):
    """With BatchNorm, dropout, a skip connection and a tie, in rational numbers."""
    rng = np.random.default_rng(0)
    layers = [
        mp.Linear(2, 2, tie="W"), mp.Fork("a"), mp.BatchNorm(2), mp.Dropout(0.25), mp.Linear(2, 2, tie="W"),
        mp.Join("a"), mp.Linear(2, 1),
    ]
    X, Y = eighths(rng.standard_normal((2, 5))), eighths(rng.standard_normal((1, 5)))
    pipe = mp.Pipeline(exact(layers), mp.MeanSquaredError(), 4, 2)
    assert equals_same_groups(pipe, X, Y) and not equals_full_batch(pipe, X, Y)
    gradients = mp.Pipeline.gradients.fget

    def spoilt(self):
        found = [list(pair) for pair in gradients(self)]
        found[layer][place] = found[layer][place] + Rational(1, 10**30)
        return found

    if layer == "J":
        spoil(pipe, "cost", lambda J: J + Rational(1, 10**30), monkeypatch)
    else:
        monkeypatch.setattr(mp.Pipeline, "gradients", property(spoilt))
    assert not equals_same_groups(pipe, X, Y)


def test_verdicts_compare_at_the_step_of_the_pipeline():
    """Dropout's masks change from step to step; each reference is at the same one, and stays out
    of the pipeline's way.
    """
    layers = [mp.Linear(2, 8), mp.Dropout(), mp.Linear(8, 1)]
    pipe = mp.Pipeline(exact(layers), mp.MeanSquaredError(), 2, 2)
    X, Y = eighths(np.ones((2, 4))), eighths(np.ones((1, 4)))
    for _ in range(2):
        J = pipe.forward_backward(X, Y)
        pipe.step(mp.SGD(Rational(1, 8)))
        assert equals_full_batch(pipe, X, Y) and equals_same_groups(pipe, X, Y) and same_bits(pipe, X, Y)
        assert pipe.J != J


def test_how_far_floats_are_apart_is_told_in_last_places(monkeypatch):
    pipe, X, Y = pipe_and_batch()
    apart = last_places_apart(pipe, X, Y)
    assert 0 < apart < 100
    largest = abs(mp.Sequential(pipe.layers, pipe.loss).forward_backward(X, Y))
    spoil(pipe, "cost", lambda J: J + 1000 * np.spacing(largest), monkeypatch)
    assert abs(last_places_apart(pipe, X, Y) - 1000) <= apart
