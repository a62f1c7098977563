"""Checks on ranks: J, gradients, parameters and traces have the bits of the cluster, see `mpi_checks.py`."""

from functools import partial
from unittest.mock import patch

import numpy as np
from compared import assert_same
from asynchronous.by_the_rule import per_update
from engines import on_engines
from engines.on_engines import LOSS, assert_can_be_read, mini_batch, network, work

import minipipe as mp
from minipipe.engines import Mpi, mpi, world
from minipipe.engines.overhead import OVERHEAD
from minipipe.layers import every_layer
from minipipe.pipeline import run as pipeline_run
from minipipe.schedules import (
    RECOMPUTE, build, in_copies, names_for, names_having, with_all_reduce, with_updates, with_zero,
)

LAYERS, UNTIED = network(tie="W"), network()
pair = partial(on_engines.pair, "mpi", layers=LAYERS)


def weights(pipe):
    pipe.collect()
    return [getattr(part, name) for part in every_layer(pipe.layers) for name in part.arrays]


def compare(simulated, ranks, optimizer=None, batches=None):
    """J, gradients, trace and what an update does to all parameters are those of the cluster."""
    if batches is None:
        X, Y = mini_batch(37)
        for _ in range(2):  # the second time with moments, and with statistics that have moved
            costs = [pipe.forward_backward(X, Y) for pipe in (simulated, ranks)]
            assert_same(*costs)
            assert_same(simulated.gradients, ranks.gradients)
            for pipe, own in zip((simulated, ranks), optimizer):
                pipe.step(own)
    else:
        assert_same(*[pipe.train(batches) for pipe in (simulated, ranks)])
    assert_same(simulated.J, ranks.J)
    assert simulated.n_steps == ranks.n_steps
    assert work(simulated.trace) == work(ranks.trace)
    assert_same(weights(simulated), weights(ranks))


def schedules(*modes):
    """Every schedule with a name that fits, in these modes of recomputation, or in all."""
    K = world().size
    names = names_for(K, 8)
    for name in names:
        for recompute in modes or [*RECOMPUTE, "sqrt"]:
            schedule = build(name, K, 8)
            compare(*pair(schedule.n_stages, 8, name, recompute=recompute), [mp.Adam(0.01), mp.Adam(0.01)])
    simulated, ranks = pair(K, 8, "1f1b")
    for pipe in (simulated, ranks):
        pipe.forward_backward(*mini_batch(19))
    assert_can_be_read(ranks.trace)
    assert ranks.trace.unit == "seconds" and 0 < ranks.trace.makespan < 60
    assert_same(*[pipe.predict(mini_batch(5)[0]) for pipe in (simulated, ranks)])
    return len(names)


def clipped():
    """The norm of all gradients, tied W once, and a step that is clipped by it; LARS."""
    K = world().size
    copies = [mp.DataParallel(LAYERS, LOSS, K, dtype=np.float32, engine=engine)
              for engine in ("cluster", "mpi")]
    for pipes in (pair(K, 8, "1f1b"), copies):
        simulated, ranks = pipes
        for pipe in pipes:
            optimizer = mp.LARS(0.5)
            for _ in range(2):
                pipe.forward_backward(*mini_batch(37))
                assert pipe.gradient_norm() > 0.01
                pipe.step(optimizer, clip=0.01)
        assert_same(simulated.gradient_norm(), ranks.gradient_norm())
        assert_same(weights(simulated), weights(ranks))


