"""Learn, verify and try out the parallel training of neural networks, in pure NumPy.

In the order in which one meets them:

    layers      Linear, ReLU, Conv2d, BatchNorm, TransformerBlock ...   (n[l], m): samples are columns
    losses      BinaryCrossEntropy, SoftmaxCrossEntropy, MeanSquaredError
    networks    Sequential, on one device; Pipeline, DataParallel, TensorParallel; Parallel has all axes
    options     Cut, Sums; Costs, Link, Port
    training    fit, the optimizers SGD, Adam ..., accuracy, one_hot, save, load
    data        the module datasets; networks with a name are in models
    servers     ParameterServer; FederatedAveraging
    proof       check, of a layer or a schedule; more is in the module verification
    schedules   Schedule, simulate, compare; the modules schedules, order and plots
    planning    describe, partition, measure, without_values; the module planning has plan, the best way
                to train a Transformer on a cluster by formulas, and confirm, its run on the engine

Every module is reached by its name, also those that `dir(minipipe)` does not list:

    cluster       what programs of simulated devices are made of: Cluster, Compute, Send, Receive
    collectives   sums and exchanges among many devices
    engines       threads and MPI ranks, which run the same programs
    graph         tasks, and which of them may run at once
    rates         learning rates that change; experiments compares trainings
    servers       clients_of, which divides data among clients

`help(minipipe.Pipeline)` explains one of them. A name is imported when it is first
asked for.
"""

from importlib import import_module
from importlib.util import find_spec

__version__ = "0.2.0"

_MODULES = ["cluster", "datasets", "exact", "models", "order", "plots", "schedules", "verification"]
_REGISTRIES = ["layers", "losses", "optimizers"]  # packages whose classes are exported, not functions
_PLACES = {  # module -> the names in it that are exported
    "arrays": ["accuracy", "one_hot"],
    "checkpoints": ["load", "save"],
    "comparison": ["compare"],
    "cluster": ["Link", "Port", "Trace"],
    "description": ["describe"],
    "network": ["Sequential"],
    "order": ["Costs", "Schedule", "simulate"],
    "parallel": ["DataParallel", "Parallel", "Pipeline", "TensorParallel"],
    "parallel.options": ["Cut", "Sums"],
    "partitioning": ["partition"],
    "servers": ["FederatedAveraging", "ParameterServer"],
    "planning.measuring": ["measure", "without_values"],
    "training": ["fit"],
    "verification": ["check"],
}
_HOMES = {name: place for place, names in _PLACES.items() for name in names}


def __getattr__(name):
    """Import the object `name` at its first use, and keep it (PEP 562)."""
    if name == "__all__":
        listed = [_classes(import_module(f"{__name__}.{room}")) for room in _REGISTRIES]
        value = sorted({*_MODULES, *_HOMES, *sum(listed, [])})
    elif name in _HOMES:
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    elif not name.startswith("_") and find_spec(f"{__name__}.{name}"):
        return import_module(f"{__name__}.{name}")
    else:
        value = _registered(name)
    globals()[name] = value
    return value


def _classes(module):
    """Return the names of the classes of a module that has a registry."""
    return [name for name in module.__all__ if isinstance(getattr(module, name), type)]


def _registered(name):
    """Return the layer, loss or optimizer called `name`."""
    if not name.startswith("_"):
        for room in _REGISTRIES:
            module = import_module(f"{__name__}.{room}")
            if name in _classes(module):
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    """Return the public names: what `help` and the Tab key show."""
    return [*__getattr__("__all__"), "__version__"]
