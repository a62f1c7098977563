"""Checkers for notebooks 31 and 32, where to cut a network."""

from numbers import Integral

import numpy as np

from minipipe import Costs, simulate
from minipipe.order import peak_microbatches
from minipipe.partitioning import equal_counts, loads, min_max
from minipipe.schedules import gpipe, one_f_one_b

from . import called, judged, short

SHIFTED = [10, 10, 10, 10, 10, 10, 11, 12, 12]  # of exercise 3, for three devices


def check_possible(possible):
    """Judge `possible(costs, K, x)`: can the costs be cut into K stages of neighbours, none of them above x?

    >>> check_possible(lambda costs, K, x: max(costs) <= x)
    'Each layer fits by itself, and that is needed, but several together have to fit into K stages, too.'
    """
    networks = [([3, 1, 2, 4], 2), ([1, 2, 1, 6, 3, 3], 3), ([5, 1, 1, 1], 3), ([1, 9, 1, 1], 4),
                ([2, 7, 1, 2, 8, 1], 3),
                ([4, 4, 4, 4], 4), ([2] * 9, 3)]
    cases = [(costs, K, x) for costs, K in networks for x in range(1, sum(costs) + 1)]
    answers = []
    for case in cases:
        answer, sentence = called(possible, *case)
        if sentence is not None:
            return sentence
        if not isinstance(answer, (bool, np.bool_)):
            return f"Return True or False: this is {short(repr(answer))}."
        answers.append(bool(answer))
    right = [_bottleneck(costs, K) <= x for costs, K, x in cases]
    if answers == right:
        return "Right: one pass over the layers answers, and bisection asks it about log2 of the total times."
    for wrong, sentence in POSSIBLE_MISTAKES:
        if answers == [wrong(*case) for case in cases]:
            return sentence
    costs, K, x = next(case for case, answer, truth in zip(cases, answers, right) if answer != truth)
    counts = min_max(costs, K)
    truth = "it is possible" if max(loads(costs, counts)) <= x else "it is not possible"
    return (f"With costs = {costs}, K = {K}, x = {x} {truth}: the best stages there are have loads of "
            f"{loads(costs, counts)}. Yours says the opposite.")


def _bottleneck(costs, K):
    return max(loads(costs, min_max(costs, K)))


def _filled(costs, x, fits=lambda load, x: load <= x, carry=True):
    """How many stages there are if each is filled up; `carry` says whether the layer that did not fit begins
    the next one.
    """
    stages, load = 1, 0
    for cost in costs:
        if fits(load + cost, x):
            load += cost
        else:
            stages, load = stages + 1, cost if carry else 0
    return stages


POSSIBLE_MISTAKES = [
    (lambda costs, K, x: max(costs) <= x,
     "Each layer fits by itself, and that is needed, but several together have to fit into K stages, too."),
    (lambda costs, K, x: sum(costs) <= K * x,
     "That is the equal share, total / K. It is needed, but layers cannot be halved: "
     "try to fill the stages."),
    (lambda costs, K, x: max(costs) <= x and sum(costs) <= K * x,
     "Both are needed, and both together are still not enough: layers cannot be halved or "
     "exchanged. Fill the stages."),
    (lambda costs, K, x: max(costs) < x and _filled(costs, x, fits=lambda load, x: load < x) <= K,
     "No stage *above* x: a load of exactly x is allowed, so compare with <=."),
    (lambda costs, K, x: _filled(costs, x) <= K,
     "A layer that costs more than x fits into no stage, not even into a new one."),
    (lambda costs, K, x: max(costs) <= x and _filled(costs, x, carry=False) <= K,
     "You lose a layer at each cut: the one that did not fit is the first of the next stage."),
    (lambda costs, K, x: max(costs) <= x and _filled(costs, x) <= K + 1,
     "One stage too many: K stages have K - 1 cuts between them. The first stage counts, too."),
    (lambda costs, K, x: max(costs) <= x and _filled(costs, x) < K,
     "One stage too few: exactly K stages are allowed."),
    (lambda costs, K, x: max(costs) <= x and _filled(costs, x) == K,
     "Fewer than K stages are fine, too: any of them can be cut once more, and no stage gets slower "
     "by that."),
    (lambda costs, K, x: max(loads(costs, equal_counts(len(costs), K))) <= x,
     "That asks about one cut only, the one with equal counts. Is there any cut at all?"),
    (lambda costs, K, x: _bottleneck(costs, K) > x, "The other way round: True says that it is possible."),
    (lambda costs, K, x: True, "It says True to everything."),
    (lambda costs, K, x: False, "It says False to everything."),
]


