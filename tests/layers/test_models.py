"""Models: shapes, sizes and training; and what `describe` foretells of them is what a run then does."""


import numpy as np
import pytest

import minipipe as mp
from minipipe.arrays import leaves, shape_of
from minipipe.layers import every_layer
from minipipe.layers.through import forward_through, prepare_forward

M = 8  # samples
MODELS = {  # layers, shape of a sample, shape of an output
    "mlp": (mp.models.mlp([6, 8, 8, 3], mp.Tanh, mp.layers.xavier), (6,), (3,)),
    "lenet5": (mp.models.lenet5((1, 8, 8), 3, kernel_size=3, padding=(1, 1)), (64,), (3,)),
    "transformer": (
        mp.models.transformer(3, 8, n_heads=2, n_layers=2, n_places=6, tied=True, dropout=0.125),
        (5,),
        (3, 5),
    ),
    "amoebanet_d": (mp.models.amoebanet_d(3, 8, 3, input_channels=1), (1, 32, 32), (3,)),
}
SKIPS = [
    mp.Conv2d(1, 2, 3), mp.Fork("far"), mp.GELU(), mp.Fork("near"), mp.Conv2d(2, 2, 3, padding=1),
    mp.Join("near"), mp.Join("far", how="concat"), mp.Flatten(),
]
NETWORKS = MODELS | {"skips": (SKIPS, (1, 5, 6), (48,))}
SLOW = "amoebanet_d"


# --- a run

def met(layers, input_shape):
    """[(A_prev, A)] of each layer, for one sample in float32.

    Not in training, where BatchNorm needs more than one number.
    """
    everything = []

    def call(layer, A_prev):
        everything.append((A_prev, layer.forward(A_prev)))
        return everything[-1][1]

    prepare_forward(every_layer(layers), training=False)
    X = np.zeros((*input_shape, 1), int if isinstance(layers[0], mp.Embedding) else np.float32)
    forward_through(layers, X, {}, call)
    return everything


@pytest.mark.parametrize("layers, input_shape, output_shape", NETWORKS.values(), ids=NETWORKS)
def test_shapes_parameters_products_and_bytes_match_a_run(layers, input_shape, output_shape):
    assert type(layers) is list
    description = mp.describe(layers, input_shape)
    net = mp.Sequential(layers, None, dtype=np.float32)
    ties = set()
    for row, layer, (A_prev, A) in zip(
        description.rows, net.layers, met(net.layers, input_shape), strict=True
    ):
        assert row.name == repr(layer)
        assert row.output_shape == shape_of(
            A[..., 0] if isinstance(A, np.ndarray) else tuple(part[..., 0] for part in A)
        )
        assert row.macs == layer.macs(shape_of(A_prev))
        W = [] if layer.tie in ties else leaves(layer.W)
        ties |= {layer.tie} - {None}
        assert row.parameters == sum(parameter.size for parameter in W + leaves(layer.b))
        assert row.n_bytes == sum(part.nbytes for part in leaves(A))
    assert description.rows[-1].output_shape == output_shape
    for name in ("parameters", "macs", "n_bytes"):
        assert getattr(description, name) == sum(getattr(row, name) for row in description.rows)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == SLOW)) for name in MODELS]
)
def test_learns_a_mini_batch_through_a_pipeline(name):
    """Eight samples by heart, for which each model has more than enough parameters: J must soon be half
    of what it was.
    """
    layers, input_shape, _ = MODELS[name]
    rng = np.random.default_rng(0)
    if name == "transformer":
        X = rng.integers(0, 3, (*input_shape, M))
        Y = mp.one_hot((X + 1) % 3, 3)
    else:
        X, Y = rng.standard_normal((*input_shape, M)), mp.one_hot(rng.integers(0, 3, M), 3)
    pipe = mp.Pipeline(layers, mp.SoftmaxCrossEntropy(), 3, 2, schedule="1f1b")
    optimizer, J = mp.Adam(0.01), [pipe.forward_backward(X, Y)]
    while J[-1] > J[0] / 2 and len(J) < 40:
        pipe.step(optimizer)
        J.append(pipe.forward_backward(X, Y))
    assert J[-1] <= J[0] / 2


# --- sizes

SIZES = {  # an independent count, term by term, and the number
    "mlp": (mp.models.mlp([64, 32, 10]), (64,), 64 * 32 + 32 + 32 * 10 + 10, 2_410),
    "lenet5": (
        mp.models.lenet5(),
        (1, 28, 28),
        6 * (25 + 1) + 16 * (6 * 25 + 1) + 120 * (16 * 25 + 1) + 84 * (120 + 1) + 10 * (84 + 1),
        61_706,
    ),
    "transformer": (
        mp.models.transformer(50, 16, 4, 3),
        (9,),
        3 * (12 * 16**2 + 13 * 16) + 2 * 50 * 16 + 50 + 2 * 16,
        11_522,
    ),
    "transformer, tied, with places": (
        mp.models.transformer(50, 16, 4, 3, n_places=9, n_hidden=20, tied=True),
        (9,),
        3 * (4 * (16**2 + 16) + 16 * 20 + 20 + 20 * 16 + 16 + 4 * 16) + 50 * 16 + 50 + 9 * 16 + 2 * 16,
        6_510,
    ),
}


