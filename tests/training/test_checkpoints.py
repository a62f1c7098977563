"""What is saved goes on with the same bits, whoever saved it and whoever loads it; what cannot be, moves
nothing.

First files, then the state of a training in memory; `test_interrupted_steps` has random lives of both.
"""

import copy
import io
import json
import os
import pickle
import platform
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import compared
import numpy as np
import pytest
from compared import assert_same, parameters
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import one_in

import minipipe as mp
from minipipe.checkpoints import ABOUT, _checksum
from minipipe.exact import rational
from minipipe.order import with_updates
from minipipe.schedules import build

LAYERS = [
    mp.Linear(6, 8), mp.ReLU(), mp.Fork("skip"), mp.Linear(8, 8, tie="W"), mp.BatchNorm(8), mp.Dropout(0.5),
    mp.Residual(mp.Linear(8, 8), mp.Tanh()), mp.Join("skip"), mp.Linear(8, 8, tie="W"), mp.Tanh(),
    mp.Linear(8, 4),
]
LOSS = mp.MeanSquaredError()


def mini_batch(t, m=13):
    rng = np.random.default_rng(t)
    return rng.standard_normal((6, m)).astype(np.float32), rng.standard_normal((4, m)).astype(np.float32)


def in_stages(seed=0):
    return mp.Pipeline(LAYERS, LOSS, 4, 4, schedule="1f1b", count_bytes=True, seed=seed, dtype="float32")


def on_one_device(seed=0):
    return mp.Parallel(LAYERS, LOSS, microbatches=4, schedule="gpipe", seed=seed, dtype="float32")


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


def test_the_file_is_plain_arrays(tmp_path):
    net = mp.Sequential([mp.Linear(2, 3), mp.BatchNorm(3), mp.Residual(mp.Linear(3, 3))], None)
    mp.save(tmp_path / "net.npz", net)
    with np.load(tmp_path / "net.npz", allow_pickle=False) as file:
        assert sorted(file.files) == sorted([
            "0/W", "0/b", "1/W", "1/b", "1/running_mean", "1/running_var", "2.1.0/W", "2.1.0/b", ABOUT,
        ])
        assert json.loads(str(file[ABOUT]))["layers"][0] == "Linear(2, 3)"


def test_gradients_of_before_a_load_are_forgotten(tmp_path):
    for make in (on_one_device, in_stages):
        model, optimizer = make(), mp.SGD(0.1)
        mp.save(tmp_path / "net.npz", model, optimizer)
        model.forward_backward(*mini_batch(0))
        mp.load(tmp_path / "net.npz", model, optimizer)
        with pytest.raises(RuntimeError, match=r"nothing has run yet|no gradients yet"):
            model.step(optimizer)


def test_a_load_undoes_a_run_that_is_under_way(tmp_path):
    model = in_stages()
    mp.save(tmp_path / "net.npz", model)
    before = state(model)
    model.start(*mini_batch(0))
    for _ in range(7):
        model.tick()
    mp.load(tmp_path / "net.npz", model)
    assert_same(before, state(model))
    J = model.forward_backward(*mini_batch(0))
    assert J == in_stages().forward_backward(*mini_batch(0))


def test_a_loaded_optimizer_counts_among_the_bytes(tmp_path):
    model, optimizer = in_stages(), mp.Adam(0.01)
    train(model, optimizer, range(2))
    mp.save(tmp_path / "net.npz", model, optimizer)
    other = in_stages(seed=1)
    mp.load(tmp_path / "net.npz", other, mp.Adam(0.01))
    for pipe in (model, other):
        pipe.forward_backward(*mini_batch(5))
    assert model.trace.peak_bytes() == other.trace.peak_bytes()


# Refusals

