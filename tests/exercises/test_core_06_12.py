"""What notebooks 06 to 12 say to answers that are written otherwise than their solutions, and to schedules,
wrong, too long and the best; and what the versions of notebook 11 do.
"""

import numpy as np
import pytest
from notebooks.checkers import are_named, are_right, edits, judge_of

from exercises import three_ways
from exercises.broken_versions import EDITS, passes, trained, version, versions
from exercises.challenge import (
    FINAL, IN_TWO, alive, best, check_final, check_in_two, halved, one_f_one_b, read, trace_of,
)
from exercises.folds import fold, solution
from exercises.judging import module_of, part_named

STAGE, RECOMPUTING, NEEDS, CLOCK = map(judge_of, ["Stage", "Stage with recompute", "needs", "clock"])
GPIPE, RUN, ORDER, SENT, COPIES = map(judge_of, ["gpipe", "run", "one_f_one_b", "sent", "copies"])
HEALTHY, SLOPE, HALVES = judge_of("healthy"), judge_of("slope_fits"), judge_of("needs with halves")

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

IN_ORDER = """
def gradients_of(stages):
    return [array for stage in stages for layer in stage.layers if layer in stage.gradients
            for array in stage.gradients[layer]]


def healthy(my):
    for m in (5, 9):
        J, stages, _ = my.run(*small(my, m), 1, 1, my.gpipe)
        for K, M in ((2, 2), (3, 4)):
            J_too, other, _ = my.run(*small(my, m), K, M, my.one_f_one_b)
            left, right = gradients_of(stages), gradients_of(other)
            if J != J_too or len(left) != len(right) or any((a != b).any() for a, b in zip(left, right)):
                return False
    return True
"""

IN_FLOATS = """
import numpy as np
from exercises.broken_versions import small as network


def healthy(my):
    layers, X, Y = network(my, 7, float)
    J, [whole], _ = my.run(layers, X, Y, K=1, M=1, schedule=my.gpipe)
    J_too, stages, _ = my.run(layers, X, Y, K=3, M=3, schedule=my.gpipe)
    parts = {layer: pair for stage in stages for layer, pair in stage.gradients.items()}
    return bool(np.isclose(J, J_too)) and all(
        np.allclose(dW, parts[layer][0]) and np.allclose(db, parts[layer][1])
        for layer, (dW, db) in whole.gradients.items())
"""

RANDOM_DIRECTION = """
def slope_fits(my):
    layers, X, Y = small(my, 5, float)
    rng, h = np.random.default_rng(1), 1e-5
    stage = my.run(layers, X, Y, 1, 1, my.gpipe)[1][0]
    moves = {layer: (rng.standard_normal(dW.shape), rng.standard_normal(db.shape))
             for layer, (dW, db) in stage.gradients.items()}
    promised = sum((V * dW).sum() + (v * db).sum() for (V, v), (dW, db) in
                   zip(moves.values(), stage.gradients.values()))
    costs = []
    for sign in (1, -1):
        for layer, (V, v) in moves.items():
            layer.W, layer.b = layer.W + sign * h * V, layer.b + sign * h * v
        costs.append(my.run(layers, X, Y, 1, 1, my.gpipe)[0])
        for layer, (V, v) in moves.items():
            layer.W, layer.b = layer.W - sign * h * V, layer.b - sign * h * v
    return np.isclose((costs[0] - costs[1]) / (2 * h), promised, rtol=1e-6)
"""

WITH_A_TABLE = """
def needs(device, kind, i, K):
    last = device == K - 1
    waits = {"W": (device, "I", i), "F": (device - 1, "F", i)}
    waits |= {"B": (device + 1, "B", i), "I": (device + 1, "I", i)}
    if kind == "F" and device == 0:
        return None
    if last and kind in "BI":
        return device, "F", i
    return waits[kind]
"""

test_solutions = are_right({
    STAGE: [BY_PLACE, WITH_DICTS, BY_PLACE.replace("= caches\n", "= tuple(caches)\n")],
    RECOMPUTING: [
        WITH_DICTS,
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
    ],
    SLOPE: [RANDOM_DIRECTION],
    HALVES: [WITH_A_TABLE],
})

