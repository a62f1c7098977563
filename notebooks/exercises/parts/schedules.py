"""What notebooks 19 to 22 ask for: formulas of schedules, links, versions of weights and cuts."""

import numpy as np

from ..judging import Part, calls, truth

CASES = ((4, 8, 1, 1, 1), (3, 7, 3, 2, 1), (6, 11, 2, 3, 5), (5, 5, 4, 2, 3), (2, 6, 1, 4, 3))
RUNS = {
    "slow": (96, 1), "half": (30, 2), "twin": (30, 2), "odd": (99, 3), "good": (26, 4), "wide": (25, 7),
    "full": (33, 8),
}
RULE = "M * (F + I + W) + (K - 1) * (F + I - min(F, I, W))"
FITTING, FASTEST = "runs[name][1] <= room", "min(fitting, key=lambda name: runs[name][0])"


def of_choose(my):
    """Yield the ticks and the memory of the chosen run: of two equal ones either will do."""
    for room in (8, 7, 6, 4, 3, 2, 1):
        name = my.choose(dict(RUNS), room)
        if not isinstance(name, str) or name not in RUNS:
            yield f"what choose(runs, {room}) returns, a name", name
        else:
            yield f"ticks and alive of the run that choose(runs, {room}) names", RUNS[name]

ZB_H1_MISTAKES = [
    ("min(F, I, W)", "W", "Right where W is the shortest. The shortest of F, I and W decides."),
    ("min(F, I, W)", "min(F, W)", "The last device can only do its I meanwhile: I may be the shortest, too."),
    ("min(F, I, W)", "max(F, I, W)", "The shortest pass decides, since a longer one fits only in part."),
    (" - min(F, I, W)", "", "Subtract what is done meanwhile: other micro-batches fill a part of the wait."),
    (" - min(F, I, W)", " + W", "That is 1F1B's, whose way back is made of whole backwards."),
    (RULE, "(K - 1) * (F + I - min(F, I, W))", "That is the idle time: add the work, M (F + I + W)."),
    ("(K - 1) *", "K *", "One pass too many: beside a device there are K - 1 others, not K."),
    (RULE, "M * (F + I + W)", "That is the work of one device, a makespan without any bubble."),
]
CHOOSE_MISTAKES = [
    (f"[name for name in runs if {FITTING}]", "runs",
     "That is the fastest of all. It may keep more alive than there is room for."),
    (FASTEST, "min(fitting, key=lambda name: runs[name][1])",
     "That is the one with the least memory. Of those that fit, the fastest is asked for."),
    ("<= room", "< room", "A run that keeps exactly `room` alive fits, too."),
    (FASTEST, "fitting", "Those are all that fit. Return the name of the fastest one."),
    (FASTEST, "min(runs[name] for name in fitting)", "You return the pair of numbers, not the name."),
]


HALF, SENDS = "(F + B) / 2", " + 2 * (K - 1) * c + 2 * (M - 1) * c"

HIDDEN_MISTAKES = [
    (HALF, "F + B", "Twice too long: a gradient comes back after two hops for each device on the way."),
    (HALF, "(K - 1) * (F + B) / 2", "That is the latency of all K - 1 hops together; asked was that of one."),
    (HALF, "(K - 1) * (F + B)", "That is the latency of all 2 (K - 1) hops together; asked was that of one."),
    (HALF, "0", "That is plain 1F1B, which has just as many under way as a round trip on free links takes."),
    (HALF, "F / 2", "Device 0 works for F + B ticks in each step, not for F: both hide the links."),
]
BLOCKING_MISTAKES = [
    (SENDS, " + 2 * (K - 1) * c", "That is GPipe with sends that do not block: here each delays the next."),
    (SENDS, "", "That is GPipe with free links."),
    ("(F + B)" + SENDS, "(F + B + 2 * c)",
     "One send too many each way: the last device sends no activations, and device 0 no gradients."),
    (SENDS, " + (M + K - 2) * c", "That is one way only: gradients travel back just as slowly."),
    (SENDS, " + 2 * (M - 1) * c", "The journeys of the first micro-batch are missing, up and down."),
    (SENDS, " + 2 * M * (K - 1) * c", "Those are all messages in a row. But devices block at the same time."),
]


