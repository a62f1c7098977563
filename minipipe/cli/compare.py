"""`minipipe compare`: several schedules on the same devices, as a table and on one time axis."""

from ..comparison import NOTES, table_of
from ..order import Costs
from ..plots import compare
from ..schedules import SCHEDULES, name_of
from .options import (
    add_depth, add_hardware, add_picture, add_replicas, add_sizes, check_depth, depth_of, in_replicas,
    read, schedule_named, sizes_from, trace_of,
)
from .output import checked_picture, describe_devices, save_figure

PURPOSE = "run several schedules on the same devices: a table, and a picture on one time axis"
EPILOG = f"""names: {', '.join(SCHEDULES)}

Costs are those of a device's share of the network: where a schedule has v stages on each, a stage costs 1/v
of it, and so does what it keeps of a micro-batch.

examples:
  python3 -m minipipe compare gpipe 1f1b zb-h1 --devices 4 --micro-batches 8
  python3 -m minipipe compare 1f1b eager-1f1b looped --micro-batches 32 --latency 1 --output slow_links.png
  python3 -m minipipe compare 1f1b mine.csv
  python3 -m minipipe compare 1f1b interleaved -K 8 -M 64 --stages-per-device 4
  python3 -m minipipe compare all -K 4 -M 16 --latency 0.5
  python3 -m minipipe compare gpipe 1f1b zb-h1 --replicas 2 --costs F=1,B=2,A=6
"""
DEFAULT = ("gpipe", "1f1b", "zb-h1", "zb-v")


def add_options(parser):
    parser.add_argument("schedules", nargs="*", metavar="NAME",
                        help="of a schedule, or a file that ends in .csv; or all, which these sizes allow "
                        f"(default: {' '.join(DEFAULT)})")
    add_sizes(parser)
    add_depth(parser)
    add_hardware(parser)
    add_replicas(parser)
    add_picture(parser, "compare.png")


def run(options):
    path = checked_picture(options.output)
    words = [word for words in options.schedules or DEFAULT for word in words.split(",") if word]
    every = "all" in map(str.lower, words)
    words = [*SCHEDULES, *(word for word in words if word.endswith(".csv"))] if every else words
    names = [name if name.endswith(".csv") else name_of(name) for name in words]
    devices, microbatches = _sizes(names, options)
    schedules, refused = {}, []
    for name in names:
        try:
            schedules[name] = _schedule(name, options, (devices, microbatches))
        except ValueError as error:
            if not every:
                raise
            refused.append(error)
    traces = {name: _run_of(schedule, options) for name, schedule in schedules.items()}
    print(
        f"{describe_devices(devices, options.replicas)}, {microbatches} micro-batches, "
        f"costs of a device {Costs.from_text(options.costs).to_text()}\n"
    )
    print(f"{table_of(traces)}\n\n{NOTES}")
    for error in refused:
        print(f"left out: {error}")
    save_figure(compare(traces), path)


def _sizes(names, options):
    """Return (number of devices, number of micro-batches) of all of them."""
    per_device = {name: depth_of(name, options) for name in names if not name.endswith(".csv")}
    check_depth([*per_device], options)
    if options.stages is not None and len({*per_device.values()}) > 1:
        examples = {n: name for name, n in reversed(per_device.items())}  # the first name for each number
        words = ", ".join(f"{n} a device in {name}" for n, name in sorted(examples.items()))
        raise ValueError(f"--stages {options.stages} need unequal devices, {words}: use --devices")
    return sizes_from(options, max(per_device.values(), default=1))


def _schedule(name, options, sizes):
    if not name.endswith(".csv"):
        try:
            return schedule_named(name, options)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    schedule = read(name)
    its_sizes = len(schedule.devices), schedule.n_microbatches * options.replicas
    if its_sizes != sizes:
        raise ValueError(
            f"{name} has {its_sizes[0]} devices and {its_sizes[1]} micro-batches, the "
            f"others {sizes[0]} and {sizes[1]}: pass --devices {its_sizes[0]} --micro-batches {its_sizes[1]}"
        )
    return schedule


def _run_of(schedule, options):
    try:
        return trace_of(in_replicas(schedule, options), options)
    except ValueError as error:
        raise ValueError(f"{schedule.name}: {error}") from None
