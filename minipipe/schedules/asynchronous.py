"""Schedules without a flush: a stage updates its weights during later micro-batches.

Their forwards have used older weights. Each builder says which weights a stage uses
for which micro-batch: `versions[stage][i]` is the number of updates in them.
"""

from ..checks import whole_number
from ..order.costs import check_sizes
from ..order.names import SCHEDULES
from ..order.schedule import Schedule, make_schedule
from .one_stage_each import forwards_and_backwards, in_turn

PIPEDREAM = "Harlap et al. 2018, arXiv 1806.03377; Narayanan et al. 2019, SOSP"


def _without_end(K, M, F, B):
    return (M + K - 1) * (F + B)


def _alive(K, M, device):
    return min(M, K - device)


@SCHEDULES("pipedream", title="PipeDream", makespan=_without_end, alive=_alive, source=PIPEDREAM, flush=False)
def pipedream(devices: int, microbatches: int) -> Schedule:
    """1F1B without a flush: each micro-batch is a mini-batch, with an update after it.

        F0 F1 F2 F3             B0 U F4    B1 U F5    B2 U         (device 0 of 4)
                 F0 B0 U F1 B1 U F2 B2 U F3 B3 U                   (device 3)

    Device r of K warms up with K - r - 1 forwards. A forward uses the newest weights of
    its stage, a backward those of its own forward, which the stage has stashed (weight
    stashing): at most K - r versions, as many as micro-batches alive. With stages
    counted from 0, n = K and w_s(t) the weights of stage s after t updates,

        w(t + 1) = w(t) - learning_rate
                   * grad f(w_0(t - n + 1), w_1(t - n + 2), ..., w_(n-1)(t))

    where negative times mean 0. Fills once, drains once: (M + K - 1)(F + B) ticks for M
    `microbatches` on K devices.
    """
    return _with_delays("pipedream", devices, microbatches, lambda stage: devices - 1 - stage)


@SCHEDULES(
    "pipedream-vertical", title="PipeDream with vertical sync", makespan=_without_end, alive=_alive,
    source=PIPEDREAM, flush=False,
)
def pipedream_vertical(devices: int, microbatches: int) -> Schedule:
    """PipeDream with vertical sync: every stage uses the version of stage 0.

    Stage 0 of K devices works with the weights after t - K + 1 updates, and so does
    every other stage: of M `microbatches`, each uses one version on all stages, and
    every stage keeps up to K. The makespan in ticks is that of `pipedream`.
    """
    return _with_delays("pipedream-vertical", devices, microbatches, lambda stage: devices - 1)


@SCHEDULES(
    "pipedream-2bw", title="PipeDream-2BW", makespan=_without_end, alive=_alive,
    source="Narayanan et al. 2020, arXiv 2006.09503", flush=False,
)
def pipedream_2bw(devices: int, microbatches: int, per_update: int | None = None) -> Schedule:
    """PipeDream with an update after K or more micro-batches; it keeps two versions.

        w(t + 1) = w(t) - learning_rate * grad f(w(t - 1))

    All micro-batches of mini-batch t use the weights after t - 1 updates, one update
    late: the newest ones that every stage has when it begins mini-batch t. The number
    `per_update` of micro-batches, K if left out, must be at least K, and divide M; else
    `ValueError`. Makespan (M + K - 1)(F + B) ticks for M `microbatches` on K devices.
    """
    devices, microbatches, _ = check_sizes(devices, microbatches)
    per_update = devices if per_update is None else whole_number("per_update", per_update)
    if per_update < devices:
        raise ValueError(
            f"per_update={per_update} micro-batches on {devices} devices: use at least {devices}, else a "
            "mini-batch begins before the weights that it needs are there"
        )
    if microbatches % per_update:
        nearest = max(1, round(microbatches / per_update)) * per_update
        raise ValueError(
            f"microbatches={microbatches} is not a multiple of per_update={per_update}: use {nearest}"
        )
    versions = (tuple(max(0, i // per_update - 1) for i in range(microbatches)),) * devices
    return _endless("pipedream-2bw", devices, microbatches, per_update, versions)


def _with_delays(name, devices, microbatches, delay):
    """Return the schedule whose stages are `delay(stage)` updates late."""
    devices, microbatches, _ = check_sizes(devices, microbatches)
    delays = map(delay, range(devices))
    versions = tuple(tuple(max(0, i - late) for i in range(microbatches)) for late in delays)
    return _endless(name, devices, microbatches, 1, versions)


def _endless(name, devices, microbatches, per_update, versions):
    """Return 1F1B on each device, with an update after each mini-batch."""

    def order(r):
        actions = []
        for action in in_turn(*forwards_and_backwards(r, microbatches), warm_up=devices - r - 1):
            actions.append(action)
            if action.kind == "B" and (action.microbatch + 1) % per_update == 0:
                actions.append(action._replace(kind="U"))
        return actions

    return make_schedule(name, devices, microbatches, order, versions=versions)
