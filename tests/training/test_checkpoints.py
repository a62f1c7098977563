"""What is saved goes on with the same bits, whoever saved it and whoever loads it; what cannot be, moves
nothing."""

import io
import json
import os
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import compared
import numpy as np
import pytest
from compared import assert_same
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import one_in

import minipipe as mp
from minipipe.checkpoints import ABOUT
from minipipe.exact import rational

LAYERS = [
    mp.Linear(6, 8), mp.ReLU(), mp.Fork("skip"), mp.Linear(8, 8, tie="W"), mp.BatchNorm(8), mp.Dropout(0.5),
    mp.Residual(mp.Linear(8, 8), mp.Tanh()), mp.Join("skip"), mp.Linear(8, 8, tie="W"), mp.Tanh(),
    mp.Linear(8, 4),
]
LOSS = mp.MeanSquaredError()
OPTIMIZERS = {
    "momentum": lambda: mp.SGD(0.125, momentum=0.5, rate_inside=True), "Adam": lambda: mp.Adam(0.01),
}


def mini_batch(t, m=13):
    rng = np.random.default_rng(t)
    return rng.standard_normal((6, m)).astype(np.float32), rng.standard_normal((4, m)).astype(np.float32)


def maker(split, schedule="1f1b", engine="cluster"):
    """Return a function that makes such a network from a seed."""
    return lambda seed=0: mp.Parallel(
        LAYERS, LOSS, **split, schedule=schedule, count_bytes=engine == "cluster", engine=engine, seed=seed,
        dtype="float32",
    )


MODELS = {
    "one device": maker(dict(microbatches=4), "gpipe"),
    "K=4": maker(dict(stages=4, microbatches=4)),
    "zb-v": maker(dict(stages=4, microbatches=4), "zb-v"),
    "D=2": maker(dict(replicas=2, microbatches=4)),
    "threads": maker(dict(stages=3, microbatches=4), "gpipe", "threads"),
}


def train(model, optimizer, steps):
    for t in steps:
        model.forward_backward(*mini_batch(t))
        model.step(optimizer)


def state(model, optimizer=None):
    """All that moves."""
    found = compared.state(model.layers) | {"n_steps": model.n_steps}
    if optimizer is not None:
        found |= {f"memory {key}": optimizer.memory[key] for key in sorted(optimizer.memory)}
        found |= {name: getattr(optimizer, name) for name in ("n_updates", "learning_rate", "last_rate")}
    return found


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_training_goes_on_in_any_split_as_if_not_interrupted(kind, tmp_path):
    """K = 4, then two copies, then one device, then threads: dropout, running statistics, tied weights."""
    whole, optimizer = MODELS["K=4"](), OPTIMIZERS[kind]()
    train(whole, optimizer, range(3))
    optimizer.learning_rate = 0.0625
    train(whole, optimizer, range(3, 10))
    model, resumed = MODELS["K=4"](), OPTIMIZERS[kind]()
    for number, (name, steps) in enumerate([("D=2", range(3)), ("one device", [3, 4]), ("threads", [5, 6]),
                                            ("zb-v", [7, 8, 9])]):
        train(model, resumed, steps)
        if number == 0:
            resumed.learning_rate = 0.0625
        if number < 3:
            mp.save(tmp_path / "net.npz", model, resumed)
            model, resumed = MODELS[name](seed=number + 5), OPTIMIZERS[kind]()
            mp.load(tmp_path / "net.npz", model, resumed)
    assert_same(state(whole, optimizer), state(model, resumed))


def test_the_file_is_plain_arrays(tmp_path):
    net = mp.Sequential([mp.Linear(2, 3), mp.BatchNorm(3), mp.Residual(mp.Linear(3, 3))], None)
    mp.save(tmp_path / "net.npz", net)
    with np.load(tmp_path / "net.npz", allow_pickle=False) as file:
        assert sorted(file.files) == sorted([
            "0/W", "0/b", "1/W", "1/b", "1/running_mean", "1/running_var", "2.1.0/W", "2.1.0/b", ABOUT,
        ])
        assert json.loads(str(file[ABOUT]))["layers"][0] == "Linear(2, 3)"


