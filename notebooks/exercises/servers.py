"""Checkers for notebook 44, parameter servers."""

from minipipe.servers import round_ticks
from . import judged


def check_first_round(first_round):
    """Judge `first_round(N, t, c)`: the ticks of a first synchronous round of N equal workers.

    The truth is the package's closed form, which tests hold against counted ticks.

    >>> check_first_round(lambda N, t, c: t + N * c)
    'That is the way in. The new weights go out through the port one after the other, too.'
    """
    cases = [(4, 10, 3), (1, 7, 2), (3, 0, 5), (8, 100, 1)]
    mistakes = [
        (lambda N, t, c: t + N * c,
         "That is the way in. The new weights go out through the port one after the other, too."),
        (lambda N, t, c: t + 2 * c,
         "That is one worker alone: the port lets one message pass at a time, so N of them take N c."),
        (lambda N, t, c: N * t + 2 * N * c,
         "The gradients are computed at the same time, on N devices: t counts once."),
        (lambda N, t, c: 2 * N * c, "The gradients take time, too: t is missing."),
        (lambda N, t, c: t + (N + 1) * c,
         "That is a round behind another one, where the weights still go out while gradients come in. In the "
         "first round all begin at once."),
    ]
    right = [int(round_ticks([t] * N, c, 1)) for N, t, c in cases]
    return judged(first_round, "Ntc", cases, right, mistakes) or (
        "Right: t + 2 N c, N messages in and N out. It grows with the workers, unlike a ring's."
    )
