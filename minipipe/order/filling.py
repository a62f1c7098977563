"""A given order on the clock: as it is, or with each W put where its device would wait."""

from collections import deque

from .clock import Clock


def timed(request, orders, allowance=None):
    """The `Clock` after the `orders` of all devices, or None if one of them keeps more than its limit.

    orders: for each device, its actions; those of a schedule without faults, of the kinds of `request`.
    allowance: None, and the actions come as they are. Otherwise each W is taken out and put back, the oldest
        first, where its device would wait: if it fits into the gap, or if without it the device had waited
        for more than `allowance` ticks in all since its first action. A W also makes room for a forward that
        finds none. Those left come at the end.

    The order on each device is given, so it does not matter which one is looked at first: each goes on until
    something is missing. Source of the rule: Qi et al. 2023, arXiv 2401.10241, section 3.1.
    """
    clock, waiting, filled = Clock(request), {}, allowance is not None
    orders = [[action for action in order if not (filled and action.kind == "W")] for order in orders]
    heads, weights = [0] * len(orders), [deque() for _ in orders]
    ready = list(range(len(orders)))
    while ready:
        device = ready.pop()
        order = orders[device]
        for head in range(heads[device], len(order)):
            action = order[head]
            start = clock.start(action)
            if start is None:
                waiting[clock.source(action)], heads[device] = device, head
                break
            if weights[device]:
                start = _fill(clock, device, action, start, weights[device], allowance)
            if action.kind == "F" and not clock.has_room(device):
                return None
            clock.do(action, start)
            if filled and action.kind == "I":
                weights[device].append(action._replace(kind="W"))
            if action in waiting:
                ready.append(waiting.pop(action))
    for device, left in enumerate(weights):
        for action in left:
            clock.do(action, clock.free[device])
    return clock


def _fill(clock, device, action, start, weights, allowance):
    """Do the W that come before `action`, which could begin at `start`. When it can begin behind them."""
    while weights:
        gap = start - clock.free[device]
        fits = gap >= clock.request.ticks["W"][weights[0].stage]
        waits = gap > 0 and clock.idle[device] + gap > allowance
        if not (fits or waits or (action.kind == "F" and not clock.has_room(device))):
            break
        clock.do(weights.popleft(), clock.free[device])
        start = max(start, clock.free[device])
    return start
