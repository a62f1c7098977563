"""What notebooks 06 to 10 say to stages, clocks, orders and copies, written otherwise than the solutions."""

from fractions import Fraction

import numpy as np
import pytest
from notebooks.checkers import are_named, are_right, edits, judge_of

from exercises import three_ways
from exercises.judging import module_of, part_named

STAGE, RECOMPUTING, NEEDS, CLOCK = map(judge_of, ["Stage", "Stage with recompute", "needs", "clock"])
GPIPE, RUN, ORDER, SENT, COPIES = map(judge_of, ["gpipe", "run", "one_f_one_b", "sent", "copies"])

BY_PLACE = """
class Stage:
    def __init__(self, layers):
        self.layers = layers
        self.stash = {}
        self.most_stashed = 0
        self.gradients = {}

    def forward(self, i, A):
        caches = []
        for layer in self.layers:
            A = layer.forward(A)
            caches.append(layer.cache)
        self.stash[i] = caches
        self.most_stashed = max(self.most_stashed, len(self.stash))
        return A

    def backward(self, i, dA):
        caches = self.stash[i]
        del self.stash[i]
        for place in range(len(self.layers) - 1, -1, -1):
            layer = self.layers[place]
            layer.cache = caches[place]
            dA, dW, db = layer.backward(dA)
            if dW is None:
                continue
            if layer in self.gradients:
                old_dW, old_db = self.gradients[layer]
                dW, db = old_dW + dW, old_db + db
            self.gradients[layer] = (dW, db)
        return dA
"""

WITH_DICTS = """
def run_through(layers, A):
    kept = {}
    for layer in layers:
        A = layer.forward(A)
        kept[layer] = layer.cache
    return A, kept


class Stage:
    def __init__(self, layers, recompute=False):
        self.layers, self.recompute = layers, recompute
        self.stash, self.gradients, self.most_stashed = {}, {}, 0

    def forward(self, i, A_prev):
        A, kept = run_through(self.layers, A_prev)
        self.stash[i] = {"input": A_prev} if self.recompute else kept
        self.most_stashed = max(len(self.stash), self.most_stashed)
        return A

    def backward(self, i, dA):
        kept = self.stash.pop(i)
        if self.recompute:
            _, kept = run_through(self.layers, kept["input"])
        for layer in self.layers[::-1]:
            layer.cache = kept[layer]
            dA, dW, db = layer.backward(dA)
            if dW is not None:
                pair = self.gradients.get(layer, [0 * dW, 0 * db])
                self.gradients[layer] = [pair[0] + dW, pair[1] + db]
        return dA
"""

LAST_FIRST = """
def needs(device, kind, i, K):
    last = K - 1
    if kind == "B" and device == last:
        return (last, "F", i)
    if kind == "B":
        return (device + 1, "B", i)
    if device != 0:
        return (device - 1, "F", i)
"""

TICK_BY_TICK = """
def clock(orders, ticks):
    left, ends, free, found, now = [list(o) for o in orders], {}, [0] * len(orders), [], 0
    while any(left):
        for d, order in enumerate(left):
            if not order:
                continue
            before = needs(d, *order[0], len(orders))
            if free[d] <= now and ends.get(before, 0 if before is None else 10**6) <= now:
                kind, i = order.pop(0)
                ends[d, kind, i] = free[d] = now + ticks[kind]
                found.append((d, kind, i, now, free[d]))
        now += 1
        if now > 1000:
            raise RuntimeError('nothing can start')
    return found
"""


def gpipe(body):
    return f"def gpipe(device, K, M):\n    {body}\n"


WITH_DICTIONARIES = """
def run(layers, X, Y, K, M, schedule, m=None, recompute=False):
    if m is None:
        m = X.shape[1]
    cuts = np.array_split(np.arange(len(layers)), K)
    stages = [Stage([layers[k] for k in cut], recompute=recompute) for cut in cuts]
    actions = clock([schedule(d, K, M) for d in range(K)], {"F": 1, "B": 2})
    up, down, total = dict(enumerate(micro_batches(X, M))), {}, 0
    labels = micro_batches(Y, M)
    for d, kind, i, *_ in actions:
        if kind == "F":
            A = stages[d].forward(i, up[i])
            up[i] = A
            if d == K - 1:
                J, down[i] = cost(up[i], labels[i], m)
                total += J
        else:
            down[i] = stages[d].backward(i, down[i])
    return total, stages, actions
"""

