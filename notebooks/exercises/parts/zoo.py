"""What notebook 19 asks for: the makespan of ZB-H1, and the schedule for a memory."""

from ..judging import Part, calls

CASES = ((4, 8, 1, 1, 1), (3, 7, 3, 2, 1), (6, 11, 2, 3, 5), (5, 5, 4, 2, 3), (2, 6, 1, 4, 3))
RUNS = {
    "slow": (96, 1), "half": (30, 2), "twin": (30, 2), "odd": (99, 3), "good": (26, 4), "wide": (25, 7),
    "full": (33, 8),
}
RULE = "M * (F + I + W) + (K - 1) * (F + I - min(F, I, W))"
FITTING, FASTEST = "runs[name][1] <= room", "min(fitting, key=lambda name: runs[name][0])"


def of_choose(my):
    """How fast the chosen run is, and whether it fits; two are equal, and may stand for each other."""
    for room in (8, 7, 6, 4, 3, 2, 1):
        name = my.choose(dict(RUNS), room)
        if not isinstance(name, str) or name not in RUNS:
            yield f"what choose(runs, {room}) returns, a name", name
        else:
            yield f"ticks and alive of the run that choose(runs, {room}) names", RUNS[name]

ZB_H1_MISTAKES = [
    ("min(F, I, W)", "W",
     "Right where W is the shortest. A longer W fits only in part: the shortest of F, I and W decides."),
    ("min(F, I, W)", "min(F, W)", "The last device can only do its I meanwhile: I may be the shortest, too."),
    ("min(F, I, W)", "max(F, I, W)", "The shortest pass decides, since a longer one fits only in part."),
    (" - min(F, I, W)", "",
     "Subtract what is done meanwhile: of (K - 1)(F + I) ticks, other micro-batches fill a part."),
    (" - min(F, I, W)", " + W", "That is 1F1B's, whose way down is made of whole backwards."),
    (RULE, "(K - 1) * (F + I - min(F, I, W))",
     "That is the idle time of one device: add its work, M (F + I + W)."),
    ("(K - 1) *", "K *", "One pass too many: beside a device there are K - 1 others, not K."),
    (RULE, "3 * M + K - 1", "That is right for F = I = W = 1: say it with F, I and W."),
    (RULE, "M * (F + I + W)", "That is the work of one device, a makespan without any bubble."),
]
CHOOSE_MISTAKES = [
    (f"[name for name in runs if {FITTING}]", "runs",
     "That is the fastest of all. It may keep more alive than there is room for."),
    (FASTEST, "min(fitting, key=lambda name: runs[name][1])",
     "That is the one with the least memory. Of those that fit, the fastest is asked for."),
    (FASTEST, "max(fitting, key=lambda name: runs[name][1])",
     "That is the one that fills the room best. More memory does not always buy time."),
    ("<= room", "< room", "A run that keeps exactly `room` alive fits, too."),
    ("runs[name][1] <= room", "runs[name][0] <= room",
     "You compare the ticks with the room. What needs room is the second number of a pair."),
    (FASTEST, "fitting", "Those are all that fit. Return the name of the fastest one."),
    (FASTEST, "min(runs[name] for name in fitting)",
     "You return the pair of numbers. Asked for is the name."),
]

PARTS = [
    Part("zb_h1", 19, calls("zb_h1", "K M F I W", CASES), ZB_H1_MISTAKES,
         "the shortest of F, I and W decides. With W shortest it is 1F1B's makespan less 2 (K - 1) W."),
    Part("choose", 19, of_choose, CHOOSE_MISTAKES, "the fastest of those that fit."),
]
