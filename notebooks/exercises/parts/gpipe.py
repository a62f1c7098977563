"""What notebooks 08 and 09 ask for: two orders, and a run of real arrays; and the update, which 08 gives."""

import numpy as np

from ..judging import Part, calls
from .layers import how_many
from .whole import network

SIZES = (3, 4, 2, 3, 2)


def small_network(my, m, sizes=SIZES):
    """Return (layers, X, Y): a `network`, and a mini-batch for it."""
    rng = np.random.default_rng(m)
    layers = network(my, sizes, rng)
    return layers, rng.integers(-4, 5, (sizes[0], m)) / 2, rng.integers(-4, 5, (sizes[-1], m)) / 2


def sums_of(stages):
    """Return dW and db of each layer, in the order of the layers."""
    return [part for stage in stages for layer in stage.layers if layer in stage.gradients
            for part in stage.gradients[layer]]


def of_run(my):
    """Yield J, gradients, actions and stashes of runs: even, ragged, with another m, recomputed."""
    layers, X, Y = small_network(my, 4, (2, 2, 2, 2))
    result = my.run(layers, X, Y, 1, 1, my.naive)
    yield "how many things run returns (J, the stages, the actions)", how_many(result)
    if how_many(result) == 3:
        yield ("what the second thing that run returns is made of",
               sorted({type(part).__name__ for part in result[1]}))
    for words, sizes in (("five layers of 2 units, ", (2, 2, 2, 2)), ("", SIZES)):
        layers, X, Y = small_network(my, 4, sizes)
        J, *_ = my.run(layers, X, Y, 2, 1, lambda device, K, M: [("F", 0)])
        yield f"K = 2, M = 1, {words}without any backward: J", J
    for K, M, m, schedule in ((1, 1, 4, my.naive), (1, 4, 4, my.naive), (2, 1, 4, my.naive),
                              (3, 4, 8, my.gpipe), (7, 3, 8, my.gpipe)):
        layers, X, Y = small_network(my, m)
        words = f"K = {K}, M = {M}, {m} samples"
        J, stages, actions = my.run(layers, X, Y, K, M, schedule)
        yield f"{words}: J", J
        yield f"{words}: the number of layers on each stage", [len(stage.layers) for stage in stages]
        yield f"{words}: the gradients, dW and db of each layer", sums_of(stages)
        yield f"{words}: the actions", actions
        yield f"{words}: what is left in the stashes", [len(stage.stash) for stage in stages]
    yield f"{words}, m=16: J", my.run(layers, X, Y, K, M, schedule, m=16)[0]
    counted, layer = [], layers[1]
    forward = layer.forward
    layer.forward = lambda A: counted.append(1) or forward(A)
    my.run(layers, X, Y, K, M, schedule, recompute=True)
    yield f"{words}, recompute=True: how often each layer went forward", len(counted)


def of_step(my):
    """Yield the parameters of four linear layers after an update."""
    layers, X, Y = small_network(my, 4)
    _, stages, _ = my.run(layers, X, Y, 2, 2, my.gpipe)
    my.step(stages, 0.5)
    yield "the parameters after a step", [part for layer in layers[::2] for part in (layer.W, layer.b)]