HISTORY = ((3.0, 5.0), (2.0, 7.0), (-1.0, 4.0), (1.5, -2.0))


def of_next_weights(my):
    """Yield the next pair after three updates, two, one and none, for f = w0^2 w1^3 / 2."""
    def gradient(w0, w1):
        return w0 * w1**3, 1.5 * w0 * w0 * w1 * w1

    for n in (4, 3, 2, 1):
        pair = my.next_weights(list(HISTORY[:n]), gradient, 0.25)
        is_pair = isinstance(pair, (tuple, list, np.ndarray))
        yield f"the next weights after {n - 1} updates", [*pair] if is_pair else pair


VERSION, LATE = "max(0, i - (K - 1 - s))", "before[0], now[1]"
NEWEST = "now[0] - rate * g0, now[1] - rate * g1"

VERSION_USED_MISTAKES = [
    (VERSION, "i - (K - 1 - s)", "Right once the pipeline is full. Before that it is 0, not below."),
    (VERSION, "max(0, i - (K - 1))", "That is vertical sync: every stage has the version of stage 0."),
    (VERSION, "i", "Those are all updates before micro-batch i's own. Only the last stage has made so many."),
    (VERSION, "max(0, i - (K - s))", "One too few: a stage is K - 1 - s updates late."),
    (VERSION, "max(0, i - s)", "Turned round: the first stage is the latest, furthest from the cost."),
    (VERSION, "min(i, K - 1 - s)", "That is the staleness: subtract it from the micro-batch's number."),
    (VERSION, "max(0, i - 1)", "One update late on every stage is 2BW's rule. PipeDream's depends on s."),
]
NEXT_WEIGHTS_MISTAKES = [
    (LATE, "now[0], now[1]", "That is the rule with a flush. Stage 0 uses its weights of one update before."),
    (LATE, "before[0], before[1]", "That is vertical sync, both weights late. The last stage is never late."),
    (LATE, "now[0], before[1]", "Turned round: stage 0 is late, the last stage never."),
    (NEWEST, "before[0] - rate * g0, now[1] - rate * g1",
     "The slopes are right, but you moved the old w0: the step goes from the newest weights."),
    (NEWEST, "now[0] + rate * g0, now[1] + rate * g1", "The wrong sign: the step goes against the gradient."),
    (NEWEST, "now[0] - g0, now[1] - g1", "The rate is missing: the step is rate times the gradient."),
    (NEWEST, "g0, g1", "That is the gradient. Subtract rate times it from the newest weights."),
    ("max(0, len(history) - 2)", "-2", "Right later, but the first update has one entry only: use that."),
]


COSTS = (
    ([1, 3, 2], [4, 2, 5], 6), ([2, 1], [3, 7], 4), ([4, 1, 1, 2], [1, 1, 6, 2], 9),
    ([1, 2, 3], [2, 4, 6], 5),
)
NETWORKS = (
    ([3, 1, 2, 4], 2), ([1, 2, 1, 6, 3, 3], 3), ([5, 1, 1, 1], 3), ([1, 9, 1, 1], 4), ([2, 7, 1, 2, 8, 1], 3),
    ([4, 4, 4, 4], 4), ([2] * 9, 3),
)


def of_possible(my):
    """Yield whether costs fit, for each x up to their sum."""
    for costs, K in NETWORKS:
        for x in range(1, sum(costs) + 1):
            yield f"possible({costs}, {K}, {x})", truth(my.possible(list(costs), K, x))


FORWARDS, BACKWARDS = "sum(F) + (M - 1) * max(F)", " + sum(B) + (M - 1) * max(B)"
BOTH = FORWARDS + BACKWARDS
UNEQUAL = "As if all stages were as slow as the slowest: fill and drain pass the others at their own pace."
LARGE, STAGES, TOO_MUCH = "        if cost > x:\n            return False\n", "stages <= K", "load + cost > x"

