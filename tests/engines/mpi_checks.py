"""What `test_mpi.py` runs on ranks, one check after the other:

    mpiexec -n N python -m mpi4py mpi_checks.py CHECK "CHECK ARGUMENT" ...

A check is a function of this file or of `mpi_bits.py`. Rank 0 prints [check, what it has returned], as JSON.
"""

import json
import os
import sys
import tempfile
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from time import perf_counter, sleep
from unittest.mock import patch

import numpy as np
import pytest
from compared import assert_same, assert_within
from engines import mpi_bits
from engines.mpi_bits import LAYERS, pair, weights
from engines.on_engines import LOSS, mini_batch
from pairs.on_ranks import pairs  # noqa: F401 (a check)

import minipipe as mp
from minipipe.cli.main import main
from minipipe.cluster import ANY, Compute, Receive, Send, UnreceivedError
from minipipe.engines import Mpi, world
from minipipe.engines.gathering import Clock
from minipipe.engines.threads import PATIENCE_VARIABLE


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
    assert {index for index, _, _ in of_rank.memory} <= set(again._layers_of_stages()[world().rank])
    split, weights_of_1 = mp.Split(replicas=K, microbatches=4), mp.Weights(1, np.float32)
    second = mp.Parallel(LAYERS, LOSS, split, on=mp.Machine("mpi"), weights=weights_of_1)
    resumed = mp.Adam(0.01)
    mp.load(path, second, resumed)
    train(second, resumed, range(2, 4))
    mp.save(path, second, resumed)
    last = mp.Parallel(LAYERS, LOSS, mp.Split(microbatches=4), weights=mp.Weights(2, np.float32))
    resumed = mp.Adam(0.01)
    mp.load(path, last, resumed)
    train(last, resumed, range(4, 6))
    assert_same(weights(whole), weights(last))
    assert_same([optimizer.memory[key] for key in sorted(optimizer.memory)],
                [resumed.memory[key] for key in sorted(resumed.memory)])
    return [path.name for path in path.parent.iterdir()]


def clocks():
    """Ranks with clocks that are ahead or behind, and run too fast or too slow, agree on the time."""
    rank, seen = world().rank, []
    lead, drift = [0.0, 1234.5, -77.0, 1e5][rank], [0, 3e-3, -5e-3, 1e-2][rank]

    def read():
        seen.append(lead + (1 + drift) * perf_counter())
        return seen[-1]

    def shortest_round_trip():
        """A rank reads its clock before and after each; rank 0, whose clock counts, only in between."""
        trips = [(after - before) / (1 + drift) for before, after in zip(seen[::2], seen[1::2])]
        seen.clear()
        return min(trips) if rank else 0

    clock = Clock(world().comm, read)
    clock.compare(begin=True)
    trips = [shortest_round_trip()]
    sleep(0.3)
    before, inside, after = perf_counter(), clock.read(), perf_counter()
    seen.clear()
    sleep(0.3)
    clock.compare()
    trips.append(shortest_round_trip())
    # of one computer, whose ranks share perf_counter; clocks of 10^5 seconds and more round, some ten times
    bound = max(trips) / 2 + (after - before) + 10 * 2**-53 * (1e5 + 2 * after)
    assert_within(clock.common(inside), before, bound=bound, because="half a round trip is not known")
    same = Clock(world().comm)
    same.compare()
    assert same.common(5.0) == 5.0


def command(*arguments):
    """What the command `mpi` prints while it trains a small network and compares it with the cluster."""
    picture = Path(tempfile.mkdtemp()) / "measured.png"
    with redirect_stdout(StringIO()) as printed:
        status = main(["mpi", "--size", "16", "--epochs", "1", "--micro-batches", "4", *arguments,
                       "--output", str(picture)])
    assert status == 0
    assert world().rank > 0 or picture.stat().st_size > 10_000
    return printed.getvalue()


# What is refused on every rank, before any of them has begun


def deadlocked():
    """A schedule whose devices would wait for each other."""
    order = mp.Schedule.from_text(["F0 F1 B1 B0", "B0 F0 F1 B1"])
    mp.Pipeline(LAYERS, LOSS, 2, 2, order, on=mp.Machine("mpi"))


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
        answer = (vars(mpi_bits) | globals())[name](*arguments)
        if world().rank == 0:
            print(json.dumps([check, answer]), flush=True)
