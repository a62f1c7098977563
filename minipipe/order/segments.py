"""Recomputation in smaller pieces: a device's stage cut into several."""

from dataclasses import fields, replace
from itertools import accumulate, chain, zip_longest

from ..checks import whole_numbers
from .actions import Action, Overlap
from .costs import Costs, checked_costs
from .limits import check_number_of_actions, one_for_each
from .schedule import checked_schedule
from .shares import share


def in_segments(schedule, n):
    """`schedule` with each stage cut into `n` consecutive ones on its device, which do its work in a row.

        device 0: F0 ... B0    becomes, for n = 2,    0F0 1F0 ... 1B0 0B0

    With recomputation, a device then keeps the input of each segment, and has the caches of one segment at a
    time: for a stage of L equal layers about n + L / n of a layer's size for a micro-batch, least for n =
    sqrt(L), instead of L. Nothing else changes, but the stages are more. Each segment has its own all-reduce
    and update.

    n: a number, or a list with one for each stage.

    Source: Chen et al. 2016, arXiv 1604.06174, section 4.

    >>> from .changes import with_recompute
    >>> from ..schedules.one_stage_each import gpipe
    >>> print(with_recompute(in_segments(gpipe(1, 1), 2)))
    device 0: 0F0 1F0 1R0 1B0 0R0 0B0
    """
    n = _for_each_stage(n, checked_schedule(schedule).n_stages)
    check_number_of_actions(max(n) * sum(map(len, schedule.devices)))
    segments = [range(end - length, end) for end, length in zip(accumulate(n), n)]
    devices = tuple(
        tuple(segment for action in order for segment in _segments(action, segments))
        for order in schedule.devices
    )
    versions = tuple(row for row, length in zip(schedule.versions, n) for _ in range(length))
    name = f"{schedule.name} in {n[0] if len(set(n)) == 1 else n} segments"
    return replace(schedule, devices=devices, n_stages=sum(n), name=name, versions=versions)


def costs_in_segments(costs, schedule, n):
    """The `Costs` of the stages that `in_segments` makes of `schedule`'s: equal shares of each whole stage's.

    The last segment of a stage sends the message of the whole, the others send to their own device.

    >>> from ..schedules.one_stage_each import gpipe
    >>> costs = costs_in_segments(Costs(F=[2, 3], B=4, message_bytes=8), gpipe(2, 1), [1, 2])
    >>> costs.F, costs.B, costs.message_bytes
    ([2, Fraction(3, 2), Fraction(3, 2)], [4, 2, 2], [8, 0, 8])
    """
    n = _for_each_stage(n, checked_schedule(schedule).n_stages)
    check_number_of_actions(sum(n))
    checked_costs(costs).table(schedule.sharing)
    sent = costs.bytes_sent(schedule.n_stages)
    segments = {"message_bytes": [[0] * (length - 1) + [size] for size, length in zip(sent, n)]}
    for name in (field.name for field in fields(costs)):
        cost = getattr(costs, name)
        if cost is not None and name not in (*segments, "unit"):
            parts = n if hasattr(cost, "__len__") else [a * b for a, b in zip(n, schedule.sharing)]
            whole = one_for_each(name, cost, "costs", schedule.n_stages, "stage")
            segments[name] = [[share(*pair)] * length for *pair, length in zip(whole, parts, n)]
    lists = {name: list(chain(*of_stages)) for name, of_stages in segments.items()}
    return Costs(**lists, unit=costs.unit)


def _for_each_stage(n, n_stages):
    lengths = one_for_each("n", n, "numbers of segments", n_stages, "stage")
    return list(whole_numbers("n", lengths, 1))


def _segments(action, segments):
    """What an action becomes; where forward and backward overlap, their first segments do, and so on."""
    if action.kind == "F&B":
        pairs = zip_longest(*(_segments(part, segments) for part in action.parts))
        return [Overlap(*pair) if None not in pair else pair[0] or pair[1] for pair in pairs]
    kind, stage, microbatch = action
    # A backward comes down, and so does what belongs to it; a W waits for no other segment, and goes up as F.
    order = segments[stage] if kind in "FW" else reversed(segments[stage])
    return [Action(kind, segment, microbatch) for segment in order]