def check_makespan(makespan):
    """Judge `makespan(F, B, M)`: of GPipe with stages that take F[s] and B[s] ticks, and free links. The
    truth is counted.

    >>> check_makespan(lambda F, B, M: sum(F) + sum(B) + M * (max(F) + max(B)))
    'One micro-batch too many: the first one is in the two sums already.'
    """
    cases = [([1, 3, 2], [4, 2, 5], 6), ([2, 1], [3, 7], 4), ([4, 1, 1, 2], [1, 1, 6, 2], 9),
             ([1, 2, 3], [2, 4, 6], 5)]
    mistakes = [
        (lambda F, B, M: sum(F) + sum(B) + (M - 1) * max(f + b for f, b in zip(F, B)),
         "That is one micro-batch every max(F + B) ticks. GPipe first does all forwards, at the pace of the "
         "slowest one, then all backwards: these may have their slowest stages in different places."),
        (lambda F, B, M: sum(F) + sum(B) + M * (max(F) + max(B)),
         "One micro-batch too many: the first one is in the two sums already."),
        (lambda F, B, M: (M + len(F) - 1) * (max(F) + max(B)),
         "As if all stages were as slow as the slowest: the fill and the drain pass the other "
         "stages at their own pace."),
        (lambda F, B, M: (M + len(F) - 1) * max(f + b for f, b in zip(F, B)),
         "As if all stages were as slow as the slowest: the fill and the drain pass the other "
         "stages at their own pace."),
        (lambda F, B, M: (M + len(F) - 1) * (sum(F) + sum(B)) / len(F),
         "That is what equal stages would take, each with the mean of these. The slowest sets "
         "the pace, not the mean."),
        (lambda F, B, M: M * (max(F) + max(B)), "That is the pace without the fill and the drain."),
        (lambda F, B, M: (M - 1) * (max(F) + max(B)),
         "Add the way of the first micro-batch, through all stages and back."),
        (lambda F, B, M: sum(F) + (M - 1) * max(F), "Those are the forwards; the backwards follow."),
        (lambda F, B, M: sum(F) + sum(B),
         "That is one micro-batch alone. Each further one comes later by the slowest stages."),
        (lambda F, B, M: M * (sum(F) + sum(B)),
         "That is one device, or one micro-batch at a time: nothing runs side by side."),
    ]
    right = [simulate(gpipe(len(F), M), Costs(F=F, B=B)).makespan for F, B, M in cases]
    return judged(makespan, ("F", "B", "M"), cases, right, mistakes) or (
        "Right: sum F + (M - 1) max F + sum B + (M - 1) max B.")


def check_shifted(counts):
    """Judge `counts`: the cut of `SHIFTED` into 3 stages that is best for a solver which first subtracts the
    smallest cost.

    >>> check_shifted([3, 3, 3])
    'That is the best cut. The solver sees [0, 0, 0, 0, 0, 0, 1, 2, 2], and for it, yours has a stage of 5.'
    """
    if counts is None:
        return "Not solved yet: the answer is still None."
    if isinstance(counts, (str, bytes, dict, set)) or not hasattr(counts, "__iter__"):
        return ("Give a list with the number of layers of each stage, such as [4, 3, 2]: this is "
                f"{short(repr(counts))}.")
    counts = list(counts)
    whole = all(isinstance(count, Integral) and not isinstance(count, bool) for count in counts)
    if len(counts) != 3 or not whole or min(counts) < 1:
        return f"Give three whole numbers of at least 1, the layers of each stage: this is {short(counts)}."
    counts = list(map(int, counts))
    if sum(counts) != len(SHIFTED):
        return f"There are {len(SHIFTED)} layers: {counts} adds up to {sum(counts)}."
    seen = [cost - min(SHIFTED) for cost in SHIFTED]
    found, true, best = loads(seen, counts), loads(SHIFTED, counts), min_max(SHIFTED, 3)
    if max(found) == _bottleneck(seen, 3):
        return (f"Right: {counts}. It believes in stages of {found}; they are {true}, and "
                f"{loads(SHIFTED, best)} was possible.")
    if max(true) == max(loads(SHIFTED, best)):
        return f"That is the best cut. The solver sees {seen}, and for it, yours has a stage of {max(found)}."
    return (f"The solver sees {seen}. There, your stages are {found}, the largest has {max(found)}, and "
            f"another cut makes it {_bottleneck(seen, 3)}.")


def check_layers_allowed(layers_allowed):
    """Judge `layers_allowed(room, each, K, M, r)`: how many layers that keep `each` bytes of a micro-batch
    fit into the `room` of device r of K, with 1F1B and M micro-batches.

    >>> check_layers_allowed(lambda room, each, K, M, r: room // (each * M))
    "Those are GPipe's M micro-batches alive. 1F1B has fewer on device r."
    """
    cases = [(96, 6, 4, 8, 0), (96, 6, 4, 8, 1), (100, 7, 4, 8, 3), (50, 3, 8, 2, 1), (1000, 9, 5, 3, 4)]
    right = [room // (each * peak_microbatches(simulate(one_f_one_b(K, M)))[r])
             for room, each, K, M, r in cases]
    mistakes = [
        (lambda room, each, K, M, r: room // (each * M),
         "Those are GPipe's M micro-batches alive. 1F1B has fewer on device r."),
        (lambda room, each, K, M, r: room // (each * K),
         "That is device 0: the later a device, the fewer micro-batches are alive on it."),
        (lambda room, each, K, M, r: room // (each * min(M, K)),
         "That is device 0: the later a device, the fewer micro-batches are alive on it."),
        (lambda room, each, K, M, r: room // (each * (K - r)),
         "Right for large M. But there are never more than M micro-batches."),
        (lambda room, each, K, M, r: room // each, "As if one micro-batch were alive."),
        (lambda room, each, K, M, r: room // (each * min(M, r + 1)),
         "The other way round: device 0 has the most micro-batches alive."),
        (lambda room, each, K, M, r: room / (each * min(M, K - r)),
         "There is no part of a layer: round down."),
        (lambda room, each, K, M, r: -(-room // (each * min(M, K - r))),
         "You rounded up: the last layer would not fit."),
    ]
    return judged(layers_allowed, ("room", "each", "K", "M", "r"), cases, right, mistakes) or (
        "Right: room // (each * min(M, K - r)). The last device may have K times as many layers as the "
        "first.")
