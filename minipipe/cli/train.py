"""`minipipe`: the main job. Prove the gradients of a pipeline, draw the run, and train."""

import itertools

from ..arguments import argument
from ..arrays import accuracy
from ..cluster import ticks
from ..datasets import digits
from ..exact import rational
from ..losses import SoftmaxCrossEntropy
from ..models import mlp
from ..optimizers import SGD
from ..order import simulate, with_recompute
from ..parallel import Parallel
from ..parallel.options import Memory, Split, Weights
from ..plots import text
from ..schedules import build, name_of, names_for, names_having, stages_per_device
from ..training import fit
from ..verification import equals_full_batch, same_bits, share_of_bound
from .options import SCHEDULE, add_picture, add_recompute, add_sizes, add_splits, add_training, sizes_from
from .output import checked_picture, describe_devices, print_trace, save_timeline

LAYER_SIZES = (64, 64, 64, 32, 10)
NEXT = """next: python3 -m minipipe compare naive gpipe 1f1b zb-h1      schedules on the same devices
      python3 -m minipipe help                                all that there is"""


def add_options(parser):
    add_sizes(parser)
    parser.add_argument(
        "--schedule",
        default=SCHEDULE,
        metavar="NAME",
        help=f"one of {', '.join(names_having(flush=True))} (default: %(default)s)",
    )
    add_splits(
        parser,
        "copies of the network, which share the micro-batches, on D times as many devices",
        "devices that share the work inside each layer, in the place of each one",
    )
    add_recompute(parser, "keep only each stage's input, and run its forward again")
    add_training(parser, epochs=30, batch_size=32, learning_rate=0.2)
    add_picture(parser, "timeline.png")


def run(options):
    path = checked_picture(options.output)
    per_device = stages_per_device(name_of(options.schedule))
    devices, microbatches = sizes_from(options, per_device)
    if microbatches > options.batch_size:
        raise ValueError(
            f"--micro-batches {microbatches} exceeds --batch-size {options.batch_size}: "
            "use at most that many, or a larger batch"
        )
    optimizer, n_epochs = SGD(options.learning_rate), argument("n_epochs", options.epochs)
    (X, Y), (X_test, Y_test) = digits()
    n_stages = devices * per_device

    def network(layers, schedule=options.schedule):
        split = Split(options.replicas, options.shards, n_stages, microbatches)
        return Parallel(
            layers, SoftmaxCrossEntropy(), split, schedule, Memory(options.recompute),
            weights=Weights(options.seed),
        )

    pipe = network(mlp(LAYER_SIZES))
    print(
        f"{X.shape[1]:,} handwritten digits, a network of {' - '.join(map(str, LAYER_SIZES))} units,\n"
        f"{describe_devices(options, devices)}, {microbatches} micro-batches, "
        f"schedule {pipe.schedule.name}\n"
    )
    proved = _prove(pipe, X, Y, options.batch_size, network, options)
    pipe.forward_backward(X[:, :options.batch_size], Y[:, :options.batch_size])
    print()
    if options.replicas * options.shards * per_device == 1 and not pipe.schedule.name.startswith("naive"):
        _print_naive(pipe, options)
    print(f"By the schedule {pipe.schedule.name}:\n")
    print_trace(pipe.trace)
    verdict = "gradients verified" if proved else "gradients WRONG"
    title = f"{pipe.schedule.name}: {microbatches} micro-batches of digits, {verdict}"
    save_timeline(pipe.trace, path, title)
    print()
    fit(
        pipe, X, Y, optimizer, n_epochs, options.batch_size, (X_test, Y_test), seed=options.seed,
        report=_printing({1, -(-n_epochs // 2), n_epochs}),
    )
    score = 100 * accuracy(pipe.predict(X_test), Y_test)
    print(f"\ntest accuracy {score:.2f} % of {X_test.shape[1]} digits\n\n{NEXT}")
    return 0 if proved else 1


def _printing(numbers):
    """Return a function that counts the lines handed to it and prints some. numbers: which ones, from 1."""
    count = itertools.count(1)

    def report(line):
        if next(count) in numbers:
            print(line, flush=True)

    return report


def _print_naive(pipe, options):
    """Print how the same work would begin with one micro-batch at a time."""
    naive = build("naive", pipe.n_stages, pipe.n_microbatches)
    trace = simulate(with_recompute(naive, options.recompute))
    idle, width = f"{100 * float(trace.bubble()):.0f} % idle", len(text(pipe.trace).splitlines()[1])
    print(f"One micro-batch at a time, it would take {ticks(trace.makespan)} ticks, {idle}, and begin:\n")
    beginning, _, _ = text(trace).partition("\n\n")
    print("\n".join(line[:width].rstrip() for line in beginning.splitlines()), end="\n\n")


def _prove(pipe, X, Y, m, network, options):
    """Compare the gradients of the pipeline with those of one full-width batch, in three senses; print each.

    network: a function of layers and the name of a schedule; it makes a network like `pipe`.

    Returns whether all hold. Products over several shards are added in another order than on one device, so
    their bits differ, and are not compared.
    """
    K, M = pipe.n_stages, pipe.n_microbatches
    print("The proof: do the micro-batches' gradients add up to the full batch's? J and every parameter:")
    ragged = M + 3 if M > 3 else 2 * M - 1
    kind = "ragged micro-batches" if ragged % M else "micro-batches"
    print(f"  rational numbers, m = {ragged} in {M} {kind}:", end=" ", flush=True)
    exact_pipe = network([layer.copy(rational) for layer in pipe.layers])
    exact = equals_full_batch(exact_pipe, rational(X[:, :ragged]), rational(Y[:, :ragged]))
    print("equal (==); only exp and log are rounded, once each" if exact else "DIFFERENT")
    X, Y = X[:, :m], Y[:, :m]
    bits, share = True, share_of_bound(pipe, X, Y)
    if options.shards == 1:
        names = names_for(stages=K, microbatches=M // options.replicas)
        bits = all(same_bits(network(pipe.layers, name), X, Y) for name in names)
        print(
            f"  float64, m = {m}: the bits of {len(names)} schedules and of one device are "
            f"{'equal (==)' if bits else 'DIFFERENT'}"
        )
    print(
        f"  float64, m = {m}, against one full-width batch: "
        f"the largest difference is {100 * share:.2g} % of the rounding bound"
    )
    return exact and bits and share <= 1
