"""`compare_splits`: one network split in three ways, in one unit, held to formulas of its bytes and ticks."""

from fractions import Fraction

import numpy as np
import pytest

import minipipe as mp
from minipipe.arrays import leaves
from minipipe.exact import rational

N, WIDTH, SAMPLES = 4, 64, 32  # devices, units of a layer, samples


def equal_layers(n=4, width=WIDTH):
    return [layer for _ in range(n) for layer in (mp.Linear(width, width), mp.ReLU())][:-1]


def data(n_prev=WIDTH, n=WIDTH, m=SAMPLES):
    rng = np.random.default_rng(0)
    return rng.standard_normal((n_prev, m)), rng.standard_normal((n, m))


@pytest.fixture(scope="module")
def equal():
    return mp.compare_splits(equal_layers(), *data(), devices=N)


def sent(trace):
    """The bytes that each device sends."""
    return [sum(message.n_bytes for message in trace.messages if message.source == d) for d in range(N)]


def columns(found):
    """{name of a split: the numbers in its row of the table}"""
    head, *rows = repr(found).split("\n\n")[0].splitlines()
    assert head.split() == ["split", "ticks", "idle", "bytes", "sent", "bytes", "held", "messages"]
    return {name: tuple(cells) for name, *cells in (row.replace(" %", "").split() for row in rows)}


def test_equal_layers_take_the_textbooks_ticks_in_one_unit(equal):
    """M = 8: (M + N - 1) (F + B) in stages; M (F + B) without a bubble, of 1/N of the work or of 1/N of M."""
    assert {name: trace.makespan for name, trace in equal.items()} == {"network": 33, "layer": 24, "data": 24}
    assert [trace.bubble() for trace in equal.values()] == [9 / 33, 0, 0]
    assert str(equal.tick_is) == "1 tick: the forward of 1/4 of the network for 4 samples"
    assert all(trace.tick_is == equal.tick_is for trace in equal.values())


