"""Arrays without numbers: whatever a layer does with them, shapes, bytes and views are those of arrays
with numbers.
"""

from functools import partial

import numpy as np
import pytest
from compared import assert_refused
from layers.every_layer import ALONE, LAYERS, TOKENS

import minipipe as mp
from minipipe.meta import MetaArray

LOSS = mp.MeanSquaredError()
LARGE = {  # name: (layers, shape of a sample, stages)
    "LeNet-5": (mp.models.lenet5(), (1, 28, 28), 3),
    "AmoebaNet-D": (mp.models.amoebanet_d(3, 16, n_classes=10), (3, 32, 32), 3),
    "Transformer": (mp.models.transformer(n_tokens=5, d=4, n_heads=2, n_layers=2, n_places=3), (3,), 2),
}
EACH_LARGE = [pytest.param(name, marks=[pytest.mark.slow] * (name == "AmoebaNet-D")) for name in LARGE]


def measured_and_foreseen(layers, shape, n_stages, m, dtype, tokens, optimizer=None):
    """(footprints from arrays with numbers, footprints without)"""
    X = np.random.default_rng(0).standard_normal((*shape, m)).astype(dtype)
    X = np.zeros(X.shape, int) if tokens else X
    Y = np.zeros((*mp.describe(layers, shape).rows[-1].output_shape, m), dtype)
    options = {"dtype": dtype, "optimizer": optimizer}
    measured = mp.measure(layers, LOSS, n_stages, X, Y, rounds=1, **options).footprints
    return measured, mp.footprints(layers, LOSS, n_stages, shape, m, **options)


SIZES = [(1, np.float32), (4, np.float64), (6, np.float32)]  # samples, dtype
IN_STAGES = [  # whether the layer is in a stage of its own, with these sizes
    (is_alone, *sizes) for sizes in SIZES for is_alone in (False, True)
]


@pytest.mark.parametrize("turn", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 7))])
def test_every_layer_needs_the_bytes_that_are_foreseen(turn):
    """In a stage of its own, and in one with neighbours, whose arrays it may share; in six turns, all sizes.
    The first turn has an example of each kind.

    m = 1 has layouts that no other m has; the bytes for m = 6 are made of those for 2 and 3.
    """
    first_of_kind = {type(LAYERS[name][0]): name for name in reversed(ALONE)}
    for number, name in enumerate(ALONE if turn else first_of_kind.values()):
        layer, shape = LAYERS[name]
        is_alone, m, dtype = IN_STAGES[(turn + number) % 6]
        layers = [layer, mp.Tanh()] if name in TOKENS else [mp.Tanh(), layer, mp.Tanh()]
        n_stages, optimizer = (len(layers), None) if is_alone else (1, mp.Adam())
        m = m if layer.alone_per_sample else max(m, 2)
        measured, foreseen = measured_and_foreseen(
            layers, shape, n_stages, m, dtype, name in TOKENS, optimizer
        )
        assert foreseen == measured, f"{name} with m={m} in {n_stages} stages"


@pytest.mark.parametrize("name", EACH_LARGE)
def test_every_model_needs_the_bytes_that_are_foreseen(name):
    layers, shape, n_stages = LARGE[name]
    optimizer = mp.SGD(0.1, momentum=0.5)
    measured, foreseen = measured_and_foreseen(
        layers, shape, n_stages, 5, np.float32, name == "Transformer", optimizer
    )
    assert foreseen == measured


def test_arrays_without_numbers_share_memory_as_numpys_do():
    """Each of these, with A of numbers and without, has the same shape, and shares A's memory or not."""
    for A in (np.ones((6, 4, 2)), np.ones((6, 4, 1)), np.ones((1, 4, 1))):
        for change in (
            lambda A: A.reshape(-1),
            lambda A: A.T.reshape(-1),
            lambda A: A.swapaxes(0, 1).reshape(A.shape[1], -1),
            lambda A: A[0],
            lambda A: A[:, None],
            lambda A: A[:, 1:3].reshape(-1),
            lambda A: A.transpose(2, 0, 1),
            lambda A: np.moveaxis(A, -1, 0).ravel(),
            lambda A: A * 2.0,
            lambda A: np.ascontiguousarray(A.transpose(2, 0, 1), like=A),
            lambda A: A.astype(np.float32, copy=False),
            lambda A: A.repeat(2, 1),
            lambda A: A.take(np.array([[0, 1]]), axis=1),
            lambda A: A[:, np.array([2, 2, 0])],
            lambda A: np.concatenate([A, A], axis=1),
            lambda A: A.sum(axis=(0, 2)),
            lambda A: A.mean(axis=1, keepdims=True),
            lambda A: A.max(),
            lambda A: np.split(A, len(A))[-1],
            lambda A: A > 0,
            lambda A: (A > 0).sum(axis=0),
            lambda A: np.where(A > 0, A, 0.0),
            lambda A: np.broadcast_to(A[:1], A.shape),
            lambda A: np.flip(A, 1),
            lambda A: abs(A),
            lambda A: A.take([0, 0], axis=-1),
            lambda A: np.split(A, 2, axis=1)[0],
            lambda A: np.clip(A, np.zeros((5, 1, 1, 1)), None),
            lambda A: np.clip(A.astype(np.float32), np.zeros(1), 1),
            lambda A: np.expand_dims(A, (0, 2)),
            lambda A: np.add.reduceat(A, [0, 0]),
            lambda A: A.swapaxes(1, 2) @ np.ones((4, 5)),
        ):
            result, meta = change(A), MetaArray(A.shape, A.dtype)
            without = change(meta)
            for what in ("shape", "dtype", "nbytes"):
                assert getattr(without, what) == getattr(result, what)
            is_view = without is meta or without.base is meta
            assert is_view == np.shares_memory(A, result)


