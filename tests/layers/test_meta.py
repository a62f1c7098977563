"""Arrays without values: whatever a layer does with them, shapes, bytes and views are those of arrays
with values.
"""

from functools import partial
from itertools import product

import numpy as np
import pytest
from compared import assert_refused
from layers.every_layer import ALONE, LAYERS, TOKENS
from memory.test_without_values import assert_counted_without_values

import minipipe as mp
from minipipe.meta import MetaArray

LOSS = mp.MeanSquaredError()
LARGE = {  # name: (layers, shape of a sample, stages)
    "LeNet-5": (mp.models.lenet5(), (1, 28, 28), 3),
    "AmoebaNet-D": (mp.models.amoebanet_d(3, 16, n_classes=10), (3, 32, 32), 3),
    "Transformer": (mp.models.transformer(n_tokens=5, d=4, n_heads=2, n_layers=2, n_places=3), (3,), 2),
}
EACH_LARGE = [pytest.param(name, marks=[pytest.mark.slow] * (name == "AmoebaNet-D")) for name in LARGE]


def assert_counted(layers, shape, n_stages, m, dtype, tokens, optimizer=None):
    """With values and without, one micro-batch needs equal bytes in each order of its actions."""
    X = np.random.default_rng(0).standard_normal((*shape, m)).astype(dtype)
    X = np.zeros(X.shape, int) if tokens else X
    Y = np.zeros((*mp.describe(layers, shape).rows[-1].output_shape, m), dtype)
    for schedule, recompute in product(["1f1b", "zb-h1"], ["never", "always"]):
        assert_counted_without_values(
            layers, LOSS, X, Y, optimizer, stages=n_stages, microbatches=1, dtype=dtype,
            schedule=schedule, recompute=recompute,
        )


SIZES = [(1, np.float32), (4, np.float64), (6, np.float32)]  # samples, dtype
IN_STAGES = [  # whether the layer is in a stage of its own, with these sizes
    (is_alone, *sizes) for sizes in SIZES for is_alone in (False, True)
]


@pytest.mark.parametrize("turn", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 7))])
def test_every_layer_has_the_same_bytes_without_values(turn):
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
        try:
            assert_counted(layers, shape, n_stages, m, dtype, name in TOKENS, optimizer)
        except AssertionError as error:
            raise AssertionError(f"{name} with m={m} in {n_stages} stages") from error


@pytest.mark.parametrize("name", EACH_LARGE)
def test_every_model_has_the_same_bytes_without_values(name):
    layers, shape, n_stages = LARGE[name]
    assert_counted(layers, shape, n_stages, 5, np.float32, name == "Transformer", mp.SGD(0.1, momentum=0.5))


def test_arrays_without_values_share_memory_as_numpys_do():
    """Each of these, with A of values and without, has the same shape, and shares A's memory or not."""
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


def test_meta_arrays_refuse_value_dependent_and_wrong_shapes():
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


def test_numpys_whole_numbers_count_as_pythons():
    """np.int32(2**20) samples of 3,000 numbers overflowed."""
    assert MetaArray((np.int32(3000), np.int32(2**20))).nbytes == 8 * 3000 * 2**20
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


def test_custom_layers_are_counted_or_named():
    """A W drawn with a size by name, views, and what is written into an array of its own; or a TypeError."""
    def forward(A):
        Z = np.zeros_like(A)
        Z[0] = A[0]
        return Z[::-1]

    layers = [mp.Linear(3, 3), Own(forward, lambda rng: rng.standard_normal(size=(3, 3))), mp.Tanh()]
    assert_counted(layers, (3,), 2, 4, np.float64, tokens=False)

    def counted(layer):
        net = mp.Pipeline(mp.without_values([mp.Linear(3, 3), layer, mp.Tanh()]), LOSS, 2, 2)
        net.forward_backward(MetaArray((3, 4)), MetaArray((3, 4)))

    assert_refused([
        (partial(counted, Own(lambda A: np.sort(A, axis=0))), "no implementation found for 'numpy.sort'"),
        (partial(counted, Own(lambda A: A * 1, back=np.sort)), "no implementation found for 'numpy.sort'"),
        (partial(counted, Own(None, lambda rng: np.diag(rng.standard_normal(3)))), "numpy.diag"),
    ], TypeError)