def test_bytes_sent(equal):
    """Activations at the cuts; all-reduces of activations, 2 (N - 1)/N of each; one of all gradients."""
    of_cut = WIDTH * SAMPLES * 8
    parameters = 4 * (WIDTH + 1) * WIDTH * 8
    all_reduces = 3  # forward behind layers 2 and 4, backward before layer 3; no gradient of X is needed
    assert sent(equal["network"]) == [of_cut, 2 * of_cut, 2 * of_cut, of_cut]
    assert sent(equal["layer"]) == [all_reduces * 2 * (N - 1) * of_cut // N] * N
    assert sent(equal["data"]) == [2 * (N - 1) * parameters // N] * N
    assert {name: (row[2], row[4]) for name, row in columns(equal).items()} == {
        "network": ("32,768", str(2 * 3 * 8)), "layer": ("73,728", str(all_reduces * 8 * 2 * N * (N - 1))),
        "data": ("199,680", str(2 * N * (N - 1))),
    }


def test_bytes_held(equal):
    """Parameters and gradients once; what Linear and ReLU keep of each micro-batch alive; an A at work.

    A ReLU keeps a byte for each number. By 1F1B, a pipeline's first device keeps N micro-batches of one
    layer; a device of the other splits keeps one, of all layers. Where these are split, half of it is a part.
    """
    A, mask = WIDTH * 4 * 8, WIDTH * 4
    of_layer = 2 * (WIDTH + 1) * WIDTH * 8
    of_pair = 2 * 8 * (WIDTH // N * (WIDTH + 1) + WIDTH // N * WIDTH + WIDTH)  # the b behind the sum is whole
    held = {
        "network": of_layer + N * (A + mask) + A, "data": 4 * of_layer + 4 * A + 3 * mask + A,
        "layer": 2 * of_pair + 2 * (A + mask // N + A // N) + mask + 2 * A,  # the sum's own part, and the sum
    }
    assert {name: max(trace.peak_bytes()) for name, trace in equal.items()} == held
    assert {name: row[3] for name, row in columns(equal).items()} == {k: f"{n:,}" for k, n in held.items()}


def test_stages_take_as_long_as_their_layers_multiply():
    """8192, 8192, 2048 and 320 multiply-accumulates in stages; the other splits share their sum evenly."""
    sizes = [(64, 128), (128, 64), (64, 32), (32, 10)]
    layers = [layer for size in sizes for layer in (mp.Linear(*size), mp.Tanh())]
    macs = [64 * 128, 128 * 64, 64 * 32, 32 * 10]
    found = mp.compare_splits(layers, *data(n=10), devices=4, microbatches=8)
    spans = [found["network"].spans_of(device)[0] for device in range(4)]
    assert [span.end - span.start for span in spans] == [Fraction(4 * n, sum(macs)) for n in macs]
    assert {sum(trace.busy_ticks()) for trace in found.values()} == {8 * 4 * 3}
    assert found["layer"].makespan == found["data"].makespan == 8 * 3 < found["network"].makespan


@pytest.mark.parametrize("units, of_first, is_whole", [(6, 2, False), (4, 2, False), (1, 1, True)])
def test_the_device_with_the_most_units_of_a_layer_decides(units, of_first, is_whole):
    """A pair, and behind it a layer by itself, split by its units: up to 2 of 4 for one of three devices.

    A layer that is whole on each is named.
    """
    found = mp.compare_splits(
        [*equal_layers(2, 9), mp.Linear(9, units)], *data(9, units), devices=3, microbatches=3
    )
    of_first, all_ = 2 * 9 * 3 + 9 * of_first, 2 * 9 * 9 + 9 * units
    assert found["layer"].makespan == 3 * 3 * Fraction(3 * of_first, all_)
    assert found["data"].makespan == 3 * 3
    note = "layer: each device does all the work of Linear(9, 1), which it does not split."
    assert (note in repr(found)) == is_whole and ("layer: " in repr(found)) == is_whole


def test_a_link_is_in_ticks_of_that_unit(equal):
    """Exposed are 3 all-reduces in 2 steps for each micro-batch, one of all gradients, and on the way through
    N stages a message at each cut, there and back."""
    found = mp.compare_splits(equal_layers(), *data(), devices=N, link=mp.Link(latency=Fraction(1, 8)))
    longer = {name: found[name].makespan - equal[name].makespan for name in equal}
    assert longer["layer"] == 8 * 3 * 2 * Fraction(1, 8) and longer["data"] == 2 * Fraction(1, 8)
    assert longer["network"] >= 2 * (N - 1) * Fraction(1, 8)


def test_networks_of_fractions_and_ragged_ones_are_split_too():
    first = mp.Linear(2, 4, W=rational([[1, 2], [3, -1], [-2, 1], [0, 1]]), b=rational([[0]] * 4))
    last = mp.Linear(4, 2, W=rational([[1, 0, 2, -1], [0, 1, -1, 3]]), b=rational([[1], [2]]))
    X, Y = rational(np.arange(10).reshape(2, 5)), rational(np.ones((2, 5), int))
    found = mp.compare_splits([first, mp.ReLU(), last], X, Y, devices=2)
    assert str(found.tick_is) == "1 tick: the forward of 1/2 of the network for 5/4 samples on average"
    assert [*found] == ["network", "layer", "data"]


@pytest.mark.parametrize("layers, X, Y", [
    ([mp.Embedding(5, 8), mp.TransformerBlock(8, 2), mp.TransformerBlock(8, 2), mp.Linear(8, 5)],
     np.arange(24).reshape(3, 8) % 5, np.ones((5, 3, 8))),
    ([mp.Conv2d(1, 4, 3), mp.BatchNorm(4), mp.ReLU(), mp.Flatten(), mp.Linear(64, 8), mp.Dropout(0.5)],
     np.ones((1, 6, 6, 8)), np.ones((8, 8))),
    (equal_layers(2, 8), np.ones((8, 8), np.float32), np.ones((8, 8), np.float32)),
])
def test_other_networks_are_split_as_well(layers, X, Y):
    found = mp.compare_splits(layers, X, Y, devices=2)
    assert all(trace.n_devices == 2 and max(trace.peak_bytes()) > 0 for trace in found.values())
    assert found["data"].makespan == 4 * 3


def test_it_prints_shows_and_saves_itself(tmp_path):
    found = mp.compare_splits(equal_layers(2, 8), *data(8, 8, 4), devices=2, microbatches=2)
    found.save(tmp_path / "splits.svg")
    assert [*tmp_path.iterdir()] == [tmp_path / "splits.svg"]
    axes = found.plot().axes
    assert [ax.get_xlim() for ax in axes] == [(0, 9)] * 3
    assert axes[-1].get_xlabel() == "time (1 tick: the forward of 1/2 of the network for 2 samples)"
    html = found._repr_html_()
    assert html.startswith("<pre>split") and f"{found.tick_is}." in html


# Refusals

class Slowing(mp.Layer):
    """A layer that remembers how many micro-batches it has met: its gradient depends on the order."""

    def forward(self, A_prev):
        self.met = getattr(self, "met", 0) + 1
        return A_prev

    def backward(self, dZ):
        return dZ * self.met, None, None


class Mine(mp.Linear):
    """A layer of one's own: what `Linear` says of its splits was said of another class."""

    def forward(self, A_prev):
        return super().forward(A_prev)


REFUSED = {
    "one device": (lambda: (equal_layers(), *data(), 1), "devices=1 must be at least 2"),
    "few samples": (lambda: (equal_layers(), *data(m=3), 4), "one of 3 micro-batches of the 3 samples"),
    "few micro-batches": (lambda: (equal_layers(), *data(), 4, 3), "each of them needs one of 3 micro-batch"),
    "many micro-batches": (
        lambda: (equal_layers(), *data(), 4, 33), "microbatches=33 must be at most 32"
    ),
    "few layers": (lambda: (equal_layers(2), *data()), "devices=4, but 2 of the layers multiply"),
    "no layer": (lambda: ([mp.ReLU()], *data()), "devices=4, but 0 of the layers multiply"),
    "few units": (
        lambda: ([mp.Linear(8, 2), mp.Linear(2, 2), mp.Linear(2, 2)], *data(8, 2), 3),
        r"devices=3 cannot share the work inside any layer of Linear\(8, 2\), Linear\(2, 2\): use fewer",
    ),
    "layers of one's own": (
        lambda: ([Mine(8, 8), Mine(8, 8)], *data(8, 8), 2), r"cannot share .* Mine\(8, 8\).*says in `splits`"
    ),
    "other gradients": (
        lambda: ([mp.Linear(8, 8), Slowing(), mp.Linear(8, 8)], *data(8, 8), 2),
        r"the data split finds other gradients than the network split: dW of layer 0 .*check\(layer, shape\)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_split_is_refused_with_the_remedy(name):
    arguments, words = REFUSED[name]
    with pytest.raises(ValueError, match=f"(?s){words}"):
        mp.compare_splits(*arguments())


def test_the_layers_handed_in_stay_as_they_are():
    layers = equal_layers(2, 8)
    mp.compare_splits(layers, *data(8, 8), devices=2)
    assert not leaves([(layer.W, layer.b) for layer in layers])
