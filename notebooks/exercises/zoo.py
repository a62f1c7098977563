"""Checkers for notebooks 23 and 24, the zoo of schedules."""

from functools import cache

from minipipe import Costs, simulate
from minipipe.order import peak_microbatches
from minipipe.schedules import build, zero_bubble_h1
from . import called, judged, short

NAMES = [
    "naive", "gpipe", "gpipe-fifo", "1f1b", "eager-1f1b", "interleaved", "looped", "zb-h1", "zb-h2", "zb-v",
    "interleaved-zb",
    "v-half", "v-min", "dualpipe-v", "dualpipe", "chimera",
]
LOG = {"K": 6, "M": 24, "T": 77.5, "peak": 4}  # of the run whose schedule is to be found, with F = I = W = 1


@cache
def measured(devices, microbatches):
    """{name: (makespan, peak)} of the schedules in `NAMES` that exist for these sizes, with F = I = W = 1 and
    free links.

    The peak is the most micro-batches alive on a device. Where it has v stages, each takes 1/v of the ticks,
    and counts 1/v.

    >>> measured(4, 8)["zb-v"]
    (25.5, 4)
    """
    found = {}
    for name in NAMES:
        try:
            schedule = build(name, devices, microbatches)
        except ValueError:  # it does not exist for these sizes
            continue
        trace = simulate(schedule)
        found[name] = trace.makespan, max(peak_microbatches(trace))
    return found


def check_zb_h1(makespan):
    """Judge `makespan(K, M, F, I, W)` of ZB-H1, for M >= K and W no longer than F and I. The truth is counted
    in runs.

    >>> check_zb_h1(lambda K, M, F, I, W: M * (F + I + W) + (K - 1) * (F + I))
    'Subtract what fills the gap: the drain has room for one W on each device but the last, (K - 1) W in all.'
    """
    cases = [(4, 8, 1, 1, 1), (3, 7, 3, 2, 1), (6, 11, 2, 3, 2), (5, 5, 4, 2, 2), (2, 6, 5, 4, 3)]
    mistakes = [
        (lambda K, M, F, I, W: 3 * M + K - 1,
         "That is right for F = I = W = 1 only: say it with F, I and W."),
        (lambda K, M, F, I, W: (M + K - 1) * (F + I + W),
         "That is 1F1B's: there the drain is made of whole backwards, here only I has to be waited for."),
        (lambda K, M, F, I, W: M * (F + I + W) + (K - 1) * (F + I),
         "Subtract what fills the gap: the drain has room for one W on each device but the "
         "last, (K - 1) W in all."),
        (lambda K, M, F, I, W: M * (F + I + W) + (K - 1) * F,
         "That is ZB-H2's, for F = I = W. ZB-H1 has fewer forwards ahead, and a device still waits."),
        (lambda K, M, F, I, W: M * (F + I + W) + (K - 1) * (F + I - 2 * W),
         "That subtracts W twice, as in the paper's bubble of ZB-H2."),
        (lambda K, M, F, I, W: M * (F + I + W) + K * (F + I - W),
         "One gap too many: there are K - 1 devices before or behind a device, not K."),
        (lambda K, M, F, I, W: (K - 1) * (F + I - W),
         "That is the idle time of one device: add its work, M (F + I + W)."),
        (lambda K, M, F, I, W: K * (K - 1) * (F + I - W),
         "That is the idle time of all devices; asked was the makespan."),
        (lambda K, M, F, I, W: M * (F + I + W),
         "That is the work of one device, the makespan without a bubble."),
    ]
    right = [simulate(zero_bubble_h1(K, M), Costs(F=F, B=I + W, I=I, W=W)).makespan
             for K, M, F, I, W in cases]
    return judged(makespan, ("K", "M", "F", "I", "W"), cases, right, mistakes) or (
        "Right: M (F + I + W) + (K - 1)(F + I - W). That is 1F1B's makespan less 2 (K - 1) W.")


def check_choose(choose):
    """Judge `choose(runs, limit)`: the fastest of the schedules whose peak is at most `limit`.

    runs: {name: (makespan, peak)}; limit: the micro-batches that a device has room for, in the peak's unit.

    >>> check_choose(lambda runs, limit: min(runs, key=runs.get))
    'That is the fastest of all: with room for 1, zb-v does not fit, it needs 4.'
    """
    cases = [(measured(K, M), limit) for K, M, limit in
             [(4, 8, 1), (4, 8, 2), (4, 8, 3.5), (4, 8, 4), (4, 8, 100), (6, 12, 4), (6, 12, 5), (2, 4, 2)]]
    answers = []
    for runs, limit in cases:
        name, sentence = called(choose, runs, limit)
        if sentence is not None:
            return sentence
        if not isinstance(name, str) or name not in runs:
            return f"Return the name of a schedule, one of the keys of runs: {short(repr(name))} is none."
        answers.append(name)
    for (runs, limit), name in zip(cases, answers):
        T, peak = runs[name]
        best = min(makespan for makespan, needed in runs.values() if needed <= limit)
        if peak > limit or T > best:
            return _wrong_choice(cases, answers, name, T, peak, limit, best)
    return "Right: the fastest of those that fit."


def _wrong_choice(cases, answers, name, T, peak, limit, best):
    """What is wrong with `answers`, of which `name` is the first wrong one."""
    chosen = [runs[answer] for (runs, _), answer in zip(cases, answers)]
    if all(run[0] == min(T for T, _ in runs.values()) for (runs, _), run in zip(cases, chosen)):
        return f"That is the fastest of all: with room for {limit:g}, {name} does not fit, it needs {peak:g}."
    if all(run[1] == min(peak for _, peak in runs.values()) for (runs, _), run in zip(cases, chosen)):
        return (f"That is the one with the least memory: with room for {limit:g}, {name} takes {T:g} ticks, "
                f"and another that fits {best:g}.")
    if peak > limit:
        return f"With room for {limit:g}, {name} does not fit: it keeps {peak:g} micro-batches alive."
    return (f"With room for {limit:g}, {name} fits and takes {T:g} ticks, but another one that "
            f"fits takes {best:g}.")


def check_which(name):
    """Judge `name`: that of the schedule with K = 6, M = 24, F = I = W = 1 that takes 77.5 ticks with a peak
    of 4.

    >>> check_which("zb-v")
    'zb-v takes 74.5 ticks with at most 6 micro-batches alive, the log says 77.5 and 4.'
    """
    if name is None:
        return "Not solved yet: the name is still None."
    if not isinstance(name, str):
        return f"Give a name, such as 'gpipe': {short(repr(name))} is none."
    runs = measured(LOG["K"], LOG["M"])
    found = name.strip().lower().replace("_", "-")
    if found not in runs:
        return f"There is no schedule {short(repr(name))}: choose one of {', '.join(runs)}."
    T, peak = runs[found]
    if (T, peak) != (LOG["T"], LOG["peak"]):
        log = f"{LOG['T']:g} and {LOG['peak']:g}"
        return f"{found} takes {T:g} ticks with at most {peak:g} micro-batches alive, the log says {log}."
    return f"Right: {found}. 1F1B takes 87 ticks and keeps 6 alive."
