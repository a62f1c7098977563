"""What notebooks 00 to 05 say to answers that are written otherwise than their solutions: right ones, and
mistakes. Each mistake that a part foresees is tried in `notebooks/test_mine.py`, as an edit of the solution.
"""

from notebooks.checkers import are_named, are_right, edits, judge_of

from exercises.start import NAIVE, check_first_schedule

FORWARD, BACKWARD = judge_of("forward"), judge_of("backward")
GRADIENT, LEARN = judge_of("gradient"), judge_of("learn")
LINEAR, RELU = judge_of("Linear"), judge_of("ReLU")
COST, FULL_BATCH = judge_of("cost"), judge_of("full_batch")
MICRO_BATCHES, IN_PARTS = judge_of("micro_batches"), judge_of("in_parts")


def forward(body):
    return f"def forward(w1, w2, b, x1, x2, y):\n{body}"


def backward(body):
    return f"def backward(a, x1, x2, y):\n    {body}"


def gradient(body):
    return f"def gradient(w, b, x, y):\n{body}"


def learn(body):
    return f"def learn(x, y, rate):\n{body}"


A_FORWARD = forward("""
    z = sum(w * x for w, x in [(w1, x1), (w2, x2)]) + b
    a = 1 / (1 + np.exp(-z))
    L = -np.log(a) * y - np.log(1 - a) * (1 - y)
    return z, a, L
""")
A_BACKWARD = backward("dz = a - y; return dz, dz * x1, dz * x2, dz")
A_GRADIENT = gradient("""
    error = 1 / (1 + np.exp(-(w * x + b))) - y
    return np.mean(error * x), np.mean(error)
""")
# with the question in front of its loop, which the solution does not have
A_WALK = learn("""
    w = b = 0.0
    path = [(w, b)]
    dw, db = gradient(w, b, x, y)
    while abs(dw) > 0.02 or abs(db) > 0.02:
        w, b = w - rate * dw, b - rate * db
        path.append((w, b))
        dw, db = gradient(w, b, x, y)
    return w, b, path
""")

START = """
class Linear:
    def __init__(self, n_prev, n, rng):
        self.W = rng.standard_normal((n, n_prev)) * np.sqrt(2 / n_prev)
        self.b = np.zeros((n, 1))

"""


def linear(forward="self.cache = A_prev; return np.dot(self.W, A_prev) + self.b",
           dA_prev="np.dot(self.W.T, dZ)", dW="np.dot(dZ, A.T)", db="np.sum(dZ, 1, keepdims=True)",
           end="return dA_prev, dW, db", A="self.cache"):
    """A layer with lines of its own, each written otherwise than in the solution."""
    return START + f"""
    def forward(self, A_prev):
        {forward}

    def backward(self, dZ):
        A = {A}
        db = {db}
        dA_prev = {dA_prev}
        dW = {dW}
        {end}
"""


def relu(forward="self.cache = Z > 0; return np.where(Z > 0, Z, 0)",
         backward="return np.where(self.cache, dA, 0), None, None"):
    return f"""
class ReLU:
    def forward(self, Z):
        {forward}

    def backward(self, dA):
        {backward}
"""


def cost(body):
    return f"def cost(A, Y, m):\n    {body}\n"


def loops(forward="A = layers[k].forward(A)", m="len(X[0])", order="range(len(layers) - 1, -1, -1)",
          back="dA, *pair = layers[k].backward(dA)", end="return J, found",
          store="if pair[0] is not None: found[layers[k]] = tuple(pair)"):
    """Two loops over places, each line of which can be another."""
    return f"""
def full_batch(layers, X, Y):
    A, found = X.copy(), {{}}
    for k in range(len(layers)):
        {forward}
    m = {m}
    J, dA = cost(A, Y, m)
    for k in {order}:
        {back}
        {store}
    {end}
"""


def cut(body):
    return f"def micro_batches(X, M):\n    {body}\n"


