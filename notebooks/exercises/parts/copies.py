"""What notebook 10 asks for: the bytes of three ways to split, and copies of a pipeline."""

from itertools import product

from ..judging import Part
from .gpipe import small_network
from .layers import how_many

SIZES = ((64, 128, 128, 64, 10), (5, 3, 2), (7, 4, 6, 2))


def of_sent(my):
    """Yield how many bytes each split sends, for three networks with a device for each layer."""
    for sizes in SIZES:
        N = len(sizes) - 1
        for split in ("network", "layer", "data"):
            for m in (32, 3):
                yield f"sent({split!r}, {sizes}, N={N}, m={m})", my.sent(split, sizes, N, m)


def of_copies(my):
    """Yield J and all gradients of one, two and three copies, and what the schedule is asked."""
    layers, X, Y = small_network(my, 7, (3, 4, 3, 2))
    for D, K, M in ((1, 2, 2), (2, 1, 1), (2, 2, 3), (3, 2, 2)):
        words, asked = f"7 samples, D={D}, K={K}, M={M}", []

        def schedule(device, K, M):
            asked.append((device, K, M))
            return my.gpipe(device, K, M)

        answer = my.copies(layers, X, Y, D, K, M, schedule)
        yield f"{words}: how many things copies returns", how_many(answer)
        J, sums = answer
        yield f"{words}: J", J
        yield f"{words}: whose gradients there are", sorted(type(layer).__name__ for layer in sums)
        for place, layer in enumerate(layers[::2], 1):
            pair = sums.get(layer)
            pair = list(pair) if isinstance(pair, tuple) else pair
            yield f"{words}: dW and db of linear layer {place}", pair
        yield f"{words}: (device, K, M) that the schedule is asked for", sorted(asked)


LOOP = """J, sums = 0, {}
    for X_d, Y_d in zip(micro_batches(X, D), micro_batches(Y, D)):
        J_d, stages, _ = run(layers, X_d, Y_d, K, M, schedule, m=X.shape[1])
        J += J_d
        for stage in stages:
            for layer, (dW, db) in stage.gradients.items():
                sum_dW, sum_db = sums.get(layer, (0, 0))
                sums[layer] = sum_dW + dW, sum_db + db
    return J, sums"""
LEFT_OVER = LOOP.replace(
    "for X_d, Y_d in zip(micro_batches(X, D), micro_batches(Y, D)):",
    "n = X.shape[1] // D\n    for d in range(D):\n        X_d, Y_d = [A[:, d * n:][:, :n] for A in (X, Y)]")
MEAN = "J / D, {layer: (dW / D, db / D) for layer, (dW, db) in sums.items()}"
OWN_M = "Each copy divides by its own share's m: all is about D times too large. Give `run` the whole's m."
MEANS = "That is a mean of means: in a small share a sample counts more. Divide by the whole's m, and add."

# What `sent` counts, in numbers: the right formula first, then wrong ones with a sentence
NETWORK = [
    ("2 * sum(sizes[1:-1]) * m", ""),
    ("sum(sizes[1:-1]) * m", "Your network split goes forward only: dA comes back, as large as A."),
    ("2 * sum(sizes[1:]) * m",
     "Your network split counts a cut after the last layer. Its A goes to the cost, on the same device."),
    ("2 * sum(sizes[:-1]) * m",
     "Your network split counts X. The input is on the first device from the start."),
    ("2 * sum(sizes[1:-1])", "Your network split forgets the samples: A is (n, m)."),
]
LAYER = [
    ("(N - 1) * (2 * sum(sizes[1:]) - sizes[-1]) * m", ""),
    ("2 * (N - 1) * sum(sizes[1:]) * m",
     "Nearly: in your layer split the last layer's gradient travels, too. Each device makes its own rows."),
    ("(N - 1) * sum(sizes[1:]) * m",
     "Your layer split goes forward only: on the way back, terms of dA travel for each hidden layer."),
    ("N * (2 * sum(sizes[1:]) - sizes[-1]) * m",
     "In your layer split a device sends to itself. There are N - 1 others."),
    ("(2 * sum(sizes[1:]) - sizes[-1]) * m",
     "In your layer split each number of A travels once. N - 1 other devices need it."),
    ("(N - 1) * (2 * sum(sizes) - sizes[-1]) * m",
     "Your layer split counts X. All devices have the input from the start."),
    ("2 * (N - 1) * sum(sizes[1:-1]) * m",
     "Your layer split forgets the last layer's A: each device has some rows, and the cost needs all."),
    ("(N - 1) * (2 * sum(sizes[1:]) - sizes[-1])",
     "Your layer split forgets the samples: A is (n, m)."),
]
DATA = [
    ("2 * (N - 1) * sum(n * (n_prev + 1) for n_prev, n in zip(sizes, sizes[1:]))", ""),
    ("2 * (N - 1) * sum(n * n_prev for n_prev, n in zip(sizes, sizes[1:]))",
     "Your data split forgets db: a layer has n (n_prev + 1) gradients."),
    ("(N - 1) * sum(n * (n_prev + 1) for n_prev, n in zip(sizes, sizes[1:]))",
     "Your data split goes one way: terms travel to the device that adds them, but the sum comes back."),
    ("2 * N * sum(n * (n_prev + 1) for n_prev, n in zip(sizes, sizes[1:]))",
     "In your data split a device sends to itself. There are N - 1 others."),
    ("2 * (N - 1) * sum(n * (n_prev + 1) for n_prev, n in zip(sizes, sizes[1:])) * m",
     "Your data split counts samples. A gradient is a sum over samples, however many there are."),
    ("2 * sum(n * (n_prev + 1) for n_prev, n in zip(sizes, sizes[1:]))",
     "Your data split moves each number once there and once back. N - 1 send a term and want the sum."),
]
SENT = """if split == "network":
        numbers = {}
    elif split == "layer":
        numbers = {}
    else:
        numbers = {}
    return 8 * numbers"""


