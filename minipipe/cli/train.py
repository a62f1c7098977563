"""The main job: prove the gradients of a network, draw its run, train it on digits.

On threads or MPI ranks its measured run is shown next to a simulated one, and their
bits are compared.
"""

import itertools
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from ..arrays import accuracy, even_slices, leaves
from ..checks import whole_number
from ..cluster import Link, duration, ticks
from ..datasets import digits
from ..engines import Mpi, Threads, measured_link, world
from ..exact import rational
from ..losses import SoftmaxCrossEntropy
from ..models import mlp
from ..optimizers import Adam, Optimizer
from ..order import Costs, Schedule, simulate, with_recompute
from ..order.names import SCHEDULES, is_name, name_of
from ..order.reading import build, names_for, said_by
from ..parallel import Parallel
from ..planning.measuring import TIMED_KINDS, mean_of, measure
from ..plots import compare, text
from ..plots.saving import checked_path, picture_formats, write_picture
from ..training import Epoch, fit, shuffled
from ..verification import equals_full_batch, last_places_apart, same_bits
from ..watching import say, text_of_duration
from .options import DEVICES, MICROBATCHES
from .show import print_trace

LAYER_SIZES = (64, 64, 48, 48, 32, 32, 32, 32, 10)  # eight layers with parameters: two stages per device
N_RUNS = 7  # runs on threads or ranks; that with the median makespan is shown
NO_PROOF = """\
No proof: {} updates weights while micro-batches are under way. So a gradient is one of older weights, and not
the full batch's; notebook 21 says of which."""
NEXT = """next: python3 -m minipipe compare naive gpipe 1f1b zb-h1      schedules on the same devices
      python3 -m minipipe check                               proofs for all of them
      python3 -m minipipe --help                              all that there is"""


def train(options: Namespace) -> int:
    """Do the main job by the options; return 0, or 1 if a gradient is wrong."""
    if options.engine != "mpi":
        return _train(options, say)
    ranks = world()
    if ranks.size == 1:
        raise ValueError(
            "a pipeline needs at least 2 processes, got 1: type mpiexec -n 4 python3 -m minipipe --engine mpi"
        )
    with ranks.job():
        return _train(options, say if ranks.rank == 0 else None, ranks.size)


def _train(options, report, n_ranks=None):
    """Do the main job. report: a function that prints a line; None on other ranks."""
    optimizer = complete(options, n_ranks)
    simulated = options.engine == "cluster"
    n_stages, dtype = options.devices * options.per_device, "float64" if simulated else "float32"
    hidden = [options.size] * max(3, n_stages - 1)
    sizes = LAYER_SIZES if options.size is None else (64, *hidden, 10)
    train_on, test_on = digits(dtype)

    def new(layers, schedule=options.schedule, engine=options.engine):
        return Parallel(
            layers, SoftmaxCrossEntropy(), replicas=options.replicas, shards=options.shards, stages=n_stages,
            microbatches=options.microbatches, schedule=schedule, engine=engine,
            recompute="always" if options.recompute else "never", seed=options.seed, dtype=dtype,
        )

    pipe = new(mlp(sizes))
    if options.flush and pipe.has_updates:
        raise ValueError(
            f"the schedule {pipe.schedule.name!r} makes the updates itself, by its U: leave them out, or "
            "name one that has them, such as --schedule pipedream"
        )
    batch = [array[:, :options.batch_size] for array in train_on]
    if report:
        report(
            f"{train_on[0].shape[1]:,} handwritten digits, a network of {' - '.join(map(str, sizes))} "
            "units,\n"
            f"{describe(options)}, {options.microbatches} micro-batches, schedule {pipe.schedule.name}\n"
        )
    good, verdict = True, ""
    if simulated and options.flush:
        good = prove(pipe, *batch, new, options)
        verdict = f", gradients {'verified' if good else 'WRONG'}"
    elif simulated:
        print(NO_PROOF.format(options.schedule))
    if simulated:
        print()
        draw(pipe, train_on, new, options, verdict)
    train_on_digits(pipe, train_on, test_on, optimizer, options, report)
    score = 100 * accuracy(pipe.predict(test_on[0]), test_on[1])
    if report:
        report(f"\ntest accuracy {score:.2f} % of {test_on[0].shape[1]} digits\n")
    if simulated:
        print(NEXT)
    else:
        good = measured_beside_simulated(pipe, batch, new, options, report)
    return 0 if good else 1