def copies():
    """Copies of the network, with all-reduces and updates in the order or without; buckets; streams."""
    K, done = world().size, 0
    for name, n_copies in [("gpipe", K), ("gpipe", K // 2), ("zb-v", K // 2)]:
        for change in (lambda schedule: schedule, with_all_reduce, with_updates,
                       lambda schedule: with_updates(with_all_reduce(schedule))):
            schedule = change(in_copies(build(name, K // n_copies, 4), n_copies))
            has_U = "U" in schedule.kinds
            options = dict(optimizer=mp.SGD(0.125, momentum=0.5)) if has_U else {}
            pipes = pair(schedule.n_stages, 4 * n_copies, schedule, layers=UNTIED, **options)
            batches = [mini_batch(37), mini_batch(41)] if has_U else None
            compare(*pipes, [mp.SGD(0.125, momentum=0.5) for _ in pipes], batches)
            done += 1
    for algorithm in mp.collectives.ALL_REDUCES:
        if algorithm != "halving" or K in (2, 4):
            compare(*pair(1, 2 * K, in_copies(build("gpipe", 1, 2), K), all_reduce=algorithm),
                    [mp.SGD(0.125) for _ in range(2)])
            done += 1
    pipes = [mp.DataParallel(LAYERS, LOSS, K, buckets=100, dtype=np.float32, engine=engine)
             for engine in ("cluster", "mpi")]
    compare(*pipes, [mp.Adam(0.01), mp.Adam(0.01)])
    for name in names_having(flush=False):
        M = per_update(name, K)
        batches = [mini_batch(m) for m in (12, 12, 13, 11, 12, 12)]
        compare(*pair(K, M, name, layers=UNTIED, optimizer=mp.SGD(0.01)), batches=batches)
        done += 1
    pipes = [mp.Pipeline(UNTIED, LOSS, K, 4, "1f1b", grain=5, dtype=np.float32, engine=engine)
             for engine in ("cluster", "mpi")]
    compare(*pipes, [mp.Adam(0.01), mp.Adam(0.01)])
    return done + 2


def zero():
    """Copies that each update, or have, a part of the parameters; what they remember goes on on one rank."""
    K, done = world().size, 0
    for n_copies in [n for n in range(2, K + 1) if K % n == 0]:
        for level in (1, 2, 3):
            order = with_zero(in_copies(build("1f1b", K // n_copies, 3), n_copies), level)
            for optimizer in (mp.SGD(0.125, momentum=0.5), mp.Adam(0.01)):
                pipes = pair(order.n_stages, 3 * n_copies, order, layers=UNTIED, optimizer=optimizer)
                compare(*pipes, batches=[mini_batch(37), mini_batch(41)])
                assert_same(*[remembered(pipe, optimizer) for pipe in pipes])
                done += 1
    for options in (dict(zero=3, buckets=100), dict(zero=2, buckets=100), dict(sync_batch_norm=True)):
        pipes = [mp.DataParallel(UNTIED, LOSS, K, 2 * K, dtype=np.float32, optimizer=mp.Adam(0.01),
                                 engine=engine, **options) for engine in ("cluster", "mpi")]
        compare(*pipes, batches=[mini_batch(37), mini_batch(41)])
        done += 1
    return done


def remembered(pipe, optimizer):
    """What optimizers keep of all parameters, by stage."""
    memories = [of_stage.memory for of_stage, _ in pipe.collect(optimizer)]
    return [[memory[key] for key in sorted(memory)] for memory in memories]


def shards():
    """Layers in parts, alone and with copies and stages: every number of ranks along each axis."""
    K, done = world().size, 0
    layers = [mp.Linear(6, 8), mp.BatchNorm(8), mp.ReLU(), mp.Linear(8, 8), mp.Dropout(0.5), mp.Tanh(),
              mp.Linear(8, 4)]
    sizes = [(D, T, K // (D * T)) for D in range(1, K + 1) for T in range(1, K + 1) if K % (D * T) == 0]
    for D, T, n_stages in sizes:
        for order in ("tp-dp-pp", "pp-dp-tp"):
            pipes = [mp.Hybrid(layers, LOSS, D, T, n_stages, 4, order=order, dtype=np.float32, engine=engine)
                     for engine in ("cluster", "mpi")]
            compare(*pipes, [mp.Adam(0.01), mp.Adam(0.01)])
            assert_same(*[pipe.predict(mini_batch(5)[0]) for pipe in pipes])
            done += 1
    return done


def servers():
    """Parameter servers, and rounds of clients; where arrival decides, the run is repeated on the cluster."""
    K, done = world().size, 0
    batches = [tuple(part.astype(np.float64) for part in mini_batch(13 + t)) for t in range(6)]
    layers = [mp.Linear(6, 8), mp.BatchNorm(8), mp.Tanh(), mp.Linear(8, 4)]
    places = [(n_servers, K - n_servers, False) for n_servers in range(1, K)] + [(K, K, True)]
    for n_servers, n_workers, on_workers in places:
        for mode in ("sync", "async"):
            nets = [mp.ParameterServer(layers, LOSS, n_workers, mp.SGD(0.1, momentum=0.5), mode, n_servers,
                                       on_workers=on_workers, engine=engine) for engine in ("mpi", "cluster")]
            for part in (batches[:2], batches[2:]):
                costs = nets[0].train(part, keep_every=1)
                assert nets[1].train(part, keep_every=1, arrivals=nets[0].arrivals) == costs
                assert nets[0].updates == nets[1].updates
                assert_same(*[[net.kept[t] for t in range(len(part))] for net in nets])
                assert {str(s.label) for s in nets[0].trace.spans} - {OVERHEAD.text} == {
                    str(s.label) for s in nets[1].trace.spans}
            assert_same(*map(weights, nets))
            done += 1
    clients = [tuple(part.astype(np.float64) for part in mini_batch(3 + k)) for k in range(2 * K - 2)]
    for options in ({}, {"secure": K > 2, "drop_out": 0.2}, {"outer": mp.SGD(0.7, momentum=0.9)}):
        nets = [mp.FederatedAveraging(layers, LOSS, clients, mp.SGD(0.1), 0.5, 2, 4, engine=engine, **options)
                for engine in ("cluster", "mpi")]
        rounds = [[done._replace(ticks=0) for done in net.train(3)] for net in nets]
        assert rounds[0] == rounds[1]
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
    with patch.object(mpi, "LARGE", 0):
        return synchronous(name)