def loop(parts="list(zip(micro_batches(X, M), micro_batches(Y, M)))", start="J, found, m = 0, {}, len(X[0])",
         add="if layer in found: dW, db = dW + found[layer][0], db + found[layer][1]",
         m="m", end="return J, found"):
    """A loop over parts, each line of which can be another."""
    return f"""
def in_parts(layers, X, Y, M):
    {start}
    for X_part, Y_part in {parts}:
        for layer in layers:
            X_part = layer.forward(X_part)
        J_part, dA = cost(X_part, Y_part, {m})
        J = J + J_part
        for layer in layers[::-1]:
            dA, dW, db = layer.backward(dA)
            if dW is None: continue
            {add}
            found[layer] = dW, db
    {end}
"""


test_solutions = are_right({
    FORWARD: [
        forward("""
    z = np.array([w1, w2]) @ np.array([x1, x2]) + b
    a = np.exp(z) / (np.exp(z) + 1)
    L = -np.log(a) if y == 1 else -np.log(1 - a)
    return z, a, L
"""),
        "def sigmoid(z):\n    return (1 + np.tanh(z / 2)) / 2\n\n\n" + forward("""
    z = w1 * x1 + w2 * x2 + b
    return z, sigmoid(z), np.log1p(np.exp(z)) - y * z
"""),
    ],
    BACKWARD: [
        A_BACKWARD,
        backward("dz = a - 1 if y == 1 else a; return [dz] + [dz * slope for slope in [x1, x2, 1]]"),
        backward("dz = a * (1 - y) - y * (1 - a); dw1 = x1 * dz; return dz, dw1, x2 * dz, dz"),
    ],
    GRADIENT: [
        A_GRADIENT,
        gradient("""
    m, dw, db = len(x), 0, 0
    for k in range(m):
        a = 1 / (1 + np.exp(-w * x[k] - b))
        dw += (a - y[k]) * x[k]
        db += a - y[k]
    return dw / m, db / m
"""),
    ],
    LEARN: [
        A_WALK,
        learn("""
    place = np.zeros(2)
    path = [place]
    while True:
        slopes = np.array(gradient(*place, x, y))
        if (abs(slopes) <= 0.02).all():
            return place[0], place[1], np.array(path)
        place = place - rate * slopes
        path.append(place)
"""),
    ],
    LINEAR: [
        linear(),
        linear(db="np.array([[sum(row)] for row in dZ])", dA_prev="(dZ.T @ self.W).T", dW="(A @ dZ.T).T"),
        linear("self.cache = (A_prev.copy(),); return np.add(self.W @ A_prev, self.b)", A="self.cache[0]"),
    ],
    RELU: [
        relu(),
        relu("self.cache = Z > 0; return np.maximum(0, Z)", "return self.cache * dA, None, None"),
        relu("A = Z.copy(); A[Z <= 0] = 0; self.cache = np.greater(Z, 0); return A",
         "dZ = dA.copy(); dZ[~self.cache] = 0; return dZ, None, None"),
    ],
    COST: [
        cost("D = A - Y; return (D * D).sum() / (2 * m), D / m"),
        cost("D = A - Y; return sum(d * d for row in D for d in row) / (2 * m), D / m"),
        "def half(x):\n    return x / 2\n\n\n" + cost("return half(((Y - A) ** 2 / m).sum()), -(Y - A) / m"),
    ],
    FULL_BATCH: [
        loops(),
        loops(forward="X = layers[k].forward(X)").replace("m = len(X[0])", "A, m = X, X.shape[1]"),
        """
def through(layers, A):
    if not layers:
        return A
    return through(layers[1:], layers[0].forward(A))


def back(layers, dA):
    if not layers:
        return {}
    dA_prev, dW, db = layers[-1].backward(dA)
    return back(layers[:-1], dA_prev) | ({} if dW is None else {layers[-1]: (dW, db)})


def full_batch(layers, X, Y):
    J, dA = cost(through(layers, X), Y, Y.shape[1])
    return J, back(layers, dA)
""",
    ],
    MICRO_BATCHES: [
        cut("return [X.T[k].T for k in np.array_split(range(X.shape[1]), M)]"),
        cut("m = X.shape[1]; edges = [-(-m * i // M) for i in range(M + 1)]\n"
            "    sizes = sorted((b - a for a, b in zip(edges, edges[1:])), reverse=True)\n"
            "    return tuple(np.split(X, np.cumsum(sizes)[:-1], axis=1))"),
    ],
    IN_PARTS: [
        loop(),
        loop(start="J = 0; found = {}; m = X.shape[1]",
             parts="[(X[:, k[0]], Y[:, k[0]]) for k in micro_batches(np.arange(m)[None], M)]"),
    ],
})

