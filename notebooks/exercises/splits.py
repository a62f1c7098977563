"""Checkers for notebook 40, the three ways to split."""

from . import judged, shape_of

# parameters, and activations of a sample
LENET = {
    "conv 1": (156, 28 * 28 * 6), "conv 2": (2416, 10 * 10 * 16),
    "dense 1": (48120, 120), "dense 2": (10164, 84),
}
SPLITS = ("data", "layer")


def check_bytes_of_layer_split(bytes_sent):
    """Judge `bytes_sent(sizes, N, m, w)`: what all N devices send if each layer is split by its outputs.

    sizes: the units of each layer, the input's first.

    >>> check_bytes_of_layer_split(lambda sizes, N, m, w: 2 * (N - 1) * m * w * sum(sizes[1:]))
    'Nearly: the last layer has no dA that would have to travel. Each device makes it itself.'
    """
    cases = [((64, 128, 128, 64, 10), 4, 32, 8), ((5, 3, 2), 2, 7, 4), ((6, 4), 8, 3, 8), ((9, 9), 1, 5, 4)]

    def right(sizes, N, m, w):
        return (N - 1) * m * w * (2 * sum(sizes[1:]) - sizes[-1])

    mistakes = [
        (lambda sizes, N, m, w: 2 * (N - 1) * m * w * sum(sizes[1:]),
         "Nearly: the last layer has no dA that would have to travel. Each device makes it itself."),
        (lambda sizes, N, m, w: (N - 1) * m * w * sum(sizes[1:]),
         "That is the forward alone: on the way back each hidden layer's dA travels, too."),
        (lambda sizes, N, m, w: N * m * w * (2 * sum(sizes[1:]) - sizes[-1]),
         "A device does not send its part to itself: there are N - 1 others."),
        (lambda sizes, N, m, w: m * w * (2 * sum(sizes[1:]) - sizes[-1]),
         "That is what one copy of everything weighs. Each part travels to N - 1 other devices."),
        (lambda sizes, N, m, w: (N - 1) * m * w * (2 * sum(sizes) - sizes[-1]),
         "The input does not travel: all devices have X from the start. Leave out sizes[0]."),
        (lambda sizes, N, m, w: (N - 1) * m * (2 * sum(sizes[1:]) - sizes[-1]),
         "Those are numbers, not bytes: each takes w bytes."),
    ]
    names = ("sizes", "N", "m", "w")
    return judged(bytes_sent, names, cases, [right(*case) for case in cases], mistakes) or (
        "Right: (N - 1) m w (2 (n_1 + ... + n_L) - n_L). There are no weights in it.")


def check_split_of_each_layer(choice):
    """Judge {layer: "data" or "layer"}: the split that sends fewer bytes, for m = 128.

    >>> check_split_of_each_layer(dict.fromkeys(LENET, "data"))
    'Not quite: dense 1 sends 2 x 48120 numbers split by data, and 2 x 120 x 128 = 2 x 15360 by units.'
    """
    if choice is None or (isinstance(choice, dict) and None in choice.values()):
        return "Not solved yet: write \"data\" or \"layer\" for each of the four layers."
    if not isinstance(choice, dict) or set(choice) != set(LENET):
        return f"Write a dict with the four layers: {', '.join(LENET)}."
    if not all(shape_of(split) == () and str(split) in SPLITS for split in choice.values()):
        return "Write \"data\" or \"layer\" for each of the four layers."
    for layer, (n_parameters, n_units) in LENET.items():
        best = "data" if n_parameters < 128 * n_units else "layer"
        if choice[layer] != best:
            return (f"Not quite: {layer} sends 2 x {n_parameters} numbers split by data, and "
                    f"2 x {n_units} x 128 = 2 x {128 * n_units} by units.")
    return ("Right: convolutions have few weights and many activations, so data; the large dense layer by "
            "units. The small one has n_prev + 1 = 121 < 128.")
