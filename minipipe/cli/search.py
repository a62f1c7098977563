"""`minipipe search`: the best schedule, for a few devices and micro-batches, or a good one for many."""

from ..cluster import Link, ticks
from ..order import Costs, best_schedule, greedy_schedule, simulate
from ..order.greedy import OBJECTIVES
from .options import add_costs, add_latency, add_sizes, latency_from, number, one_of, sizes_from
from .output import checked_path, print_trace, title_of

PURPOSE = (
    "search the best schedule with one stage on each device, with a proof where there is time for it; "
    "or make a good one"
)
EPILOG = """\
The time that it takes grows fast with the devices and micro-batches; --most-nodes limits it, and --greedy
does without a proof. Only --greedy has several stages on a device, and the longest device span as objective.

examples:
  python3 -m minipipe search --devices 3 --micro-batches 4 --most-alive 3 2 1
  python3 -m minipipe search --devices 3 --micro-batches 4 --halves --costs F=1,I=1,W=1 --output best.csv
  python3 -m minipipe timeline best.csv
  python3 -m minipipe search --greedy --halves --devices 8 --micro-batches 32 --most-alive 8
  python3 -m minipipe search --greedy --halves --objective span --most-alive 8 --kept-for-W 0.4
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
    parser.add_argument("--objective", type=one_of(OBJECTIVES), choices=OBJECTIVES, default=OBJECTIVES[0],
                        help="what is to be small: the makespan, or the longest span of a device, from its "
                        "first action to its last (default: %(default)s)")
    parser.add_argument("--stages-per-device", type=int, default=1, metavar="V",
                        help="stage s is on device s mod K (default: %(default)s)")
    parser.add_argument("--in-a-v", action="store_true",
                        help="two stages on each device, the first from device 0 on, the second back to it")
    parser.add_argument("--kept-for-W", type=float, default=1, metavar="SHARE", dest="kept_for_W",
                        help="of a micro-batch's activations that a device keeps from I to W; peaks are "
                        "printed as if it kept all (default: %(default)s, all)")
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
    per_device = 2 if options.in_a_v else max(1, options.stages_per_device)
    arguments = (*sizes_from(options, per_device), costs, most_alive, options.halves)
    if options.greedy:
        found, schedule = None, _greedy(options, arguments, latency)
    else:
        _check_that_no_option_needs_greedy(options)
        found = best_schedule(*arguments, latency, options.most_nodes)
        schedule = found.schedule
    trace = simulate(schedule, costs, Link(latency))
    print(title_of(schedule))
    print_trace(trace)
    if found:
        print_proof(found, _of_all(options))
        if not options.halves:
            print("backwards split into I and W may be faster: add --halves")
    else:
        print_spans(trace, options.objective)
    if path:
        schedule.to_csv(path)
        print(f"written: {path}")


def _greedy(options, arguments, latency):
    v, placement = options.stages_per_device, None
    if options.in_a_v:
        there = range(arguments[0])
        placement = [*there, *reversed(there)]
    return greedy_schedule(
        *arguments, v, placement, latency, kept_for_W=options.kept_for_W, objective=options.objective
    )


def _check_that_no_option_needs_greedy(options):
    given = {
        "--objective span": options.objective == "span",
        "--stages-per-device": options.stages_per_device != 1,
        "--in-a-v": options.in_a_v,
        "--kept-for-W": options.kept_for_W != 1,
    }
    for name, is_given in given.items():
        if is_given:
            raise ValueError(
                f"{name} is not for the search with a proof, which has one stage on each device, keeps all "
                "until W, and counts the makespan: add --greedy"
            )


def print_spans(trace, objective):
    spans = [trace.spans_of(device) for device in range(trace.n_devices)]
    longest = max(of_device[-1].end - of_device[0].start for of_device in spans)
    busiest = max(trace.busy_ticks())
    work = f"and its actions take {ticks(busiest)} at most"
    print(f"{'longest span of a device':40}{ticks(longest)} ticks, {work}")
    if objective == "span" and longest == busiest:
        print("\nproved: no schedule has a shorter longest span, since that device never waits")
    else:
        print("\nmade by rules, or by name: whether there is a better one, only a search could say")


def _of_all(options):
    """Say what the schedules have in common that the search looks through."""
    backwards = "backwards in halves" if options.halves else "whole backwards"
    memory = ", in this memory" if options.most_alive else ""
    return f"no schedule with {backwards} and one stage a device takes fewer than", memory


def print_proof(found, of_all):
    """Print what the search has shown. of_all: the sentence about all schedules, and its end."""
    none, memory = of_all
    looked_at = f"{found.n_nodes:,} partial schedule{'s' * (found.n_nodes != 1)} looked at"
    if found.proved:
        print(f"\nproved: {none} {ticks(found.makespan)} ticks{memory} ({looked_at})")
    else:
        print(
            f"\nnot proved: {ticks(found.makespan)} ticks is the best found, and {none} "
            f"{ticks(found.bound)}{memory}; {looked_at}, --most-nodes allows more"
        )