def test_what_depends_on_numbers_or_does_not_fit_is_refused():
    A = MetaArray((3, 4))
    assert_refused([
        (lambda: A[A > 0], "the shape of A[mask] depends on values...: use A * mask"),
        (lambda: np.array(A),
         "MetaArray((3, 4), float64) has a shape but no values: allocate what you write it into with np"),
        (lambda: bool(A.max()), "whether MetaArray((), float64) is true depends on values"),
        (lambda: np.ones(3) @ A,
         "of shapes (3,) and (3, 4) is only known for matrices: reshape to (1, n)"),
        (lambda: np.modf(A), "modf"),
        (lambda: np.sort(A), "no implementation found for 'numpy.sort'"),
    ], TypeError)
    assert_refused([
        (lambda: A @ A,
         "matrices of shapes (3, 4) and (3, 4) have no product: make 4 and 3 equal"),
        (lambda: A.reshape(5, -1), "cannot reshape array of size 12 into shape"),
    ])
    with pytest.raises(ValueError, match=r"could not be broadcast together|shape mismatch"):
        A + MetaArray((4, 3))


class Doubled(mp.Layer):
    """A user's layer, without a repr and with what no file can hold."""

    def __init__(self, times):
        self.times, self.function = times, lambda A: 2 * A

    def forward(self, A_prev):
        self.cache = [self.function(A_prev) for _ in range(self.times)]
        return self.cache[0]

    def backward_input(self, dZ):
        return 2 * dZ


@pytest.mark.parametrize("shape, layers", [
    ((2, 5, 5), [
        mp.Conv2d(2, 2, 3, padding=1), mp.Conv2d(2, 2, 3, padding=2, dilation=2),
        mp.Conv2d(2, 2, 3, padding=1), mp.Conv2d(2, 2, 3, padding=1, groups=2),
    ]),
    ((4, 3), [
        mp.TransformerBlock(4, 2), mp.TransformerBlock(4, 2, n_hidden=5), mp.TransformerBlock(4, 2),
        mp.TransformerBlock(4, 2, dropout=0.5),
    ]),
    ((4, 3), [Doubled(1), Doubled(2), Doubled(1), Doubled(3)]),
], ids=["Conv2d", "TransformerBlock", "a user's"])
def test_stages_that_look_alike_are_counted_once_only_if_they_are(shape, layers):
    """Layers with one name and different options; the second stage with what it is given, the others alike
    in the middle.
    """
    layers = [mp.Tanh(), *layers, mp.Tanh()]
    X = np.random.default_rng(0).standard_normal((*shape, 2))
    for cut in (6, mp.Cut([1, 2, 2, 1])):
        measured = mp.measure(layers, LOSS, cut, X, X, rounds=1).footprints
        assert mp.footprints(layers, LOSS, cut, shape, 2) == measured


def test_nothing_is_allocated():
    """A network of 4 terabytes, and its gradients, with micro-batches of a terabyte."""
    layers = [mp.Linear(10**6, 10**6), mp.ReLU(), mp.Linear(10**6, 2)]
    first, second = mp.footprints(layers, LOSS, 2, (10**6,), m=250_000, dtype="float32")
    assert first.parameters == first.gradients == 4 * (10**12 + 10**6)
    assert first.sent["F"] == second.sent["B"] == 10**12
    assert second.parameters == 4 * (2 * 10**6 + 2)


def test_bad_sizes_of_footprints_are_refused():
    right = {"layers": [mp.Linear(3, 2), mp.Linear(2, 1)], "loss": LOSS, "stages": 2,
             "input_shape": (3,), "m": 4}
    wrong = [
        ({"input_shape": (5,)}, "layers[0], Linear(3, 2), does not fit"),
        ({"stages": mp.Cut(2, "time")}, "by='time' measures, which takes numbers: use by='macs'"),
        ({"loss": None}, "loss is None, but a backward begins at the loss"),
        ({"loss": mp.MeanSquaredError}, "loss is <class ...>, but a backward begins at the loss"),
        ({"patterns": "FB"}, "patterns='FB' must be a list, even of one: ['FB']"),
        ({"patterns": []}, "patterns is an empty list"),
        ({"patterns": ["FB", "BF"]}, "patterns='BF' must be one of 'FB', 'FIW', 'FRB', 'FRIW'"),
    ]
    assert_refused([(partial(mp.footprints, **right | options), words) for options, words in wrong])