ORDER = '[("F", i) for i in range(M)] + [("B", i) for i in reversed(range(M))]'
CASES = [(device, K, M) for K, M in ((1, 1), (2, 3), (4, 8)) for device in range(K)]
GPIPE_MISTAKES = [
    ("reversed(range(M))", "range(M)",
     "Your backwards begin with the first micro-batch, as in gpipe-fifo. GPipe takes the last one first."),
    ('[("F", i) for i in range(M)]', '[("F", i) for i in reversed(range(M))]',
     "Your forwards begin with the last micro-batch. They go from 0 up, the backwards down."),
    ('[("F", i) for i in range(M)]', '[("F", i) for i in range(K)]',
     "You count forwards by K, the devices. Each device does one for each of the M micro-batches."),
    (ORDER, '[action for i in range(M) for action in (("F", i), ("B", i))]',
     "That is the naive order: each micro-batch comes back before the next one starts."),
    (ORDER, '[f"F{i}" for i in range(M)] + [f"B{i}" for i in reversed(range(M))]',
     "Your actions are texts such as 'F0'. Write pairs, such as ('F', 0)."),
    (ORDER, '([("F", i) for i in range(M)] + [("B", i) for i in reversed(range(M))]) * K',
     "You list all devices. The function is asked for one, and all have the same order."),
    ('[("F", i) for i in range(M)] + [("B", i) for i in reversed(range(M))]',
     '[("F", i) for i in range(K)] + [("B", i) for i in reversed(range(K))]',
     "You count by K, the devices. Each device does F and B of each of the M micro-batches."),
]
RUN_MISTAKES = [
    ("Y_parts[i], m)", "Y_parts[i], Y_parts[i].shape[1])",
     "Your cost divides by the micro-batch's own m. It is the m of the whole mini-batch (notebook 05)."),
    ("m = m or X.shape[1]", "m = X.shape[1]", "You take m from X even if it is handed over, as with m=16."),
    ("J += J_i", "J = J_i", "Your J is that of the last micro-batch alone. Add them up."),
    ("Y_parts[i], m)", "Y_parts[0], m)", "You compare every micro-batch with the labels of the first one."),
    ("elif device < K - 1:", "elif device > 0:",
     "You compute the cost on device 0. The last device has the last layers: the cost is there."),
    ('sent[device - 1, "B", i]', 'sent[device + 1, "B", i]',
     "You send derivatives to device + 1. They go back, to device - 1."),
    ('sent[device, "B", i] = cost', 'sent[device - 1, "B", i] = cost',
     "You send the derivative of the cost to the device before. The last device's layers have it first."),
    ('sent[device + 1, "F", i] = stages[device].forward(i, message)',
     'sent[device + 1, "F", i] = message; stages[device].forward(i, message)',
     "You send on what the device has received. Send what its stage has made of it."),
    ("np.array_split(layers, K)", "[layers[d * (len(layers) // K):][:len(layers) // K] for d in range(K)]",
     "Your cut loses layers if K does not divide their number: the first stages have one more then."),
    ("Stage(list(part), recompute)", "Stage(list(part))",
     "Your stages are not told to recompute: hand it on."),
    ("(J, stages, actions)", "(J, actions, stages)", "The order is J, stages, actions."),
    ("(J, stages, actions)", "(J / M, stages, actions)",
     "You divide J by M. Each part has been divided by the whole m already: their sum is J."),
]


K_AND_M = ((4, 8), (2, 3), (1, 2), (4, 2), (3, 1), (5, 5))
ONE_F_ONE_B_CASES = [(device, K, M) for K, M in K_AND_M for device in reversed(range(K))]
ONE_F_ONE_B_MISTAKES = [
    ("min(K - 1 - device, M)", "min(K - device, M)",
     "Your devices go one forward too far ahead. The last device needs no warm-up: it does F0 B0."),
    ("min(K - 1 - device, M)", "K - 1 - device",
     "Right if there are enough micro-batches. With fewer, the warm-up is all there is: take the smaller."),
    ("min(K - 1 - device, M)", "min(device, M)",
     "Your warm-up is the wrong way round: device 0, furthest from the cost, runs ahead most."),
    ("min(K - 1 - device, M)", "min(K - 1, M)",
     "All your devices warm up alike. Device d needs K - 1 - d forwards, one for each device after it."),
    ("min(K - 1 - device, M)", "M", "Your devices do all forwards first: take turns after the warm-up."),
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
    Part("gpipe", 8, calls("gpipe", "device K M", CASES), GPIPE_MISTAKES,
         "all forwards, then all backwards, the last one first; the same on every device.", kept=True),
    Part("run", 8, of_run, RUN_MISTAKES,
         "J and all sums are those of the full batch, whatever K and M are.", kept=True),
    Part("step", 8, of_step, [], "each layer moves against the sum of its gradients, once.", kept=True),
    Part("one_f_one_b", 9, calls("one_f_one_b", "device K M", ONE_F_ONE_B_CASES), ONE_F_ONE_B_MISTAKES,
         "forwards to warm up, then one forward and one backward in turn, then what is left.", kept=True),
]
