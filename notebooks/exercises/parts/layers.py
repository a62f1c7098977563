"""What notebook 03 asks for: a linear layer and ReLU, forward and backward.

What is wrong in floats is not tried with fractions: these stop at the first float, whatever is wrong.
"""

import numpy as np

from minipipe.exact import rational

from ..judging import Part, same


def of_linear(my):
    """Yield what a `Linear` computes, and whether it changes the arrays that it is handed.

    The first layer is square, so that a product with a wrong transpose gives wrong numbers, and no error.
    """
    layer = my.Linear(3, 2, np.random.default_rng(0))
    yield "The W that Linear(3, 2, rng) draws (the cell gives that line)", layer.W
    yield "The b of Linear(3, 2, rng)", layer.b
    rng, right = np.random.default_rng(3), []
    for n_prev, n, m in ((2, 2, 2), (3, 2, 1), (3, 2, 4)):
        layer = my.Linear(n_prev, n, rng)
        layer.W, layer.b = rng.integers(-4, 5, (n, n_prev)) / 2, rng.integers(1, 5, (n, 1)) / 2
        A_prev, dZ = rng.integers(-4, 5, (n_prev, m)) / 2, rng.integers(-4, 5, (n, m)) / 2
        expected = [layer.W.T @ dZ, dZ @ A_prev.T, dZ.sum(axis=1, keepdims=True)]
        where = f"with {n_prev} inputs, {n} units, {m} sample{'s' * (m > 1)}"
        handed = yield from _both_ways(layer, A_prev, dZ, where, with_parameters=True)
        if handed is None:
            return
        right.append(same(list(handed), expected))
    yield from _two_at_a_time(layer, A_prev, dZ, place=1)
    if all(right):
        layer.W, layer.b, A_prev, dZ = (rational(array) / 3 for array in (layer.W, layer.b, A_prev, dZ))
        yield "Z in exact fractions", layer.forward(A_prev)
        yield "dA_prev, dW, db in exact fractions", list(layer.backward(dZ))


def of_relu(my):
    """Yield what a `ReLU` computes, and whether it keeps no more than its mask.

    If it keeps more, no fraction is tried: what a mask of floats makes of them has many forms.
    """
    layer, Z = my.ReLU(), np.array([[-1.0, 0.0, 2.0], [3.0, -0.5, 0.25]])
    dA = np.array([[5.0, 6.0, -7.0], [-8.0, 9.0, 1.0]])
    expected = [dA * (Z > 0), None, None]
    where = "with Z = [[-1, 0, 2], [3, -0.5, 0.25]]"
    handed = yield from _both_ways(layer, Z, dA, where, with_parameters=False)
    yield from _two_at_a_time(layer, Z, dA, place=0)
    kept = np.asarray(layer.cache)
    yield "The bytes of the cache, for 6 numbers of Z", kept.nbytes
    if kept.nbytes > Z.size:
        yield "Whether the cache holds 0 and 1 only", bool(np.isin(kept, (0, 1)).all())
        return
    if same(list(handed), expected):
        Z, dA = rational(Z) / 3, rational(dA) / 3
        yield "A in exact fractions", layer.forward(Z)
        yield "dZ in exact fractions", layer.backward(dA)[0]


def how_many(handed):
    """Return how many values a function has returned: the length of a tuple, list or vector, else 1."""
    if isinstance(handed, (tuple, list)) or np.ndim(handed) == 1:
        return len(handed)
    return None if handed is None else 1


def _both_ways(layer, given, derivative, where, with_parameters):
    """Yield what a forward and a backward return, and whether the arrays that they got are as before.

    Return what backward has returned; None if it has changed W or b, after which no number counts.
    """
    out, into = ("Z", "A_prev") if with_parameters else ("A", "Z")
    copies = [given.copy(), derivative.copy()]
    yield f"{out} {where}", layer.forward(given)
    yield f"Whether forward leaves {into} as it was", np.array_equal(given, copies[0])
    before = [layer.W.copy(), layer.b.copy()] if with_parameters else []
    handed = layer.backward(derivative)
    if with_parameters:
        unchanged = all(map(np.array_equal, [layer.W, layer.b], before))
        yield "Whether backward leaves W and b as they were", unchanged
        if not unchanged:
            return None
    yield "The number of values that backward returns", how_many(handed)
    for name, value in zip((f"d{into}", "dW", "db"), handed):
        yield f"{name} {where}", value
    unchanged = map(np.array_equal, [given, derivative], copies)
    yield f"Whether backward leaves {into} and d{out} as they were", list(unchanged)
    return handed


