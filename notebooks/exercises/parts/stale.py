"""What notebook 21 asks for: the version of a stage's weights, and PipeDream's rule for two stages."""

import numpy as np

from ..judging import Part, calls

HISTORY = ((3.0, 5.0), (2.0, 7.0), (-1.0, 4.0), (1.5, -2.0))


def of_next_weights(my):
    """The next pair, after three updates, two, one and none; the slopes are those of f = w0^2 w1^3 / 2."""
    def gradient(w0, w1):
        return w0 * w1**3, 1.5 * w0 * w0 * w1 * w1

    for n in (4, 3, 2, 1):
        pair = my.next_weights(list(HISTORY[:n]), gradient, 0.25)
        is_pair = isinstance(pair, (tuple, list, np.ndarray))
        yield f"the next weights after {n - 1} updates", [*pair] if is_pair else pair


VERSION, LATE = "max(0, i - (K - 1 - s))", "before[0], now[1]"
NEWEST = "now[0] - rate * g0, now[1] - rate * g1"

VERSION_USED_MISTAKES = [
    (VERSION, "i - (K - 1 - s)",
     "Right once the pipeline is full. The first micro-batches meet version 0: none is below 0."),
    (VERSION, "max(0, i - (K - 1))",
     "That is vertical sync, which gives every stage the version of stage 0."),
    (VERSION, "i", "Those are all updates before micro-batch i's own. Only the last stage has made so many."),
    (VERSION, "max(0, i - (K - s))", "One too few: a stage is K - 1 - s updates late."),
    (VERSION, "max(0, i - s)",
     "Turned round: the first stage is the latest, since its gradients have the longest way."),
    (VERSION, "min(i, K - 1 - s)",
     "That is the staleness. Asked was the version, micro-batch i's number less the staleness."),
    (VERSION, "K - 1 - s", "That is the staleness once the pipeline is full. Asked was the version."),
    (VERSION, "max(0, i - 1)",
     "One update late on every stage: that is 2BW's rule. PipeDream's delay depends on the stage."),
]
NEXT_WEIGHTS_MISTAKES = [
    (LATE, "now[0], now[1]",
     "That is the rule with a flush, both weights the newest. Stage 0 uses those of one update before."),
    (LATE, "before[0], before[1]",
     "That is vertical sync: both weights are one update late. The last stage uses its newest."),
    (LATE, "now[0], before[1]", "Turned round: stage 0 is late, the last stage never."),
    (NEWEST, "before[0] - rate * g0, now[1] - rate * g1",
     "The slopes are right, but you moved the old w0: the step goes from the newest weights."),
    (NEWEST, "now[0] + rate * g0, now[1] + rate * g1", "The wrong sign: the step goes against the gradient."),
    (NEWEST, "now[0] - g0, now[1] - g1", "The rate is missing: the step is rate times the gradient."),
    (NEWEST, "g0, g1", "That is the gradient. Subtract rate times it from the newest weights."),
    ("max(0, len(history) - 2)", "len(history) - 3",
     "Your time before the newest is wrong: w(t - 1) is the second entry from the end."),
    ("max(0, len(history) - 2)", "-2",
     "Right later, but for the first update there is one entry only: a time below 0 counts as 0."),
]

PARTS = [
    Part("version_used", 21, calls("version_used", "K s i", [
        (4, 2, 7), (4, 0, 7), (4, 3, 7), (6, 1, 9), (5, 0, 2), (1, 0, 3)]), VERSION_USED_MISTAKES,
         "a stage makes an update with each backward, and K - 1 - s forwards are ahead of those."),
    Part("next_weights", 21, of_next_weights, NEXT_WEIGHTS_MISTAKES,
         "w(t + 1) = w(t) - eta grad f(w0(t - 1), w1(t)). What moves are the newest weights."),
]