def test_footprints_take_generators_and_used_optimizers():
    """A generator of layers or patterns is read once; an optimizer that has its memory is counted as one
    that will have it.
    """
    layers, optimizer = [mp.Linear(3, 2), mp.Tanh(), mp.Linear(2, 1)], mp.Adam()
    pipe = mp.Pipeline(layers, LOSS, 2, 2)
    X, Y = np.ones((3, 4)), np.ones((1, 4))
    pipe.forward_backward(X, Y)
    pipe.step(optimizer)
    fresh = mp.footprints(layers, LOSS, 2, (3,), 4, optimizer=mp.Adam())
    names = iter(["FB", "FIW", "FRB", "FRIW"])
    assert mp.footprints(iter(layers), LOSS, 2, (3,), 4, optimizer=optimizer, patterns=names) == fresh
    assert mp.measure(layers, LOSS, 2, X, Y, optimizer=optimizer, rounds=1).footprints == fresh
    assert [footprint.optimizer_state for footprint in fresh] == [2 * 8 * (3 * 2 + 2), 2 * 8 * (2 * 1 + 1)]


def test_numpys_whole_numbers_count_as_pythons():
    """np.int32(2**20) samples of 3,000 numbers overflowed, and m=np.int64(8) made the loss's derivative
    of float32 one of float64.
    """
    layers = [mp.Linear(3000, 3000), mp.Linear(3000, 2)]
    for m in (4, 2**20):
        assert mp.footprints(layers, LOSS, 2, (np.int32(3000),), np.int32(m)) == mp.footprints(
            layers, LOSS, 2, (3000,), m
        )
    small = mp.footprints(layers, LOSS, 1, (3000,), np.int64(1), dtype=np.float32)
    assert small == mp.footprints(layers, LOSS, 1, (3000,), 1, dtype=np.float32)
    assert mp.describe([mp.Linear(2**17, 2**17)], (np.int32(2**17),)).macs == 2**34


class Own(mp.Layer):
    """A layer whose forward is `function`, whose W is drawn by `draw`, and whose backward is `back`."""

    def __init__(self, function, draw=lambda rng: None, back=lambda dZ: dZ * 1):
        self.function, self.draw, self.back = function, draw, back

    def initialize(self, rng, dtype=np.float64):
        self.W = self.draw(rng)

    def forward(self, A_prev):
        self.cache = A_prev
        return self.function(A_prev)

    def backward_input(self, dZ):
        return self.back(dZ)

    def backward_weight(self, dZ):
        return None, None


class OwnLoss(mp.MeanSquaredError):
    """A loss whose backward sorts."""

    def backward(self):
        return np.sort(super().backward())


SORTING_BACKWARD = Own(lambda A: A * 1, back=np.sort)


def test_what_cannot_be_counted_is_refused_with_a_remedy():
    def counted(layer, loss):
        mp.footprints([mp.Linear(3, 3), layer, mp.Tanh()], loss, 2, (3,), 4, dtype=np.float32)

    cannot = [
        (Own(lambda A: np.sort(A, axis=0)), LOSS, "no implementation found for 'numpy.sort'"),
        (Own(lambda A: A - A.std()), LOSS, "'MetaArray' object has no attribute 'std'"),
        (Own(lambda A: A[A > 0]), LOSS, "the shape of A[mask] depends on values...: use A * mask"),
        (Own(lambda A: A[7]), LOSS, "index 7 is out of bounds"),
        (mp.Residual(Own(lambda A: np.einsum("ij->ji", A).T)), LOSS, "numpy.einsum"),
        (Own(None, lambda rng: np.linalg.qr(rng.standard_normal(size=(3, 3), dtype=np.float32))[0]), LOSS,
         "numpy.linalg.qr"),
        (SORTING_BACKWARD, LOSS, "numpy.sort"),
        (mp.ReLU(), OwnLoss(), "numpy.sort"),
    ]
    cannot = [
        (layer, loss, f"^a layer or the loss cannot be counted without numbers: ...{words}... or mp.measure")
        for layer, loss, words in cannot
    ]
    assert_refused([(partial(counted, layer, loss), words) for layer, loss, words in cannot])


def test_a_layer_of_ones_own_is_counted():
    """Its W, drawn with a size by name, its views, and what it writes into an array of its own."""
    def forward(A):
        Z = np.zeros_like(A)
        Z[0] = A[0]
        return Z[::-1]

    layers = [mp.Linear(3, 3), Own(forward, lambda rng: rng.standard_normal(size=(3, 3))), mp.Tanh()]
    measured, foreseen = measured_and_foreseen(layers, (3,), 2, 4, np.float64, tokens=False)
    assert foreseen == measured
