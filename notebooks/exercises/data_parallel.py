"""Checkers for notebook 42, data-parallel training."""

from . import judged


def check_exposed(exposed):
    """Judge `exposed(L, b, c)`: the ticks by which a step is longer than its work.

    L equal layers, b ticks of backward each, and c for the all-reduce of each layer's gradients.

    >>> check_exposed(lambda L, b, c: L * c)
    'That is the exchange without any overlap, as if all of it came at the end.'
    """
    cases = [(4, 2, 3), (4, 2, 1), (4, 2, 2), (1, 5, 3), (6, 1, 4)]
    mistakes = [
        (lambda L, b, c: L * c, "That is the exchange without any overlap, as if all of it came at the end."),
        (lambda L, b, c: c, "That holds while c is at most b. Otherwise the exchanges queue up."),
        (lambda L, b, c: L * c - (L - 1) * b,
         "That holds if c is at least b. Otherwise the lane is free at the end: never below c."),
        (lambda L, b, c: max(c, L * c - L * b),
         "Nearly: while the last layer works nothing is ready yet, so only L - 1 backwards hide anything."),
        (lambda L, b, c: max(0, L * c - (L - 1) * b),
         "The first layer's gradients come last, and nothing is left to hide their exchange: at least c."),
    ]
    right = [max(c, L * c - (L - 1) * b) for L, b, c in cases]
    return judged(exposed, ("L", "b", "c"), cases, right, mistakes) or (
        "Right: max(c, L c - (L - 1) b). The one that is always seen is the first layer's.")


def check_end(end):
    """Judge `end(ready, c)`: when the last of several exchanges is over, which take one lane in turn.

    >>> check_end(lambda ready, c: max(ready) + sum(c))
    'You let all exchanges wait for the last gradient. Each begins when its own is there.'
    """
    cases = [([2, 4, 6, 8], [3, 3, 3, 3]), ([2, 4, 6, 8], [1, 1, 1, 1]), ([4, 8], [5, 5]), ([1, 9], [5, 2])]

    def right(ready, c):
        return max(start + sum(c[k:]) for k, start in enumerate(ready))

    mistakes = [
        (lambda ready, c: max(ready) + sum(c),
         "You let all exchanges wait for the last gradient. Each begins when its own is there."),
        (lambda ready, c: max(start + own for start, own in zip(ready, c)),
         "You let the exchanges run at the same time. They take one lane, one after the other."),
        (lambda ready, c: ready[0] + sum(c), "Nearly: the lane can also be free and wait for a gradient."),
        (lambda ready, c: sum(c), "The first exchange cannot begin before its gradient is ready."),
    ]
    return judged(end, ("ready", "c"), cases, [right(*case) for case in cases], mistakes) or (
        "Right: each begins at the later of two ticks: its gradient is ready, and the lane is free.")