@cache
def checkpoint():
    """The bytes of a file with a network and its Adam after two updates."""
    with TemporaryDirectory() as folder:
        model, optimizer = in_stages(), mp.Adam(0.01)
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
    refused(path, on_one_device(), mp.Adam(0.02), "it is not a checkpoint of minipipe, or is damaged")


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(place=st.floats(0, 1, exclude_max=True), bits=st.integers(1, 255))
def test_a_file_with_a_wrong_byte_is_refused_or_the_same(place, bits, tmp_path_factory):
    path = tmp_path_factory.mktemp("net") / "net.npz"
    whole, original = bytearray(checkpoint()), in_stages()
    path.write_bytes(whole)
    mp.load(path, original)
    whole[int(place * len(whole))] ^= bits
    path.write_bytes(whole)
    model = on_one_device(seed=4)
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
    (npz(**{ABOUT: np.array('{"format": 5}')}), "has the format 5, this version of minipipe reads 4"),
])
def test_a_foreign_file_is_refused(content, words, tmp_path):
    path = tmp_path / "net.npz"
    if content is not None:
        path.write_bytes(content)
    refused(path, in_stages(), None, words)


def test_a_compressed_file_takes_no_memory(tmp_path):
    with (tmp_path / "net.npz").open("wb") as file:
        np.savez_compressed(file, W=np.zeros(10**7))
    refused(tmp_path / "net.npz", in_stages(), None, "its arrays are larger than the file")


def changed_arrays(name, change):
    def edit(arrays, about):
        arrays[name] = change(arrays[name])
    return edit


BROKEN_PASSES = [1, 2, 1], [1, -1, 2], [1, 0.5, 2], [0, 1, 2]  # number, n_done, n_batches


def changed_count(value, *path):
    def edit(arrays, about):
        for name in path[:-1]:
            about = about[name]
        about[path[-1]] = value
    return edit


EDITS = [
    (changed_arrays("0/W", lambda W: W * np.nan), "0/W holds NaN or infinity"),
    (lambda arrays, about: arrays.pop("optimizer/0.0/W/1"), r"remembers \['float32 of shape \(8, 6\)'\] for"),
    (changed_arrays("optimizer/0.0/W/0", lambda u: np.ones((9, 9), u.dtype)),
     r"\(9, 9\).* needs 2 like \['float32 of shape \(8, 6\)'\]: pass the optimizer"),
    *[(changed_arrays("optimizer/0.0/W/0", lambda u, kind=kind: u.astype(kind)), rf"remembers \['{kind} of")
      for kind in ("float16", "int64", "bool")],
    (changed_arrays("optimizer/0.0/W/0", lambda u: u + np.inf), "what is remembered for .* holds NaN"),
    (changed_arrays("optimizer/0.0/W/0", lambda u: u * 1j), "is an array of complex"),
    *[(changed_count(value, "n_steps"), "n_steps=.* must be") for value in (None, -1, 1.5, "7")],
    *[(changed_count(value, "optimizer", "updates"), "n_updates=.* must be") for value in (None, -1, 1.5)],
    *[(changed_count(value, "optimizer", "last_rate"), "last_rate=.* must be") for value in ("x", 0)],
    *[(changed_count(value, "optimizer", "last_pass"), "last_pass.* must be")
      for value in (None, 3, [1, 2], *([*some, 8, 0] for some in BROKEN_PASSES))],
    *[(changed_count(value, "layers"), "is damaged") for value in (None, 7)],
    (changed_count(["Linear(6, 8)" + 10**6 * " "] + 10 * [None], "layers"),
     r"^.{1,300} as layer 0, the network has Linear\(6, 8\): make them equal"),
    (changed_count(None, "counts"), "is damaged"),
    (changed_count(10**6 * "9", "optimizer", "class"), "^.{1,300} the optimizer is Adam: make them equal"),
]


@pytest.mark.parametrize("edit, words", EDITS)
@pytest.mark.parametrize("is_anew", [False, True], ids=["old checksum", "new checksum"])
def test_an_edited_file_is_refused(edit, words, is_anew, tmp_path):
    arrays = dict(np.load(io.BytesIO(checkpoint())))
    about = json.loads(str(arrays.pop(ABOUT)))
    edit(arrays, about)
    if is_anew:
        del about["checksum"]
        about["checksum"] = _checksum(about, arrays)
    (tmp_path / "net.npz").write_bytes(npz(**{ABOUT: np.array(json.dumps(about))}, **arrays))
    words = words if is_anew else "its checksum is that of other contents"
    refused(tmp_path / "net.npz", in_stages(seed=1), mp.Adam(0.02), words)


