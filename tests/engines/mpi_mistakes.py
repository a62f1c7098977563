"""Jobs that a mistake ends: `mpiexec -n N python mpi_mistakes.py NAME`, a function here, and arguments."""

import os
import signal
import sys
from functools import partial
from time import sleep

import numpy as np
from engines import on_engines
from engines.on_engines import mini_batch, network

import minipipe as mp
from minipipe.cluster import Compute, Receive, Send
from minipipe.engines import Mpi, world

pair = partial(on_engines.pair, "mpi", layers=network())


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


def raises_key_error():
    raise KeyError("a mistake of one rank")


class Fails(mp.Layer):
    def forward(self, A_prev):
        return raises_key_error()

    def backward(self, dZ):
        return dZ, None, None


def script(what):
    """Rank 1 does something that the others do not, in a program like that of any user."""
    alone = {
        "raises": raises_key_error, "exits": sys.exit, "fails in a layer": lambda: None,
        "is stopped": lambda: os.kill(os.getpid(), signal.SIGINT),
    }[what]
    layers = [*network(), Fails() if what == "fails in a layer" else mp.Tanh()]
    pipe = mp.Pipeline(layers, mp.MeanSquaredError(), 2, 4, engine="mpi")
    if world().rank == 1:
        alone()
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
        print("it begins", flush=True)
        yield Compute("endless work", sleep, 1000)

    with world().job():
        Mpi([waits(), works()]).run()


def forgetful():
    """Rank 1 does not ask for the gradients."""
    pipe = pair(world().size, 4)[1]
    with world().job():
        pipe.forward_backward(*mini_batch(37))
        if world().rank == 0:
            pipe.gradients  # noqa: B018
        else:
            sleep(1000)


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


if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    globals()[name](*arguments)