def test_parameters_are_those_counted_by_hand():
    for name, (layers, input_shape, by_hand, number) in SIZES.items():
        assert mp.describe(layers, input_shape).parameters == by_hand == number, name


GPIPE = {  # layers: (what table 1 of GPipe prints, the exact count), for d = 2048 and 32,000 tokens
    3: ("282.2M", 282_182_912), 13: ("785.8M", 785_765_632), 103: ("5.3B", 5_318_010_112),
    415: ("21.0B", 21_029_790_976), 1663: ("83.9B", 83_876_914_432),
}


def gpipe_transformer(n_layers):
    return mp.models.transformer(32_000, 2048, n_heads=32, n_layers=n_layers)


@pytest.mark.parametrize("n_layers", [
    3, 13, 103, *(pytest.param(n, marks=pytest.mark.slow) for n in (415, 1663)),
])
def test_the_five_transformers_of_gpipe_have_the_printed_sizes(n_layers):
    """The count is L (12 d^2 + 13 d) + 2 V d + V + 2 d."""
    printed, exact = GPIPE[n_layers]
    d, V = 2048, 32_000
    parameters = mp.describe(gpipe_transformer(n_layers), (1024,)).parameters
    assert parameters == exact == n_layers * (12 * d**2 + 13 * d) + 2 * V * d + V + 2 * d
    unit, decimals = {"M": (10**6, 1), "B": (10**9, 1)}[printed[-1]]
    assert f"{parameters / unit:.{decimals}f}{printed[-1]}" == printed


@pytest.mark.parametrize("D, exact", [(208, 81_505_540), (416, 319_024_120)])
def test_amoebanet_d_has_the_published_sizes(D, exact):
    assert mp.describe(mp.models.amoebanet_d(18, D), (3, 224, 224)).parameters == exact


def test_a_shared_W_is_counted_once():
    tied, untied = (
        mp.describe(mp.models.transformer(50, 8, 2, 1, tied=tied), (3,)) for tied in (True, False)
    )
    assert untied.parameters - tied.parameters == 50 * 8
    assert tied.rows[0].parameters == 50 * 8 and tied.rows[-1].parameters == 50


def test_no_array_is_made():
    """A weight of 10^12 numbers would not fit anywhere."""
    layers = [mp.Linear(10**6, 10**6)]
    description = mp.describe(layers, (10**6,))
    assert (description.parameters, description.macs) == (10**12 + 10**6, 10**12)
    assert description.n_bytes == 4 * 10**6
    assert mp.describe(layers, (10**6,), np.float64).n_bytes == 8 * 10**6
    assert layers[0].W is None and layers[0].cache is None


# --- what models are made of


def test_an_mlp_uses_the_given_activation():
    layers = mp.models.mlp([2, 3, 4, 1], lambda: mp.LeakyReLU(0.25), mp.layers.xavier)
    assert list(map(repr, layers)) == [
        "Linear(2, 3, initialization=xavier)", "LeakyReLU(negative_slope=0.25)",
        "Linear(3, 4, initialization=xavier)", "LeakyReLU(negative_slope=0.25)",
        "Linear(4, 1, initialization=xavier)",
    ]
    assert layers[1] is not layers[3]
    assert all(layer.initialization is mp.layers.xavier for layer in layers[::2])


def test_dropout_is_after_embeddings_and_in_halves_of_blocks():
    kinds = [
        [type(layer) for layer in every_layer(mp.models.transformer(5, 8, 2, 3, dropout=p))] for p in (0, 0.5)
    ]
    assert [names.count(mp.Dropout) for names in kinds] == [0, 1 + 2 * 3] and kinds[1][1] is mp.Dropout


def test_the_table_cuts_long_names_and_groups_digits():
    layers = [mp.Residual(*mp.models.mlp([1000, 1000, 1000, 1000]))]
    lines = str(mp.describe(layers, (1000,))).splitlines()
    assert lines == [
        "   layer                                                 output   parameters       MACs  bytes",
        "   input                                                 (1000,)",
        "0  Residual(Linear(1000, 1000), ReLU(), Linear(1000,...  (1000,)   3,003,000  3,000,000  4,000",
        "   total                                                           3,003,000  3,000,000  4,000",
        "MACs and bytes are those of one sample, in float32.",
    ]