AGAIN = '_, kept = run_through(self.layers, kept["input"])'
test_mistakes = are_named({
    STAGE: [
        *edits(
            BY_PLACE,
            ("caches = self.stash[i]", "caches = self.stash[max(self.stash)]",
             "what B1 returns: yours has shape (3, 2)"),
            ("layer.cache = caches[place]", "cache = caches[place]", "does not put the caches back"),
            ("        del self.stash[i]\n", "", "leaves its entry in the stash"),
        ),
    ],
    RECOMPUTING: [
        *edits(
            WITH_DICTS,
            (AGAIN, "kept = {layer: layer.cache for layer in self.layers}", "takes the caches as they are"),
        ),
        (BY_PLACE, "__init__() takes 2 positional arguments but 3 were given"),
        (WITH_DICTS.replace("if self.recompute", "if not self.recompute"), "recompute=False, in F0 F1 F2"),
    ],
    NEEDS: edits(
        LAST_FIRST,
        ('kind == "B" and device == last:\n        return (last', 'kind == "B":\n        return (device',
         "Its derivative comes from device + 1"),
        ('return (device - 1, "F", i)', 'return (device - 1, "F", i)\n    return ()', "it must be None"),
    ),
    CLOCK: edits(
        TICK_BY_TICK,
        ("free[d] <= now and ", "", "it must be [7, 9]"),
        ("0 if before is None else 10**6", "0", "it must be [5, 7]"),
        ("raise RuntimeError('nothing can start')", "break", "ends quietly"),
        ("return found", "return sorted(found * 2, key=lambda action: (action[3], action[0]))",
         "The number of actions"),
    ),
    GPIPE: [
        (gpipe("return [('F', i) for i in range(K)] + [('B', M - i - 1) for i in range(M)]"),
         "forwards by K"),
        (gpipe("return [('F', i + 1) for i in range(M)] + [('B', M - i) for i in range(M)]"), "yours is F1"),
        (gpipe("return [f'F{i}' for i in range(M)] + [f'B{i}' for i in range(M)][::-1]"),
         "Your actions are texts"),
    ],
    RUN: edits(
        WITH_DICTIONARIES,
        ("labels[i], m", "labels[i], labels[i].shape[1]", "the micro-batch's own m"),
        ("d == K - 1", "d == 0", "without any backward: J: yours is"),
        ("{}, 0", "{}, 1", "it must be"),
        ("total, stages, actions", "total, actions, stages", "The order is J, stages, actions."),
        ("labels[i], m", "labels[i], m / M", "it is 4 times too large."),
        ("stages[d].backward(i, down[i])", "stages[d].backward(i, down[d, i])", "`. Perhaps: You send"),
    ),
    ORDER: edits(
        COUNTED,
        ("ahead + 1", "ahead + 2", "one forward too far ahead"),
        ('("B", b)', '("B", M - 1 - b)', "it must be"),
        ("while b < M", "while True", "finds no end"),
    ),
    SENT: edits(
        IN_A_TABLE,
        ("8 * 2 * activations", "8 * activations", "network split goes forward only"),
        ("[split]", "", "sent('network', (64, 128, 128, 64, 10), N=4, m=32): yours is {'network'"),
        (" + m * last", " + last", "sent('layer', (64, 128, 128, 64, 10), N=4, m=32): yours is"),
    ),
    COPIES: edits(
        BY_COPY,
        (", X.shape[1])", ")", "about D times too large"),
        (", X.shape[1])", ", X.shape[1] / D)", "D times too large, as if each copy worked on all samples"),
        ("return total, gradients", "return total", "how many things copies returns: yours is 1,"),
        ("return total, gradients", "return gradients, total", "J: yours is"),
        ("return total, gradients", "return total, [*gradients.values()]",
         "yours is [tuple, tuple, tuple], it must be [Linear, Linear, Linear]"),
    ),
    SLOPE: [
        *edits(
            RANDOM_DIRECTION,
            (" + (v * db).sum()", "", "one lacks b"),
            ("/ (2 * h)", "/ h", "Your slope is twice too large"),
            ("rtol=1e-6", "rtol=0.02", "returns 1.01 times the cost as its J: yours is True"),
        ),
    ],
    HALVES: edits(
        WITH_A_TABLE,
        ('"I": (device + 1, "I", i)', '"I": (device + 1, "B", i)', "Your I waits for a whole B"),
        ('return device, "F", i', 'return device, "B", i', "it must be"),
        ("return waits[kind]", "return list(waits[kind])", "yours is list, it must be tuple"),
        ("    return waits[kind]\n", "", "yours gives None"),
    ),
})