def _two_at_a_time(layer, given, derivative, place):
    """Yield a backward of a first forward, after a second one: the first one's cache is put back."""
    layer.forward(given)
    first = layer.cache
    layer.forward(-2 * given)
    layer.cache = first
    words = f"{'dW' if place else 'dZ'} after another forward, with the first one's cache put back"
    yield words, layer.backward(derivative)[place]


MEAN = "The layer does not divide: the cost has divided already, so dZ has 1/m in it."
STAR = "A product of matrices, which also adds up, is written @ in Python."
LEAKY = "That is the leaky ReLU, which lets a hundredth of what is below 0 pass. ReLU makes it 0."
SUMS = """        dW = dZ @ self.cache.T
        db = dZ.sum(axis=1, keepdims=True)
"""
PRODUCTS = """        dA_prev = self.W.T @ dZ
        dW = dZ @ self.cache.T
"""
ALL_PRODUCTS = """        return self.W @ A_prev + self.b

    def backward(self, dZ):
""" + PRODUCTS
CACHE = "        self.cache = A_prev\n" + ALL_PRODUCTS
BOTH = """        self.cache = Z > 0
        return Z * self.cache

    def backward(self, dA):
        return dA * self.cache, None, None
"""

LINEAR_MISTAKES = [
    (SUMS, SUMS.replace("self.cache.T", "self.cache.T / dZ.shape[1]").replace("sum", "mean"),
     f"Your dW and db are means over the samples, they must be sums. {MEAN}"),
    ("dZ @ self.cache.T", "dZ @ self.cache.T / dZ.shape[1]",
     f"Your dW is divided by the number of samples. {MEAN}"),
    ("dZ.sum(axis=1, keepdims=True)", "dZ.mean(axis=1, keepdims=True)",
     f"Your db is a mean over the samples, it must be their sum. {MEAN}"),
    ("dZ.sum(axis=1, keepdims=True)", "dZ.sum(axis=1)",
     "Your db has the right numbers, but is not a column, (n, 1), as b is. What keeps an axis in `sum`?"),
    ("dZ.sum(axis=1, keepdims=True)", "dZ.sum()",
     "Your db is one number. Each unit has its own b: add up over the samples only, along one axis."),
    ("dZ.sum(axis=1, keepdims=True)", "dZ.sum(axis=0, keepdims=True)",
     "Your db adds up over the units. Each unit has its own b: add up over the samples, the other axis."),
    ("dZ @ self.cache.T", "self.cache @ dZ.T",
     "Your dW is the transpose of what it must be. It has the shape of W: its rows are units."),
    ("dZ @ self.cache.T", "dZ @ self.cache",
     "In your dW the inner sides do not match: the sum is over samples, so m is inside on both sides."),
    ("self.W.T @ dZ", "self.W @ dZ",
     "Your dA_prev is W dZ. On the way back the sum is over units: n must be inside, so turn W round."),
    ("return dA_prev, dW, db", "return dW, db, dA_prev",
     "Your backward returns its three derivatives in another order than (dA_prev, dW, db)."),
    ("        return dA_prev, dW, db",
     "        self.W, self.b = self.W - dW, self.b - db\n        return dA_prev, dW, db",
     "Your backward changes W or b. It only says how they should change: an update comes later, once."),
    ("dZ @ self.cache.T", "dZ @ A_prev.T",
     "Your backward asks for `A_prev`, which it is not given: `self.cache` has it, since the forward."),
    ("self.cache = A_prev", "self.cache = self.W @ A_prev + self.b",
     "Your cache holds Z. Look at the sum for dW: what is dZ multiplied by there?"),
    (CACHE, CACHE.replace("self.cache", "self.kept"),
     "Your layer keeps its input, but not in `self.cache`, which a pipeline takes out and puts back later."),
    (CACHE, CACHE.replace("self.cache = A_prev", "self.cache = self.kept = A_prev").replace(
        "self.cache.T", "self.kept.T"),
     "Your backward does not read `self.cache`: an earlier forward's, put back, must be what it uses."),
    ("self.W @ A_prev + self.b", "self.W @ A_prev", "Your forward forgets b."),
    ("self.W @ A_prev + self.b", "self.W * A_prev + self.b",
     f"Your forward multiplies W and A_prev entry by entry. {STAR}"),
    (PRODUCTS, PRODUCTS.replace("@", "*"), f"Your dA_prev and dW multiply entry by entry. {STAR}"),
    (ALL_PRODUCTS, ALL_PRODUCTS.replace("@", "*"),
     f"Your layer multiplies entry by entry, forward and backward. {STAR}"),
    ("self.W @ A_prev + self.b", "self.W.T @ A_prev + self.b",
     "Your forward multiplies by W transposed. The rows of W are units already: W A_prev is right."),
    ("self.W @ A_prev + self.b", "(self.W @ A_prev + self.b).T",
     "Your Z has samples as rows. Here they are columns: W A_prev + b."),
    ("return dA_prev, dW, db", "return dA_prev", "Your backward returns dA_prev alone, without dW and db."),
]
RELU_MISTAKES = [
    ("return dA * self.cache, None, None", "return dA, None, None",
     "Your backward lets everything pass. Where Z was negative, A does not move, so nothing comes back."),
    ("return dA * self.cache, None, None", "return dA * (dA > 0), None, None",
     "Your backward asks for the sign of dA. What counts is the sign that Z had on the way forward."),
    ("return dA * self.cache, None, None", "return 1.0 * self.cache, None, None",
     "Your backward returns the slope alone. The chain rule multiplies it by what came back, dA."),
    ("return dA * self.cache, None, None", "return dA * (Z > 0), None, None",
     "Your backward asks for `Z`, which it is not given: forward leaves in `self.cache` what it needs."),
    ("return Z * self.cache", "return np.where(Z > 0, Z, 0.01 * Z)", LEAKY),
    (BOTH, BOTH.replace("Z * self.cache", "np.where(Z > 0, Z, 0.01 * Z)").replace(
        "dA * self.cache", "dA * np.where(self.cache, 1, 0.01)"), LEAKY),
    ("self.cache = Z > 0", "self.cache = Z < 0", "Your mask is the wrong way round: what is above 0 passes."),
    ("self.cache = Z > 0", "self.cache = Z >= 0",
     "All is right but the slope at exactly 0. It could be 0 or 1, but all runs must agree: here it is 0."),
    ("return dA * self.cache, None, None", "return dA * self.cache",
     "Your backward returns dZ alone. A layer without parameters returns None for dW and for db, too."),
    ("return dA * self.cache, None, None", "return dA * self.cache, 0, 0",
     "Your dW and db are 0. Without W and b, return None for each, so that nobody updates them."),
    (BOTH, BOTH.replace("Z > 0", "Z").replace("Z * self.cache", "np.maximum(Z, 0)").replace(
        "dA * self.cache", "dA * (self.cache > 0)"),
     "Right numbers, but your cache has 8 bytes for each of Z. Keep True or False, in 1 byte: is Z > 0?"),
    (BOTH, BOTH.replace("self.cache = Z > 0", "self.cache = (Z > 0).astype(float)"),
     "Right numbers, but your mask has 8 bytes for each of Z. Keep True or False, in 1 byte."),
    (BOTH, BOTH.replace("self.cache", "self.mask"),
     "Your layer keeps its mask, but not in `self.cache`, which a pipeline takes out and puts back later."),
    (BOTH, BOTH.replace("self.cache = Z > 0", "self.cache = self.mask = Z > 0").replace(
        "dA * self.cache", "dA * self.mask"),
     "Your backward does not read `self.cache`: an earlier forward's, put back, must be what it uses."),
    ("return Z * self.cache", "return np.abs(Z)", "Your forward turns negatives round: ReLU makes them 0."),
    ("return Z * self.cache", "Z *= self.cache\n        return Z",
     "Right numbers, but your forward writes into the Z that it was given: make a new array."),
    ("return dA * self.cache, None, None", "dA *= self.cache\n        return dA, None, None",
     "Right numbers, but your backward writes into the dA that it was given: make a new array."),
]

PARTS = [
    Part("Linear", 3, of_linear, LINEAR_MISTAKES,
         "each derivative has the shape of its own matrix, for one sample and for many.", kept=True),
    Part("ReLU", 3, of_relu, RELU_MISTAKES,
         "one mask decides both ways, and it is all that has to be kept.", kept=True),
]
