"""The options that several commands share, and functions that make a schedule, a link or a run of them."""

import argparse
from fractions import Fraction
from inspect import signature
from pathlib import Path

from ..checks import spelled
from ..cluster import Link
from ..order import RECOMPUTE, Costs, Schedule, in_copies, simulate, with_all_reduce, with_recompute
from ..order.costs import as_float
from ..schedules import SCHEDULES, build, is_name, name_of, stages_per_device
from .parsing import nearest

DEEP = [name for name, builder in SCHEDULES.items() if "v" in signature(builder).parameters]
SCHEDULE, N_DEVICES, N_MICRO_BATCHES = "1f1b", 4, 8


def add_sizes(parser):
    """Add K and M, each with one spelling in the help; `Parser` reads the others."""
    parser.add_argument(
        "--devices", type=int, metavar="K",
        help=f"how many devices, -K for short; --stages counts stages instead (default: {N_DEVICES})",
    )
    parser.add_argument("--stages", type=int, help=argparse.SUPPRESS)
    parser.add_argument(
        "--micro-batches", type=int, metavar="M",
        help=f"the parts of a mini-batch, -M for short (default: {N_MICRO_BATCHES})",
    )


def add_depth(parser):
    parser.add_argument(
        "--stages-per-device", type=int, metavar="V",
        help=f"how many stages each device has in {', '.join(DEEP)} (default: 2)",
    )


def add_schedule_name(parser, known, more=""):
    """Add the name of a schedule, with --schedule in front or without. known: the names that there are."""
    parser.add_argument(
        "name", nargs="?", metavar="NAME",
        help=f"of the schedule: {', '.join(known)}{more} (default: {SCHEDULE})",
    )
    parser.add_argument("--schedule", metavar="NAME", help=argparse.SUPPRESS)


def schedule_name_from(options):
    """Return what `add_schedule_name` has read, or None."""
    if options.name is not None and options.schedule is not None:
        raise ValueError(f"two schedules, {options.name} and {options.schedule}: leave one of them out")
    if options.name is not None and "=" in options.name:
        raise ValueError(f"{options.name!r} is not a schedule: costs are one word, --costs F=1,B=2")
    if options.name is not None and options.name.isdigit():
        raise ValueError(f"{options.name!r} is not a schedule: write -K {options.name} for as many devices")
    return options.schedule if options.name is None else options.name


def add_schedule(parser):
    """Add which schedule is meant: a name with its sizes, or the user's own order."""
    add_schedule_name(parser, SCHEDULES, "; or a table of your own, a file that ends in .csv")
    parser.add_argument(
        "--order",
        nargs="+",
        metavar="ACTIONS",
        help='your own schedule: one "F0 F1 B0 B1" per device, '
        "with R0 for a recomputation, 2F0 for stage 2, 0F1&3B0 for two at once",
    )
    parser.add_argument(
        "--csv", metavar="FILE", help="your own schedule: a table as PyTorch writes it, one row per device"
    )
    add_sizes(parser)
    add_depth(parser)
    add_copies(parser)
    add_recompute(parser, "put a recomputation before each backward")


def add_splits(parser, replicas, shards):
    """Add two more ways to split a network. replicas, shards: what these are, for the help."""
    parser.add_argument(
        "--replicas", type=int, default=1, metavar="D", help=f"{replicas} (default: %(default)s)"
    )
    parser.add_argument("--shards", type=int, default=1, metavar="T", help=f"{shards} (default: %(default)s)")


def add_replicas(parser):
    parser.add_argument(
        "--replicas", type=int, default=1, metavar="D",
        help="copies of the network, each with a D-th of the micro-batches on K devices of its own; the sum "
        "of a stage's gradients takes --costs ...,A=3 (default: %(default)s)",
    )


def add_recompute(parser, purpose):
    parser.add_argument(
        "--recompute",
        nargs="?",
        const="always",
        default="never",
        type=one_of(RECOMPUTE),
        metavar="MODE",
        help=f"{purpose}: always, or except_last, for all micro-batches but the last",
    )


