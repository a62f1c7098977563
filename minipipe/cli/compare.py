"""`minipipe compare`: several schedules on the same devices, as a table and on one time axis."""

from dataclasses import fields, replace

from ..planning import simulate
from ..plots import compare
from ..schedules import ASYNCHRONOUS, BUILDERS, Costs, peak_microbatches
from .options import add_hardware, add_picture, add_sizes, link_from, named, read, sizes_from
from .output import BUBBLES, checked_picture, write

PURPOSE = "run several schedules on the same devices: a table, and a picture on one time axis"
EPILOG = f"""names: {', '.join([*BUILDERS, *ASYNCHRONOUS])}

Costs are those of a whole device: where a schedule has v stages on each, a stage costs 1/v of it, and so does
what it keeps of a micro-batch. The peak is the most micro-batches that are alive on one device.

examples:
  python3 -m minipipe compare gpipe 1f1b zb-h1 --devices 4 --micro-batches 8
  python3 -m minipipe compare 1f1b eager-1f1b looped --micro-batches 32 --latency 1 --output slow_links.png
  python3 -m minipipe compare 1f1b mine.csv
"""
DEFAULT = ("gpipe", "1f1b", "zb-h1", "zb-v")


def add_options(parser):
    parser.add_argument("schedules", nargs="*", metavar="NAME",
                        help=f"of a schedule, or a file that ends in .csv (default: {' '.join(DEFAULT)})")
    add_sizes(parser)
    add_hardware(parser, stage="device")
    add_picture(parser, "compare.png")


def run(options):
    path = checked_picture(options.output)
    costs = Costs.from_text(options.costs)
    link = link_from(options, costs)
    schedules = {name: _schedule(name, options) for name in options.schedules or DEFAULT}
    traces = {
        name: simulate(schedule, _costs_of_stages(costs, schedule), link)
        for name, schedule in schedules.items()
    }
    devices, microbatches = sizes_from(options)
    print(f"{devices} devices, {microbatches} micro-batches, costs of a device {options.costs}\n")
    print_table(schedules, traces)
    write(compare(traces), path)


def print_table(schedules, traces):
    """A row for each schedule, with each of the three bubbles under its own name."""
    width = max(len(name) for name in ["schedule", *schedules]) + 2
    line = f"{{:{width}}}{{:>9}}{{:>13}}{{:>13}}{{:>14}}{{:>7}}{{:>10}}"
    print(line.format("schedule", "makespan", "idle/total", "idle/ideal", "idle in span", "peak", "messages"))
    for name, schedule in schedules.items():
        trace = traces[name]
        bubbles = (f"{100 * trace.bubble(of):.2f} %" for of in BUBBLES)
        peak = max(peak_microbatches(trace)) / _stages_on_a_device(schedule)
        print(line.format(name, f"{trace.makespan:g}", *bubbles, f"{peak:g}", len(trace.messages)))
    print(f"\nThree bubbles: {', '.join(BUBBLES.values())}. Peak: the most micro-batches alive on a device.")


def _schedule(name, options):
    if not name.endswith(".csv"):
        try:
            return named(name, options)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    schedule, sizes = read(name), sizes_from(options)
    its_sizes = len(schedule.devices), schedule.n_microbatches
    if its_sizes != sizes:
        raise ValueError(
            f"{name} has {its_sizes[0]} devices and {its_sizes[1]} micro-batches, the "
            f"others {sizes[0]} and {sizes[1]}: pass --devices {its_sizes[0]} --micro-batches {its_sizes[1]}"
        )
    return schedule


def _stages_on_a_device(schedule):
    return schedule.n_stages / len(schedule.devices)


def _costs_of_stages(costs, schedule):
    """The costs of a schedule's stages, given those of a device."""
    v = _stages_on_a_device(schedule)
    if v == 1:
        return costs
    of_a_device = {
        field.name: getattr(costs, field.name) for field in fields(costs) if field.name != "message_bytes"
    }
    for kind, cost in of_a_device.items():
        if isinstance(cost, list):
            raise ValueError(
                f"{kind} has {len(cost)} costs, one for each device, "
                f"but {schedule.name!r} has {schedule.n_stages} stages on {len(schedule.devices)} devices: "
                f"give {kind} one number, or compare schedules with one stage on a device"
            )
    return replace(costs, **{kind: cost / v for kind, cost in of_a_device.items() if cost is not None})
