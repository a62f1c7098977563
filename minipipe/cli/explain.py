"""`minipipe explain`: why the devices of a run are idle, and what its time consists of."""

from ..cluster import BUBBLES, describe_path, ticks
from .options import (
    add_hardware, add_most_alive, add_replicas, add_schedule, in_replicas, schedule_from, trace_of,
)
from .output import title_of

PURPOSE = "say why devices are idle: the cause of each idle tick, what is called a bubble, the critical path"
EPILOG = """examples:
  python3 -m minipipe explain gpipe --devices 4 --micro-batches 8
  python3 -m minipipe explain 1f1b --costs F=1/1/2/1,B=2/2/4/2 --latency 1
  python3 -m minipipe explain mine.csv --most-alive 4
  python3 -m minipipe explain --replicas 2 --costs F=1,B=2,A=5
"""


def add_options(parser):
    add_schedule(parser)
    add_hardware(parser)
    add_replicas(parser)
    add_most_alive(parser, ": a forward that waits for that has a cause of its own")


def run(options):
    schedule = in_replicas(schedule_from(options), options)
    trace = trace_of(schedule, options)
    print(f"{title_of(schedule)}: {ticks(trace.makespan)} ticks\n")
    print(trace.explain(options.most_alive))
    print("\nfour shares that are called the bubble:")
    for of, words in BUBBLES.items():
        print(f"{words:40}{float(100 * trace.bubble(of)):.2f} %")
    print(f"\nthe critical path:\n{describe_path(trace.critical_path())}")
