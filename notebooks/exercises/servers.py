"""Checkers for notebook 44, parameter servers."""

from minipipe.servers import round_ticks
from . import called, judged


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


def check_may_go_on(may_go_on):
    """Judge `may_go_on(clock, slowest, bound)`, the rule of stale-synchronous workers.

    >>> check_may_go_on(lambda clock, slowest, bound: True)
    'That is asynchronous: nobody ever waits, and the bound binds nothing.'
    """
    cases = [(clock, slowest, bound)
             for slowest in (0, 2) for clock in range(slowest, 7) for bound in (0, 1, 3)]
    answers = []
    for case in cases:
        value, sentence = called(may_go_on, *case)
        if sentence is not None:
            return sentence
        if str(value) not in ("True", "False"):
            return f"The answer is True or False, and yours is {str(value)[:60]}."
        answers.append(bool(value))
    rules = [
        (lambda clock, slowest, bound: clock - slowest <= bound,
         "Right: clock - slowest <= bound. With a bound of 0, all wait for each other after each gradient."),
        (lambda clock, slowest, bound: True,
         "That is asynchronous: nobody ever waits, and the bound binds nothing."),
        (lambda clock, slowest, bound: clock - slowest < bound,
         "One too strict: a worker may be ahead by the bound itself. With a bound of 0, nobody goes on."),
        (lambda clock, slowest, bound: clock - slowest <= bound + 1,
         "One too many: ahead by the bound + 1."),
        (lambda clock, slowest, bound: clock <= bound,
         "It is not the clock that is bound, but how far it is ahead."),
        (lambda clock, slowest, bound: clock - slowest > bound,
         "Turned round: that is when it has to wait."),
    ]
    for rule, sentence in rules:
        if answers == [rule(*case) for case in cases]:
            return sentence
    for case, answer in zip(cases, answers):
        if answer != (case[0] - case[1] <= case[2]):
            return "With clock = {}, slowest = {} and bound = {}, yours says {}.".format(*case, answer)
