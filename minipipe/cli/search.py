"""`minipipe search`: the best schedule, for a few devices and micro-batches, or a good one for many."""

from ..cluster import Link, ticks
from ..planning import simulate
from ..schedules import Costs, best_schedule, greedy_schedule
from .options import add_costs, add_latency, add_sizes, latency_from, number, sizes_from
from .output import checked_path, print_trace, title_of

PURPOSE = (
    "search the best schedule with one stage on each device, with a proof where there is time for it; "
    "or make a good one"
)
EPILOG = """\
The time that it takes grows fast with the devices and micro-batches; --most-nodes limits it, and --greedy
does without a search.

examples:
  python3 -m minipipe search --devices 3 --micro-batches 4 --most-alive 3 2 1
  python3 -m minipipe search --devices 3 --micro-batches 4 --halves --costs F=1,I=1,W=1 --output best.csv
  python3 -m minipipe timeline --csv best.csv
  python3 -m minipipe search --greedy --halves --devices 8 --micro-batches 32 --most-alive 8
"""


def add_options(parser):
    add_sizes(parser)
    add_costs(parser)
    add_latency(parser)
    parser.add_argument(
        "--most-alive",
        type=number,
        nargs="+",
        metavar="N",
        help="micro-batches that a device has memory for: "
        "one number, or one for each device (default: no limit)",
    )
    parser.add_argument("--halves", action="store_true", help="split each backward into I and W")
    parser.add_argument("--greedy", action="store_true",
                        help="the best that rules of thumb make, or that has a name: no search, no proof")
    parser.add_argument("--most-nodes", type=int, default=20_000, metavar="N",
                        help="give up the proof after so many partial schedules (default: %(default)s)")
    parser.add_argument(
        "--output", metavar="FILE.csv", help="write the schedule as a table that PyTorch loads"
    )


def run(options):
    path = options.output and checked_path(options.output, ["csv"])
    costs, latency = Costs.from_text(options.costs), latency_from(options)
    most_alive = options.most_alive
    if most_alive and len(most_alive) == 1:
        most_alive = most_alive[0]  # for each device
    if options.greedy:
        schedule = greedy_schedule(*sizes_from(options), costs, most_alive, options.halves, latency=latency)
    else:
        found = best_schedule(
            *sizes_from(options), costs, most_alive, options.halves, latency, options.most_nodes
        )
        schedule = found.schedule
    print(title_of(schedule))
    print_trace(simulate(schedule, costs, Link(latency)))
    if options.greedy:
        print("\nmade by rules, or by name: whether there is a better one, only a search could say")
    else:
        print_proof(found)
    if path:
        schedule.to_csv(path)
        print(f"written: {path}")


def print_proof(found):
    looked_at = f"{found.n_nodes:,} partial schedule{'s' * (found.n_nodes != 1)} looked at"
    if found.proved:
        print(f"\nproved: no schedule takes fewer than {ticks(found.makespan)} ticks ({looked_at})")
    else:
        print(
            f"\nnot proved: {ticks(found.makespan)} ticks is the best found, and none takes fewer than "
            f"{ticks(found.bound)}; {looked_at}, --most-nodes allows more"
        )