GPIPE_TICKS_MISTAKES = [
    (BOTH, "sum(F) + sum(B) + (M - 1) * max(f + b for f, b in zip(F, B))",
     "The slowest forward and the slowest backward may be in different places: each has its own max."),
    (BOTH, "sum(F) + sum(B) + M * (max(F) + max(B))",
     "One micro-batch too many: the sums have the first one already."),
    (BOTH, "(M + len(F) - 1) * (max(F) + max(B))", UNEQUAL),
    (BOTH, "(M + len(F) - 1) * max(f + b for f, b in zip(F, B))", UNEQUAL),
    (BOTH, "(M + len(F) - 1) * (sum(F) + sum(B)) / len(F)",
     "That is what equal stages would take, each with the mean. The slowest sets the pace."),
    (BOTH, "M * (max(F) + max(B))", "That is the pace without fill and drain."),
    (BOTH, "(M - 1) * (max(F) + max(B))", "Add the way of the first micro-batch, through all stages."),
    (BOTH, "sum(F) + sum(B)", "That is one micro-batch. Each further one comes later."),
]
POSSIBLE_MISTAKES = [
    (STAGES, "True", "Each layer fits by itself. Several together have to fit into K stages, too."),
    (STAGES, "sum(costs) <= K * x", "That is the equal share. But layers cannot be halved: count stages."),
    (TOO_MUCH, "load + cost >= x", "A load of exactly x is allowed: begin a new stage only above x."),
    (LARGE, "", "A layer that costs more than x fits into no stage, not even into a new one."),
    ("        load += cost", "        else:\n            load += cost",
     "You lose a layer at each cut: the one that did not fit is the first of the next stage."),
    (STAGES, "stages <= K + 1", "One stage too many: the first stage counts, too, so begin with one."),
    ("stages, load = stages + 1, 0", "stages += 1", "A new stage begins empty: set the load back to 0."),
]

PARTS = [
    Part("zb_h1", 19, calls("zb_h1", "K M F I W", CASES), ZB_H1_MISTAKES,
         "the shortest of F, I and W decides. With W shortest it is 1F1B's makespan less 2 (K - 1) W."),
    Part("choose", 19, of_choose, CHOOSE_MISTAKES, "the fastest of those that fit."),
    Part("hidden", 20, calls("hidden", "K F B", [(4, 1, 2), (6, 1, 2), (3, 2, 4), (5, 3, 2), (2, 1, 1)]),
         HIDDEN_MISTAKES, "half a step. One more device adds two hops, and two micro-batches under way."),
    Part("blocking", 20, calls("blocking", "K M F B c", [
        (4, 8, 1, 2, 1), (2, 3, 2, 5, 3), (6, 10, 1, 1, 2), (3, 1, 4, 2, 1)]), BLOCKING_MISTAKES,
         "the messages of M - 1 more micro-batches are no longer hidden, up and down."),
    Part("version_used", 21, calls("version_used", "K s i", [
        (4, 2, 7), (4, 0, 7), (4, 3, 7), (6, 1, 9), (5, 0, 2), (1, 0, 3)]), VERSION_USED_MISTAKES,
         "a stage makes an update with each backward, and K - 1 - s forwards are ahead of those."),
    Part("next_weights", 21, of_next_weights, NEXT_WEIGHTS_MISTAKES,
         "w(t + 1) = w(t) - eta grad f(w0(t - 1), w1(t)). What moves are the newest weights."),
    Part("gpipe_ticks", 22, calls("gpipe_ticks", "F B M", COSTS), GPIPE_TICKS_MISTAKES,
         "two pipelines, each with its own slowest stage."),
    Part("possible", 22, of_possible, POSSIBLE_MISTAKES,
         "one pass answers, and bisection asks about log2 of the total times."),
]