@pytest.mark.parametrize("layers, dtype, optimizer, words", [
    (LAYERS[:-1], np.float32, mp.Adam(0.01), "holds 11 layers, the network has 10: make them equal"),
    ([*LAYERS[:-1], mp.Linear(8, 5)], np.float32, mp.Adam(0.01),
     r"holds Linear\(8, 4\) as layer 10, the network has"),
    (LAYERS, np.float64, mp.Adam(0.01),
     r"holds float32 of shape \(8, 6\) for 0/W, the network has float64 "),
    (LAYERS, np.float32, mp.SGD(0.1), "holds the state of Adam, the optimizer is SGD: make them equal"),
    (LAYERS, np.float32, mp.AdamW(0.1), "holds the state of Adam, the optimizer is AdamW"),
])
def test_another_network_or_optimizer_is_refused(layers, dtype, optimizer, words, tmp_path):
    path = tmp_path / "net.npz"
    path.write_bytes(checkpoint())
    refused(path, mp.Sequential(layers, LOSS, dtype=dtype), optimizer, words)


def test_an_error_names_the_file_that_the_user_named(tmp_path):
    (tmp_path / "net.npz").mkdir()
    with pytest.raises(OSError, match=r"'[^']*/net\.npz'$"):
        mp.save(tmp_path / "net.npz", in_stages())


class Frozen(mp.Linear):
    def backward_weight(self, dZ):
        return None, None


@pytest.mark.parametrize("layers", [
    [mp.Residual(Frozen(4, 4), mp.LayerNorm(4))], [Frozen(4, 4)], [mp.Tanh()],
])
def test_a_training_with_frozen_layers_is_saved_and_goes_on(layers, tmp_path):
    nets, X = [mp.Sequential(layers, LOSS) for _ in range(2)], np.ones((4, 3))
    optimizers = [mp.Adam(0.1), mp.Adam(0.1)]
    nets[0].train([(X, X / 2)], optimizers[0])
    mp.save(tmp_path / "net.npz", nets[0], optimizers[0])
    mp.load(tmp_path / "net.npz", nets[1], optimizers[1])
    for net, optimizer in zip(nets, optimizers, strict=True):
        net.train([(X, X / 2)], optimizer)
    assert_same(state(nets[0], optimizers[0]), state(nets[1], optimizers[1]))


def test_the_optimizer_of_another_network_is_not_saved(tmp_path):
    optimizer = mp.Adam(0.01)
    train(in_stages(), optimizer, range(1))
    with pytest.raises(ValueError, match="gradients of another network: make a new Adam"):
        mp.save(tmp_path / "net.npz", mp.Sequential([mp.Linear(2, 2)], LOSS), optimizer)
    assert not list(tmp_path.iterdir())


def test_an_optimizer_with_other_state_than_the_file_is_refused(tmp_path):
    model = in_stages()
    mp.save(tmp_path / "net.npz", model, mp.SGD(0.1))
    words = "holds 0 arrays for each parameter, the optimizer has 1"
    refused(tmp_path / "net.npz", model, mp.SGD(0.1, momentum=0.5), words)
    mp.save(tmp_path / "net.npz", model)
    refused(tmp_path / "net.npz", model, mp.SGD(0.1), "was saved without an optimizer")


def test_a_failed_save_raises_an_error_and_leaves_the_old_file(tmp_path, monkeypatch):
    model = in_stages()
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


# A file is written whole, under a name of its own

def test_a_saved_file_keeps_its_mode_and_its_link(tmp_path):
    target, link = tmp_path / "net.npz", tmp_path / "link.npz"
    mp.save(target, in_stages())
    target.chmod(0o640)
    link.symlink_to(target)
    mp.save(link, in_stages(seed=1))
    mp.load(target, model := in_stages())
    assert_same(state(model), state(in_stages(seed=1)))
    assert link.is_symlink() and target.stat().st_mode & 0o777 == 0o640


def test_a_save_removes_what_a_killed_process_has_left(tmp_path):
    path, host = tmp_path / "net.npz", platform.node()
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    left = f".net.{host}-{gone.pid}-0123456789ab.npz"
    others = [f".net.{host}-{os.getpid()}-0123456789ab.npz", f".net.another-{gone.pid}-0123456789ab.npz"]
    for name in (left, *others):
        (tmp_path / name).touch()
    mp.save(path, in_stages())
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([*others, "net.npz"])


