"""Zero Bubble's tables of bubble rates: each published number beside that of a schedule simulated here."""

from typing import NamedTuple

from ..order import greedy_schedule, simulate
from ..schedules import build
from .formulas import costs_of
from .tables import ZERO_BUBBLE, Profile


class Rate(NamedTuple):
    """A bubble rate, `Trace.bubble("worst")`: (T - work) / T, with T the longest device span.

    profile: the row of the table, a `Profile`.
    column: of the table: a schedule with a name, or one that was searched in a given memory.
    published: by the paper.
    found: by simulation, of the schedule with that name, or of the one that is found here.
    schedule: what that one is called.
    """

    profile: Profile
    column: str
    published: float
    found: float
    schedule: str

    @property
    def difference(self):
        """By how much what is found here is above what is published."""
        return self.found - self.published


def zero_bubble_table(profiles=ZERO_BUBBLE):
    """A list of `Rate`, for each of the `profiles` and each of its columns.

    Searched columns are searched here by `greedy_schedule`, with the longest device span as the objective, in
    the paper's memory: what is kept of a micro-batch counts 1 from F to I, and `Profile.kept_for_W` from I to
    W; ZB-1p and ZB-V have room for p micro-batches, ZB-2p for 2p.
    """
    return [_rate(profile, column) for profile in profiles for column in profile.rates]


def _rate(profile, column):
    F, I, W = (profile.v * time for time in (profile.T_F, profile.T_B, profile.T_W))  # of a whole device
    costs, link = costs_of(F, I, W, profile.T_comm)
    if column in SEARCHED:
        schedule = _searched(profile, costs, *SEARCHED[column])
    else:
        schedule = build(column.lower(), profile.p, profile.m)
    found = simulate(schedule, costs, link).bubble("worst")
    return Rate(profile, column, profile.rates[column], found, schedule.name)


def _searched(profile, costs, room, in_a_v):
    there = range(profile.p)
    return greedy_schedule(
        profile.p, profile.m, costs, room * profile.p, halves=True,
        placement=[*there, *reversed(there)] if in_a_v else None, latency=profile.T_comm,
        kept_for_W=profile.kept_for_W, objective="span",
    )


# column -> (room for how many times p micro-batches, whether there are two stages on each device, in a V)
SEARCHED = {"ZB-1p": (1, False), "ZB-2p": (2, False), "ZB-V": (1, True)}
