"""`minipipe mpi`: the main job on MPI ranks, with a measured timeline."""

import argparse
import os
import sys
import time
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO

from ..engines import world
from . import on_hardware

PURPOSE = "train on processes that mpiexec starts, and set the measured timeline beside the simulated one"
EPILOG = """examples:
  mpiexec -n 4 python3 -m minipipe mpi
  mpiexec -n 2 python3 -m minipipe mpi --size 1024 --batch-size 512
  mpiexec -n 4 python3 -m minipipe mpi gpipe --replicas 2
It needs mpi4py and an MPI: in a virtual environment (a folder of pip's --target cannot load one),
pip install "minipipe[mpi]", or pip install -e ".[mpi]" in a clone. On a cluster with an MPI of its own,
leave mpich out, pip install -e . mpi4py, and start as its manual says, such as
    srun -n 4 python3 -m minipipe mpi
Ranks may lie on several machines, if these share the folder. A rank computes with one thread.
"""


RANK_VARIABLES = "PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"  # in which an mpiexec says the number
RANK_0_GRACE = 5.0  # seconds that the other ranks wait: rank 0 says what is wrong, and its end ends them


@contextmanager
def one_voice(arguments):
    """A `with` block in which only one of several ranks says what is wrong with its arguments."""
    is_another = any(os.environ.get(name, "0") != "0" for name in RANK_VARIABLES)
    if arguments[:1] != ["mpi"] or not is_another:
        yield
        return
    try:
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            yield
    except SystemExit:
        time.sleep(RANK_0_GRACE)
        raise


def add_options(parser):
    parser.instead = "mpiexec says how many devices there are, mpiexec -n 4 python3 -m minipipe mpi"
    parser.add_argument("--devices", type=int, help=argparse.SUPPRESS)  # to say who decides that
    on_hardware.add_options(parser)


def run(options):
    if options.devices is not None:
        raise ValueError(
            "mpiexec says how many devices there are: leave out --devices, and type "
            f"mpiexec -n {options.devices} python3 -m minipipe mpi"
        )
    ranks = world()
    if ranks.size == 1:
        command = " ".join(["mpiexec -n 4 python3 -m minipipe", *sys.argv[1:]])
        raise ValueError(f"one process is no pipeline: type\n\n    {command}\n")
    with ranks.job():
        return on_hardware.train_on_digits(options, "mpi", ranks.size, "processes", speaks=ranks.rank == 0)
