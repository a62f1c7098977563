"""What notebook 22 asks for: GPipe's makespan with unequal stages, and whether costs fit into K stages."""

from ..judging import Part, calls, truth

COSTS = (
    ([1, 3, 2], [4, 2, 5], 6), ([2, 1], [3, 7], 4), ([4, 1, 1, 2], [1, 1, 6, 2], 9),
    ([1, 2, 3], [2, 4, 6], 5),
)
NETWORKS = (
    ([3, 1, 2, 4], 2), ([1, 2, 1, 6, 3, 3], 3), ([5, 1, 1, 1], 3), ([1, 9, 1, 1], 4), ([2, 7, 1, 2, 8, 1], 3),
    ([4, 4, 4, 4], 4), ([2] * 9, 3),
)


def of_possible(my):
    """Whether costs fit, for each x up to their sum."""
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
     "One micro-batch too many: the first one is in the two sums already."),
    (BOTH, "(M + len(F) - 1) * (max(F) + max(B))", UNEQUAL),
    (BOTH, "(M + len(F) - 1) * max(f + b for f, b in zip(F, B))", UNEQUAL),
    (BOTH, "(M + len(F) - 1) * (sum(F) + sum(B)) / len(F)",
     "That is what equal stages would take, each with the mean. The slowest sets the pace."),
    (BOTH, "M * (max(F) + max(B))", "That is the pace without fill and drain."),
    (BOTH, "(M - 1) * (max(F) + max(B))",
     "Add the way of the first micro-batch, through all stages and back."),
    (BOTH, "sum(F) + sum(B)", "That is one micro-batch. Each further one comes later."),
]
POSSIBLE_MISTAKES = [
    (STAGES, "True", "Each layer fits by itself. Several together have to fit into K stages, too."),
    (STAGES, "sum(costs) <= K * x",
     "That is the equal share. Layers cannot be halved: count the stages that you fill."),
    (TOO_MUCH, "load + cost >= x", "A load of exactly x is allowed: begin a new stage only above x."),
    (LARGE, "", "A layer that costs more than x fits into no stage, not even into a new one."),
    ("        load += cost", "        else:\n            load += cost",
     "You lose a layer at each cut: the one that did not fit is the first of the next stage."),
    (STAGES, "stages <= K + 1", "One stage too many: the first stage counts, too, so begin with one."),
    (STAGES, "stages < K", "One stage too few: exactly K stages are allowed."),
    (STAGES, "stages == K", "Fewer than K stages are fine: any of them can be cut once more."),
    ("stages, load = stages + 1, 0", "stages += 1", "A new stage begins empty: set the load back to 0."),
]

PARTS = [
    Part("gpipe_ticks", 22, calls("gpipe_ticks", "F B M", COSTS), GPIPE_TICKS_MISTAKES,
         "two pipelines, each with its own slowest stage."),
    Part("possible", 22, of_possible, POSSIBLE_MISTAKES,
         "one pass answers, and bisection asks about log2 of the total times."),
]
