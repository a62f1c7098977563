"""What `test_mpi.py` runs on ranks, one check after the other:

    mpiexec -n N python -m mpi4py mpi_checks.py CHECK "CHECK ARGUMENT" ...

A check is a function of this file. Rank 0 prints [check, what it has returned], as JSON.
"""

import json
import os
import sys
import tempfile
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from time import sleep
from unittest.mock import patch

import numpy as np
import pytest
from asynchronous.by_the_rule import per_update
from compared import assert_same
from engines import on_engines
from engines.on_engines import LOSS, assert_can_be_read, mini_batch, network, work
from pairs.table import pairs  # noqa: F401 (a check)
from settings import filled, memories_of, run

import minipipe as mp
from minipipe.cli.main import main
from minipipe.cluster import ANY, Compute, Receive, Send, UnreceivedError
from minipipe.engines import Mpi, world
from minipipe.engines.threads import PATIENCE_VARIABLE
from minipipe.exact import Rational, rational
from minipipe.layers import every_layer
from minipipe.order import RECOMPUTE
from minipipe.parallel import ranks
from minipipe.schedules import build, names_for, names_having

LAYERS, UNTIED = network(tie="W"), network()
pair = partial(on_engines.pair, "mpi", layers=LAYERS)


# J, gradients, parameters and traces have the bits of the cluster


def weights(pipe):
    pipe.collect()
    return [getattr(part, name) for part in every_layer(pipe.layers) for name in part.arrays]


def compare(row):
    """All numbers that a training shows are those of the cluster, and so is the work that is done."""
    row = filled({"dtype": "float32", "network": "normal", "dropout": True} | row)
    (expected, simulated, one), (found, ranks, many) = (
        run(row | {"engine": engine}) for engine in ("cluster", "mpi")
    )
    assert_same(found, expected)
    assert_same(memories_of(ranks, many), memories_of(simulated, one))
    assert work(simulated.trace) == work(ranks.trace)
    return ranks, found


def compare_all(rows):
    for row in rows:
        compare(row)
    return len(rows)


def schedules(*modes):
    """Every schedule with a name that fits, in these modes of recomputation, or in all; skips, ties."""
    K = world().size
    network = {"network": "perceptron", "ties": True, "optimizer": "adam", "samples": "ragged"}
    rows = [
        network | {"schedule": name, "K": build(name, K, 8).n_stages, "M": 8, "recompute": recompute}
        for name in names_for(K, 8) for recompute in modes or [*RECOMPUTE, "sqrt"]
    ]
    ranks, _ = compare({"K": K, "M": 8})
    assert_can_be_read(ranks.trace)
    assert ranks.trace.unit == "seconds" and 0 < ranks.trace.makespan < 60
    return compare_all(rows)


def clipped():
    """The norm of all gradients, tied W once, and a step that is clipped by it; LARS."""
    K = world().size
    for split in ({"K": K, "M": 8}, {"schedule": "data-parallel", "D": K, "M": K}):
        _, found = compare(split | {"ties": True, "optimizer": "lars", "clip": 0.01})
        assert all(norm > 0.01 for name, norm in found.items() if name.startswith("norm of"))