def complete(options: Namespace, n_ranks: int | None) -> Adam:
    """Fill in defaults, check the options before any work, and return the optimizer.

    Args:
        n_ranks: the number of processes that mpiexec has started, or None.
    """
    checked_path(options.output, picture_formats())
    read_schedule(options)
    D = whole_number("--replicas", options.replicas, least=1)
    T = whole_number("--shards", options.shards, least=1)
    defaults = {"epochs": 20, "batch_size": 32}
    if options.engine != "cluster":
        defaults = {"epochs": 5, "batch_size": 256, "size": 1024}
    defaults["microbatches"] = D if options.updates_after_each else MICROBATCHES
    defaults["devices"] = DEVICES if n_ranks is None else max(1, n_ranks // (D * T))
    for name, value in defaults.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    for name in ("epochs", "batch_size", "devices", "size"):
        if getattr(options, name) is not None:  # without a size, layers have several
            whole_number(f"--{name.replace('_', '-')}", getattr(options, name), least=1)
    n_devices = D * T * options.devices
    if n_ranks not in (None, n_devices):
        raise ValueError(
            f"-D {D} -T {T} -K {options.devices} are {n_devices} devices, but mpiexec has started {n_ranks} "
            f"processes: type mpiexec -n {n_devices} python3 -m minipipe --engine mpi"
        )
    if options.engine != "cluster" and not options.flush:
        raise ValueError(
            f"--engine {options.engine} measures one mini-batch, and {options.schedule!r} goes on without an "
            "end of one: use a schedule with a flush"
        )
    if options.microbatches > options.batch_size:
        raise ValueError(
            f"--microbatches {options.microbatches} exceeds --batch-size {options.batch_size}: "
            "use at most that many, or a larger batch"
        )
    return Adam(options.learning_rate)


def read_schedule(options: Namespace) -> None:
    """Read --schedule in `options`; set how it updates, and the stages of a device."""
    if is_name(options.schedule):
        name = options.schedule = name_of(options.schedule)
        facts = SCHEDULES.facts[name]
        options.flush, options.per_device = facts.flush, facts.stages_per_device
        has_rounds = "per_update" in signature(SCHEDULES[name]).parameters
        options.updates_after_each = not (facts.flush or has_rounds)
        return
    options.schedule = said_by(options.schedule)
    options.flush, options.per_device, options.updates_after_each = True, 1, False
    if isinstance(options.schedule, Schedule):
        options.per_device = options.schedule.n_stages // len(options.schedule.devices)


def describe(options: Namespace) -> str:
    """Return a text about the devices of `options`, and how they share the work."""
    D, T, K = options.replicas, options.shards, options.devices
    kind = {"cluster": "devices", "threads": "threads", "mpi": "processes"}[options.engine]
    return f"{K} {kind}" if D * T == 1 else f"{D * T * K} {kind}: {D} replicas x {T} shards x {K}"


# The proof and the picture.

def prove(
    pipe: Parallel, X: np.ndarray, Y: np.ndarray, new: Callable[..., Parallel], options: Namespace
) -> bool:
    """Compare gradients with a full batch on one device; return whether all hold.

    Args:
        pipe: the network.
        X, Y: a mini-batch.
        new: a function of layers and a schedule, which makes a network like `pipe`.
        options: those of the command.

    With shards, products are added in another order than on one device, so their bits
    are not compared.
    """
    M, m = pipe.n_microbatches, X.shape[1]
    print("The proof: do the micro-batches' gradients add up to the full batch's? J and every parameter:")
    few = min(M + 3 if M > 3 else 2 * M - 1, m)
    kind = "ragged micro-batches" if few % M else "micro-batches"
    print(f"  rational numbers, m = {few} in {M} {kind}:", end=" ", flush=True)
    exact_pipe = new([layer.copy(rational) for layer in pipe.layers])
    good = equals_full_batch(exact_pipe, rational(X[:, :few]), rational(Y[:, :few]))
    print("equal (==); only exp and log are rounded, once each" if good else "DIFFERENT")
    if options.shards == 1:
        names = names_for(stages=pipe.n_stages, microbatches=M // options.replicas)
        names += [options.schedule] * (options.schedule not in names)
        alike = all(same_bits(new(pipe.layers, name), X, Y) for name in names)
        print(f"  float64, m = {m}: the bits of {len(names)} schedules and of one device are "
              f"{'equal (==)' if alike else 'DIFFERENT'}")
        good = good and alike
    apart = last_places_apart(pipe, X, Y)
    print(f"  float64, m = {m}, against one full-width batch: at most {apart:.2g} units in the last place")
    return good


def draw(
    pipe: Parallel, data: Sequence[np.ndarray], new: Callable[..., Parallel], options: Namespace, verdict: str
) -> None:
    """Print the run of one mini-batch; save its picture.

    Without a flush between mini-batches, it is the run of several.

    Args:
        pipe, new, options: as for `prove`.
        data: all samples and labels.
        verdict: words for the title.
    """
    X, Y = data
    size, n = options.batch_size, 1
    if options.flush:
        pipe.forward_backward(X[:, :size], Y[:, :size])
        trace = pipe.trace
        if options.replicas * options.shards * options.per_device == 1 and options.schedule != "naive":
            print_naive(pipe, options)
    else:
        n = max(2, MICROBATCHES // options.microbatches)
        twin = new([layer.copy() for layer in pipe.layers])
        batches = [(X[:, part], Y[:, part]) for part in even_slices(n * size, n)]
        twin.train(batches, Adam(options.learning_rate))
        trace = twin.trace
    print(f"By the schedule {pipe.schedule.name}:\n")
    print_trace(trace)
    title = f"{pipe.schedule.name}: {n * pipe.n_microbatches} micro-batches of digits{verdict}"
    trace.save(options.output, title)
    print(f"written: {options.output}\n")


def print_naive(pipe: Parallel, options: Namespace) -> None:
    """Print how the work of `pipe` begins with one micro-batch at a time.

    options: as for `prove`.
    """
    naive = build("naive", pipe.n_stages, pipe.n_microbatches)
    trace = simulate(with_recompute(naive, "always" if options.recompute else "never"))
    idle, width = f"{100 * float(trace.bubble()):.0f} % idle", len(text(pipe.trace).splitlines()[1])
    print(f"One micro-batch at a time, it would take {ticks(trace.makespan)} ticks, {idle}, and begin:\n")
    beginning, _, _ = text(trace).partition("\n\n")
    print("\n".join(line[:width].rstrip() for line in beginning.splitlines()), end="\n\n")


# The training.

def train_on_digits(
    pipe: Parallel, train_on: Sequence[np.ndarray], test_on: tuple[np.ndarray, np.ndarray],
    optimizer: Optimizer, options: Namespace, report: Callable[[str], object] | None,
) -> None:
    """Train `pipe` by `optimizer`, and report the first, a middle and the last epoch.

    Args:
        pipe, options: as for `prove`.
        train_on, test_on: (samples, labels).
        optimizer: the one of the training.
        report: a function that prints a line, or None.
    """
    n, (X, Y) = options.epochs, train_on
    shown, count = {1, -(-n // 2), n}, itertools.count(1)

    def tell(line):
        if next(count) in shown and report:
            report(line)

    if options.flush:
        fit(pipe, X, Y, optimizer, n, options.batch_size, test_on, seed=options.seed,
            report=tell if report else None)
        return
    m, begin = X.shape[1], time.perf_counter()
    parts = even_slices(m, -(-m // options.batch_size))
    for number in range(1, n + 1):  # the pipeline drains only after an epoch, not after each mini-batch
        order = shuffled(m, options.seed, number)
        costs = pipe.train([(X[:, order[part]], Y[:, order[part]]) for part in parts], optimizer)
        score = accuracy(pipe.predict(test_on[0]), test_on[1])
        left = text_of_duration((time.perf_counter() - begin) / number * (n - number))
        epoch = Epoch(number, float(np.mean(costs)), score)
        tell(f"epoch {number:{len(str(n))}}/{n}   {epoch}   {left} left")


# The run on threads or ranks.

def measured_beside_simulated(
    pipe: Parallel, batch: Sequence[np.ndarray], new: Callable[..., Parallel], options: Namespace,
    report: Callable[[str], object] | None,
) -> bool:
    """Show the measured run of `batch` next to a simulated one; compare their bits.

    Ranks whose `report` is None only take part in the run. pipe, new, options: as for
    `prove`. Return whether the bits agree.
    """
    X, Y = batch
    traces = []
    for _ in range(N_RUNS):
        J = pipe.forward_backward(X, Y)
        traces.append(pipe.trace)
    gradients, layers = pipe.gradients, pipe.layers
    machine = None
    if options.shards == 1:  # `measure` times whole layers
        part = even_slices(X.shape[1], options.microbatches)[0]
        machine = measured_machine(pipe, X[:, part], Y[:, part], options.engine)
    if report is None:
        return True
    counted = new(layers, engine="cluster")
    same = counted.forward_backward(X, Y) == J
    same = same and all(map(np.array_equal, leaves(counted.gradients), leaves(gradients)))
    report(
        "J and every gradient, beside those of the simulated cluster:\n"
        f"  float32, m = {X.shape[1]}: {'equal (==)' if same else 'DIFFERENT'}\n"
    )
    runs = {f"measured on {options.engine}": sorted(traces, key=lambda trace: trace.makespan)[N_RUNS // 2]}
    if machine is not None:
        runs = {"simulated with measured costs and links": simulate(pipe.schedule, *machine)} | runs
    show_runs(runs, options.output)
    return same


def measured_machine(pipe: Parallel, X: np.ndarray, Y: np.ndarray, engine: str) -> tuple[Costs, Link]:
    """Return (`Costs`, `Link`) that all devices measure at once on `engine`.

    pipe, X, Y: the network and a micro-batch.
    """
    setting, n_devices = (pipe.layers, pipe.loss, pipe.n_stages, X, Y), len(pipe.schedule.devices)
    if engine == "mpi":
        mine = measure(*setting, dtype=np.float32)
        of_ranks = world().gathered({kind: getattr(mine, kind) for kind in TIMED_KINDS}, "the measured costs")
        costs = mean_of([replace(mine, **of_rank) for of_rank in of_ranks])
    else:
        costs = measure(*setting, dtype=np.float32, at_once=n_devices)
    sent: Any = costs.message_bytes
    return costs, measured_link(Mpi if engine == "mpi" else Threads, n_devices, max(sent))


def show_runs(traces: dict[str, Any], path: str) -> None:
    """Print `traces`, {name: trace}, and their times; draw them into `path`."""
    for name, trace in traces.items():
        print(f"{name}:\n\n{text(trace)}\n")
    for name, trace in traces.items():
        busy = median(sum(s.end - s.start for s in trace.spans_of(d) if s.label.kind != "overhead")
                      for d in range(trace.n_devices))
        print(f"{name:46}{duration(trace.makespan, trace.unit)}, a device computes for {busy:.6g}")
    first, *others = traces.values()
    for other in others:
        print(f"{'measured / simulated':46}{other.makespan / first.makespan:.3f}")
    write_picture(compare(traces), Path(path))
    print(f"written: {path}")
