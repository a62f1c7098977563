"""What `test_mpi.py` starts on several ranks: `mpiexec -n N python mpi_runs.py NAME`."""

import os
import signal
import sys
from functools import partial
from pathlib import Path
from time import perf_counter, sleep

import numpy as np
from engines import on_engines
from engines.on_engines import LOSS, mini_batch, network, work

import minipipe as mp
from minipipe.cluster import ANY, Compute, Receive, Send
from minipipe.engines import Mpi, mpi, world
from minipipe.engines.clocks import Clock
from minipipe.engines.overhead import OVERHEAD
from minipipe.exact import rational
from minipipe.functions import leaves
from minipipe.layers import every_layer
from minipipe.pipeline import run as pipeline_run
from minipipe.schedules import (
    ASYNCHRONOUS, RECOMPUTE, build, in_copies, names_for, with_all_reduce, with_updates, with_zero,
)

LAYERS, UNTIED = network(tie="W"), network()
pair = partial(on_engines.pair, "mpi", layers=LAYERS)


def equal(ours, theirs):
    ours, theirs = leaves(ours), leaves(theirs)
    assert len(ours) == len(theirs) and all(map(np.array_equal, ours, theirs)), (ours, theirs)


def weights(pipe):
    pipe.collect()
    return [getattr(part, name) for part in every_layer(pipe.layers) for name in part.arrays]


def assert_can_be_read(trace):
    """Work and idle time tile each lane; the explanation tiles the idle time, the critical path the run."""
    for device, lane in trace.lanes:
        pieces = [(s.start, s.end) for s in trace.spans_of(device, lane) if s.end > s.start]
        pieces += [(i.start, i.end) for i in trace.idle if (i.device, i.lane) == (device, lane)]
        ends = [0, *(end for _, end in sorted(pieces))]
        assert [start for start, _ in sorted(pieces)] == ends[:-1]
        assert not pieces or ends[-1] == trace.makespan
    for idle, parts in trace.explain().parts.items():
        assert [idle.start, *(part.end for part in parts)] == [*(part.start for part in parts), idle.end]
    steps = trace.critical_path()
    assert [step.start for step in steps] == [0, *(step.end for step in steps[:-1])]
    assert steps[-1].end == trace.makespan
    assert all(m.sent <= m.arrived <= m.received for m in trace.messages)


def compare(simulated, ranks, optimizer=None, batches=None):
    """J, gradients, trace and what an update does to all parameters are those of the cluster."""
    if batches is None:
        X, Y = mini_batch(37)
        for _ in range(2):  # the second time with moments, and with statistics that have moved
            costs = [pipe.forward_backward(X, Y) for pipe in (simulated, ranks)]
            equal(*costs)
            equal(simulated.gradients, ranks.gradients)
            for pipe, own in zip((simulated, ranks), optimizer):
                pipe.step(own)
    else:
        equal(*[pipe.train(batches) for pipe in (simulated, ranks)])
    equal(simulated.J, ranks.J)
    assert simulated.n_steps == ranks.n_steps
    assert work(simulated.trace) == work(ranks.trace)
    equal(weights(simulated), weights(ranks))


def schedules():
    """Every schedule with a name that fits, in every mode of recomputation."""
    K = world().size
    names = names_for(K, 8)
    for name in names:
        for recompute in [*RECOMPUTE, "sqrt"]:
            schedule = build(name, K, 8)
            compare(*pair(schedule.n_stages, 8, name, recompute=recompute), [mp.Adam(0.01), mp.Adam(0.01)])
    simulated, ranks = pair(K, 8, "1f1b")
    for pipe in (simulated, ranks):
        pipe.forward_backward(*mini_batch(19))
    assert_can_be_read(ranks.trace)
    assert ranks.trace.unit == "seconds" and 0 < ranks.trace.makespan < 60
    equal(*[pipe.predict(mini_batch(5)[0]) for pipe in (simulated, ranks)])
    return f"{len(names)} schedules"


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
        equal(simulated.gradient_norm(), ranks.gradient_norm())
        equal(weights(simulated), weights(ranks))


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
    for name in ASYNCHRONOUS:
        M = K if name == "pipedream-2bw" else 1
        batches = [mini_batch(m) for m in (12, 12, 13, 11, 12, 12)]
        compare(*pair(K, M, name, layers=UNTIED, optimizer=mp.SGD(0.01)), batches=batches)
        done += 1
    pipes = [mp.Pipeline(UNTIED, LOSS, K, 4, "1f1b", grain=5, dtype=np.float32, engine=engine)
             for engine in ("cluster", "mpi")]
    compare(*pipes, [mp.Adam(0.01), mp.Adam(0.01)])
    return f"{done + 2} runs"


