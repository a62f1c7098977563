"""Good values for the arguments of every public callable, made anew each time.

An argument is looked up as "callable.argument" and then by its own name; what is in neither table keeps its
default. So a new callable with arguments of known names needs no row here.
"""

import inspect
from fractions import Fraction
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from tempfile import mkdtemp
from types import SimpleNamespace

import numpy as np

import minipipe as mp
from minipipe import papers, planning
from minipipe.collectives import Group
from minipipe.graph import Task, list_schedule
from minipipe.registry import Registry
from minipipe.order import Action, in_copies
from minipipe.schedules import data_parallel, gpipe

X, Y = np.arange(8.0).reshape(2, 4) / 8, np.ones((2, 4))
LOSS = mp.MeanSquaredError()


def layers():
    return [mp.Linear(2, 4), mp.ReLU(), mp.Linear(4, 2)]


def network():
    net = mp.Sequential(layers(), LOSS)
    net.forward_backward(X, Y)
    return net


def pipeline():
    pipe = mp.Pipeline(layers(), LOSS, 2, 2, count_bytes=True)
    pipe.forward_backward(X, Y)
    return pipe


def programs():
    def sender():
        yield mp.cluster.Compute("work")
        yield mp.cluster.Send("news", 1, to=1)

    def receiver():
        yield mp.cluster.Receive("news", 0)

    return [sender(), receiver()]


def total():
    from minipipe.sums import TreeSum

    tree = TreeSum(2)
    tree.add(0, np.ones(4))
    tree.add(1, np.ones(4))
    return tree


def tasks():
    return [Task("a", 2, (), 0), Task("b", 1, (0,), 0)]


def trace(**options):
    return mp.simulate(gpipe(2, 2), **options)


@lru_cache
def folder():
    return Path(mkdtemp())


def axes():
    from matplotlib.figure import Figure

    return Figure().add_subplot()


def nodes():
    return planning.Nodes(2, 4, planning.GPUS["h100"], 450e9, 50e9)


def saved():
    path = folder() / "network.npz"
    mp.save(path, network())
    return path


