"""A schedule for any sizes, costs and memory, by rules of thumb and by name: quick, good, without a proof."""

import math

from .by_rules import order_by_rules
from .costs import Costs
from .filling import timed
from .named import named_schedules
from .request import request_of


def greedy_schedule(
    n_devices, n_microbatches, costs=Costs(), most_alive=None, halves=False, v=1, placement=None, latency=0,
    kept_for_W=1, objective="makespan",
):
    """A good schedule for these stages, costs and memory: the best that rules make, or that has a name.

    n_devices, n_microbatches: at least 1 each.
    costs: ticks of F and B, or of F, I and W.
    most_alive: the micro-batches whose activations a device can keep, from the start of F to the end of B, or
        of W: a number, or one for each device. Of v stages on a device, each counts 1/v.
    halves: whether to split each backward into I and W.
    v: stages a device, stage s on device s mod K; or else
    placement: the device of each stage, for instance [0, 1, 1, 0] for a V.
    latency: ticks of a message between two devices.
    kept_for_W: the share of a micro-batch's activations that W needs: all that a device keeps of it from the
        end of I to the end of W. In a Transformer's block it is 32 h / (34 h + 5 a s), with h features, a
        heads and s tokens.
    objective: what is to be small: "makespan", or "span", the longest device span, from the start of a
        device's first action to the end of its last one.

    Raises `ValueError` for what makes no sense.

    Every schedule with a name that has one copy of the network, these stages and this memory is tried, so
    none of them is better. So are the orders that a few simple rules make (`by_rules`): after a forward a
    device prefers a backward, or another forward; after a backward the same or the other. A cap keeps the
    forwards of a stage from running ahead of its backwards by more than n (S - s) / S, rounded up: as 1F1B
    does on stage s of S, where n = S, and ZB-H2 with n = 2S. Several caps, and no cap, are tried under each
    rule. With halves, the W of each order are tried in other places, too (`filling`).

    What is found is called "greedy", or by the name that its order has, with "+halves" or "+whole" where the
    backwards of that were not as asked for, and "+filled" where its W are in other places. Source: Qi et al.
    2023, arXiv 2401.10241, section 3.1, has these rules for W, and a search over a few choices.

    >>> schedule = greedy_schedule(4, 8, most_alive=[4, 3, 2, 1])
    >>> print(schedule)
    device 0: 0F0 0F1 0F2 0F3 0B0 0F4 0B1 0F5 0B2 0F6 0B3 0F7 0B4 0B5 0B6 0B7
    device 1: 1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 1F5 1B3 1F6 1B4 1F7 1B5 1B6 1B7
    device 2: 2F0 2F1 2B0 2F2 2B1 2F3 2B2 2F4 2B3 2F5 2B4 2F6 2B5 2F7 2B6 2B7
    device 3: 3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4 3F5 3B5 3F6 3B6 3F7 3B7
    """
    request = request_of(
        n_devices, n_microbatches, costs, most_alive, halves, latency, v, placement, kept_for_W, objective
    )
    return greedy_answer(request.in_whole_ticks()[0])[0]


def greedy_answer(request):
    """(schedule, its cost by `request.objective`), the best of all drafts with their W in several places."""
    drafts = [
        ("greedy", order_by_rules(request, *rules, cap))
        for rules in RULES_OF[request.kinds] for cap in _caps(request)
    ]
    drafts += [(schedule.name, schedule.devices) for schedule in named_schedules(request)]
    best, cost = None, math.inf
    for allowance in _allowances(request):
        for name, orders in drafts:
            clock = timed(request, orders, allowance)
            if clock is not None and clock.cost() < cost:
                filled = allowance is not None and name != "greedy"
                best, cost = clock.schedule(f"{name}+filled" if filled else name), clock.cost()
    return best, cost


# By kinds of action, the rules: what a device prefers after a forward, and after a backward.
RULES_OF = {
    "FB": [("BF", "BF"), ("FB", "FB"), ("BF", "FB")],
    "FIW": [("IFW", "IFW"), ("FIW", "FIW"), ("IFW", "FIW")],
}


def _caps(request):
    """A list of caps: for each stage s of S, how far its forwards may be ahead, n (S - s) / S rounded up."""
    n_stages, room = request.n_stages, request.limits[request.placement[0]] // request.keeps["F"]
    most_stages = max(map(request.placement.count, request.placement))
    rooms = range(room - most_stages, room + 1)
    numbers = {max(min(n, most), 1) for n in rooms for most in (n_stages, 2 * n_stages)}
    caps = [[max(1, -(-n * (n_stages - s) // n_stages)) for s in range(n_stages)] for n in sorted(numbers)]
    return [[request.n_microbatches] * n_stages, *caps]


def _allowances(request):
    """What `timed` is told: to leave the W where they are, or how long a device may wait and not do one."""
    if "W" not in request.kinds:
        return [None]
    W = max(request.ticks["W"])
    return [None, 0, W, 4 * W, math.inf]