LOSS = "-np.log(a) * y - np.log(1 - a) * (1 - y)"
Z = "sum(w * x for w, x in [(w1, x1), (w2, x2)]) + b"
OF_ALL, STEP = "abs(dw) > 0.02 or abs(db) > 0.02", "w, b = w - rate * dw, b - rate * db"
MEANS = "np.mean(error * x), np.mean(error)"
DIVIDED = "{layer: (dW / M, db / M) for layer, (dW, db) in found.items()}"
test_mistakes = are_named({
    FORWARD: [
        *edits(
            A_FORWARD,
            (LOSS, "-np.log10(a if y else 1 - a)", "base 10"),
            (LOSS, "np.log(a) if y == 1 else np.log(1 - a)", "Your L is negative"),
            ("return", "found =", "`forward` has no `return`"),
            ("1 / (1 + np.exp(-z))", "sigmoid(z)", "uses `sigmoid`, which is not in its cell"),
            (Z, "w1(x1) + w2(x2) + b", "stopped with TypeError"),
            ("z, a, L", "1, 2, 3, 4", "(z, a, L are three): yours is 4, it must be 3."),
            (LOSS, "1 - np.log(a)", "L at"),
            (Z, "w1 * x1 + w2 * x1 + b", "z at (w1"),
            ("1 / (1 + np.exp(-z))", "(np.exp(2 * z) - 1) / (np.exp(2 * z) + 1)", "tanh(z)"),
        ),
        (forward('    """Return z, a and L."""\n    ...'), "Not solved yet"),
    ],
    BACKWARD: [
        *edits(
            A_BACKWARD,
            ("a - y", "-1 / a if y == 1 else 1 / (1 - a)", "Your dz is da, handed on"),
            ("a - y", "(1 - a) * ((1 - y) / (1 - a) - y / a)", "Your slope of the sigmoid is 1 - a."),
            ("a - y", "(a * (1 - a)) ** 2 * ((1 - y) / (1 - a) - y / a)", "Your dz is (a - y) a (1 - a)"),
        ),
    ],
    GRADIENT: [
        *edits(
            A_GRADIENT,
            ("mean", "sum", "m times too large: J is a mean"),
            (MEANS, "0.5", "How many things gradient returns (dw, db are two): yours is 1, it must be 2."),
        ),
    ],
    LEARN: [
        *edits(
            A_WALK,
            (STEP, "w -= rate * dw; db = gradient(w, b, x, y)[1]; b -= rate * db",
             "Your b moves by a slope at the new w"),
            ("(w, b)", "[w]", "How many numbers each point on the path has: yours is [1], it must be [2]."),
            (OF_ALL, "abs(dw) > 0.03 or abs(db) > 0.03",
             "The number of points on the path with rate 2, in walk 1"),
            (STEP, "w = w - dw / 1000; b = b", "`learn` finds no end: a loop in it"),
        ),
        (learn("""
    w = b = 0.0
    path, dw, db = [(w, b)], 1, 1
    while abs(dw) > 0.02 or abs(db) > 0.02:
        dw, db = gradient(w, b, x, y)
        w -= rate * dw
        b -= rate * db
        path.append((w, b))
    return w, b, path
"""), "one update too many"),
        (learn("""
    place = np.zeros(2)
    path = [place]
    while True:
        slopes = np.array(gradient(*place, x, y))
        if abs(slopes).max() <= 0.02:
            return *place, path
        place -= rate * slopes
        path.append(place)
"""), "All points of your path are the last one"),
    ],
    LINEAR: [
        (linear(dW="dZ.dot(A.T) / len(A.T)", db="dZ.sum(1).reshape(-1, 1) / len(A.T)"),
         "Your dW and db are means over the samples"),
        (linear(end="return dZ * 3"),
         "The number of values that backward returns: yours is 1, it must be 3"),
        (linear("self.cache = A_prev.copy(); A_prev *= 0; return self.W @ self.cache + self.b"),
         "Whether forward leaves A_prev as it was: yours is False"),
        (linear(end="self.W -= dW; return dA_prev, dW, db"), "changes W or b"),
        (linear(end="dZ /= 2; return dA_prev, dW, db"),
         "Whether backward leaves A_prev and dZ as they were: yours is [True, False]"),
        (linear().replace("np.sqrt(2 / n_prev)", "0.01"), "The W that Linear(3, 2, rng) draws"),
        (START + "    def forward(self, A_prev):\n        return 1\n\n    def backward(self, dZ): pass\n",
         "Not solved yet: the body of `backward` is empty"),
    ],
    RELU: [
        (relu(backward="return np.maximum(dA, 0), None, None"), "the sign of dA"),
        (relu(backward="return self.cache.astype(float), None, None"), "returns the slope alone"),
        (relu("self.cache = Z > 0; return np.maximum(Z, 1)"),
         "A with Z = [[-1, 0, 2], [3, -0.5, 0.25]]: yours is"),
        (relu("self.cache = Z * (Z > 0); return self.cache", "return dA * self.cache, None, None"),
         "dZ with Z = [[-1, 0, 2], [3, -0.5, 0.25]]: yours is"),
        (relu("self.cache = np.where(Z > 0, 1, 0); return Z * self.cache",
              "return np.where(self.cache > 0, dA, 0), None, None"),
         "your mask has 8 bytes for each of Z"),
    ],
    COST: [
        (cost("D = A - Y; return np.sum(D * D) / m, 2 * D / m"), "to a cost without the 1/2"),
        (cost("D = A - Y; return sum(D * D) / m / 2, D / m"),
         "J of 4 samples, with 3 outputs each and m = 4: yours has shape (4,), it must be ()"),
        (cost("D = A - Y; return np.sum(D * D) / m / 2"), "The number of values that cost returns: yours is"),
        (cost("J = 1 / (2 * m) * np.sum((A - Y) ** 2)\n    return J, (A - Y) / m"),
         "`J = 1 / (2 * m) * np.sum((A - Y) ** 2)`. In floats it may be right"),
        (cost("D = A - Y; return 0.5 * m * np.sum(D * D), D / m"), "multiplied by m"),
        (cost("A -= Y; return np.sum(A * A) / m / 2, A / m"),
         "Whether A and Y are as they were: yours is [False, True]"),
    ],
    FULL_BATCH: [
        (loops(order="range(len(layers))"), "begins at the first layer"),
        (loops(back="if not hasattr(layers[k], 'b'): continue\n        dA, *pair = layers[k].backward(dA)"),
         "leaves ReLU out"),
        (loops(store="if pair[0] is not None: found[layers[k]] = pair[0]"),
         "The number of gradients of layers[2] of 2 samples and layers of 3 - 3 - 3 units: yours is 1"),
    ],
    MICRO_BATCHES: [
        (cut("return list(np.hsplit(X, M))"), "only if the parts are equal"),
        (cut("s = len(X[0]) // M; return [X[:, s * i:s * i + s] for i in range(M)]"),
         "Your cut loses samples"),
        (cut("return np.split(X.ravel(), M)"),
         "The number of axes of each part of 4 samples and M = 2: yours is [1, 1], it must be [2, 2]"),
        (cut("return [X]"), "The number of parts of 4 samples and M = 2: yours is 1"),
        (cut("return [X[:, :1], X[:, 1:]]"),
         "The sizes of the parts of 4 samples and M = 2: yours is [1, 3]"),
    ],
    IN_PARTS: [
        (loop(m="len(Y_part[0])", end=f"return J / M, {DIVIDED}"),
         "the mean of the parts' means"),
        (loop(m="m / M"), "M times too large, as if the whole mini-batch went through M times"),
        (loop(start="J, found, m = 0.0, {}, len(X[0])"), "start a sum at 0, not 0.0"),
        ("""
def in_parts(layers, X, Y, M):
    J, found, handed = 0, {}, []
    for A in micro_batches(X, M):
        for layer in layers:
            A = layer.forward(A)
        handed.append(A)
    for i, Y_i in enumerate(micro_batches(Y, M)):
        J_i, dA = cost(handed[i], Y_i, X.shape[1])
        J = J + J_i
        for layer in layers[::-1]:
            dA, *pair = layer.backward(dA)
            if hasattr(layer, "W"):
                found[layer] = [a + b for a, b in zip(pair, found.get(layer, [0, 0]))]
    return J, found
""", "You run all forwards first"),
        (loop(add="layer.W = layer.W - 0.1 * dW; layer.b = layer.b - 0.1 * db"),
         "You change W or b between two parts"),
        (loop(m="M"), "divides by M, the number of parts"),
    ],
})


