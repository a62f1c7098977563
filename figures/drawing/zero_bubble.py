"""Zero Bubble's tables of bubble rates: published, and by simulation and search.

Source: Qi et al. 2023, arXiv 2401.10241. The rates of 1F1B, ZB-H1 and ZB-H2 are met to
all four digits, those of its searched schedules within 0.002.
"""

from fractions import Fraction
from typing import NamedTuple

from minipipe import Costs, Link, simulate
from minipipe.order import greedy_schedule
from minipipe.schedules import build

BOUND = 0.002  # a larger difference from a published rate gets a star


class Profile(NamedTuple):
    """A row of Zero Bubble's tables 5, 8 and 9: a Transformer's times and bubbles.

    model: by its number of parameters.
    h, a, s: its features, heads and tokens.
    p, m: devices and micro-batches.
    v: stages on each device, of which the times are; two are placed in a V.
    T_F, T_B, T_W, T_comm: milliseconds of a stage's forward, input gradient and weight
        gradient for a micro-batch, and of a message.
    rates: {schedule: bubble rate}.
    """

    model: str
    h: int
    a: int
    s: int
    p: int
    m: int
    v: int
    T_F: float
    T_B: float
    T_W: float
    T_comm: float
    rates: dict

    @property
    def kept_for_W(self):
        """The share of activations that W needs: 32 s b h of s b (34 h + 5 a s)."""
        return Fraction(32 * self.h, 34 * self.h + 5 * self.a * self.s)


ZERO_BUBBLE = (
    Profile("1.5B", 2304, 24, 1024, 8, 24, 1, 18.522, 18.086, 9.337, 0.601,
            {"1F1B": 0.2431, "ZB-H1": 0.1585, "ZB-H2": 0.1083, "ZB-1p": 0.1585, "ZB-2p": 0.0433}),
    Profile("1.5B", 2304, 24, 1024, 8, 32, 1, 18.513, 18.086, 9.331, 0.626,
            {"1F1B": 0.1985, "ZB-H1": 0.1242, "ZB-H2": 0.0837, "ZB-1p": 0.1242, "ZB-2p": 0.0039}),
    Profile("6.2B", 4096, 32, 1024, 8, 24, 1, 29.718, 29.444, 19.927, 0.527,
            {"1F1B": 0.2347, "ZB-H1": 0.1323, "ZB-H2": 0.0698, "ZB-2p": 0.0029}),
    Profile("14.6B", 5120, 40, 1024, 16, 48, 1, 11.347, 11.248, 8.132, 0.377,
            {"1F1B": 0.2552, "ZB-H1": 0.1397, "ZB-H2": 0.0672, "ZB-2p": 0.0066}),
    Profile("6.2B", 4096, 32, 1024, 16, 48, 2, 14.407, 14.38, 9.676, 1.61,
            {"1F1B": 0.2668, "ZB-H1": 0.1536, "ZB-H2": 0.0823, "ZB-V": 0.0697}),
    Profile("28.3B", 6144, 48, 1024, 32, 96, 2, 9.458, 9.748, 7.288, 0.879,
            {"1F1B": 0.2676, "ZB-H1": 0.1429, "ZB-H2": 0.0629, "ZB-V": 0.0593}),
)


class Rate(NamedTuple):
    """A bubble rate (T - work) / T, with T the longest device span; `bubble("worst")`.

    profile: the row of the table, a `Profile`.
    column: of the table: a schedule with a name, or one searched in a given memory.
    published: by the paper.
    found: by simulation, of the schedule with that name or of the one found here.
    schedule: the name of the simulated one.
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


# column -> (room for how many times p micro-batches, whether there are two stages on each device, in a V)
SEARCHED = {"ZB-1p": (1, False), "ZB-2p": (2, False), "ZB-V": (1, True)}


def zero_bubble_table(profiles=ZERO_BUBBLE):
    """Return a list of `Rate`, for each of the `profiles` and each of its columns.

    Searched columns are searched by `greedy_schedule`, with the longest device span as
    the objective, in the paper's memory: a micro-batch counts 1 from F to I, and
    `Profile.kept_for_W` from I to W; ZB-1p and ZB-V have room for p, ZB-2p for 2p.
    """
    rates = []
    for profile in profiles:
        F, I, W = (profile.v * time for time in (profile.T_F, profile.T_B, profile.T_W))  # of a whole device
        costs, link = Costs(F=F, I=I, W=W), Link(latency=profile.T_comm)
        there = range(profile.p)
        for column, published in profile.rates.items():
            if column in SEARCHED:
                room, in_a_v = SEARCHED[column]
                schedule = greedy_schedule(
                    profile.p, profile.m, costs, room * profile.p, halves=True,
                    placement=[*there, *reversed(there)] if in_a_v else None, latency=profile.T_comm,
                    kept_for_W=profile.kept_for_W, objective="span",
                )
            else:
                schedule = build(column.lower(), profile.p, profile.m)
            found = simulate(schedule, costs, link).bubble("worst")
            rates.append(Rate(profile, column, published, found, schedule.name))
    return rates


def text_of_rates(rates, bound):
    """Return a line for each of `rates`: published, found here, and the difference.

    A star marks a rate above the published one by more than `bound`.

    >>> print(text_of_rates(zero_bubble_table(ZERO_BUBBLE[:1]), bound=0.002))
    model   p   m           published    here  difference
    1.5B    8  24  1F1B        0.2431  0.2431     +0.0000
    1.5B    8  24  ZB-H1       0.1585  0.1585     +0.0000
    1.5B    8  24  ZB-H2       0.1083  0.1083     +0.0000
    1.5B    8  24  ZB-1p       0.1585  0.1585     +0.0000  zb-h1
    1.5B    8  24  ZB-2p       0.0433  0.0436     +0.0003  greedy
    """
    lines = [f"{'model':6}{'p':>3}{'m':>4}{'':9}{'published':>12}{'here':>8}{'difference':>12}"]
    for rate in rates:
        row, name = rate.profile, "" if rate.schedule == rate.column.lower() else rate.schedule
        mark = "  *" if rate.difference > bound else ""
        numbers = f"{rate.published:>12.4f}{rate.found:>8.4f}{round(rate.difference, 4) + 0:>+12.4f}"
        lines.append(f"{row.model:6}{row.p:>3}{row.m:>4}  {rate.column:7}{numbers}  {name}{mark}".rstrip())
    return "\n".join(lines)


def bubble_rates():
    """Return Zero Bubble's tables 5, 8 and 9."""
    return f"""\
Zero Bubble's tables 5, 8 and 9: (T - work) / T, where T is the longest device span

{text_of_rates(zero_bubble_table(), BOUND)}
* above the published one by more than {BOUND}

ZB-1p, ZB-2p and ZB-V were searched, there and here, in the memory of p, 2p and p micro-batches; W needs the
share 32 h / (34 h + 5 a s) of it, 0.37 for 1.5B and 0.43 for the others. Behind such a row stands what was
found. The first ZB-2p cannot be below 0.0433: from the first device to the last and back it takes 264.7 ms,
and the last device can put off W to fill 214.8 of them. If a device had to keep all of a micro-batch until W,
it could put off 16 of 24, and no schedule would be below 0.1015."""
