"""The command `search`: the fastest schedule for a few devices and micro-batches, or a good one for many."""

from ..cluster import Link, ticks
from ..order import Costs, best_schedule, greedy_schedule, simulate
from ..plots.saving import checked_path
from .options import DEVICES, MICROBATCHES
from .schedules import print_trace, title_of, write_text


def search(options):
    """Print the best schedule that is found, and what is proved of it; write it if asked to."""
    if options.output:
        checked_path(options.output, ["csv"])
    if options.stages_per_device != 1 and not options.greedy:
        raise ValueError(
            "--stages-per-device is not for a search with a proof, which has one stage a device: add --greedy"
        )
    K = DEVICES if options.devices is None else options.devices
    M = MICROBATCHES if options.microbatches is None else options.microbatches
    costs, most_alive = Costs.from_text(options.costs), options.most_alive
    if most_alive and len(most_alive) == 1:
        most_alive = most_alive[0]  # for each device
    given = dict(costs=costs, most_alive=most_alive, halves=options.halves, latency=options.latency)
    if options.greedy:
        found, schedule = None, greedy_schedule(K, M, v=options.stages_per_device, **given)
    else:
        found = best_schedule(K, M, most_nodes=options.most_nodes, **given)
        schedule = found.schedule
    print(title_of(schedule))
    print_trace(simulate(schedule, costs, Link(options.latency)))
    print()
    if found is None:
        print("made by rules, or by name: whether there is a better one, only a search could say")
    else:
        print_proof(found, options.halves, ", in this memory" if most_alive else "")
    if options.output:
        write_text(options.output, schedule.to_csv())


def print_proof(found, halves, memory):
    """Print what the search has shown. memory: what is said of a limit."""
    backwards = "backwards in halves" if halves else "whole backwards"
    none = f"no schedule with {backwards} and one stage a device takes fewer than"
    looked_at = f"{found.n_nodes:,} partial schedule{'s' * (found.n_nodes != 1)} looked at"
    if found.proved:
        print(f"proved: {none} {ticks(found.makespan)} ticks{memory} ({looked_at})")
    else:
        print(f"not proved: {ticks(found.makespan)} ticks is the best found, and {none} {ticks(found.bound)}"
              f"{memory}; {looked_at}, --most-nodes allows more")
    if not halves:
        print("backwards split into I and W may be faster: add --halves")