COUNTED = """
def one_f_one_b(device, K, M):
    ahead, f, b, order = K - 1 - device, 0, 0, []
    while b < M:
        if f < M and f - b < ahead + 1:
            order.append(("F", f))
            f += 1
        else:
            order.append(("B", b))
            b += 1
    return order
"""

IN_A_TABLE = """
def sent(split, sizes, N, m):
    hidden, last, others = sizes[1:-1], sizes[-1], N - 1
    activations = m * sum(hidden)
    parameters = 0
    for l in range(1, len(sizes)):
        parameters += sizes[l] * sizes[l - 1] + sizes[l]
    return {
        "network": 8 * 2 * activations,
        "layer": 8 * others * (2 * activations + m * last),
        "data": 8 * others * 2 * parameters,
    }[split]
"""

BY_COPY = """
def add(one, other):
    return one[0] + other[0], one[1] + other[1]


def copies(layers, X, Y, D, K, M, schedule):
    total, gradients = 0, {}
    shares, answers = micro_batches(X, D), micro_batches(Y, D)
    for d in range(D):
        J, stages, actions = run(layers, shares[d], answers[d], K, M, schedule, X.shape[1])
        total = total + J
        for k in range(K):
            for layer in stages[k].gradients:
                pair = stages[k].gradients[layer]
                gradients[layer] = add(gradients[layer], pair) if layer in gradients else pair
    return total, gradients
"""

test_solutions = are_right({
    STAGE: [BY_PLACE, WITH_DICTS, BY_PLACE.replace("= caches\n", "= tuple(caches)\n")],
    RECOMPUTING: [
        WITH_DICTS,
        WITH_DICTS.replace('{"input": A_prev}', '{"input": A_prev.copy()}'),
        WITH_DICTS.replace("layers, recompute=False", "layers, recompute: bool = False"),
    ],
    NEEDS: [
        LAST_FIRST,
        """def needs(device, kind, i, K):
    before = {"F": device - 1, "B": device + 1}[kind]
    if before in range(K):
        return before, kind, i
    return None if kind == "F" else (K - 1, "F", i)
""",
    ],
    CLOCK: [TICK_BY_TICK],
    GPIPE: [
        gpipe("return [('F', i) for i in range(M)] + [('B', M - 1 - i) for i in range(M)]"),
        gpipe("up = [('F', i) for i in range(M)]; return up + [('B', i) for _, i in up[::-1]]"),
    ],
    RUN: [WITH_DICTIONARIES],
    ORDER: [
        COUNTED,
        """def one_f_one_b(device, K, M):
    w = min(M, K - device - 1)
    up, down = [("F", i) for i in range(M)], [("B", i) for i in range(M)]
    turns = [action for pair in zip(up[w:], down) for action in pair]
    return up[:w] + turns + down[M - w:]
""",
    ],
    SENT: [IN_A_TABLE, IN_A_TABLE.replace("8 * others * 2", "8.0 * others * 2")],
    COPIES: [
        BY_COPY,
        BY_COPY.replace("return total, gradients", "return [total, gradients]"),
        BY_COPY.replace("X.shape[1]", "m=len(X[0])"),
    ],
})

