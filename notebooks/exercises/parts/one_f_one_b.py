"""What notebook 09 asks for: the order called 1F1B."""

from ..judging import Part, calls

SIZES = ((4, 8), (2, 3), (1, 2), (4, 2), (3, 1), (5, 5))
CASES = [(device, K, M) for K, M in SIZES for device in reversed(range(K))]
ONE_F_ONE_B_MISTAKES = [
    ("min(K - 1 - device, M)", "min(K - device, M)",
     "Your devices go one forward too far ahead. The last device needs no warm-up: it does F0 B0."),
    ("min(K - 1 - device, M)", "K - 1 - device",
     "Right if there are enough micro-batches. With fewer, the warm-up is all there is: take the smaller."),
    ("min(K - 1 - device, M)", "min(device, M)",
     "Your warm-up is the wrong way round: device 0, furthest from the cost, runs ahead most."),
    ("min(K - 1 - device, M)", "min(K - 1, M)",
     "All your devices warm up alike. Device d needs K - 1 - d forwards, one for each device after it."),
    ("min(K - 1 - device, M)", "M",
     "Your devices do all forwards first, as in GPipe. Take turns as soon as the warm-up is over."),
    ("min(K - 1 - device, M)", "0", "Your devices have no warm-up: F0 B0 F1 B1 ... is the naive order."),
    ('("F", warm_up + i), ("B", i)', '("B", i), ("F", warm_up + i)',
     "Your turns begin with the backward. On the last device F0 has to come before B0."),
    ('return order + [("B", i) for i in range(M - warm_up, M)]', "return order",
     "Your order ends with the forwards. As many backwards are left as there were forwards to warm up."),
    ('("F", warm_up + i), ("B", i)', '("F", warm_up + i), ("B", warm_up + i)',
     "Your turns pair F and B of one micro-batch. The oldest comes back first: B0, then B1."),
    ("for i in range(M - warm_up, M)", "for i in reversed(range(M - warm_up, M))",
     "At the end your backwards count down. In 1F1B the oldest micro-batch always comes back first."),
]

PARTS = [
    Part("one_f_one_b", 9, calls("one_f_one_b", "device K M", CASES), ONE_F_ONE_B_MISTAKES,
         "a few forwards to warm up, then one forward and one backward in turn, then the backwards that are "
         "left.", kept=True),
]