GOOD = {  # name of an argument -> a function that makes a good value
    "A": lambda: X, "X": lambda: X, "Y": lambda: Y, "layers": layers, "loss": lambda: LOSS,
    "optimizer": lambda: mp.SGD(0.1), "stages": lambda: 2, "microbatches": lambda: 2,
    "shards": lambda: 2, "devices": lambda: 2, "n_stages": lambda: 2, "n_microbatches": lambda: 2,
    "workers": lambda: 2,
    "input_shape": lambda: (2,), "m": lambda: 4, "batch_size": lambda: 4, "epochs": lambda: 1,
    "schedule": lambda: gpipe(2, 2), "trace": trace, "traces": lambda: {"one": trace(), "two": trace()},
    "costs": lambda: mp.Costs(), "link": lambda: mp.Link(), "kernel_size": lambda: 2,
    "in_channels": lambda: 1, "out_channels": lambda: 1, "d": lambda: 4, "n_heads": lambda: 2,
    "n_tokens": lambda: 5, "n_places": lambda: 4, "n_prev": lambda: 2, "n": lambda: 2,
    "name": lambda: "name", "programs": programs, "label": lambda: "label", "value": lambda: np.ones(4),
    "group": lambda: Group(0, [0, 1]), "path": lambda: folder() / "file",
    "bandwidth": lambda: 8, "n_bytes": lambda: 8, "n_classes": lambda: 2,
    "learning_rate": lambda: 0.1, "tasks": tasks,
    "node_size": lambda: 2,
    "inside": lambda: mp.Link(), "between": lambda: mp.Link(), "K": lambda: 2, "M": lambda: 4,
    "T_F": lambda: 1, "T_B": lambda: 1, "T_W": lambda: 1,
    "N": lambda: 4, "rng": lambda: np.random.default_rng(0), "model": network,
    "pipe": pipeline, "clients": lambda: 2, "algorithm": lambda: "ring",
    "rank": lambda: 0, "base": lambda: 0.1, "batch": lambda: 32, "rate": lambda: 0.1, "then": lambda: 0.1,
    "start": lambda: 0.01, "at": lambda: [1, 2], "n_updates": lambda: [2, 2, 2, 2, 2, 2],
    "counts": lambda: [1, 1], "text": lambda: "banana", "kind": lambda: "F", "stage": lambda: 0,
    "microbatch": lambda: 0,
    "total": total, "values": lambda: [np.ones(2), np.ones(2)], "device": lambda: 0, "shape": lambda: (2, 1),
    "widths": lambda: [1], "labels": lambda: [0, 1], "branches": lambda: ([mp.ReLU()], [mp.Tanh()]),
    "number": lambda: 3, "unit": lambda: "ticks", "source": lambda: 0, "to": lambda: 1,
    "lane": lambda: "compute", "backward": lambda: Action("B", 0, 0), "ax": axes, "n_groups": lambda: 2,
    "index": lambda: 0, "replicas": lambda: [2, 1], "level": lambda: 1,
}
EXCEPTIONS = {
    "Cluster.duration": lambda: lambda label: 1,
    "Compute.function": lambda: lambda *args: 1, "Compute.args": lambda: (1,),
    "Residual.layers": lambda: [mp.ReLU()], "Embedding.d": lambda: 2, "Mpi.labels": lambda: (),
    "Mpi.programs": lambda: [idle()], "Schedule.devices": lambda: gpipe(2, 2).devices,
    "Pipeline.schedule": lambda: "1f1b",
    "Cut.by": lambda: "macs", "Cut.sample": lambda: (X, Y),
    "Stage.loss": lambda: LOSS,
    "all_reduce_sum.algorithm": lambda: "owners", "all_reduce_sum_and_gather.algorithm": lambda: "owners",
    "all_reduce.algorithm": lambda: "owners",
    "amoebanet_d.L": lambda: 3, "amoebanet_d.D": lambda: 16,
    "bytes_by_kind.holdings": lambda: {"stash": []},
    "bigram_cross_entropy.train_ids": lambda: np.array([0, 1, 0]),
    "bigram_cross_entropy.test_ids": lambda: np.array([1, 0]),
    "check.what": lambda: mp.Linear(2, 4), "check.shape": lambda: (2,),
    "checked_ports.ports": lambda: [mp.Port(8, [0])],
    "curves.series": lambda: {"J": ([1, 2], [1.0, 0.5])}, "cut.costs": lambda: [1, 2],
    "loads.costs": lambda: [1, 2], "histogram.costs": lambda: [1, 2], "min_max.costs": lambda: [1, 2],
    "min_variance.costs": lambda: [1, 2], "describe_path.path": lambda: mp.cluster.critical_path(trace()),
    "exchanged.part_of": lambda: lambda r: np.ones(1), "with_zero.schedule": lambda: data_parallel(2, 2),
    "with_all_reduce.schedule": lambda: in_copies(gpipe(1, 2), 2), "fit.report": lambda: None,
    "fit.validation": lambda: (X, Y), "in_buckets.sizes": lambda: [8, 16],
    "load.path": saved,
    "player.run": trace, "still.run": trace,
    "chrome_trace.trace": lambda: trace(),
    "links_between.link": mp.Link,
    "compare.schedules": lambda: ["gpipe", "1f1b"],
    "OneTick.share": lambda: Fraction(1, 2), "Costs.share": lambda: Fraction(1, 2),
    "text_of_hardware.rows": lambda: list(papers.HARDWARE.values())[:1],
    "training_tasks.F": lambda: [1, 1], "training_tasks.I": lambda: [2, 2],
    "Adam.betas": lambda: (0.9, 0.99), "FederatedAveraging.clients": lambda: mp.servers.clients_of(X, Y, 2),
    "GroupNorm.n": lambda: 4,
    "equal_counts.n_layers": lambda: 4, "Hardware.latency": lambda: 1e-6,
    "mlp.sizes": lambda: [2, 3, 2],
    "transformer.n_layers": lambda: 1, "Accelerator.share": lambda: 0.5, "Accelerator.peak": lambda: 1e12,
    "Accelerator.memory": lambda: 2**30, "Accelerator.early": lambda: True,
    "Accelerator.source": lambda: "here",
    "costs_in_segments.n": lambda: 2,
    "peak_versions.schedule": lambda: mp.schedules.pipedream(2, 4),
    "staleness.schedule": lambda: mp.schedules.pipedream(2, 4), "all_to_all.values": lambda: [1, 2],
    "reduce_scatter_sum_and_gather.value": lambda: 1, "Bytes.nbytes": lambda: 8,
    "Task.after": lambda: (),
    "ledger.trace": lambda: pipeline().trace, "memory.trace": lambda: pipeline().trace,
    "Group.devices": lambda: [0, 1],
    "best_schedule.most_nodes": lambda: 10,
    "Costs.F": lambda: 1, "mini_batches.n": lambda: 2, "BatchNorm.n": lambda: 2,
    "interleaved_one_f_one_b.microbatches": lambda: 4, "chimera.microbatches": lambda: 4,
    "dualpipe.microbatches": lambda: 4,
    "measured_link.engine": lambda: mp.engines.Threads,
    "write_site.report": lambda: str, "write_site.pyodide": lambda: None,
    "build.what": lambda: "gpipe",
    "dualpipe_v.microbatches": lambda: 4,
    "write_site.folder": lambda: folder() / "site", "Port.sends": lambda: [0],
    "recomputing.layers": lambda: [mp.TransformerBlock(4, 2)],
    "check_size.world": lambda: SimpleNamespace(size=1), "check_size.devices": lambda: 1,
    "Hardware.how": lambda: "measured", "Hardware.bandwidth": lambda: 1e9, "Hardware.name": lambda: "a wire",
    "schedule_of.found": lambda: list_schedule(mp.graph.training_tasks([1, 1], [2, 2])),
    "Overlap.forward": lambda: Action("F", 0, 1),
    "GPU.peak": lambda: 1e15, "GPU.memory": lambda: 80e9, "GPU.hbm": lambda: 3e12, "GPU.top": lambda: 0.5,
    "GPU.flash": lambda: (0.5, 0.4), "Nodes.nodes": lambda: 2, "Nodes.gpus": lambda: 4,
    "Nodes.gpu": lambda: planning.GPUS["h100"], "Nodes.nvlink": lambda: 450e9, "Nodes.nic": lambda: 50e9,
    "Transformer.layers": lambda: 12, "Transformer.hidden": lambda: 768, "Transformer.heads": lambda: 12,
    "Transformer.vocab": lambda: 50_257, "Transformer.seq": lambda: 1024,
    "Choice.D": lambda: 8, "Choice.T": lambda: 1, "Choice.b": lambda: 1, "Choice.K": lambda: 1,
    "plan.model": lambda: planning.MODELS["gpt2-xl"], "estimate.model": lambda: planning.MODELS["gpt2-xl"],
    "plan.nodes": nodes, "estimate.nodes": nodes, "estimate.choice": lambda: planning.Choice(8, 1, 1, 1, 4),
    "confirm.found": lambda: planning.plan(planning.MODELS["gpt2-xl"], nodes(), 32).best,
}