# each test that is judged runs on all versions of the pipeline, in fractions
test_solutions_in_fractions = pytest.mark.slow(are_right({HEALTHY: [IN_ORDER, IN_FLOATS]}))

PAIRS = "((2, 2), (3, 4))"
WITHOUT_ROUNDING = IN_FLOATS.replace("np.isclose(J, J_too)", "J == J_too")
test_mistakes_in_fractions = pytest.mark.slow(are_named({
    HEALTHY: [
        *edits(
            IN_ORDER,
            (PAIRS, "((1, 2), (1, 4))", "micro-batches of several sizes], it must be"),
            (" or len(left) != len(right) or any((a != b).any() for a, b in zip(left, right))", "",
             "compares J alone"),
            ("J != J_too or ", "", "a cut changes J alone"),
            ("in zip(left, right)", "in zip(left[:2], right[:2])", "the second stage alone: yours is True"),
            ("return False\n    return True", "return 0\n    return None",
             "yours gives None, it must be True"),
            ("return True", "return 'healthy'", "yours is a str, it must be True"),
            ("healthy(my):", "healthy(my):\n    return True\n", "that it is given: yours is False"),
            ("my.run(*small(my, m), 1, 1", "my.run(small(my, m), 1, 1", "TypeError: run() missing"),
            ("return True", "return len(m)", "has no len(), in line"),
        ),
        *edits(WITHOUT_ROUNDING, ("allclose", "array_equal", "floats")),
    ],
}))


def test_three_runs_agree_and_send_what_the_solution_counts():
    part, rng = part_named("copies"), np.random.default_rng(10)
    my = module_of(part, part.solution)
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


def test_a_mistake_of_a_version_turns_one_of_the_two_tests_red():
    parts = [part_named(name) for name in ("healthy", "slope_fits")]
    healthy, slope_fits = (getattr(module_of(part, part.solution), part.name) for part in parts)
    for test in (healthy, slope_fits):
        assert passes(test, version())
    assert [letter for letter in EDITS if passes(healthy, version(letter))] == [*"FK"]
    assert [letter for letter in EDITS if not passes(slope_fits, version(letter))] == [*"FGHJK"]


@pytest.mark.slow  # thirteen trainings
def test_the_answers_say_how_the_versions_train():
    right, trainings = trained(version()), {letter: trained(my) for letter, my in versions().items()}
    falling = [letter for letter, training in trainings.items() if training.falls]
    assert fold(11, "Answer 11a").startswith(f"**{len(falling)}.** A and F explode")
    assert trainings["I"].error == "KeyError"
    assert all(not np.isfinite(trainings[letter].costs[-1]) for letter in "AF")
    assert trainings["K"].costs == [2 * J for J in right.costs]
    better = [letter for letter, training in trainings.items() if training.digits > right.digits]
    assert fold(11, "Answer 11b").startswith(f"**Yes.** {' and '.join(better)} read more.")
    assert trainings["B"] == trainings["L"] == right and trainings["K"].digits == right.digits


@pytest.mark.slow
def test_the_small_network_shows_each_mistake():
    code = part_named("healthy").solution
    for m, M in [(3, 2), (4, 3), (5, 2), (7, 2), (8, 3), (9, 2), (10, 3), (11, 2)]:
        own = code.replace("small(my, 7)", f"small(my, {m})").replace("3, 4, my", f"2, {M}, my")
        assert HEALTHY(own).startswith("Right: "), m


def test_the_solutions_are_the_best_that_exist(capsys):
    for name, check, (K, M, room) in (("in_two", check_in_two, IN_TWO), ("final", check_final, FINAL)):
        names = {}
        exec(solution(12, name), names)
        assert read(check(names[name])) == read(names[name])
        found = best(K, M, room)
        assert found.proved and f"Right: {name} takes {found.makespan} ticks" in capsys.readouterr().out
        assert max(alive(names[name])) == room
    assert best(*IN_TWO).makespan == 17 and best(*FINAL).makespan == 31


GOOD = ["F0 F1 I0 W0 I1 F2 W1 F3 I2 W2 I3 W3", "F0 F1 I0 W0 I1 W1 F2 F3 I2 W2 I3 W3",
        "F0 I0 F1 I1 W0 W1 F2 I2 F3 I3 W2 W3"]


