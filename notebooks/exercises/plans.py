"""Checkers for notebook 49, a plan for your cluster."""

from . import judged


def check_bound(bound):
    """Judge `bound(F, B, M)`: ticks below which no order of whole backwards can end.

    F and B have the forward and backward of each stage, one stage on each device; M micro-batches.

    >>> check_bound(lambda F, B, M: M * max(f + b for f, b in zip(F, B)))
    'That is the work of the slowest device. Before it, a micro-batch has to get there, and then back.'
    """
    cases = [([1, 1, 1], [2, 2, 2], 8), ([1, 5, 1], [2, 9, 2], 4), ([4, 1], [8, 2], 3), ([2], [3], 5)]

    def right(F, B, M):
        return max(sum(F[:s]) + M * (F[s] + B[s]) + sum(B[:s]) for s in range(len(F)))

    mistakes = [
        (lambda F, B, M: M * max(f + b for f, b in zip(F, B)),
         "That is the work of the slowest device. Before it, a micro-batch has to get there, and then back."),
        (lambda F, B, M: M * (sum(F) + sum(B)) / len(F),
         "That is the work shared evenly: right as a bound, but each stage has a device of its own."),
        (lambda F, B, M: sum(F) + sum(B) + (M - 1) * max(f + b for f, b in zip(F, B)),
         "Too high: the stages behind the slowest one work while it does."),
        (lambda F, B, M: max(sum(F[:s]) + M * (F[s] + B[s]) for s in range(len(F))),
         "Nearly: behind a stage's last backward, the gradient still has to go back to the first."),
    ]
    return judged(bound, ("F", "B", "M"), cases, [right(*case) for case in cases], mistakes) or (
        "Right: to get there, its work, and the way back; the largest over all stages.")