def test_gradients_of_before_a_load_are_forgotten(tmp_path):
    for name in ("one device", "K=4"):
        model, optimizer = MODELS[name](), mp.SGD(0.1)
        mp.save(tmp_path / "net.npz", model, optimizer)
        model.forward_backward(*mini_batch(0))
        mp.load(tmp_path / "net.npz", model, optimizer)
        with pytest.raises(RuntimeError, match=r"nothing has run yet|no gradients yet"):
            model.step(optimizer)


def test_a_load_undoes_a_run_that_is_under_way(tmp_path):
    model = MODELS["K=4"]()
    mp.save(tmp_path / "net.npz", model)
    before = state(model)
    model.start(*mini_batch(0))
    for _ in range(7):
        model.tick()
    mp.load(tmp_path / "net.npz", model)
    assert_same(before, state(model))
    J = model.forward_backward(*mini_batch(0))
    assert J == MODELS["K=4"]().forward_backward(*mini_batch(0))


def test_a_loaded_optimizer_counts_among_the_bytes(tmp_path):
    model, optimizer = MODELS["K=4"](), mp.Adam(0.01)
    train(model, optimizer, range(2))
    mp.save(tmp_path / "net.npz", model, optimizer)
    other = MODELS["K=4"](seed=1)
    mp.load(tmp_path / "net.npz", other, mp.Adam(0.01))
    for pipe in (model, other):
        pipe.forward_backward(*mini_batch(5))
    assert model.trace.peak_bytes() == other.trace.peak_bytes()


# Refusals

@cache
def checkpoint():
    """The bytes of a file with a network and its Adam after two updates."""
    with TemporaryDirectory() as folder:
        model, optimizer = MODELS["K=4"](), mp.Adam(0.01)
        train(model, optimizer, range(2))
        mp.save(Path(folder) / "net.npz", model, optimizer)
        return (Path(folder) / "net.npz").read_bytes()


def refused(path, model, optimizer, words):
    """The load is refused in a sentence, and nothing has moved."""
    before = state(model, optimizer)
    with pytest.raises(ValueError, match=words) as error:
        mp.load(path, model, optimizer)
    assert "\n" not in str(error.value)
    assert_same(before, state(model, optimizer))


@settings(max_examples=40, deadline=None)
@given(share=st.floats(0, 0.9999))
def test_a_truncated_file_is_refused(share, tmp_path_factory):
    path = tmp_path_factory.mktemp("net") / "net.npz"
    path.write_bytes(checkpoint()[:int(share * len(checkpoint()))])
    refused(path, MODELS["one device"](), mp.Adam(0.02), "it is not a checkpoint of minipipe, or is damaged")


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(place=st.floats(0, 1, exclude_max=True), bits=st.integers(1, 255))
def test_a_file_with_a_wrong_byte_is_refused_or_the_same(place, bits, tmp_path_factory):
    path = tmp_path_factory.mktemp("net") / "net.npz"
    whole, original = bytearray(checkpoint()), MODELS["K=4"]()
    path.write_bytes(whole)
    mp.load(path, original)
    whole[int(place * len(whole))] ^= bits
    path.write_bytes(whole)
    model = MODELS["one device"](seed=4)
    before = state(model)
    try:
        mp.load(path, model)
    except ValueError as error:
        assert str(path) in str(error)
        assert_same(before, state(model))
    else:
        assert_same(state(model), state(original))


