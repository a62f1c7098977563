"""What the commands `threads` and `mpi` share: train on real hardware, and show the measured run."""

from dataclasses import replace
from functools import partial
from statistics import median

import numpy as np

from ..arrays import accuracy, even_slices, leaves
from ..cluster import duration
from ..datasets import digits
from ..engines import Mpi, Threads, measured_link, world
from ..losses import SoftmaxCrossEntropy
from ..models import mlp
from ..optimizers import SGD
from ..order import in_copies, simulate
from ..parallel import Parallel
from ..parallel.options import Machine, Split, Weights
from ..planning import measure
from ..planning.measuring import TIMED_KINDS, mean_of
from ..plots import compare, text
from ..schedules import build, names_having
from ..training import fit
from .options import (
    N_MICRO_BATCHES, SCHEDULE, add_picture, add_schedule_name, add_splits, add_training, schedule_name_from,
)
from .output import checked_picture, save_figure

N_RUNS = 7  # of which the one with the median makespan is shown


def add_options(parser):
    add_schedule_name(parser, names_having(flush=True, late_w=False))
    parser.add_argument(
        "--micro-batches", type=int, default=N_MICRO_BATCHES, metavar="M",
        help="the parts of the mini-batch of each copy of the network, -M for short (default: %(default)s)",
    )
    add_splits(
        parser, "copies of the network, which share the devices and each mini-batch",
        "devices that share the work inside each layer",
    )
    parser.add_argument(
        "--size", type=int, default=1024, metavar="N",
        help="units of each hidden layer; with few, devices cost more than they gain (default: %(default)s)",
    )
    add_training(parser, epochs=5, batch_size=256, learning_rate=0.1)
    add_picture(parser, "measured.png", "of both runs")


def train_on_digits(options, engine, n_devices, kind, speaks=True):
    """Train on the digits, check the bits, and show the measured run beside the simulated one.

    options: what `add_options` has read.
    engine: as for `Machine`.
    n_devices: of all copies together.
    kind: what a device is, in the plural.
    speaks: whether to print and to write the picture: on one rank of several.

    Returns 0, or 1 if the bits differ from the cluster's.
    """
    say = (lambda line: print(line, flush=True)) if speaks else (lambda line: None)
    path = checked_picture(options.output)
    schedule = schedule_on_devices(options, n_devices)
    new = partial(_network, options, schedule)
    (X, Y), (X_test, Y_test) = (
        tuple(np.asarray(array, np.float32) for array in part) for part in digits()
    )
    sizes = (64, *[options.size] * max(3, schedule.n_stages - 1), 10)
    layers, loss, M = mlp(sizes), SoftmaxCrossEntropy(), schedule.n_microbatches
    pipe = new(layers, loss, engine)
    say(
        f"{X.shape[1]:,} handwritten digits, a network of {' - '.join(map(str, sizes))} units, float32,\n"
        f"{n_devices} {kind}, {M} micro-batches, schedule {schedule.name}\n"
    )
    fit(
        pipe, X, Y, SGD(options.learning_rate), options.epochs, options.batch_size, (X_test, Y_test),
        seed=options.seed, report=say if speaks else None,
    )
    score = 100 * accuracy(pipe.predict(X_test), Y_test)
    say(f"\ntest accuracy {score:.2f} % of {X_test.shape[1]} digits\n")
    X, Y = X[:, :options.batch_size], Y[:, :options.batch_size]
    traces = []
    for _ in range(N_RUNS):
        J = pipe.forward_backward(X, Y)
        traces.append(pipe.trace)
    gradients, parameters = pipe.gradients, pipe.layers
    hardware = None
    if options.shards == 1:  # `measure` times whole layers
        part = even_slices(X.shape[1], M)[0]
        hardware = _measured(engine, n_devices, layers, loss, schedule.n_stages, X[:, part], Y[:, part])
    if not speaks:
        return 0
    counted = new(parameters, loss)
    same = counted.forward_backward(X, Y) == J and _same(counted.gradients, gradients)
    say(
        f"J and every gradient of the {kind}, beside those of the simulated cluster:\n"
        f"  float32, m = {X.shape[1]}: {'equal (==)' if same else 'DIFFERENT'}\n"
    )
    runs = {f"measured on {kind}": _median(traces)}
    if hardware is not None:
        runs = {"simulated with measured costs and links": simulate(schedule, *hardware)} | runs
    _show(runs, path)
    return 0 if same else 1


def schedule_on_devices(options, n_devices):
    """The schedule of all copies; `ValueError` where they cannot share the devices."""
    for name, n in (("replicas", options.replicas), ("shards", options.shards)):
        if n < 1 or n_devices % n:
            raise ValueError(
                f"--{name} {n} cannot share {n_devices} devices evenly: use a divisor of {n_devices}"
            )
        n_devices //= n
    n_copies = options.replicas
    name = schedule_name_from(options) or SCHEDULE
    schedule = build(name, n_devices, options.micro_batches)
    if schedule.n_microbatches * n_copies > options.batch_size:
        raise ValueError(
            f"{n_copies} x --micro-batches {options.micro_batches} exceeds --batch-size "
            f"{options.batch_size}: use fewer micro-batches, or a larger batch"
        )
    return in_copies(schedule, n_copies) if n_copies > 1 else schedule


def _measured(engine, n_devices, *setting):
    """(`Costs`, `Link`): costs that all devices measure at the same time, in the mean, and their messages."""
    if engine == "mpi":
        mine = measure(*setting, dtype=np.float32).costs
        of_ranks = world().gathered({kind: getattr(mine, kind) for kind in TIMED_KINDS}, "the measured costs")
        costs = mean_of([replace(mine, **of_rank) for of_rank in of_ranks])
    else:
        costs = measure(*setting, dtype=np.float32, at_once=n_devices).costs
    machine = Mpi if engine == "mpi" else Threads
    return costs, measured_link(machine, n_devices, max(costs.message_bytes))


def _network(options, schedule, layers, loss, engine="cluster"):
    """The network by which the options share the devices. schedule: that of all copies."""
    n_stages, M = schedule.n_stages, schedule.n_microbatches
    split = Split(options.replicas, options.shards, n_stages, M, "tp-pp-dp")
    weights = Weights(options.seed, np.float32)
    return Parallel(layers, loss, split, schedule, on=Machine(engine), weights=weights)


def _same(ours, theirs):
    return all(map(np.array_equal, leaves(ours), leaves(theirs)))


def _median(traces):
    return sorted(traces, key=lambda trace: trace.makespan)[len(traces) // 2]


def _show(traces, path):
    """Each of {name: trace} as text, what they take, and one picture of them."""
    for name, trace in traces.items():
        print(f"{name}:\n\n{text(trace)}\n")
    for name, trace in traces.items():
        busy = median(sum(s.end - s.start for s in trace.spans_of(d) if s.label.kind != "overhead")
                      for d in range(trace.n_devices))
        print(f"{name:46}{duration(trace.makespan, trace.unit)}, a device computes for {busy:.6g}")
    first, *others = traces.values()
    for other in others:
        print(f"{'measured / simulated':46}{other.makespan / first.makespan:.3f}")
    save_figure(compare(traces), path)
