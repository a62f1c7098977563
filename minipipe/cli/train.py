"""`minipipe`: the main job. Train through a pipeline, prove the gradients, draw the run."""

from ..arrays import accuracy
from ..datasets import digits
from ..exact import rational
from ..losses import SoftmaxCrossEntropy
from ..models import mlp
from ..optimizers import SGD
from ..parallel import Parallel
from ..parallel.options import Cut, Memory, Split, Weights
from ..planning import temporaries
from ..planning.foresight import patterns_of
from ..schedules import names_for_stages, names_having, stages_per_device
from ..training import fit
from ..verification import equals_full_batch, same_bits, share_of_bound
from .options import SCHEDULE, add_picture, add_recompute, add_sizes, add_splits, add_training, sizes_from
from .output import checked_picture, describe_devices, print_trace, save_timeline

LAYER_SIZES = (64, 64, 64, 32, 10)


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
    devices, microbatches = sizes_from(options)
    if microbatches > options.batch_size:
        raise ValueError(
            f"--micro-batches {microbatches} exceeds --batch-size {options.batch_size}: "
            "use at most that many, or a larger batch"
        )
    (X, Y), (X_test, Y_test) = digits()
    n_stages = devices * stages_per_device(options.schedule)

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
    fit(
        pipe, X, Y, SGD(options.learning_rate), options.epochs, options.batch_size, (X_test, Y_test),
        seed=options.seed, report=lambda line: print(line, flush=True),
    )
    score = 100 * accuracy(pipe.predict(X_test), Y_test)
    print(f"\ntest accuracy {score:.2f} % of {X_test.shape[1]} digits\n")
    proved = _prove(pipe, X, Y, max(options.batch_size, microbatches), network, options)
    print(f"\nThe run that was just compared with the full batch, J = {pipe.J:.4f}:\n")
    print_trace(pipe.trace)
    peaks = (f"{n_bytes:,}" for n_bytes in pipe.trace.peak_bytes())
    print("peak bytes per device, sums as a tree".ljust(39), *peaks)
    if options.shards == 1:
        print("and up to, inside a layer's action".ljust(39), f"{_inside(pipe, options.batch_size):,}")
    verdict = "gradients verified" if proved else "gradients WRONG"
    title = f"{pipe.schedule.name}: {microbatches} micro-batches of digits, {verdict}"
    save_timeline(pipe.trace, path, title)
    return 0 if proved else 1


def _inside(pipe, batch_size):
    """The most bytes that an action takes for a moment beyond those that are counted."""
    cut = Cut([len(stage.layers) for stage in pipe.stages])
    m = -(-batch_size // pipe.n_microbatches)
    patterns = sorted(set(patterns_of(pipe.schedule).values()))
    of_stages = temporaries(mlp(LAYER_SIZES), pipe.loss, cut, LAYER_SIZES[:1], m, patterns=patterns)
    return max(max(of_stage.values()) for of_stage in of_stages)


def _prove(pipe, X, Y, m, network, options):
    """The trained network's gradients, from the pipeline and from one full-width batch, in three senses.

    network: a function of layers and the name of a schedule; it makes a network like the trained one.

    Products over several shards add in another order than one device does, so there the bits are others.
    """
    K, M = pipe.n_stages, pipe.n_microbatches
    print("Do the micro-batches' gradients add up to the full batch's? J and every parameter compared:")
    ragged = M + 3 if M > 3 else 2 * M - 1
    kind = "ragged micro-batches" if ragged % M else "micro-batches"
    print(f"  rational numbers, m = {ragged} in {M} {kind}:", end=" ", flush=True)
    exact_pipe = network([layer.copy(rational) for layer in pipe.layers])
    exact = equals_full_batch(exact_pipe, rational(X[:, :ragged]), rational(Y[:, :ragged]))
    print("equal (==); only exp and log are rounded, once each" if exact else "DIFFERENT")
    X, Y = X[:, :m], Y[:, :m]
    bits, share = True, share_of_bound(pipe, X, Y)
    if options.shards == 1:
        names = names_for_stages(K, M // options.replicas)
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
