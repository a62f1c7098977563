"""`minipipe plan`: from a network and a cluster, or from measured costs, to the best way to train."""

from functools import partial

from ..cluster import Link
from ..description import describe
from ..losses import SoftmaxCrossEntropy
from ..papers import HARDWARE
from ..planning import PRECISIONS, Nodes, arrange, plan, read_profile
from ..planning.search import PLANNED_SCHEDULES, of_one_copy
from .fit import ACCELERATORS, MODELS, OPTIMIZER_CHOICES, bytes_from, input_shape_from, layers_from
from .options import N_MICRO_BATCHES, add_most_alive, one_of
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
FOR_A_MODEL = {  # what these options of a network are if they are left out
    "--input": None, "--batch-size": 128, "--memory": None, "--nodes": 1, "--device": "A100",
    "--between": "InfiniBand HDR", "--shards": [1], "--precision": "float32", "--optimizer": "sgd",
}
FOR_A_PROFILE = {
    "--micro-batches": N_MICRO_BATCHES, "--latency": 0, "--bandwidth": float("inf"), "--most-alive": None,
}
WHY_NOT = {
    "--memory": ": a profile does not say how many bytes activations take; --most-alive N limits them",
    "--micro-batches": ": for a network, every number of them is tried",
}
LINKS = [name for name in HARDWARE if name.startswith(("Ethernet", "InfiniBand", "NVLink", "PCIe"))]


def add_options(parser):
    parser.add_argument("--model", metavar="CALL", help=f"a network with its arguments: {', '.join(MODELS)}")
    parser.add_argument("--input", type=int, nargs="+", metavar="N", help="the shape of one sample")
    parser.add_argument("--batch-size", type=int, metavar="N", help="samples of a mini-batch (default: 128)")
    parser.add_argument("--memory", metavar="SIZE", help="of a device (default: the device's own)")
    parser.add_argument("--nodes", type=int, metavar="N", help="how many (default: 1)")
    parser.add_argument(
        "--devices", type=int, default=4, metavar="K",
        help="in each node, or for a profile all, -K for short (default: %(default)s)",
    )
    parser.add_argument("--device", type=one_of(ACCELERATORS), choices=ACCELERATORS,
                        help="its speed and its link inside a node (default: A100)")
    parser.add_argument("--between", type=one_of(LINKS), metavar="LINK",
                        help="between nodes, a row of `minipipe papers hardware` (default: InfiniBand HDR)")
    parser.add_argument("--shards", type=int, nargs="+", metavar="T",
                        help="how many devices may share the work inside each layer; above 1, it takes "
                        "longer (default: 1)")
    parser.add_argument("--precision", type=one_of(PRECISIONS), choices=PRECISIONS,
                        help="(default: float32)")
    parser.add_argument("--optimizer", type=one_of(OPTIMIZER_CHOICES), choices=OPTIMIZER_CHOICES,
                        help="(default: sgd)")
    parser.add_argument("--schedules", nargs="+", metavar="NAME",
                        help=f"out of {', '.join(of_one_copy())} (default: {' '.join(PLANNED_SCHEDULES)}); "
                        "for a profile, greedy, too (default: all of them)")
    parser.add_argument("--profile", metavar="FILE", help="measured costs, instead of a model")
    parser.add_argument("--micro-batches", type=int, metavar="M",
                        help=f"for a profile, -M for short (default: {N_MICRO_BATCHES})")
    parser.add_argument("--latency", type=float, metavar="TIME",
                        help="of a link, for a profile, in its unit (default: 0)")
    parser.add_argument("--bandwidth", type=float, metavar="BYTES",
                        help="in its unit of time, for a profile (default: no limit)")
    add_most_alive(parser, ", for a profile")
    parser.add_argument("--output", metavar="FILE", help="the schedule as the table that PyTorch loads")


def run(options):
    """Print the plans, or the schedule for the profile."""
    if (options.model is None) == (options.profile is None):
        raise ValueError("give either --model, a network, or --profile, a file with measured costs")
    _settle(options)
    path = None if options.output is None else checked_path(options.output, ["csv"])
    order = _for_profile(options) if options.profile is not None else _for_model(options)
    if path is not None:
        order.to_csv(path)
        print(f"written: {path}")


def _settle(options):
    """Give the options that were left out their values; `ValueError` for one that would change nothing."""
    beside, wanted, unwanted = "--model", FOR_A_MODEL, FOR_A_PROFILE
    if options.profile is not None:
        beside, wanted, unwanted = "--profile", FOR_A_PROFILE, FOR_A_MODEL
    for option in unwanted:
        if getattr(options, option[2:].replace("-", "_")) is not None:
            raise ValueError(f"{option} has no place beside {beside}{WHY_NOT.get(option, ': leave it out')}")
    for option, value in wanted.items():
        name = option[2:].replace("-", "_")
        if getattr(options, name) is None:
            setattr(options, name, value)


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
        optimizer=OPTIMIZER_CHOICES[options.optimizer],
        schedules=PLANNED_SCHEDULES if options.schedules is None else options.schedules,
        n_shards=options.shards,
    )
    print(f"{plans}\n\nmakespan in seconds, if only multiply-accumulates and links take time\n"
          f"the fastest: {plans.best}\nlayers of each stage: {' '.join(map(str, plans.best.partition))}")
    return plans.best.order


def _for_profile(options):
    profile = read_profile(options.profile)
    link = Link(options.latency, options.bandwidth)
    best = arrange(
        profile, options.devices, options.micro_batches, link, options.schedules, options.most_alive
    )
    work = sum(layer.F + layer.I + layer.W for layer in profile) * options.micro_batches / options.devices
    print(
        f"{len(profile)} layers on {options.devices} devices, {options.micro_batches} micro-batches: "
        f"{best.schedule.name}, {float(best.makespan):.6g}; work shared evenly takes {work:.6g}\n"
        f"most micro-batches alive on each device: {' '.join(map(str, best.alive))}"
    )
    for stage, names in enumerate(best.names):
        print(f"stage {stage}: {', '.join(names)}")
    return best.schedule