MOST = "max(self.most_stashed, len(self.stash))"
AGAIN = '_, kept = run_through(self.layers, kept["input"])'
test_mistakes = are_named({
    STAGE: [
        *edits(
            BY_PLACE,
            ("caches = self.stash[i]", "caches = self.stash[max(self.stash)]",
             "what B1 returns: yours has shape (3, 2)"),
            ("layer.cache = caches[place]", "cache = caches[place]", "does not put the caches back"),
            ("caches[place]", "caches[len(self.layers) - 1 - place]", "another layer's cache"),
            ("for place in range(len(self.layers) - 1, -1, -1)", "for place in range(len(self.layers))",
             "begins at the first layer"),
            ("        del self.stash[i]\n", "", "leaves its entry in the stash"),
            (MOST, "0", "most_stashed stays 0"),
            ("        return A\n", "", "`forward` returns nothing"),
            ("        return dA\n", "", "`backward` returns nothing"),
            ("caches.append(layer.cache)", "caches.append(cache)", "uses `cache`, which is not"),
        ),
    ],
    RECOMPUTING: [
        *edits(
            WITH_DICTS,
            (AGAIN, "kept = {layer: layer.cache for layer in self.layers}", "takes the caches as they are"),
            ("self.layers, self.recompute = layers, recompute", "self.layers, self.recompute = layers, False",
             "still stashes all caches"),
            ("self.layers, self.recompute = layers, recompute", "self.layers, self.recompute = layers, True",
             "even if recompute is False"),
            ("kept = self.stash.pop(i)", "kept = self.stash[i]", "leaves its entry in the stash"),
        ),
        (BY_PLACE, "__init__() takes 2 positional arguments but 3 were given"),
    ],
    NEEDS: edits(
        LAST_FIRST,
        ('kind == "B" and device == last:\n        return (last', 'kind == "B":\n        return (device',
         "and then starts without a derivative"),
        ("device == last", "False", "a device that does not exist"),
        ('(last, "F", i)', "None", "waits for nothing. The cost"),
        ('return (device - 1, "F", i)', 'return (device - 1, "F", i)\n    return ()', "it must be None"),
        (", i, K", "", "stopped with TypeError"),
    ),
    CLOCK: edits(
        TICK_BY_TICK,
        ("free[d] <= now and ", "", "it must be [7, 9]"),
        ("ticks[kind]", "1", "All your actions take one tick"),
        ("0 if before is None else 10**6", "0", "it must be [5, 7]"),
        ("raise RuntimeError('nothing can start')", "break", "ends quietly"),
        ("return found", "return sorted(found)", "your list is not sorted by start"),
        ("return found", "return sorted(found * 2, key=lambda action: (action[3], action[0]))",
         "The number of actions"),
    ),
    GPIPE: [
        (gpipe("return [(kind, i) for kind in 'FB' for i in range(M)]"), "gpipe-fifo"),
        (gpipe("return [(kind, M - 1 - i) for kind in 'FB' for i in range(M)]"),
         "begin with the last micro-batch"),
        (gpipe("return [('F', i) for i in range(K)] + [('B', M - i - 1) for i in range(M)]"),
         "forwards by K"),
        (gpipe("return [('F', i + 1) for i in range(M)] + [('B', M - i) for i in range(M)]"), "yours is F1"),
        (gpipe("x = [('F', i) for i in range(M)]"), "returns nothing"),
    ],
    RUN: edits(
        WITH_DICTIONARIES,
        ("labels[i], m", "labels[i], labels[i].shape[1]", "the micro-batch's own m"),
        ("labels[i], m", "labels[i], X.shape[1]", "take m from X"),
        ("+= J", "= J", "that of the last micro-batch alone"),
        ("d == K - 1", "d == 0", "without any backward: J: yours is"),
        ("{}, 0", "{}, 1", "it must be"),
    ),
    ORDER: edits(
        COUNTED,
        ("ahead + 1", "ahead + 2", "one forward too far ahead"),
        ("K - 1 - device", "device", "the wrong way round"),
        ("K - 1 - device", "K - 1", "All your devices warm up alike"),
        ("K - 1 - device", "0", "is the naive order"),
        ('("B", b)', '("B", M - 1 - b)', "it must be"),
        ("while b < M", "while True", "finds no end"),
    ),
    SENT: edits(
        IN_A_TABLE,
        ("8 * 2 * activations", "8 * activations", "network split goes forward only"),
        ("8 * 2 * activations", "8 * 2 * m * sum(sizes[1:])", "counts a cut after the last layer"),
        ("8 * 2 * activations", "8 * 2 * m * sum(sizes[:-1])", "counts X"),
        ("[split]", "", "sent('network', (64, 128, 128, 64, 10), N=4, m=32): yours is {'network'"),
        ('"data"', '"copies"', "KeyError"),
        (" + m * last", " + last", "sent('layer', (64, 128, 128, 64, 10), N=4, m=32): yours is"),
    ),
    COPIES: edits(
        BY_COPY,
        (", X.shape[1])", ")", "about D times too large"),
        (", X.shape[1])", ", shares[d].shape[1])", "about D times too large"),
        ("return total, gradients",
         "return total / D, {l: (dW / D, db / D) for l, (dW, db) in "
         "gradients.items()}",
         "are divided by D"),
        (", K, M, schedule, X", ", 1, M, schedule, X", "list index out of range"),
        ("return total, gradients", "return total", "what copies returns: yours is a"),
        ("return total, gradients", "return gradients, total", "J: yours is"),
        ("return total, gradients", "pass", "returns nothing"),
        ("return total, gradients",
         "return total, [*gradients.values()]",
         "yours is [tuple, tuple, tuple], "
         "it must be [Linear, Linear, "
         "Linear]"),
    ),
})


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("order", ["F0 B0 F1 B1 F2 B2", "F0 F1 F2 B2 B1 B0", "F2 F0 B2 F1 B0 B1"])
def test_a_stage_has_the_full_gradients_in_any_order(order, recompute):
    my, rng = course("Stage with recompute"), np.random.default_rng(6)
    layers = [my.Linear(3, 4, rng), my.ReLU(), my.Linear(4, 2, rng)]
    for layer in layers[::2]:
        layer.W, layer.b = fractions(rng, layer.W.shape), fractions(rng, layer.b.shape)
    X, Y = fractions(rng, (3, 7)), fractions(rng, (2, 7))
    whole, stage, outputs = my.Stage(layers), my.Stage(layers, recompute), {}
    whole.backward(0, my.cost(whole.forward(0, X), Y, 7)[1])
    for name in order.split():
        i = int(name[1:])
        if name[0] == "F":
            outputs[i] = stage.forward(i, my.micro_batches(X, 3)[i])
        else:
            stage.backward(i, my.cost(outputs[i], my.micro_batches(Y, 3)[i], 7)[1])
    for layer in layers[::2]:
        for found, expected in zip(stage.gradients[layer], whole.gradients[layer], strict=True):
            assert np.array_equal(found, expected)