def test_threads_that_save_to_one_path_leave_it_whole(tmp_path):
    path, models = tmp_path / "net.npz", [in_stages(seed=seed) for seed in range(4)]
    with ThreadPoolExecutor() as pool:
        list(pool.map(partial(mp.save, path), models * 8))
    mp.load(path, model := in_stages())
    assert any(np.array_equal(model.layers[0].W, other.layers[0].W) for other in models)
    assert [file.name for file in tmp_path.iterdir()] == ["net.npz"]


def test_ctrl_c_in_a_save_comes_when_the_file_is_complete(tmp_path, monkeypatch):
    path, fsync = tmp_path / "net.npz", os.fsync

    def interrupted(descriptor):
        signal.raise_signal(signal.SIGINT)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        mp.save(path, in_stages(seed=1))
    mp.load(path, model := in_stages())
    assert_same(state(model), state(in_stages(seed=1)))


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


# In memory

SMALL = [mp.Linear(3, 4), mp.BatchNorm(4), mp.ReLU(), mp.Dropout(0.25), mp.Linear(4, 4), mp.Linear(4, 2)]
rng = np.random.default_rng(0)
BATCHES = [(rng.standard_normal((3, 8)), rng.standard_normal((2, 8))) for _ in range(4)]
CLIENTS = [(X[:, :m], Y[:, :m]) for (X, Y), m in zip(BATCHES, (4, 6, 8, 2), strict=True)]
NETWORKS = {
    "Sequential": lambda: mp.Sequential(SMALL, LOSS, grain=2),
    "stages": lambda: mp.Parallel(SMALL, LOSS, stages=3, microbatches=4, sums=mp.Sums(grain=2)),
    "ZeRO": lambda: mp.Parallel(SMALL, LOSS, replicas=2, stages=2, zero=3, sums=mp.Sums(grain=2)),
}


@pytest.mark.parametrize("first, second", one_in(3, NETWORKS, [*NETWORKS][::-1]))
def test_another_network_resumes_with_the_same_bits(first, second):
    """The state is a copy: later updates of the first network do not reach it."""
    net, optimizer = NETWORKS[first](), mp.Adam(0.1)
    net.train(BATCHES[:2], optimizer)
    kept = net.state(optimizer)
    expected = net.train(BATCHES[2:], optimizer)
    other, own = NETWORKS[second](), mp.Adam(0.5)
    for _ in range(2):  # from one state as often as one likes
        other.resume(kept, own)
        assert (other.n_steps, own.n_updates, own.learning_rate) == (2, 2, 0.1)
        assert other.train(BATCHES[2:], own) == expected
        assert_same(parameters(other.layers), parameters(net.layers))
        assert_same(dict(own.memory), dict(optimizer.memory))


def federated():
    return mp.FederatedAveraging(SMALL, LOSS, CLIENTS, fraction=0.5, batch_size=2)


@pytest.mark.parametrize("through", ["a state", "a file"])
def test_rounds_go_on_with_all_that_is_remembered(through, tmp_path):
    """Which clients are chosen, and where in its samples a client is."""
    net = federated()
    net.train(3, mp.Adam(0.1))
    if through == "a file":
        mp.save(tmp_path / "net.npz", net, mp.Adam(0.1))
    kept = net.state(mp.Adam(0.1))
    expected = net.train(3, mp.Adam(0.1))
    other, own = federated(), mp.Adam(0.5)
    if through == "a file":
        mp.load(tmp_path / "net.npz", other, own)
    else:
        other.resume(kept, own)
    assert [done[:3] for done in other.train(3, own)] == [done[:3] for done in expected]
    assert_same(parameters(other.layers), parameters(net.layers))


def test_rounds_go_on_from_a_network_that_knows_of_none():
    net = federated()
    net.train(1, mp.Adam(0.1))
    net.resume(mp.Sequential(SMALL, LOSS).state())
    assert (net.n_rounds, net.positions) == (0, [0] * 4)
    assert_same(net.round(mp.Adam(0.1))[:3], federated().round(mp.Adam(0.1))[:3])


