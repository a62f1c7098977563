"""What notebook 20 asks for: the latency that eager 1F1B hides, and GPipe with sends that block."""

from ..judging import Part, calls

HALF, SENDS = "(F + B) / 2", " + 2 * (K - 1) * c + 2 * (M - 1) * c"

HIDDEN_MISTAKES = [
    (HALF, "F + B",
     "Twice too long: a gradient comes back after two hops for each device on the way, one up and one down."),
    (HALF, "(K - 1) * (F + B) / 2", "That is the latency of all K - 1 hops together; asked was that of one."),
    (HALF, "(K - 1) * (F + B)", "That is the latency of all 2 (K - 1) hops together; asked was that of one."),
    (HALF, "(2 * K - 1) * (F + B) / (2 * (K - 1))",
     "You left out the work of the round trip: of (2K - 1)(F + B) ticks, K (F + B) are spent computing."),
    (HALF, "K * (F + B) / (2 * (K - 1))",
     "Eager 1F1B has 2K - 1 micro-batches under way from device 0, not 2K."),
    (HALF, "0", "That is plain 1F1B, which has just as many under way as a round trip on free links takes."),
    (HALF, "F / 2", "Device 0 works for F + B ticks in each step, not for F: both hide the links."),
    (HALF, "B / 2", "Device 0 works for F + B ticks in each step, not for B: both hide the links."),
]
BLOCKING_MISTAKES = [
    (SENDS, " + 2 * (K - 1) * c",
     "That is GPipe with sends that do not block. Now each send of a device delays its next action."),
    (SENDS, "", "That is GPipe with free links."),
    ("(F + B)" + SENDS, "(F + B + 2 * c)",
     "One send too many each way: the last device sends no activations, and device 0 no gradients."),
    (SENDS, " + (M + K - 2) * c", "That is one way only: gradients travel back just as slowly."),
    (SENDS, " + 2 * (M - 1) * c", "The journeys of the first micro-batch are missing, up and down."),
    (SENDS, " + 2 * M * (K - 1) * c",
     "Those are all messages, one after the other. But devices are blocked at the same time."),
]

PARTS = [
    Part("hidden", 20, calls("hidden", "K F B", [(4, 1, 2), (6, 1, 2), (3, 2, 4), (5, 3, 2), (2, 1, 1)]),
         HIDDEN_MISTAKES,
         "half a step, whatever K is. A further device makes the way two hops longer, and adds two "
         "micro-batches to those under way."),
    Part("blocking", 20, calls("blocking", "K M F B c", [
        (4, 8, 1, 2, 1), (2, 3, 2, 5, 3), (6, 10, 1, 1, 2), (3, 1, 4, 2, 1)]), BLOCKING_MISTAKES,
         "the messages of M - 1 more micro-batches are no longer hidden, up and down."),
]