def course(title):
    """Return the names of the course's own pipeline, up to this part."""
    part = part_named(title)
    return module_of(part, part.solution)


def fractions(rng, shape):
    numbers = [Fraction(int(n), 3) for n in rng.integers(-4, 5, np.prod(shape))]
    return np.array(numbers, dtype=object).reshape(shape)


def test_samples_that_are_left_over_are_named():
    by_hand = BY_COPY.replace("micro_batches(X, D), micro_batches(Y, D)", """[
        [A[:, d * n:(d + 1) * n] for d in range(D)] for A in (X, Y) for n in [X.shape[1] // D]]""")
    for code in (by_hand, by_hand.replace(", X.shape[1])", ")")):
        assert COPIES(code).startswith("Your copies leave samples out")
    rounded_up = by_hand.replace("X.shape[1] // D", "-(-X.shape[1] // D)")
    assert COPIES(rounded_up).startswith("Right: ")


def test_a_mean_of_means_is_named():
    own_m = BY_COPY.replace(", X.shape[1])", ")")
    code = own_m.replace("return total, gradients",
                         "return total / D, {l: (dW / D, db / D) for l, (dW, db) in gradients.items()}")
    assert COPIES(code).startswith("That is a mean of means")


def test_three_runs_agree_and_send_what_the_solution_counts():
    my, rng = course("copies"), np.random.default_rng(10)
    for sizes, m in (((6, 8, 8, 4, 5), 8), ((5, 9, 6, 7, 4), 16)):
        layers = []
        for n_prev, n in zip(sizes, sizes[1:]):
            layers += [my.Linear(n_prev, n, rng), my.ReLU()]
            layers[-2].W = rng.integers(-1, 2, (n, n_prev)) * 1.0
            layers[-2].b = rng.integers(-3, 4, (n, 1)) * 1.0
        layers = layers[:-1]
        X, Y = rng.integers(-2, 3, (sizes[0], m)) * 1.0, rng.integers(-9, 10, (sizes[-1], m)) * 1.0
        J, [whole], _ = my.run(layers, X, Y, 1, 1, my.gpipe)
        for name, found in three_ways.runs(layers, X, Y).items():
            assert found.J == J
            for layer, pair in zip(layers[::2], found.gradients, strict=True):
                assert all(np.array_equal(a, b) for a, b in zip(pair, whole.gradients[layer], strict=True))
            assert found.n_bytes == my.sent(name, sizes, 4, m)