def copies():
    """Copies of the network, with all-reduces and updates in the order or without; buckets; streams."""
    K = world().size
    rows = [
        {"schedule": name, "D": D, "K": build(name, K // D, 4).n_stages, "M": 4 * D, "buckets": buckets,
         "updates": updates, "optimizer": "momentum"}
        for name, D in [("gpipe", K), ("gpipe", K // 2), ("zb-v", K // 2)]
        for buckets in (None, "layer") for updates in ("step", "order")
    ]
    of_copies = {"schedule": "data-parallel", "D": K, "M": 2 * K}
    rows += [
        of_copies | {"all_reduce": algorithm} for algorithm in mp.collectives.ALL_REDUCES
        if algorithm != "halving" or K in (2, 4)
    ]
    rows += [of_copies | {"buckets": 64, "optimizer": "adam", "ties": True}]
    stream = {"how": "train", "updates": "order", "n_updates": 6, "K": K}
    rows += [
        stream | {"schedule": name, "M": per_update(name, K)} for name in names_having(flush=False)
    ]
    rows += [{"K": K, "M": 4, "grain": 5, "optimizer": "adam"}]
    return compare_all(rows)


def zero():
    """Copies that each update, or have, a part of the parameters; what they remember goes on on one rank.

    Some put the statistics of batch norm together.
    """
    K = world().size
    rows = [
        {"schedule": "1f1b", "D": D, "K": K // D, "M": 3 * D, "zero": level, "updates": "order",
         "optimizer": optimizer, "sync_batch_norm": sync}
        for D in range(2, K + 1) if K % D == 0 for level in (1, 2, 3)
        for optimizer, sync in (("momentum", False), ("adam", True))
    ]
    of_copies = {"schedule": "data-parallel", "D": K, "M": 2 * K, "updates": "order", "optimizer": "adam"}
    rows += [of_copies | {"zero": level, "buckets": 64} for level in (2, 3)]
    rows += [of_copies | {"sync_batch_norm": True} | more for more in ({"zero": 1}, {"updates": "step"})]
    return compare_all(rows)


def shards():
    """Layers in parts, alone and with copies and stages: every number of ranks along each axis.

    Buckets, and updates of parts in the order.
    """
    K = world().size
    return compare_all([
        {"D": D, "T": T, "K": K // (D * T), "M": 4 * D, "optimizer": "adam"} | more
        for D in range(1, K + 1) for T in range(1, K + 1) if K % (D * T) == 0
        for more in (
            {}, {"place": "pp-dp-tp", "buckets": "layer"}, {"updates": "order", "zero": 1, "ties": True},
        )
    ])


def synchronous(name):
    """Another check where MPI stores no message: a send lasts until it is received."""
    kind = type(world().comm)
    with patch.object(kind, "isend", kind.issend):
        return globals()[name]()


def in_pieces(name):
    """Another check where each array is sent by itself, however small it is, and MPI stores none of them."""
    from mpi4py.util import pkl5  # not everywhere where this file is collected

    usual, pkl5.pickle.THRESHOLD = pkl5.pickle.THRESHOLD, 0
    try:
        return synchronous(name)
    finally:
        pkl5.pickle.THRESHOLD = usual


def fractions():
    """In fractions, ranks have the gradients of one device on the whole mini-batch."""
    layers = [mp.Linear(3, 2), mp.ReLU(), mp.Linear(2, 2)]
    layers = [layer.copy(rational) for layer in mp.Sequential(layers, LOSS).layers]
    X, Y = rational(np.arange(15).reshape(3, 5)) / 7, rational(np.arange(10).reshape(2, 5)) / 3
    for split in (dict(stages=2, microbatches=3), dict(replicas=2, zero=1)):
        full = mp.Sequential(layers, LOSS)
        pipe = mp.Parallel(layers, LOSS, **split, engine="mpi")
        if "zero" in split:
            half = Rational(1, 2)
            assert pipe.train([(X, Y)], mp.SGD(half)) == full.train([(X, Y)], mp.SGD(half))
        else:
            assert pipe.forward_backward(X, Y) == full.forward_backward(X, Y)
            assert_same(pipe.gradients, full.gradients)
        pipe.collect()
        assert_same([layer.W for layer in pipe.layers], [layer.W for layer in full.layers])


# Programs of any kind, files and the command


def requests():
    """Programs without any network: lanes, messages from anybody, values of all kinds, arrays overwritten."""
    got, rank = {}, world().rank

    def first():
        array = np.arange(12.0).reshape(3, 4)[:, ::2]  # not contiguous
        of = {"a": (1, None), (2, "b"): np.float32(2.5)}
        yield Send("value", [array, of, "text", True, 0.1, np.zeros((0, 3), ">i2")], to=1)
        array[:] = np.nan
        yield Send("go", None, to=1)
        found = []
        for _ in range(world().size - 1):
            found.append((yield Receive("hello", source=ANY)))
        got["any"] = sorted(found)

    def talk():
        yield Send("of the other lane", np.ones(2), to=0)

    def listen():
        got["lane"] = yield Receive("of the other lane", source=0)

    def second():
        yield Receive("go", source=0)
        got["value"] = yield Receive("value", source=0)
        yield Send("hello", 1, to=0)

    def other(number):
        yield Compute("work", sum, range(1000 * number))
        yield Send("hello", number, to=0)

    programs = [{"compute": first(), "communication": talk(), "more": listen()}, second()]
    programs += [other(number) for number in range(2, world().size)]
    Mpi(programs).run()
    with pytest.raises(UnreceivedError, match=f"has sent much to device {rank}, which has finished without"):
        Mpi([sends_only(number) for number in range(world().size)]).run()
    if rank == 0:
        assert got["any"] == [(number, number) for number in range(1, world().size)]
        assert np.array_equal(got["lane"], [1, 1])
    if rank == 1:
        array, of, text, true, number, empty = got["value"]
        assert np.array_equal(array, [[0, 2], [4, 6], [8, 10]])
        assert (text, true, number) == ("text", True, 0.1)
        assert list(of) == ["a", (2, "b")] and of["a"] == (1, None) and type(of[2, "b"]) is np.float32
        assert empty.shape == (0, 3) and empty.dtype == np.dtype(">i2")


def sends_only(rank):
    """More than MPI stores, to the next rank, which never asks for it."""
    yield Send("much", np.ones(10**6), to=(rank + 1) % world().size)


def checkpoints():
    """K ranks in a pipeline save; as many copies go on, and save; `Sequential` on one rank goes on."""
    K, folder = world().size, tempfile.mkdtemp()
    path = Path(world().broadcast(folder, 0, "the folder")) / "net.npz"

    def train(model, optimizer, steps):
        for t in steps:
            model.forward_backward(*mini_batch(13 + t))
            model.step(optimizer)

    whole, optimizer = mp.Pipeline(LAYERS, LOSS, 1, 4, dtype=np.float32), mp.Adam(0.01)
    train(whole, optimizer, range(6))
    first, again = (pair(K, 4, "1f1b")[1] for _ in "12")
    resumed, of_rank = mp.Adam(0.01), mp.Adam(0.01)
    train(first, resumed, range(2))
    mp.save(path, first, resumed)
    mp.load(path, again, of_rank)
    again.forward_backward(*mini_batch(15))
    again.step(of_rank)  # from now on, each rank remembers what it needs for its own layers
    assert {index for index, _, _ in of_rank.memory} <= set(again._ranks.layers_here())
    split, weights_of_1 = dict(replicas=K, microbatches=4), dict(seed=1, dtype=np.float32)
    second = mp.Parallel(LAYERS, LOSS, **split, engine="mpi", **weights_of_1)
    resumed = mp.Adam(0.01)
    mp.load(path, second, resumed)
    train(second, resumed, range(2, 4))
    mp.save(path, second, resumed)
    last = mp.Parallel(LAYERS, LOSS, microbatches=4, seed=2, dtype=np.float32)
    resumed = mp.Adam(0.01)
    mp.load(path, last, resumed)
    train(last, resumed, range(4, 6))
    assert_same(weights(whole), weights(last))
    assert_same([optimizer.memory[key] for key in sorted(optimizer.memory)],
                [resumed.memory[key] for key in sorted(resumed.memory)])
    return [path.name for path in path.parent.iterdir()]


def command(*arguments):
    """What `--engine mpi` prints while it trains a small network and compares it with the cluster."""
    picture = Path(tempfile.mkdtemp()) / "measured.png"
    with redirect_stdout(StringIO()) as printed:
        status = main(["--engine", "mpi", "--size", "16", "--epochs", "1", "-M", "4", *arguments,
                       "--output", str(picture)])
    assert status == 0
    assert world().rank > 0 or picture.stat().st_size > 10_000
    return printed.getvalue()


# Ranks that differ: an error on all of them, before anything moves

DATA = mini_batch(37)


def by_rank(usual, last):
    """What the last rank has, and what all others have."""
    return last if world().rank == world().size - 1 else usual


def pipeline(layers=UNTIED, loss=LOSS, microbatches=4, **options):
    return mp.Pipeline(layers, loss, world().size, microbatches, engine="mpi", **options)


def replicas(**options):
    return mp.DataParallel(UNTIED, LOSS, world().size, engine="mpi", **options)


def steps(net, optimizer, clip=None, n=1):
    for _ in range(n):
        net.forward_backward(*DATA)
        net.step(optimizer, clip)
    return net, optimizer


def changed(change, again=steps):
    """After two steps, the last rank changes something by itself."""
    net, optimizer = steps(replicas(), mp.SGD(0.1, momentum=0.5), n=2)
    by_rank(lambda *_: None, change)(net, optimizer)
    again(net, optimizer)


def calls(usual, last):
    net, _ = steps(pipeline(), mp.SGD(0.1))
    by_rank(usual, last)(net)


def file(seed):
    path = Path(tempfile.mkdtemp(), "net.npz")
    mp.save(path, mp.Sequential(UNTIED, LOSS, seed=seed))
    return path


def versions(version):
    with patch.object(ranks, "__version__", version):
        pipeline()


def with_other(array):
    return [*UNTIED[:-1], mp.Linear(8, 4, W=np.full((4, 8), array))]


DIFFERENCES = {
    "network": lambda: [
        ("versions: minipipe ", lambda: versions(by_rank("0.2", "0.1"))),
        ("layers: ", lambda: pipeline([*UNTIED, by_rank(mp.Tanh(), mp.ReLU())])),
        ("parameters: run", lambda: pipeline(with_other(by_rank(1.0, 2.0)))),
        ("loss: ", lambda: pipeline(loss=by_rank(LOSS, mp.SoftmaxCrossEntropy()))),
        ("seed: 0 on rank 0, 1 on rank", lambda: pipeline(seed=by_rank(0, 1))),
        ("dtype: ", lambda: pipeline(dtype=by_rank("float64", "float32"))),
        ("microbatches: 4 on rank 0, 5 on rank", lambda: pipeline(microbatches=by_rank(4, 5))),
        ("schedule: ", lambda: pipeline(schedule=by_rank("1f1b", "gpipe"))),
        ("zero: 1 on rank 0, 2 on rank", lambda: replicas(zero=by_rank(1, 2))),
        ("sums: ", lambda: replicas(sums=mp.Sums(by_rank("tree", "running")))),
        ("network: network ", lambda: by_rank(*(pipeline(), pipeline())).forward_backward(*DATA)),
    ],
    "training": lambda: [
        ("mini-batches: run", lambda: pipeline().forward_backward(DATA[0], DATA[1] + by_rank(0, 1))),
        ("mini-batches: run", lambda: pipeline().train(
            [DATA, mini_batch(36)][::by_rank(1, -1)], mp.SGD(0.1))),
        ("mini-batches: run", lambda: mp.fit(
            replicas(), *DATA, mp.SGD(0.1), 1, 12, seed=by_rank(0, 1), report=None)),
        ("optimizer: SGD(0.1) after 0 updates on rank 0, Adam(", lambda: steps(
            pipeline(), by_rank(mp.SGD(0.1), mp.Adam(0.1)))),
        ("optimizer: SGD(0.1) after 0 updates on rank 0, SGD(0.1, momentum=0.5)", lambda: steps(
            replicas(), mp.SGD(0.1, momentum=by_rank(0, 0.5)))),
        ("optimizer: AdamW(learning_rate=0.1, weight_decay=0.5)", lambda: replicas(zero=1).train(
            [DATA], mp.AdamW(0.1, weight_decay=by_rank(0.5, 0.25)))),
        ("optimizer: SGD(0.1)", lambda: pipeline(schedule="pipedream", microbatches=1).train(
            [DATA] * 4, mp.SGD(by_rank(0.1, 0.2)))),
        ("optimizer: SGD(0.1) after 0 updates on rank 0, SGD(0.5)", lambda: mp.fit(
            pipeline(), *DATA, mp.SGD(0.1), 1, 37, report=None, learning_rate=lambda t: by_rank(0.1, 0.5))),
        ("clip: None on rank 0, 0.1 on rank", lambda: steps(pipeline(), mp.SGD(0.1), by_rank(None, 0.1))),
        ("clip: 0.2 on rank 0, 0.1 on rank", lambda: steps(replicas(), mp.SGD(0.1), by_rank(0.2, 0.1))),
    ],
    "program": lambda: [
        ("arrays of the state: run", lambda: mp.load(file(by_rank(0, 1)), pipeline())),
        ("optimizer: SGD(0.1, momentum=0.5) after 2 updates on rank 0, SGD(0.05", lambda: changed(
            lambda _, optimizer: setattr(optimizer, "learning_rate", 0.05))),
        ("assigned arrays: none on rank 0, 0/W on rank", lambda: changed(
            lambda net, _: setattr(net.layers[0], "W", 2 * net.layers[0].W))),
        ("parameters or optimizer state of stage 0: run", lambda: changed(
            lambda net, _: np.negative(net.layers[0].W, out=net.layers[0].W),
            lambda net, optimizer: net.train([DATA], optimizer))),
        ("parameters or optimizer state of stage 0: run", lambda: changed(
            lambda _, optimizer: setattr(optimizer, "memory", {
                key: [-array for array in arrays] for key, arrays in optimizer.memory.items()}))),
        ("number of the step: 2 on rank 0, 7 on rank", lambda: changed(
            lambda net, _: setattr(net, "n_steps", 7))),
        (": collecting the parameters of network", lambda: calls(
            lambda net: net.gradients, lambda net: net.predict(DATA[0]))),
        (": the trace", lambda: calls(
            lambda net: net.trace, lambda net: net.forward_backward(*DATA))),
        (": a step of network", lambda: calls(
            lambda net: net.forward_backward(*DATA), lambda net: net.step(mp.SGD(0.1)))),
        (": loading the state of network", lambda: calls(
            lambda net: net.state(), lambda net: mp.load(file(0), net))),
    ],
}


def differences(of):
    """One thing is another one on the last rank, which all refuse; return how many such things there are."""
    rows = DIFFERENCES[of]()
    for words, call in rows:
        try:
            found = f"nothing, but returns {call()!r}"
        except (ValueError, RuntimeError) as error:
            found = str(error)
        assert all(words in sentence for sentence in world().gathered(found, "the refusals")), (words, found)
    return len(rows)


class Fails(mp.Layer):
    """A layer that fails on the last rank in a forward, or on the first one in its last backward of a run."""

    on_last, on_first, n_backwards = False, False, 0

    def forward(self, A_prev):
        if Fails.on_last and world().rank == world().size - 1:
            raise KeyError("a failure of one rank")
        return A_prev

    def backward(self, dZ):
        Fails.n_backwards += 1
        if Fails.n_backwards == Fails.on_first and world().rank == 0:
            sleep(0.1)  # the other ranks are through meanwhile
            raise KeyError("a failure of one rank")
        return dZ, None, None


def failed_runs():
    """What one rank raises in a run, all raise; then all go on, and leave out what is still on its way."""
    K, layers = world().size, [LAYERS[0], Fails(), *LAYERS[1:]]
    for options, n in (({"stages": K}, 2 * K), ({"replicas": K}, 2)):
        nets = [mp.Parallel(layers, LOSS, **options, microbatches=2 * K, engine=engine)
                for engine in ("cluster", "mpi")]
        failures = {"on_last": True, "on_first": n} if "replicas" in options else {"on_first": n}
        for name, value in [*failures.items()] * 2:
            with (patch.multiple(Fails, **{name: value}, n_backwards=0),
                  pytest.raises(KeyError, match="a failure of one rank")):
                nets[1].forward_backward(*mini_batch(38))
        for net, optimizer in zip(nets, (mp.Adam(0.1), mp.Adam(0.1))):
            net.train([mini_batch(37)] * 2, optimizer)
        assert_same(nets[1].gradients, nets[0].gradients)
        assert_same(weights(nets[1]), weights(nets[0]))


# What is refused on every rank, before any of them has begun


def deadlocked():
    """A schedule whose devices would wait for each other."""
    order = mp.Schedule.from_text(["F0 F1 B1 B0", "B0 F0 F1 B1"])
    mp.Pipeline(LAYERS, LOSS, 2, 2, schedule=order, engine="mpi")


def other_data():
    """Ranks with other mini-batches."""
    pair(world().size, 4)[1].forward_backward(*mini_batch(37 + world().rank // 2))


def in_ticks():
    """What only the cluster knows."""
    pair(world().size, 4)[1].start(*mini_batch(37))


def too_few():
    """More devices than ranks."""
    pair(world().size + 1, 4)


def silent():
    """Two devices that wait for each other, for longer than they may."""
    def waits(source):
        yield Receive("news", source)

    with patch.dict(os.environ, {PATIENCE_VARIABLE: "0.5"}):
        Mpi([waits(1), waits(0)]).run()


def refusal(name):
    """The sentence of each rank, in their order, with which it refuses what `name` does."""
    try:
        globals()[name]()
    except (ValueError, RuntimeError, TimeoutError) as error:
        return world().gathered(str(error), "the refusals")
    raise AssertionError(f"{name} is not refused on rank {world().rank}")


if __name__ == "__main__":
    for check in sys.argv[1:]:
        name, *arguments = check.split()
        answer = globals()[name](*arguments)
        if world().rank == 0:
            print(json.dumps([check, answer]), flush=True)