def add_copies(parser):
    parser.add_argument(
        "--copy-of",
        type=int,
        nargs="+",
        default=[],
        metavar="COPY",
        help="of your own schedule with copies of the network: "
        "for each micro-batch, the copy that it passes through, 0, 1, ...",
    )


def add_costs(parser):
    parser.add_argument(
        "--costs",
        default="F=1,B=2",
        metavar="KIND=TICKS,...",
        help="ticks of F, B, I, W, R, FB, A and U for each device's share of the network, divided among its "
        "stages, and message_bytes; stage by stage with / between: F=1/1/2/1,B=2 (default: %(default)s)",
    )


def add_most_alive(parser, more=""):
    parser.add_argument(
        "--most-alive",
        type=number,
        metavar="N",
        help=f"micro-batches that a device has memory for{more} (default: no limit)",
    )


def one_of(known):
    """Return a function that reads one of these names in any spelling, for argparse."""
    def read(text):
        found = spelled(text, known)
        if found is None:
            near = nearest(text, known)
            hint = f"did you mean {near!r}? " if near else ""
            raise argparse.ArgumentTypeError(f"there is no {text!r}: {hint}there are {', '.join(known)}")
        return found

    return read


def number(text):
    """Return a whole number, such as 4, a decimal one, 5.5, or a fraction, 17/3, exactly."""
    try:
        exact = Fraction(text)
    except (ValueError, ZeroDivisionError):
        words = "is not a number; several are written with spaces between"
        raise argparse.ArgumentTypeError(f"{text!r} {words}") from None
    return int(exact) if exact.denominator == 1 else as_float(exact)


def add_latency(parser):
    parser.add_argument(
        "--latency",
        type=float,
        default=0,
        metavar="TICKS",
        help="that a message takes (default: %(default)s)",
    )


def add_hardware(parser):
    """Add what decides how long a run takes."""
    add_costs(parser)
    add_latency(parser)
    parser.add_argument("--bandwidth", type=float, metavar="BYTES",
                        help="per tick, of each link, for --costs ...,message_bytes=1e6 (default: no limit)")
    parser.add_argument(
        "--blocking", action="store_true", help="a sender waits until its message has arrived"
    )


def add_training(parser, epochs, batch_size, learning_rate):
    """Add how the digits are trained on; the arguments are defaults."""
    parser.add_argument(
        "--epochs", type=int, default=epochs, help="passes over the data (default: %(default)s)"
    )
    parser.add_argument(
        "--batch-size", type=int, default=batch_size, help="samples in a mini-batch (default: %(default)s)"
    )
    parser.add_argument(
        "--learning-rate", type=float, default=learning_rate, help="of plain SGD (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of weights and shuffling (default: %(default)s)")


def add_picture(parser, default, of=""):
    parser.add_argument(
        "--output", default=default, metavar="FILE",
        help=f"the picture {of and of + ' '}to write (default: %(default)s)",
    )


def schedule_from(options):
    """Return the schedule that the options of `add_schedule` mean; it may have faults."""
    name, table = schedule_name_from(options), options.csv
    if name is not None and name.endswith(".csv"):
        name, table = None, name
    given = {"a name": name, "--order": options.order, "--csv": table}
    given = [words for words, value in given.items() if value is not None]
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} each say what the schedule is: leave one of them out")
    own = given[0] if given and name is None else None
    sizes = {
        "--devices": options.devices, "--stages": options.stages,
        "--stages-per-device": options.stages_per_device,
    }
    for words, number in sizes.items():
        if own and number is not None:
            raise ValueError(
                f"{words} {number} has no place beside {own}, which has one line for each device: "
                "leave it out"
            )
    if options.copy_of and not own:
        raise ValueError(
            "--copy-of is for a schedule of your own: those with a name know their copies; leave it out"
        )
    if options.order:
        schedule = Schedule.from_text(options.order, options.micro_batches, copy_of=options.copy_of)
    elif own:
        schedule = read(table, options.micro_batches, options.copy_of)
    else:
        name = SCHEDULE if name is None else name
        check_depth([name_of(name)], options)
        schedule = schedule_named(name, options)
    return with_recompute(schedule, options.recompute)


