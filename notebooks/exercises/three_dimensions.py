"""Checkers for notebook 43, three dimensions."""

from . import judged


def check_rank(rank):
    """Judge `rank(t, d, k, T, D)`: the number of the device in the order tp-dp-pp.

    t, d, k: its place in its group of T shards, among the D copies, and among the stages.

    >>> check_rank(lambda t, d, k, T, D: k + d + t)
    'Two devices would have the same number: (t, d, k) = (0, 1, 0) and (1, 0, 0), for T = 2, D = 2.'
    """
    cases = [(1, 2, 3, 2, 3), (3, 1, 2, 4, 2), (1, 0, 0, 2, 2), (0, 1, 0, 2, 2), (0, 0, 1, 2, 2)]
    right = [t + T * (d + D * k) for t, d, k, T, D in cases]
    mistakes = [
        (lambda t, d, k, T, D: t + d + k,
         "Two devices would have the same number: (t, d, k) = (0, 1, 0) and (1, 0, 0), for T = 2, D = 2."),
        (lambda t, d, k, T, D: d + D * (t + T * k), "That is dp-tp-pp: the copies would be neighbours."),
        (lambda t, d, k, T, D: t + T * d + D * k,
         "Nearly: how many devices has one stage, with all copies of it? So far apart are two stages."),
        (lambda t, d, k, T, D: t + T * (d + k), "Nearly: two stages are T D devices apart, not T."),
    ]
    return judged(rank, ("t", "d", "k", "T", "D"), cases, right, mistakes) or (
        "Right: t + T (d + D k). Those that talk most are neighbours.")


def check_step(step):
    """Judge `step(P, M, F, B, sums)`: the ticks of a step of 1F1B with an all-reduce on each device.

    P stages, M micro-batches a copy; `sums[r]` is how long the all-reduce of device r takes.

    >>> check_step(lambda P, M, F, B, sums: (M + P - 1) * (F + B) + max(sums))
    'You let all begin at the end. Device r has its last backward r B ticks before device 0 has.'
    """
    cases = [(4, 8, 1, 2, [3, 3, 3, 3]), (4, 8, 1, 2, [0, 3, 6, 9]), (4, 8, 1, 2, [0, 2, 4, 6]),
             (2, 3, 1, 2, [5, 1]), (3, 4, 2, 3, [0, 0, 8]), (1, 4, 1, 2, [7])]

    def right(P, M, F, B, sums):
        return (M + P - 1) * (F + B) + max(0, *(ticks - r * B for r, ticks in enumerate([*sums, 0])))

    mistakes = [
        (lambda P, M, F, B, sums: (M + P - 1) * (F + B) + max(sums),
         "You let all begin at the end. Device r has its last backward r B ticks before device 0 has."),
        (lambda P, M, F, B, sums: (M + P - 1) * (F + B) + sums[0],
         "That is device 0's. A later one has longer before the end, but its sum may take longer still."),
        (lambda P, M, F, B, sums: (M + P - 1) * (F + B) + sum(sums),
         "They do not wait for each other: each device has other copies to talk to."),
        (lambda P, M, F, B, sums: M * (F + B) + max(0, *(s - r * B for r, s in enumerate([*sums, 0]))),
         "You have forgotten the bubble: without any all-reduce it is (M + P - 1)(F + B)."),
    ]
    return judged(step, ("P", "M", "F", "B", "sums"), cases, [right(*case) for case in cases], mistakes) or (
        "Right: (M + P - 1)(F + B) + the largest of sums[r] - r B, if that is above 0.")
