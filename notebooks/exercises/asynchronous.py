"""Checkers for notebooks 29 and 30, asynchronous pipelines."""

from math import pi, sin

from minipipe.order import peak_versions
from minipipe.schedules import build, pipedream
from . import called, judged, numbers, same


def check_version_used(version_used):
    """Judge `version_used(K, s, i)`: the updates in the weights with which stage s of K works on micro-batch
    i in PipeDream.

    The truth is the table of the schedule itself.

    >>> check_version_used(lambda K, s, i: i - (K - 1 - s))
    'Right once the pipeline is full. The first micro-batches meet the first weights: a version
    below 0 does not exist.'
    """
    cases = [(4, 2, 7), (4, 0, 7), (4, 3, 7), (6, 1, 9), (5, 0, 2), (1, 0, 3)]
    mistakes = [
        (lambda K, s, i: i - (K - 1 - s),
         "Right once the pipeline is full. The first micro-batches meet the first weights: a version "
         "below 0 does not exist."),
        (lambda K, s, i: max(0, i - (K - 1)),
         "That is vertical sync, which gives every stage the version of stage 0."),
        (lambda K, s, i: i,
         "Those are all updates before micro-batch i's own. Only the last stage has made so many by then."),
        (lambda K, s, i: max(0, i - (K - s)),
         "One too few: a stage is K - 1 - s updates behind; K - s are the versions that it keeps, "
         "the newest among them."),
        (lambda K, s, i: max(0, i - s),
         "Turned round: the first stage is the stalest, since its gradients have the longest way."),
        (lambda K, s, i: min(i, K - 1 - s),
         "That is the staleness; asked was the version, micro-batch i's number less the staleness."),
        (lambda K, s, i: K - 1 - s,
         "That is the staleness once the pipeline is full; asked was the version used."),
        (lambda K, s, i: K - s,
         "That is how many versions the stage keeps; asked was which of them it uses."),
        (lambda K, s, i: max(0, i - 1),
         "One update behind on every stage: that is 2BW's rule. PipeDream's delay depends on the stage."),
    ]
    right = [pipedream(K, i + K).versions[s][i] for K, s, i in cases]
    return judged(version_used, "Ksi", cases, right, mistakes) or (
        "Right: max(0, i - (K - 1 - s)). A stage makes an update with each backward, and K - 1 - s "
        "forwards are ahead of those.")


def check_next_weights(next_weights):
    """Judge `next_weights(history, gradient, learning_rate)`: the next (w0, w1) by PipeDream's rule for two
    stages.

    history: the pairs (w0, w1) after 0, 1, 2, ... updates. gradient(w0, w1): the derivatives (g0, g1).
    """
    histories = [[(3.0, 5.0), (2.0, 7.0), (-1.0, 4.0)], [(3.0, 5.0), (2.0, 7.0)], [(3.0, 5.0)]]
    for history in histories:
        value, sentence = called(next_weights, history, _gradient, 0.25)
        if sentence is None:
            answer, sentence = numbers("the pair of new weights", value, (2,))
        if sentence is None and not same(answer, _descended(history, 1, 0)):
            sentence = _wrong_rule(answer, history)
        if sentence is not None:
            return sentence
    return ("Right: w(t+1) = w(t) - eta grad f(w_0(t-1), w_1(t)). Stage 0 is one update late; what moves "
            "are the newest weights.")


def _gradient(w0, w1):
    """That of f = w0^2 w1^3 / 2, in which no two weights can be mixed up unnoticed."""
    return w0 * w1 ** 3, 1.5 * w0 * w0 * w1 * w1


def _descended(history, late_0, late_1, moved=1, learning_rate=0.25):
    """The weights `moved` from the end, less the step of the gradient at weights that are so many updates
    late.
    """
    w0, w1 = (history[max(0, len(history) - 1 - late)][stage] for stage, late in enumerate((late_0, late_1)))
    g0, g1 = _gradient(w0, w1)
    last = history[max(0, len(history) - moved)]
    return last[0] - learning_rate * g0, last[1] - learning_rate * g1


