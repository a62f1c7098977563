"""Checks on ranks: J, gradients, parameters and traces have the bits of the cluster, see `mpi_checks.py`."""

from dataclasses import replace
from functools import partial
from unittest.mock import patch

import numpy as np
from compared import assert_same
from asynchronous.by_the_rule import per_update
from engines import on_engines
from engines.on_engines import LOSS, assert_can_be_read, mini_batch, network, work
from settings import filled, memories_of, run

import minipipe as mp
from minipipe.engines import Mpi, mpi, world
from minipipe.engines.threads import OVERHEAD
from minipipe.layers import every_layer
from minipipe.order import RECOMPUTE
from minipipe.parallel import run as pipeline_run
from minipipe.schedules import build, names_for, names_having

LAYERS = network(tie="W")
pair = partial(on_engines.pair, "mpi", layers=LAYERS)


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


def servers():
    """Parameter servers, and rounds of clients; where arrival decides, the run is repeated on the cluster."""
    K, done = world().size, 0
    batches = [tuple(part.astype(np.float64) for part in mini_batch(13 + t)) for t in range(6)]
    layers = [mp.Linear(6, 8), mp.BatchNorm(8), mp.Tanh(), mp.Linear(8, 4)]
    places = [(n_servers, K - n_servers, False) for n_servers in range(1, K)] + [(K, K, True)]
    for n_servers, n_workers, on_workers in places:
        for mode in ("sync", "async"):
            of_mode = mp.Servers(n_servers, on_workers, mode)
            nets = [mp.ParameterServer(layers, LOSS, n_workers, of_mode, on=mp.Machine(engine))
                    for engine in ("mpi", "cluster")]
            first, second = (mp.SGD(0.1, momentum=0.5) for _ in nets)
            for part in (batches[:2], batches[2:]):
                costs = nets[0].train(part, first, keep_every=1)
                assert nets[1].train(part, second, keep_every=1, arrivals=nets[0].arrivals) == costs
                assert nets[0].updates == nets[1].updates
                assert_same(*[[net.kept[t] for t in range(len(part))] for net in nets])
                assert {str(s.label) for s in nets[0].trace.spans} - {OVERHEAD.text} == {
                    str(s.label) for s in nets[1].trace.spans}
            assert_same(*map(weights, nets))
            assert_same(dict(nets[0].collect(first).memory), dict(second.memory))
            done += 1
    clients = [tuple(part.astype(np.float64) for part in mini_batch(3 + k)) for k in range(2 * K - 2)]
    plain = mp.Rounds(fraction=0.5, n_epochs=2, batch_size=4)
    hidden = replace(plain, drop_out=0.2, secure=K > 2)
    for rounds, outer in ((plain, None), (hidden, None), (plain, mp.SGD(0.7, momentum=0.9))):
        nets = [mp.FederatedAveraging(layers, LOSS, clients, rounds, outer, on=mp.Machine(engine))
                for engine in ("cluster", "mpi")]
        made = [[one._replace(ticks=0) for one in net.train(3, mp.SGD(0.1))] for net in nets]
        assert made[0] == made[1]
        assert_same(*map(weights, nets))
        done += 1
    return done


def synchronous(name):
    """Another check where MPI stores no message."""
    with patch.object(pipeline_run, "Mpi", partial(Mpi, synchronous=True)):
        return globals()[name]()


def in_pieces(name):
    """Another check where each array that need not be copied is sent by itself, however small it is, behind a
    message that says what it is; MPI stores none of them.
    """
    with patch.object(mpi, "LARGE_MESSAGE", 0):
        return synchronous(name)