def npz(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


@pytest.mark.parametrize("content, words", [
    (b"", "not a checkpoint of minipipe"), (b"Hello", "not a checkpoint of minipipe"),
    (None, "there is no such file"),
    (npz(W=np.ones(3)), "not a checkpoint of minipipe"),
    (npz(**{ABOUT: np.array([{"a": 1}], dtype=object)}), "not a checkpoint of minipipe"),
    (npz(**{ABOUT: np.array("[1]")}), "not a checkpoint of minipipe"),
    (npz(**{ABOUT: np.array('{"format": 3}')}), "has the format 3, this version of minipipe reads 1 and 2"),
])
def test_a_foreign_file_is_refused(content, words, tmp_path):
    path = tmp_path / "net.npz"
    if content is not None:
        path.write_bytes(content)
    refused(path, MODELS["K=4"](), None, words)


@pytest.mark.parametrize("layers, dtype, optimizer, words", [
    (LAYERS[:-1], np.float32, mp.Adam(0.01), "holds 11 layers, the network has 10: build it alike"),
    ([*LAYERS[:-1], mp.Linear(8, 5)], np.float32, mp.Adam(0.01),
     r"holds Linear\(8, 4\) as layer 10, the network has"),
    (LAYERS, np.float64, mp.Adam(0.01),
     r"holds float32 of shape \(8, 6\) for 0/W, the network has float64 "),
    (LAYERS, np.float32, mp.SGD(0.1), "holds the state of Adam, the optimizer has SGD: make it alike"),
    (LAYERS, np.float32, mp.AdamW(0.1), "holds the state of Adam, the optimizer has AdamW"),
])
def test_another_network_or_optimizer_is_refused(layers, dtype, optimizer, words, tmp_path):
    path = tmp_path / "net.npz"
    path.write_bytes(checkpoint())
    refused(path, mp.Sequential(layers, LOSS, dtype=dtype), optimizer, words)


def test_momentum_where_there_was_none_is_refused(tmp_path):
    model = MODELS["K=4"]()
    mp.save(tmp_path / "net.npz", model, mp.SGD(0.1))
    words = "holds 0 arrays remembered for each parameter, the optimizer has 1"
    refused(tmp_path / "net.npz", model, mp.SGD(0.1, momentum=0.5), words)
    mp.save(tmp_path / "net.npz", model)
    refused(tmp_path / "net.npz", model, mp.SGD(0.1), "was saved without an optimizer")


def test_what_cannot_be_saved_is_said_and_leaves_the_old_file(tmp_path, monkeypatch):
    model = MODELS["K=4"]()
    with pytest.raises(ValueError, match="there is no folder"):
        mp.save(tmp_path / "none" / "net.npz", model)
    with pytest.raises(ValueError, match="pass an object, such as SGD"):
        mp.save(tmp_path / "net.npz", model, mp.SGD)
    exact = mp.Sequential([mp.Linear(2, 2, W=rational(np.eye(2)), b=rational([[0], [1]]))], None)
    with pytest.raises(ValueError, match="rational numbers cannot be written as plain arrays"):
        mp.save(tmp_path / "net.npz", exact)
    assert not list(tmp_path.iterdir())
    mp.save(tmp_path / "net.npz", model)
    before = (tmp_path / "net.npz").read_bytes()

    def full(descriptor):
        raise OSError("no space left on the device")

    train(model, mp.SGD(0.1), range(1))
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        mp.save(tmp_path / "net.npz", model)
    assert (tmp_path / "net.npz").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["net.npz"]


UNTIED = [layer for layer in LAYERS if getattr(layer, "tie", None) is None]
SERVERS = {
    "one server": {}, "three servers": {"servers": 3},
    "three servers on workers": {"servers": 3, "on_workers": True},
}


@pytest.mark.parametrize("saves, loads", one_in(3, SERVERS, [*SERVERS][::-1]))
def test_servers_go_on_with_what_an_optimizer_remembers(saves, loads, tmp_path):
    batches = [mini_batch(t) for t in range(5)]
    one, other = (mp.ParameterServer(UNTIED, LOSS, 3, seed=seed, **SERVERS[name])
                  for seed, name in enumerate((saves, loads)))
    adam, its = mp.Adam(0.01), mp.Adam(0.02)
    one.train(batches[:2], adam)
    mp.save(tmp_path / "servers.npz", one, adam)
    mp.load(tmp_path / "servers.npz", other, its)
    costs = one.train(batches[2:], adam)
    assert_same((other.train(batches[2:], its), state(other, its)), (costs, state(one, adam)))


def test_servers_begin_from_the_file_of_a_network(tmp_path):
    net = mp.Sequential(UNTIED, LOSS, seed=1, dtype=np.float32)
    mp.save(tmp_path / "net.npz", net)
    used, new = (mp.ParameterServer(UNTIED, LOSS, 2, dtype=np.float32) for _ in range(2))
    used.train([mini_batch(0)], mp.Adam(0.01))
    for server in (used, new):
        mp.load(tmp_path / "net.npz", server)
    costs = [server.train([mini_batch(1)], mp.Adam(0.01)) for server in (used, new)]
    assert_same(*costs)
    assert_same(state(used), state(new))