@pytest.mark.parametrize("change, words", [
    (lambda net: net.resume({"arrays": 1}), "is not a State: pass what net.state"),
    (lambda net: net.resume(mp.Sequential(SMALL[:1], LOSS).state()), "holds 1 layers, the network has 6"),
    (lambda net: net.resume(net.state(), mp.Adam()), "was saved without an optimizer"),
    (lambda net: net.resume(net.state(mp.SGD(0.1)), mp.Adam()), "the state of SGD, the optimizer is Adam"),
    (lambda net: net.state(mp.Adam), "pass an object, such as SGD"),
])
def test_a_state_that_does_not_fit_changes_nothing(change, words):
    net = NETWORKS["Sequential"]()
    before = parameters(net.layers)
    with pytest.raises(ValueError, match=words):
        change(net)
    assert_same(parameters(net.layers), before)


@pytest.mark.parametrize("name", NETWORKS)
def test_assigned_parameters_are_checked_before_a_state_is_taken(name):
    net = NETWORKS[name]()
    net.train(BATCHES[:1], mp.SGD(0.1))
    kept, before = net.state(), parameters(net.layers)
    for W in (np.ones((4, 3), int), [[1, 2, 3]] * 4):
        net.layers[0].W = W
        net.resume(kept)
        assert_same(parameters(net.layers), before)
    net.layers[0].W = np.ones((4, 9))
    with pytest.raises(ValueError, match=r"W has shape \(4, 9\), but layer 0, Linear\(3, 4\) needs"):
        net.resume(kept)


def test_the_state_of_other_clients_is_refused():
    kept = federated().state(mp.Adam(0.1))
    with pytest.raises(ValueError, match="is of 4 clients with seed=0, the network has 3 with seed=0"):
        mp.FederatedAveraging(SMALL, LOSS, CLIENTS[:3]).resume(kept)
    with pytest.raises(ValueError, match="with seed=0, the network has 4 with seed=1: make it with"):
        mp.FederatedAveraging(SMALL, LOSS, CLIENTS, seed=1).resume(kept)
    with pytest.raises(ValueError, match="positions=3 must be a list of whole numbers"):
        federated().resume(kept._replace(counts={"positions": 3}))


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
def test_a_copy_trains_apart_and_counts_what_an_optimizer_keeps(way):
    net, optimizer = mp.TensorParallel(SMALL, LOSS, 2, count_bytes=True), mp.Adam(0.1)
    net.train(BATCHES[:1], optimizer)
    twin, its = way(net), copy.deepcopy(optimizer)
    expected = net.train(BATCHES[1:], optimizer)
    assert twin.train(BATCHES[1:], its) == expected
    assert_same(parameters(twin.layers), parameters(net.layers))
    assert twin.trace.peak_bytes() == net.trace.peak_bytes()


@pytest.mark.parametrize("make", [
    lambda layers: mp.Sequential(layers, LOSS),
    lambda layers: mp.Pipeline(layers, LOSS, 1, 2, schedule=with_updates(build("gpipe", 1, 2))),
    lambda layers: mp.Pipeline(layers, LOSS, 1, 1, schedule="pipedream"),
    lambda layers: mp.DataParallel(layers, LOSS, 2, zero=1),
    lambda layers: mp.DataParallel(layers, LOSS, 2, zero=3),
    lambda layers: mp.Parallel(
        layers, LOSS, shards=2, microbatches=2, schedule=with_updates(build("gpipe", 1, 2))),
    lambda layers: mp.ParameterServer(layers, LOSS, 2, servers=2),
], ids=["one device", "stages", "a stream", "ZeRO 1", "ZeRO 3", "shards", "servers"])
def test_an_optimizer_that_remembers_another_network_is_refused(make):
    """Of as many layers, but other shapes; nothing moves."""
    batch, adam = [(np.ones((4, 4)), np.ones((2, 4)))], mp.Adam()
    make([mp.Linear(4, 6), mp.Linear(6, 2)]).train(batch, adam)
    net = make([mp.Linear(4, 3), mp.Linear(3, 2)])
    before = copy.deepcopy((parameters(net.layers), dict(adam.memory), adam.n_updates))
    with pytest.raises(ValueError, match="remembers the gradients of another network"):
        net.train(batch, adam)
    assert_same((parameters(net.layers), dict(adam.memory), adam.n_updates), before)
