"""Learn, verify and try out the parallel training of neural networks, in pure NumPy.

In the order in which one meets them:

    layers      Linear, ReLU, Conv2d, BatchNorm, TransformerBlock ...   (n[l], m): samples are columns
    losses      BinaryCrossEntropy, SoftmaxCrossEntropy, MeanSquaredError
    networks    Sequential; Pipeline, DataParallel, TensorParallel, and Parallel for all at once
    options     Cut, Sums; Costs, Link, Port
    training    fit, the optimizers SGD, Adam ..., accuracy, one_hot, save, load
    many ranks  ParameterServer; FederatedAveraging and clients_of
    proof       check, of a layer, a network or a schedule; more of it in the room verification
    comparing   compare, of schedules; compare_splits, of a network cut by layers, inside layers, or copied
    time        simulate, Trace, Schedule, and the rooms order, schedules, cluster, collectives, plots
    planning    describe, partition, measure, footprints, temporaries

`help(minipipe.Pipeline)` explains one of them. A name is imported when it is first asked for.
"""

from importlib import import_module

__version__ = "0.1.0"

_ROOMS = [
    "cluster", "collectives", "datasets", "engines", "exact", "experiments", "graph",
    "models", "order", "plots", "rates", "schedules", "servers", "verification",
]
_REGISTRIES = ["layers", "losses", "optimizers"]  # rooms that say in their `__all__` what they have
_PLACES = {  # file or room -> the names that are handed on from there
    "arrays": ["accuracy", "blas_threads", "one_hot"],
    "checkpoints": ["load", "save"],
    "comparison": ["compare", "compare_splits"],
    "cluster": [
        "ANY", "Cluster", "Compute", "DeadlockError", "Label", "Link", "MemoryLimitError", "Port", "Receive",
        "Send", "Trace",
    ],
    "description": ["describe"],
    "graph": ["Graph"],
    "network": ["Sequential"],
    "order": ["Costs", "Overlap", "Schedule", "ScheduleError", "simulate"],
    "parallel": ["DataParallel", "Parallel", "Pipeline", "TensorParallel"],
    "parallel.options": ["Cut", "Sums"],
    "parallel.stage": ["Stage"],
    "partitioning": ["costs_of_layers", "partition"],
    "servers": ["FederatedAveraging", "ParameterServer", "clients_of"],
    "planning": ["footprints", "measure", "temporaries"],
    "training": ["fit"],
    "verification": ["check"],
}
_HOMES = {name: place for place, names in _PLACES.items() for name in names}


def __getattr__(name):
    """Import what is asked for (PEP 562), and keep it."""
    if name == "__all__":
        listed = [import_module(f"{__name__}.{room}").__all__ for room in _REGISTRIES]
        value = sorted({*_ROOMS, *_HOMES, *sum(listed, [])})
    elif name in _HOMES:
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    elif name in _ROOMS or name in _REGISTRIES:
        return import_module(f"{__name__}.{name}")
    else:
        value = _registered(name)
    globals()[name] = value
    return value


def _registered(name):
    """Return the layer, loss or optimizer called `name`."""
    if not name.startswith("_"):
        for room in _REGISTRIES:
            module = import_module(f"{__name__}.{room}")
            if name in module.__all__:
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    """Return the public names: what `help` and the Tab key show."""
    return [*__getattr__("__all__"), "__version__"]