def _wrong_rule(answer, history):
    if len(history) == 1:
        return ("Right later, but not for the first update: there is one version only, and a time "
                "below 0 counts as 0.")
    mistakes = [
        ((0, 0), "That is the synchronous rule: both weights are the newest. Stage 0 works with those "
                 "of one update before."),
        ((1, 1), "That is vertical sync: both weights are one update late. In PipeDream the last "
                 "stage uses its newest."),
        ((0, 1), "Turned round: stage 0 is the late one, the last stage is never stale."),
        ((2, 1), "One update too late on both stages: with n = 2 they are w_0(t - 1) and w_1(t)."),
        ((2, 0), "Stage 0 is two updates late there; with n = 2 it is n - 1 = 1."),
    ]
    for late, sentence in mistakes:
        if same(answer, _descended(history, *late)):
            return sentence
    w0_old = history[max(0, len(history) - 2)][0]
    g0, g1 = _gradient(w0_old, history[-1][1])
    if same(answer, (w0_old - 0.25 * g0, history[-1][1] - 0.25 * g1)):
        return ("The gradient is right, but you moved the old w_0: the step is subtracted "
                "from the newest weights.")
    if same(answer, _descended(history, 1, 0, learning_rate=-0.25)):
        return "The wrong sign: the step goes against the gradient."
    if same(answer, _descended(history, 1, 0, learning_rate=1)):
        return "The learning rate is missing: the step is learning_rate times the gradient."
    if same(answer, (g0, g1)):
        return ("That is the gradient; asked were the next weights: subtract learning_rate times it "
                "from the newest ones.")
    right = tuple(map(float, _descended(history, 1, 0)))
    return (f"After {len(history) - 1} updates the next weights are {right}, yours are "
            f"{tuple(map(float, answer))}.")


def check_versions_kept(versions_kept):
    """Judge `versions_kept(schedule, K, r)`: the versions that stage r of K must keep at once in a long
    stream; K at least 2.

    >>> check_versions_kept(lambda schedule, K, r: K - r)
    'Right for pipedream, but vertical sync keeps K on every stage: the last one, too, works with the
    version of stage 0.'
    """
    sizes = [(4, 0), (4, 2), (2, 1), (5, 3)]
    cases = [(name, *size) for name in ("pipedream", "pipedream-vertical", "pipedream-2bw") for size in sizes]
    mistakes = [
        (lambda name, K, r: K - r,
         "Right for pipedream, but vertical sync keeps K on every stage: the last one, too, works with "
         "the version of stage 0."),
        (lambda name, K, r: 2 if name == "pipedream-2bw" else K - r,
         "Right for pipedream and 2bw, but vertical sync keeps K on every stage: the last one, too, works "
         "with that of stage 0."),
        (lambda name, K, r: 2 if name == "pipedream-2bw" else K,
         "Right for vertical sync and 2bw, but in pipedream a later stage needs fewer: as many as it "
         "has micro-batches alive."),
        (lambda name, K, r: {"pipedream": K - 1 - r, "pipedream-vertical": K - 1}.get(name, 1),
         "Those are the older versions; the newest one has to be kept, too."),
        (lambda name, K, r: r + 1,
         "Turned round, and only pipedream: the first stage has the most micro-batches alive."),
        (lambda name, K, r: {"pipedream": r + 1, "pipedream-vertical": K}.get(name, 2),
         "In pipedream it is turned round: the first stage has the most micro-batches alive, so it "
         "keeps the most versions."),
        (lambda name, K, r: 2,
         "That is 2bw's number. PipeDream updates after each mini-batch, and must keep more."),
    ]
    right = [peak_versions(build(name, K, 4 * K))[r] for name, K, r in cases]
    return judged(versions_kept, ("schedule", "K", "r"), cases, right, mistakes) or (
        "Right: K - r, K and 2. Only the last does not grow with the number of stages.")


def check_largest_rate(largest_rate):
    """Judge `largest_rate(K, s, h)`: up to which learning rate stage s of PipeDream with K stages converges
    on J = h w^2 / 2.

    >>> check_largest_rate(lambda K, s, h: 2 / h)
    'That is without delay: stage s is K - 1 - s updates late.'
    """
    cases = [(4, 0, 1.0), (4, 2, 2.0), (6, 1, 0.5), (3, 2, 4.0)]
    mistakes = [
        (lambda K, s, h: 2 / h, "That is without delay: stage s is K - 1 - s updates late."),
        (lambda K, s, h: _limit(K - 1 - s), "That is the largest eta h: divide it by h."),
        (lambda K, s, h: _limit(K - 1 - s) * h, "You multiplied by h: the formula is for eta h, so divide."),
        (lambda K, s, h: _limit(K - s) / h, "The last stage is not late at all: d = K - 1 - s."),
        (lambda K, s, h: _limit(s) / h, "The other way round: stage 0 is the latest, d = K - 1 - s."),
        (lambda K, s, h: _limit(K - 1) / h,
         "That is stage 0. The later a stage, the less its gradients are late."),
        (lambda K, s, h: 2 / (h * (K - s)),
         "It does not fall like 1 / (d + 1): take the formula with the sine."),
    ]
    right = [_limit(K - 1 - s) / h for K, s, h in cases]
    return judged(largest_rate, ("K", "s", "h"), cases, right, mistakes) or (
        "Right: the deeper the pipeline, the smaller the rate of its first stage.")


def _limit(d):
    return 2 * sin(pi / (2 * (2 * d + 1)))
