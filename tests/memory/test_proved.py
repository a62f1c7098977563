"""What is trusted to keep bytes that follow from shapes, and to return new arrays as gradients."""

import numpy as np
import pytest
from compared import assert_same
from engines.on_engines import LOSS, mini_batch

import minipipe as mp
from minipipe.layers import LAYERS
from minipipe.losses import LOSSES
from minipipe.parallel.splitting import Copied, Gathered, Parted, PartialToSplit, SplitToWhole, Summed
from minipipe.layers.normalization import SynchronisedBatchNorm
from minipipe.parallel.proved import is_proved


class Named(mp.ReLU):
    """A ReLU with a name, and a method that no network calls."""

    def __init__(self, name="own"):
        super().__init__()
        self.name = name

    def greeting(self):
        return f"I am {self.name}"


class Forward(mp.ReLU):
    def forward(self, Z):
        return super().forward(Z)


class Helper(mp.LayerNorm):
    """It changes what the forward of its base calls."""

    def groups(self, A):
        return super().groups(A)


class Trait(mp.Linear):
    joins_samples = False


class Whole(mp.layers.Layer):
    def forward(self, A_prev):
        return A_prev

    def backward(self, dZ):
        return dZ, None, None


class Loss:
    """A loss without a base, as networks take it."""

    takes, exchanges, cache = "numbers", (False, False), None

    def forward(self, A, Y, m=None):
        self.cache = A - Y, m
        return ((A - Y) ** 2).sum() / (2 * m)

    def backward(self):
        error, m = self.cache
        return error / m


class Cost(mp.MeanSquaredError):
    def cost(self, A, Y, m):
        return super().cost(A, Y, m)


@pytest.mark.parametrize("kind", [*LAYERS.values(), *LOSSES.values()], ids=lambda kind: kind.__name__)
def test_what_is_registered_in_a_room_is_trusted_and_so_is_a_subclass(kind):
    assert is_proved(kind) and is_proved(type("Mine", (kind,), {}))


@pytest.mark.parametrize("kind", [
    Copied, Gathered, Parted, PartialToSplit, SplitToWhole, Summed, SynchronisedBatchNorm,
    *dict.fromkeys(map(type, mp.layers.every_layer(mp.models.amoebanet_d(3, 8)))),
])
def test_what_splits_and_models_are_made_of_is_trusted(kind):
    assert is_proved(kind)


@pytest.mark.parametrize("kind", [Forward, Helper, Trait, Whole, Cost, Loss])
def test_what_defines_anew_what_a_network_calls_is_not(kind):
    assert is_proved(Named) and not is_proved(kind)


def test_a_class_that_is_registered_elsewhere_is_not(monkeypatch):
    """Nobody has tested it: its bytes are counted, and its gradients are never added into."""
    for registry in (LAYERS, LAYERS.facts):
        monkeypatch.setitem(registry, "Whole", None)
        del registry["Whole"]
    LAYERS(examples=lambda: [(Whole(), (2,))], source="no known paper")(Whole)
    assert LAYERS["Whole"] is Whole and not is_proved(Whole)


def test_bytes_of_a_subclass_are_taken_over_and_those_of_a_new_forward_counted(monkeypatch):
    counted = []
    for kind in (mp.ReLU, Named, Forward):
        pipe = mp.Pipeline([mp.Linear(6, 5), kind(), mp.Linear(5, 4)], LOSS, 3, 4, dtype=np.float32)
        pipe.forward_backward(*mini_batch(13))
        first = pipe.trace
        with monkeypatch.context() as patched:
            patched.setattr("minipipe.cluster.clock.Accounts", lambda *arguments: counted.append(kind))
            pipe.forward_backward(*mini_batch(13))
        if kind is not Forward:
            assert_same(pipe.trace.peak_bytes(), first.peak_bytes())
    assert counted == [Forward]
