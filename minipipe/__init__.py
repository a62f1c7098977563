"""minipipe: learn, verify and try out pipeline-parallel training, in pure NumPy."""

from . import interrupted  # noqa: F401 (first: it is at work while the others are imported)

from . import (
    cluster,
    collectives,
    datasets,
    engines,
    exact,
    experiments,
    graph,
    layers,
    losses,
    models,
    optimizers,
    pipeline,
    plots,
    rates,
    schedules,
    verification,
)
from .blas import blas_threads
from .checkpoints import load, save
from .cluster import (
    ANY, Cluster, Compute, DeadlockError, Label, Link, MemoryLimitError, Port, Receive, Send, Trace,
)
from .description import describe
from .functions import accuracy, one_hot
from .graph import Graph
from .layers import *  # noqa: F403 (what a room hands on stands there, in its __all__)
from .losses import *  # noqa: F403
from .network import Sequential
from .optimizers import *  # noqa: F403
from .parallel import (
    DataParallel, FederatedAveraging, Pace, Parallel, ParameterServer, Pipeline, Rounds, Servers,
    TensorParallel, clients_of,
)
from .partitioning import costs_of_layers, partition
from .pipeline import *  # noqa: F403
from .pipeline.options import Cut, Machine, Memory, Shards, Split, Sums, Weights
from .planning import (
    Nodes, footprints, measure, plan, rehearse, simulate, temporaries, what_fits,
)
from .schedules import Costs, Overlap, Schedule, ScheduleError
from .training import fit

__version__ = "0.1.0"

__all__ = [
    "ANY", "Cluster", "Compute", "Costs", "DataParallel", "DeadlockError", "Graph", "Label", "Link",
    "MemoryLimitError", "Overlap", "Port", "Receive", "Schedule", "ScheduleError", "Send", "Sequential",
    "Trace", "accuracy", "blas_threads", "cluster", "collectives", "costs_of_layers", "datasets",
    "TensorParallel", "describe", "engines", "exact", "fit", "footprints", "graph", "load", "measure",
    "models", "one_hot", "partition", "plots", "rates", "rehearse", "save", "schedules", "simulate",
    "temporaries", "verification", "what_fits", "ParameterServer", "FederatedAveraging", "clients_of",
    "experiments",
]
__all__ += ["Cut", "Machine", "Memory", "Parallel", "Pipeline", "Shards", "Split", "Sums", "Weights"]
__all__ += ["Nodes", "Pace", "Rounds", "Servers", "plan"]
__all__ += layers.__all__ + losses.__all__ + optimizers.__all__ + pipeline.__all__
__all__.sort()