TIMES = {
    "F0 F1 B0 F2 B1 B2\nF0 B0 F1 B1 F2 B2": "Right: 12 ticks",
    "F0 F1 F2 B2 B1 B0\nF0 F1 F2 B2 B1 B0": "Device 0 has 3 micro-batches at once, and room for 2",
    "\n   F0 F1 B0 F2 B1 B2   \nF0 B0 F1 B1 F2 B2\n": "Right: 12 ticks",
    NAIVE:
        "It takes 18 ticks, and 12 are possible. Device 0 does nothing from tick 1 to 4: it waits for B0 of "
        "device 1. Could that come earlier, or device 0 do something else meanwhile?",
    "F0 F1 B0 B1 F2 B2\nF0 B0 F1 B1 F2 B2":
        "15 ticks, and 12 are possible. Device 1 does nothing from tick 7 to 10: it waits for F2 of device",
    "F0 F1 F2 B2 B1 B0\nF0 B0 F1 B1 F2 B2":
        "Device 0 has 3 micro-batches at once, and room for 2: each stays from its F to its B.",
    "F0 F1 B1 F2 B0 B2\nF0 F1 B1 B0 F2 B2": "ticks, and 12 are possible. Device 0 does nothing from",
}
DO_NOT_RUN = {
    "...\n...": "Not solved yet", "": "Not solved yet",
    "F0 B0 F1 B1 F2 B2\nF0 F1 B0 B1 F2 B2":
        "It cannot run: nobody can go on, a deadlock: device 0 cannot start B0 before device 1 has done B0, "
        "and device 1 cannot start F1 before device 0 has done F1.",
    "F0 F1 F2 B1 B2\nF0 B0 F1 B1 F2 B2":
        "It cannot run: device 0 never does B0.\n",
    "F0 F1 F2 B0 B1 B2\nF0 B1 F1 B0 F2 B2": "It cannot run: device 1: B1 comes before its forward F1.",
    "F0 F0 F1 B0 F2 B1 B2\nF0 B0 F1 B1 F2 B2": "It cannot run: device 0: F0 is done already: once is enough.",
    "F0 F1 B0 B1\nF0 B0 F1 B1": "Your micro-batches are 0, 1; asked were 3, counted from 0.",
    "F0 F1 B0 B1 F2 B2": "Devices (lines) in your schedule: 1",
    "F0 I0 W0\nF0 I0 W0": "'I0' is not an action here: write F or B",
    "F1 F2 F3 B3 B2 B1\nF1 F2 F3 B3 B2 B1": "Your micro-batches are 1, 2, 3; asked were 3, counted from 0.",
    "F0,F1": "'F0,F1' is not an action here",
}


def test_a_first_schedule_is_told_its_ticks(capsys):
    for answer, words in TIMES.items():
        assert check_first_schedule(answer) == answer
        assert words in capsys.readouterr().out, answer


def test_a_first_schedule_that_cannot_run_is_told_why(capsys):
    no_text = "Write text with one line for each device"
    for answer, words in [*DO_NOT_RUN.items(), (None, no_text), (3, no_text)]:
        assert check_first_schedule(answer) == NAIVE
        said = capsys.readouterr().out
        assert words in said and "the naive order" in said, answer