# plain records that the package makes, and nobody hands in; and what holds a run together
RECORDS = {
    "Cell", "Compared", "Computed", "Confirmed", "Counted", "Dataset", "Estimate", "Exchange",
    "Explanation", "Fault", "First", "Found", "Gradient", "Idle", "IdlePart", "Later",
    "Listed", "Message", "Neighbour", "Pair", "Plan", "Round", "Span",
    "Standing", "Step", "Stop", "Text", "Times", "Trace", "Update",
}


def idle():
    yield mp.cluster.Compute("work")


@lru_cache
def public():
    """Return {name: callable} of all that is in an `__all__`; of equal names, the second as "room.name"."""
    found, met = {}, set()
    modules = [module.name for module in walk_packages(mp.__path__, "minipipe.")]
    rooms = [name for name in modules if not name.endswith("__main__")]
    for room in ["minipipe", *rooms]:
        module = import_module(room)
        for name in getattr(module, "__all__", ()):
            entry = getattr(module, name)
            is_met = id(entry) in met or name in RECORDS or isinstance(entry, Registry)
            if callable(entry) and not is_met:
                met.add(id(entry))
                found[name if name not in found else f"{room.removeprefix('minipipe.')}.{name}"] = entry
    return found


def parameters_of(entry):
    """Return the parameters of a callable; none for an exception, which takes what any exception takes."""
    if isinstance(entry, type) and issubclass(entry, BaseException):
        return {}
    try:
        parameters = inspect.signature(entry).parameters
        return {name: one for name, one in parameters.items() if one.kind is not one.VAR_KEYWORD}
    except ValueError:
        return {}


def example(name, parameter):
    """Return a function that makes a good value of an argument, or None if it keeps its default."""
    short = name.rpartition(".")[2]
    for key, table in ((f"{name}.{parameter.name}", EXCEPTIONS), (f"{short}.{parameter.name}", EXCEPTIONS)):
        if key in table:
            return table[key]
    if parameter.default is parameter.empty:
        return GOOD.get(parameter.name)
    return None