def _of_sent():
    """Yield each wrong formula, and the likely ones of several splits together.

    The sentence is that of the first wrong one.
    """
    right = SENT.format(*(side[0][0] for side in (NETWORK, LAYER, DATA)))
    likely = [*product(NETWORK[:2], LAYER[:4], DATA[:4])]
    alone = [(network, LAYER[0], DATA[0]) for network in NETWORK[2:]]
    alone += [(NETWORK[0], layer, DATA[0]) for layer in LAYER[4:]]
    alone += [(NETWORK[0], LAYER[0], data) for data in DATA[4:]]
    for chosen in likely[1:] + alone:
        sentence = next(words for _, words in chosen if words)
        yield right, SENT.format(*(text for text, _ in chosen)), sentence
    yield ("return 8 * numbers", "return numbers", "Those are numbers, not bytes: a float64 takes 8 bytes.")
    yield ("return 8 * numbers", "return 4 * numbers", "Your numbers take 4 bytes. A float64 takes 8.")


COPIES_MISTAKES = [
    (LOOP, LOOP.replace("m=X.shape[1]", "m=X_d.shape[1]").replace("J, sums", MEAN).replace(
        MEAN + " = 0, {}", "J, sums = 0, {}"), MEANS),
    ("m=X.shape[1]", "m=X_d.shape[1]", OWN_M),
    ("return J, sums", f"return {MEAN}",
     "Your J and gradients are D times too small. Each copy has divided by the whole's m already: add."),
    ("sums[layer] = sum_dW + dW, sum_db + db", "sums[layer] = dW, db",
     "Your gradients are those of the last copy alone. Add up what all copies have found."),
    ("J += J_d", "J = J_d", "Your J is that of the last copy alone. J, too, is a sum over the copies."),
    ("J, sums = 0, {}", "J, sums = 0, {layer: (0, 0) for layer in layers}",
     "You have gradients for the ReLUs, too. A layer without parameters has none: leave it out."),
    ("in stages:", "in stages[-1:]:", "You have the gradients of the last stage alone. A copy has K stages."),
    ("for X_d, Y_d in zip(micro_batches(X, D), micro_batches(Y, D)):", "for X_d, Y_d in [(X, Y)]:",
     "There is one copy only: you do not use D. Cut X and Y into D shares, and run each of them."),
    (LOOP, LEFT_OVER, "Your copies leave samples out: 7 // 2 drops one. Use `micro_batches`."),
    ("run(layers, X_d, Y_d,", "run(layers, X, Y,",
     "Your J and gradients are D times too large, as if each copy worked on all samples, not on its share."),
    ("K, M, schedule,", "K, M, gpipe,", "Right numbers, but nobody asks `schedule`: hand it on to `run`."),
    ("Y_d, K, M,", "Y_d, K, max(1, M // D),", "Your copies share M micro-batches. Each has M of its own."),
    ("in stages:", "in stages[:1]:", "You have the gradients of the first stage alone. A copy has K stages."),
]

PARTS = [
    Part("sent", 10, of_sent, [*_of_sent()], "two splits pay for samples, the third for parameters."),
    Part("copies", 10, of_copies, COPIES_MISTAKES,
         "however many copies there are, J and all dW and db are those of the whole mini-batch.", kept=True),
]