def schedule_named(name, options):
    """Return the schedule called `name` in the sizes of `add_sizes`, for one of the replicas."""
    name = name_of(name)
    devices, microbatches = sizes_from(options, depth_of(name, options))
    if options.replicas < 1 or microbatches % options.replicas:
        raise ValueError(
            f"--replicas {options.replicas} cannot share {microbatches} micro-batches evenly: use a divisor "
            f"of {microbatches}, or other --micro-batches"
        )
    microbatches //= options.replicas
    if name in DEEP and options.stages_per_device is not None:
        return SCHEDULES[name](devices, microbatches, options.stages_per_device)
    return build(name, devices, microbatches)


def check_depth(names, options):
    """Raise `ValueError` for --stages-per-device where it would change none of the schedules."""
    V = options.stages_per_device
    if V is not None and V < 1:
        raise ValueError(f"--stages-per-device {V} must be at least 1")
    if V is not None and not {*names} & {*DEEP}:
        fixed = ", ".join(f"{stages_per_device(name)} in {name}" for name in names)
        raise ValueError(
            f"--stages-per-device {V}, but a device always has as many stages as the schedule says, {fixed}: "
            f"leave it out, or use {', '.join(DEEP)}"
        )


def depth_of(name, options):
    """Return how many stages each device has in the schedule called `name`, a key of `SCHEDULES`."""
    V = options.stages_per_device
    return V if name in DEEP and V is not None else stages_per_device(name)


def in_replicas(schedule, options):
    """Return --replicas copies of a schedule, with all-reduces among them."""
    if options.replicas == 1:
        return schedule
    return with_all_reduce(in_copies(schedule, options.replicas))


def sizes_from(options, per_device=1):
    """Return (number of devices, number of micro-batches). per_device: how many stages a device has."""
    microbatches = N_MICRO_BATCHES if options.micro_batches is None else options.micro_batches
    if options.stages is None:
        return N_DEVICES if options.devices is None else options.devices, microbatches
    if options.devices is not None:
        both = f"--devices {options.devices} and --stages {options.stages}"
        V, rest = divmod(options.stages, options.devices) if options.devices else (0, 0)
        if V > 1 and V != per_device and not rest and hasattr(options, "stages_per_device"):
            raise ValueError(f"{both}: leave out --stages, and add --stages-per-device {V}")
        raise ValueError(f"{both} say the same: leave one of them out")
    if options.stages % per_device:
        raise ValueError(f"--stages {options.stages}: each device has {per_device}, so use a multiple")
    return options.stages // per_device, microbatches


def read(path, n_microbatches=None, copy_of=()):
    """Return the schedule in a table as PyTorch writes it; `ValueError` for a file that cannot be read."""
    path = Path(path)
    if is_name(str(path)) and not path.exists():
        raise ValueError(f"{path} is a schedule with a name, not a file: explain {path} shows its run")
    if path.is_dir():
        raise ValueError(f"cannot read {path}: it is a folder, name a file in it")
    if not path.exists():
        raise ValueError(
            f"cannot read {path}: there is no such file; export --format csv --output {path} writes one"
        )
    return Schedule.from_csv(path, n_microbatches, path.stem, copy_of)


def latency_from(options):
    return _whole(options.latency)


def link_from(options, costs):
    """Return the link between any two devices; `ValueError` for a bandwidth where messages have no size."""
    if options.bandwidth is None:
        return Link(latency_from(options), blocking=options.blocking)
    if not costs.message_bytes:
        raise ValueError(
            f"--bandwidth {options.bandwidth:g} slows nothing down while messages have 0 bytes: "
            f"add message_bytes to --costs, such as {options.costs},message_bytes=1000"
        )
    return Link(latency_from(options), _whole(options.bandwidth), options.blocking)


def trace_of(schedule, options):
    """Return the schedule's run with the costs and the link of `add_hardware`."""
    costs = Costs.from_text(options.costs)
    return simulate(schedule, costs, link_from(options, costs))


def _whole(number):
    """Return a number without a fraction as an `int`, so that ticks stay whole numbers."""
    return int(number) if number % 1 == 0 else number