def zero():
    """Copies that each update, or have, a part of the parameters; what they remember goes on on one rank."""
    K, done = world().size, 0
    for n_copies in [n for n in range(2, K + 1) if K % n == 0]:
        for level in (1, 2, 3):
            order = with_zero(in_copies(build("1f1b", K // n_copies, 3), n_copies), level)
            for optimizer in (mp.SGD(0.125, momentum=0.5), mp.Adam(0.01)):
                pipes = pair(order.n_stages, 3 * n_copies, order, layers=UNTIED, optimizer=optimizer)
                compare(*pipes, batches=[mini_batch(37), mini_batch(41)])
                equal(*[remembered(pipe, optimizer) for pipe in pipes])
                done += 1
    for options in (dict(zero=3, buckets=100), dict(zero=2, buckets=100), dict(sync_batch_norm=True)):
        pipes = [mp.DataParallel(UNTIED, LOSS, K, 2 * K, dtype=np.float32, optimizer=mp.Adam(0.01),
                                 engine=engine, **options) for engine in ("cluster", "mpi")]
        compare(*pipes, batches=[mini_batch(37), mini_batch(41)])
        done += 1
    return f"{done} runs"


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
            equal(*[pipe.predict(mini_batch(5)[0]) for pipe in pipes])
            done += 1
    return f"{done} runs"


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
                equal(*[[net.kept[t] for t in range(len(part))] for net in nets])
                assert {str(s.label) for s in nets[0].trace.spans} - {OVERHEAD.text} == {
                    str(s.label) for s in nets[1].trace.spans}
            equal(*map(weights, nets))
            done += 1
    clients = [tuple(part.astype(np.float64) for part in mini_batch(3 + k)) for k in range(2 * K - 2)]
    for options in ({}, {"secure": K > 2, "drop_out": 0.2}, {"outer": mp.SGD(0.7, momentum=0.9)}):
        nets = [mp.FederatedAveraging(layers, LOSS, clients, mp.SGD(0.1), 0.5, 2, 4, engine=engine, **options)
                for engine in ("cluster", "mpi")]
        rounds = [[done._replace(ticks=0) for done in net.train(3)] for net in nets]
        assert rounds[0] == rounds[1]
        equal(*map(weights, nets))
        done += 1
    return f"{done} runs"


def synchronous(name):
    """The same where MPI stores no message."""
    pipeline_run.Mpi = partial(Mpi, synchronous=True)
    return RUNS[name]()


def in_pieces(name):
    """The same where each array that need not be copied is sent by itself, however small it is."""
    mpi.LARGE = 0
    return synchronous(name)


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
        yield Send("nobody receives that", np.ones(10), to=1)

    programs = [{"compute": first(), "communication": talk(), "more": listen()}, second()]
    programs += [other(number) for number in range(2, world().size)]
    Mpi(programs).run()
    Mpi([sends_only(number) for number in range(world().size)], synchronous=True).run()
    if rank == 0:
        assert got["any"] == [(number, number) for number in range(1, world().size)]
        assert np.array_equal(got["lane"], [1, 1])
    if rank == 1:
        array, of, text, true, number, empty = got["value"]
        assert np.array_equal(array, [[0, 2], [4, 6], [8, 10]])
        assert (text, true, number) == ("text", True, 0.1)
        assert list(of) == ["a", (2, "b")] and of["a"] == (1, None) and type(of[2, "b"]) is np.float32
        assert empty.shape == (0, 3) and empty.dtype == np.dtype(">i2")
    return "done"


def sends_only(rank):
    """More than MPI stores, to the next rank, which never asks for it."""
    yield Send("much", np.ones(10**6), to=(rank + 1) % world().size)


def checkpoints(folder):
    """K ranks in a pipeline save; as many copies go on, and save; `Sequential` on one rank goes on."""
    K, path = world().size, Path(folder) / "net.npz"

    def train(model, optimizer, steps):
        for t in steps:
            model.forward_backward(*mini_batch(13 + t))
            model.step(optimizer)

    whole, optimizer = mp.Pipeline(LAYERS, LOSS, 1, 4, dtype=np.float32), mp.Adam(0.01)
    train(whole, optimizer, range(6))
    first, resumed = mp.Pipeline(LAYERS, LOSS, K, 4, "1f1b", dtype=np.float32, engine="mpi"), mp.Adam(0.01)
    train(first, resumed, range(2))
    mp.save(path, first, resumed)
    again, of_rank = mp.Pipeline(LAYERS, LOSS, K, 4, "1f1b", dtype=np.float32, engine="mpi"), mp.Adam(0.01)
    mp.load(path, again, of_rank)
    again.forward_backward(*mini_batch(15))
    again.step(of_rank)  # from now on, each rank remembers what it needs for its own layers
    assert {index for index, _, _ in of_rank.memory} <= set(again._layers_of_stages()[world().rank])
    second = mp.DataParallel(LAYERS, LOSS, K, 4, dtype=np.float32, seed=1, engine="mpi")
    resumed = mp.Adam(0.01)
    mp.load(path, second, resumed)
    train(second, resumed, range(2, 4))
    mp.save(path, second, resumed)
    last, resumed = mp.Pipeline(LAYERS, LOSS, 1, 4, dtype=np.float32, seed=2), mp.Adam(0.01)
    mp.load(path, last, resumed)
    train(last, resumed, range(4, 6))
    equal(weights(whole), weights(last))
    equal([optimizer.memory[key] for key in sorted(optimizer.memory)],
          [resumed.memory[key] for key in sorted(resumed.memory)])
    return "done"


def clocks():
    """Ranks with clocks that are ahead or behind, and run too fast or too slow, agree on the time."""
    rank = world().rank
    lead, drift = [0.0, 1234.5, -77.0, 1e5][rank], [0, 3e-3, -5e-3, 1e-2][rank]
    clock = Clock(world().comm, lambda: lead + (1 + drift) * perf_counter())
    clock.compare(begin=True)
    sleep(0.3)
    inside = clock.read(), perf_counter()
    sleep(0.3)
    clock.compare()
    error = clock.common(inside[0]) - inside[1]  # of one computer, whose ranks share perf_counter
    assert abs(error) < 2e-4, error
    same = Clock(world().comm)
    same.compare()
    assert same.common(5.0) == 5.0
    return "done"


# What goes wrong


def broken(kind, which):
    """An error on one rank in the middle of a run."""
    pipe = pair(world().size, 4)[1]
    pipe.forward_backward(*mini_batch(37))
    if world().rank == int(which):
        stage = pipe.stages[world().rank]
        stage.backward = {
            "exception": lambda *_: 1 // 0, "killed": lambda *_: os.kill(os.getpid(), signal.SIGKILL),
            "bug": None,
        }[kind]
    with world().job():
        pipe.forward_backward(*mini_batch(37))


def everywhere():
    """The same error on all ranks."""
    with world().job():
        raise ValueError("everybody says this")


def endless():
    """A rank that computes for ever, and one that waits for it."""
    def waits():
        yield Receive("news", source=1)

    def works():
        yield Compute("endless work", sleep, 1000)

    with world().job():
        Mpi([waits(), works()]).run()


def silent():
    """Both wait, and nobody sends."""
    def waits(source):
        yield Receive("news", source)

    with world().job():
        Mpi([waits(1), waits(0)]).run()


def twice():
    """A message of one name is sent again before it is received."""
    def sends():
        yield Send("news", np.ones(3), to=1)
        yield Send("news", np.ones(3), to=1)
        yield Send("end", None, to=1)

    def receives():
        yield Receive("end", source=0)

    with world().job():
        Mpi([sends(), receives()]).run()


def split_with_updates():
    """The optimizers of parts on ranks."""
    with world().job():
        order = with_updates(build("gpipe", 1, 1))
        mp.Hybrid(UNTIED, LOSS, 1, world().size, 1, 1, order, optimizer=mp.SGD(0.1), engine="mpi")


def forgetful():
    """Rank 1 does not ask for the gradients."""
    pipe = pair(world().size, 4)[1]
    with world().job():
        pipe.forward_backward(*mini_batch(37))
        if world().rank == 0:
            pipe.gradients  # noqa: B018
        else:
            sleep(1000)


def other_data():
    """Ranks with other mini-batches."""
    pipe = pair(world().size, 4)[1]
    with world().job():
        pipe.forward_backward(*mini_batch(37 + world().rank // 2))


def deadlocked():
    """A schedule whose devices would wait for each other is refused before any of them starts."""
    with world().job():
        order = mp.Schedule.from_text(["F0 F1 B1 B0", "B0 F0 F1 B1"])
        mp.Pipeline(LAYERS, LOSS, 2, 2, order, engine="mpi")


def in_rational_numbers():
    """Which have no fixed size."""
    layers = [mp.Linear(1, 1, W=rational([[2]]), b=rational([[0]])) for _ in range(2)]
    with world().job():
        pipe = mp.Pipeline(layers, LOSS, 2, 1, engine="mpi")
        pipe.forward_backward(rational([[1, 2]]), rational([[1, 2]]))


def in_ticks():
    """What only the cluster knows."""
    pipe = pair(world().size, 4)[1]
    with world().job():
        pipe.start(*mini_batch(37))


def too_few():
    """More devices than ranks."""
    with world().job():
        pair(world().size + 1, 4)


RUNS = {"schedules": schedules, "copies": copies, "zero": zero}

if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    answer = globals()[name](*arguments)
    if world().rank == 0:
        print(answer)
