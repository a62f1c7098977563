"""What `describe` foretells is what a run then does; the sizes of published networks; no arrays are made."""

import re
import time
import tracemalloc

import numpy as np
import pytest

import minipipe as mp
from minipipe.functions import leaves, shape_of
from minipipe.layers import every_layer
from minipipe.layers.through import forward_through, prepare_forward

GPIPE = {  # layers: (what table 1 of GPipe prints, the exact count), for d = 2048 and 32,000 tokens
    3: ("282.2M", 282_182_912), 13: ("785.8M", 785_765_632), 103: ("5.3B", 5_318_010_112),
    415: ("21.0B", 21_029_790_976), 1663: ("83.9B", 83_876_914_432),
}

NETWORKS = {
    "mlp": (mp.models.mlp([6, 5, 4]), (6,)),
    "lenet": (mp.models.lenet5(), (1, 28, 28)),
    "lenet, classic": (mp.models.lenet5((2, 8, 8), kernel_size=3, padding=(1, 1), classic=True), (128,)),
    "resnet": (mp.models.resnet(8), (3, 16, 16)),
    "amoebanet": (mp.models.amoebanet_d(6, 8), (3, 32, 32)),
    "transformer": (
        mp.models.transformer(7, 8, n_heads=2, n_layers=2, n_places=5, tied=True, dropout=0.5),
        (4,),
    ),
    "skips": (
        [
            mp.Conv2d(1, 2, 3), mp.Fork("far"), mp.GELU(), mp.Fork("near"), mp.Conv2d(2, 2, 3, padding=1),
            mp.Join("near"), mp.Join("far", how="concat"), mp.Flatten(),
        ],
        (1, 5, 6),
    ),
}
every_network = pytest.mark.parametrize("layers, input_shape", NETWORKS.values(), ids=NETWORKS)


def gpipe_transformer(n_layers):
    return mp.models.transformer(32_000, 2048, n_heads=32, n_layers=n_layers)


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


@pytest.mark.parametrize("n_layers", [3, 13, 103, 415, pytest.param(1663, marks=pytest.mark.slow)])
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


@pytest.mark.slow
def test_84_billion_parameters_are_described_in_a_second_and_little_memory():
    """Well below both limits; CPU time, the better of two, because other programs share the machine.

    Tracing slows, so it comes after.
    """
    seconds = []
    for _ in range(2):
        begin = time.process_time()
        layers = gpipe_transformer(1663)
        mp.describe(layers, (1024,))
        seconds.append(time.process_time() - begin)
    assert min(seconds) < 1
    tracemalloc.start()
    description = mp.describe(layers, (1024,))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200e6 and description.parameters == 83_876_914_432


@every_network
def test_shapes_parameters_products_and_bytes_are_those_of_a_run(layers, input_shape):
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
    for name in ("parameters", "macs", "n_bytes"):
        assert getattr(description, name) == sum(getattr(row, name) for row in description.rows)


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


@pytest.mark.parametrize(
    "layers, input_shape, words",
    [
        (
            [mp.Linear(3, 4), mp.ReLU(), mp.Linear(5, 2)],
            (3,),
            r"layers[2], Linear(5, 2), does not fit: Linear(5, 2) needs A_prev of shape (5, m), got (4, 1)",
        ),
        (
            mp.models.lenet5(),
            (3, 28, 28),
            "layers[0], Reshape((1, 28, 28)), does not fit: "
            "Reshape((1, 28, 28)) needs 784 numbers in a sample, got 2352",
        ),
        (mp.models.amoebanet_d(3, 8), (3, 40, 40), "layers[6], ReductionCell(16), does not fit"),
        ([mp.Conv2d(1, 1, 3), mp.models.First()], (1, 8, 8), "layers[1], First(), does not fit"),
        ([mp.Fork("a"), mp.ReLU()], (3,), "Fork('a') has no Join"),
        (
            [mp.ReLU, mp.ReLU()],
            (3,),
            "layers[0] is <class 'minipipe.layers.activations.ReLU'>: pass a layer object",
        ),
        ([mp.ReLU()], 3, "input_shape=3 must be the shape of one sample, a tuple such as (64,)"),
        ([mp.ReLU()], (3, 0), "input_shape[1]=0 must be at least 1"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(layers, input_shape, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        mp.describe(layers, input_shape)


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
