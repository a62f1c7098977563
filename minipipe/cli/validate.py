"""`minipipe validate`: whether a table that PyTorch could load is a schedule that runs."""

from ..cluster import ticks
from ..order import Costs, peak_microbatches
from ..order.actions import listing
from .options import add_copies, add_hardware, add_most_alive, read, trace_of
from .output import title_of

PURPOSE = "check a schedule in a CSV file: every fault in words, or how long it runs"
EPILOG = """\
The status is 0 for a valid schedule, 1 for one with faults, and 2 where there is nothing to check, as for a
malformed cell.

examples:
  python3 -m minipipe validate mine.csv
  python3 -m minipipe validate mine.csv --micro-batches 8 --most-alive 4 --costs F=1,I=1,W=1
"""


def add_options(parser):
    parser.add_argument(
        "file", metavar="FILE.csv", help="one row per device and one cell per time step, as PyTorch writes it"
    )
    parser.add_argument(
        "--micro-batches", type=int, metavar="M",
        help="how many there should be, -M for short (default: as many as occur)",
    )
    add_most_alive(parser)
    add_copies(parser)
    add_hardware(parser)


def run(options):
    schedule = read(options.file, options.micro_batches, options.copy_of)
    print(f"{title_of(schedule)}, {len(schedule.devices)} devices")
    faults = schedule.faults(options.most_alive)
    if faults:
        print(f"{len(faults)} fault{'s' if len(faults) > 1 else ''}:\n{listing(faults)}")
        return 1
    trace = trace_of(schedule, options)
    peaks = " ".join(map(str, peak_microbatches(trace)))
    makespan = f"T = {ticks(trace.makespan)} ticks with {Costs.from_text(options.costs).to_text()}"
    print(f"valid: {makespan}; peak micro-batches per device: {peaks}")
    return 0
