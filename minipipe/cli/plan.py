"""`minipipe plan`: from a network and a cluster, or from measured costs, to the best way to train."""

from functools import partial

from ..cluster import Link
from ..description import describe
from ..losses import SoftmaxCrossEntropy
from ..papers import HARDWARE
from ..planning import PRECISIONS, Nodes, arrange, plan, read_profile
from ..planning.search import PLANNED_SCHEDULES, of_one_copy
from .fit import ACCELERATORS, MODELS, OPTIMIZER_CHOICES, bytes_from, input_shape_from, layers_from
from .options import N_MICRO_BATCHES, one_of
from .output import checked_path

PURPOSE = (
    "the fastest copies, shards, stages, micro-batches, schedule, recomputation and ZeRO on a cluster; "
    "or the fastest schedule for a profile of your own"
)
EPILOG = """\
A network: nothing is built. Every setting has a lower bound of its time; those that could be the fastest are
simulated with all their messages and bytes, until none is left that could be faster.

A profile: a CSV file with the columns name,forward,backward,weight backward,bytes, a line for each layer or
block; backward is the gradient of its input alone, and bytes are those that it hands on.

examples (of half a minute each): GPT-2 XL on eight computers with a slow network, where it is cut into
stages, and on one computer with eight devices, where each has a copy
  python3 -m minipipe plan --model "transformer(50257, 1600, 25, 48)" --input 1024 --batch-size 64 \\
      --device V100 --precision mixed --optimizer adam --nodes 8 --devices 1 --between "Ethernet, 10 Gbit/s"
  python3 -m minipipe plan --model "transformer(50257, 1600, 25, 48)" --input 1024 --batch-size 64 \\
      --device V100 --precision mixed --optimizer adam --nodes 1 --devices 8
  python3 -m minipipe plan --profile mine.csv --devices 4 --micro-batches 16 --output best.csv
"""
LINKS = [name for name in HARDWARE if name.startswith(("Ethernet", "InfiniBand", "NVLink", "PCIe"))]


def add_options(parser):
    parser.add_argument("--model", metavar="CALL", help=f"a network with its arguments: {', '.join(MODELS)}")
    parser.add_argument("--input", type=int, nargs="+", metavar="N", help="the shape of one sample")
    parser.add_argument(
        "--batch-size", type=int, default=128, metavar="N",
        help="samples of a mini-batch (default: %(default)s)",
    )
    parser.add_argument("--memory", metavar="SIZE", help="of a device (default: the device's own)")
    parser.add_argument("--nodes", type=int, default=1, metavar="N", help="how many (default: %(default)s)")
    parser.add_argument(
        "--devices", type=int, default=4, metavar="K",
        help="in each node, -K for short (default: %(default)s)",
    )
    parser.add_argument("--device", type=one_of(ACCELERATORS), choices=ACCELERATORS, default="A100",
                        help="its speed and its link inside a node (default: %(default)s)")
    parser.add_argument("--between", type=one_of(LINKS), default="InfiniBand HDR", metavar="LINK",
                        help="between nodes, a row of `minipipe papers hardware` (default: %(default)s)")
    parser.add_argument("--shards", type=int, nargs="+", default=[1], metavar="T",
                        help="how many devices may share the work inside each layer; above 1, it takes "
                        "longer (default: 1)")
    parser.add_argument("--precision", type=one_of(PRECISIONS), choices=PRECISIONS, default="float32",
                        help="(default: %(default)s)")
    parser.add_argument("--optimizer", type=one_of(OPTIMIZER_CHOICES), choices=OPTIMIZER_CHOICES,
                        default="sgd",
                        help="(default: %(default)s)")
    parser.add_argument("--schedules", nargs="+", default=PLANNED_SCHEDULES, metavar="NAME",
                        help=f"out of {', '.join(of_one_copy())} (default: {' '.join(PLANNED_SCHEDULES)})")
    parser.add_argument("--profile", metavar="FILE", help="measured costs, instead of a model")
    parser.add_argument("--micro-batches", type=int, default=N_MICRO_BATCHES, metavar="M",
                        help="for a profile, -M for short (default: %(default)s)")
    parser.add_argument("--latency", type=float, default=0, metavar="TIME",
                        help="of a link, for a profile, in its unit (default: %(default)s)")
    parser.add_argument("--bandwidth", type=float, metavar="BYTES",
                        help="in its unit of time, for a profile (default: no limit)")
    parser.add_argument("--output", metavar="FILE", help="the schedule as the table that PyTorch loads")


def run(options):
    """Print the plans, or the schedule for the profile."""
    if (options.model is None) == (options.profile is None):
        raise ValueError("give either --model, a network, or --profile, a file with measured costs")
    path = None if options.output is None else checked_path(options.output, ["csv"])
    order = _for_profile(options) if options.profile is not None else _for_model(options)
    if path is not None:
        order.to_csv(path)
        print(f"written: {path}")


def _for_model(options):
    layers, shape = layers_from(options.model), input_shape_from(options)
    device = ACCELERATORS[options.device]
    n_bytes = PRECISIONS[options.precision].numbers
    cluster = Nodes(
        options.nodes, options.devices, device.link, HARDWARE[options.between].link(),
        device.memory if options.memory is None else bytes_from(options.memory),
        partial(device.seconds, n_bytes=n_bytes),
    )
    print(
        f"{options.model}: {len(layers)} layers, {describe(layers, shape).parameters:,} parameters\n"
        f"{options.batch_size} samples a mini-batch, {options.nodes} x {options.devices} {options.device}, "
        f"{cluster.memory:,} bytes each, {options.optimizer}, {options.precision}\n",
        flush=True,
    )
    plans = plan(
        layers, SoftmaxCrossEntropy(), shape, options.batch_size, cluster, options.precision,
        optimizer=OPTIMIZER_CHOICES[options.optimizer], schedules=options.schedules, n_shards=options.shards,
    )
    print(f"{plans}\n\nmakespan in seconds, if only multiply-accumulates and links take time\n"
          f"the fastest: {plans.best}\nlayers of each stage: {' '.join(map(str, plans.best.partition))}")
    return plans.best.order


def _for_profile(options):
    profile = read_profile(options.profile)
    link = Link(options.latency) if options.bandwidth is None else Link(options.latency, options.bandwidth)
    best = arrange(profile, options.devices, options.micro_batches, link)
    work = sum(layer.F + layer.I + layer.W for layer in profile) * options.micro_batches / options.devices
    print(
        f"{len(profile)} layers on {options.devices} devices, {options.micro_batches} micro-batches: "
        f"{best.schedule.name}, {float(best.makespan):.6g}; work shared evenly takes {work:.6g}\n"
        f"most micro-batches alive on each device: {' '.join(map(str, best.alive))}"
    )
    for stage, names in enumerate(best.names):
        print(f"stage {stage}: {', '.join(names)}")
    return best.schedule
