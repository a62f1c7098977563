"""`minipipe timeline`: a schedule as text and picture."""

from .options import (
    add_hardware, add_picture, add_replicas, add_schedule, in_replicas, schedule_from, trace_of,
)
from .output import checked_picture, print_trace, save_timeline, title_of

PURPOSE = "run a schedule without arithmetic, and draw it"
EPILOG = """examples:
  python3 -m minipipe timeline 1f1b --devices 4 --micro-batches 8 --output 1f1b.png
  python3 -m minipipe timeline --order "F0 F1 B0 B1" "F0 B0 F1 B1" --costs F=1,B=2 --latency 1
  python3 -m minipipe timeline gpipe --costs F=1/1/2/1,B=2/2/4/2,message_bytes=1e6 --bandwidth 1e6
  python3 -m minipipe timeline --devices 2 --replicas 2 --costs F=1,B=2,A=3
"""


def add_options(parser):
    add_schedule(parser)
    add_hardware(parser)
    add_replicas(parser)
    add_picture(parser, "timeline.png")


def run(options):
    path = checked_picture(options.output)
    schedule = in_replicas(schedule_from(options), options)
    trace, title = trace_of(schedule, options), title_of(schedule)
    print(title)
    print_trace(trace)
    save_timeline(trace, path, title)