def changed(line, old, new):
    """The best schedule in room for two, with `new` in the place of `old` in one line."""
    assert GOOD[line].count(old) == 1
    return "\n".join([*GOOD[:line], GOOD[line].replace(old, new), *GOOD[line + 1:]])


CANNOT_RUN = [
    ("\n...\n...\n...\n", "Not solved yet"), (None, "Write text"), (17, "Write text"),
    (changed(0, "F3", "F4"), "in_two: Your micro-batches are 0, 1, 2, 3, 4; asked were 4, counted from 0."),
    (changed(1, "I3 W3", "I3"), "in_two: It cannot run: device 1 never does W3."),
    (changed(1, "I3 W3", "I3 W3 W3"), "device 1: W3 is done already: once is enough"),
    (changed(2, "F0 I0", "I0 F0"), "I0 comes before its forward F0"),
    (changed(0, "W0 I1", "I1 Q0"), "'Q0' is not an action here: write F, I or W"),
    (changed(0, "F0 F1", "F0, F1"), "'F0,' is not an action here"),
    (changed(1, "I2 W2", "W2 I2"), "device 1: W2 comes before I2, the other half, which it needs."),
    ("\n".join(GOOD[:2]), "Devices (lines) in your schedule: 2; asked were 3."),
    (one_f_one_b(3, 4), "'B0' is not an action here: write F, I or W"),
    (halved(one_f_one_b(3, 4)), "Device 0 keeps 3 micro-batches, and has room for 2: do a W earlier."),
    (changed(0, "F0 F1 I0 W0", "F0 I0 W0 F1"),
     "nobody can go on, a deadlock: device 0 cannot start I0 before device 1 has done I0, and device 1 "
     "cannot start F1 before device 0 has done F1."),
]
TOO_LONG = [
    ("F0 I0 W0 F1 I1 W1 F2 I2 W2 F3 I3 W3\n" * 3, "in_two: 28 ticks: 11 more than the best, 17. "),
    ("F0 I0 W0 F1 I1 W1 F2 I2 W2 F3 I3 W3\n" * 3, "It has room for 2, and keeps 1 at most."),
    (changed(2, "F0 I0 F1 I1 W0 W1", "F0 I0 F1 W0 I1 W1"), "18 ticks: 1 more than the best, 17. One action"),
    (changed(2, "F0 I0 F1 I1 W0 W1", "F0 I0 F1 W0 I1 W1"), "moved to another place, saves 1."),
    ("F0 F1 I0 W0 I1 W1 F2 F3 I2 W2 I3 W3\n" * 3,
     "as the hint says. Device 0 does nothing from tick 2 to 6: it waits for I0 of device 1."),
]


def test_a_schedule_that_cannot_run_is_told_why(capsys):
    for answer, words in CANNOT_RUN:
        assert check_in_two(answer) == halved(one_f_one_b(3, 4)), answer
        sentence, until = capsys.readouterr().out.splitlines()
        assert words in sentence, answer
        assert until == "(Until it can run, this notebook goes on with 1F1B.)"


def test_a_schedule_that_is_too_long_is_told_where_to_look(capsys):
    for answer, words in TOO_LONG:
        assert read(check_in_two(answer)) == read(answer)
        assert words in capsys.readouterr().out, answer


BELOW = """
F0 F1 F2 I0 W0 F3 I1 W1 F4 I2 W2 F5 I3 W3 F6 I4 W4 F7 I5 W5 I6 W6 I7 W7
F0 F1 F2 I0 W0 I1 W1 F3 I2 W2 F4 I3 F5 W3 I4 F6 W4 I5 F7 W5 I6 W6 I7 W7
F0 F1 F2 I0 W0 I1 W1 I2 W2 F3 I3 F4 W3 F5 I4 W4 I5 F6 W5 F7 I6 W6 I7 W7
F0 I0 F1 I1 F2 I2 W0 W1 W2 F3 I3 W3 F4 I4 W4 F5 I5 W5 F6 I6 W6 F7 I7 W7
"""


def test_less_than_1f1b_is_said_though_it_is_not_the_best(capsys):
    check_final(BELOW)
    said = capsys.readouterr().out
    assert trace_of(BELOW).makespan == 32 and said.startswith("final: 32 ticks, below the 33 of 1F1B!")
    assert "The best takes 31. " in said


