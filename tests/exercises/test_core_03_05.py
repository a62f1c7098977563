"""What notebooks 03 to 05 say to layers, costs and loops that are not written as their solutions are."""

import numpy as np
import pytest
from notebooks.checkers import are_named, are_right, judge_of

import minipipe as mp
from exercises import layers_pictures, micro_batches_pictures, whole_pictures
from exercises.judging import module_of, part_named
from minipipe.exact import rational

LINEAR, RELU = judge_of("Linear"), judge_of("ReLU")
COST, FULL_BATCH = judge_of("cost"), judge_of("full_batch")
MICRO_BATCHES, IN_PARTS = judge_of("micro_batches"), judge_of("in_parts")
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
         m="m", add_J="J = J + J_part", back="dA, dW, db = layer.backward(dA)",
         add="if layer in found: dW, db = dW + found[layer][0], db + found[layer][1]", end="return J, found"):
    """A loop over parts, each line of which can be another."""
    return f"""
def in_parts(layers, X, Y, M):
    {start}
    for X_part, Y_part in {parts}:
        for layer in layers:
            X_part = layer.forward(X_part)
        J_part, dA = cost(X_part, Y_part, {m})
        {add_J}
        for layer in layers[::-1]:
            {back}
            if dW is None: continue
            {add}
            found[layer] = dW, db
    {end}
"""


test_solutions = are_right({
    LINEAR: [
        linear(),
        linear(dW="np.tensordot(dZ, A, axes=(1, 1))", db="dZ @ np.ones((dZ.shape[1], 1), int)"),
        linear(db="np.array([[sum(row)] for row in dZ])", dA_prev="(dZ.T @ self.W).T", dW="(A @ dZ.T).T"),
        linear(db="dZ.sum(axis=1).reshape(-1, 1)",
           dW="sum(np.outer(dZ[:, k], A[:, k]) for k in range(dZ.shape[1]))"),
        linear("self.cache = (A_prev.copy(),); return np.add(self.W @ A_prev, self.b)", A="self.cache[0]"),
        linear(db="dZ.sum(axis=1)[:, None]", end="return [dA_prev, dW, db]"),
    ],
    RELU: [
        relu(),
        relu("self.cache = Z > 0; return np.maximum(0, Z)", "return self.cache * dA, None, None"),
        relu("A = np.maximum(Z, 0); self.cache = A > 0; return A", "return (dA * self.cache, None, None)"),
        relu("A = Z.copy(); A[Z <= 0] = 0; self.cache = np.greater(Z, 0); return A",
         "dZ = dA.copy(); dZ[~self.cache] = 0; return dZ, None, None"),
    ],
    COST: [
        cost("D = A - Y; return (D * D).sum() / (2 * m), D / m"),
        cost("return np.sum(np.square(A - Y)) / m / 2, (A - Y) / m"),
        cost("D = A - Y; return sum(d * d for row in D for d in row) / (2 * m), D / m"),
        "def half(x):\n    return x / 2\n\n\n" + cost("return half(((Y - A) ** 2 / m).sum()), -(Y - A) / m"),
        cost("return np.trace((A - Y) @ (A - Y).T) / (2 * m), np.subtract(A, Y) / m"),
    ],
    FULL_BATCH: [
        loops(),
        loops(forward="X = layers[k].forward(X)").replace("m = len(X[0])", "A, m = X, X.shape[1]"),
        loops(order="list(range(len(layers)))[::-1]"),
        loops(store="if hasattr(layers[k], 'W'): found[layers[k]] = pair"),
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
        cut("size, rest = divmod(X.shape[1], M)\n"
            "    cuts = [0]\n"
            "    for i in range(M):\n"
            "        cuts.append(cuts[-1] + size + (i < rest))\n"
            "    return [X[:, cuts[i]:cuts[i + 1]] for i in range(M)]"),
        cut("m = X.shape[1]; edges = [-(-m * i // M) for i in range(M + 1)]\n"
            "    sizes = sorted((b - a for a, b in zip(edges, edges[1:])), reverse=True)\n"
            "    return tuple(np.split(X, np.cumsum(sizes)[:-1], axis=1))"),
    ],
    IN_PARTS: [
        loop(),
        loop(start="J, found, m = 0, {layer: (0, 0) for layer in layers if hasattr(layer, 'W')}, Y.shape[1]"),
        loop(start="J = 0; found = {}; m = X.shape[1]",
             parts="[(X[:, k[0]], Y[:, k[0]]) for k in micro_batches(np.arange(m)[None], M)]"),
        loop(add="old = found.get(layer, (0 * dW, 0 * db)); dW += old[0]; db += old[1]"),
    ],
})

# Right numbers, however the mask is used; but it takes eight times the bytes.
OF_FLOATS = [
    relu(f"self.cache = {mask}; return {A}", f"return {dZ}, None, None") for mask, A, dZ in [
        ("(Z > 0) * 1.0", "Z * self.cache", "dA * self.cache"),
        ("np.where(Z > 0, 1.0, 0.0)", "self.cache * Z", "dA * self.cache"),
        ("(Z > 0).astype(float)", "np.maximum(Z, 0)", "np.where(self.cache > 0, dA, 0)"),
        ("np.where(Z > 0, 1, 0)", "Z * self.cache", "np.where(self.cache > 0, dA, 0)"),
        ("(Z > 0).astype(Z.dtype)", "np.maximum(Z, 0)", "dA * self.cache"),
    ]
]

DIVIDED = "{layer: (dW / M, db / M) for layer, (dW, db) in found.items()}"
test_mistakes = are_named({
    LINEAR: [
        (linear(dW="dZ.dot(A.T) / len(A.T)", db="dZ.sum(1).reshape(-1, 1) / len(A.T)"),
         "Your dW and db are means over the samples"),
        (linear(dW="(dZ / dZ.shape[1]).dot(A.T)"), "Your dW is divided by"),
        (linear(db="np.average(dZ, axis=1).reshape(-1, 1)"), "Your db is a mean"),
        (linear(end="return dZ * 3"),
         "The number of values that backward returns: yours is one, it must be 3"),
        (linear("self.cache = A_prev.copy(); A_prev *= 0; return self.W @ self.cache + self.b"),
         "Whether forward leaves A_prev as it was: yours is False"),
        (linear(end="dZ /= 2; return dA_prev, dW, db"),
         "Whether backward leaves A_prev and dZ as they were: yours is [True, False]"),
        (linear().replace("np.sqrt(2 / n_prev)", "0.01"), "The W that Linear(3, 2, rng) draws"),
        (linear(dW="helper(dZ, A)"), "Linear uses `helper`"),
        (linear(dW="dZ.dott(A.T)"), "stopped with AttributeError"),
        (START + "    def forward(self, A_prev):\n        return 1\n\n    def backward(self, dZ): pass\n",
         "Not solved yet: the body of `backward` is empty"),
        (linear("self.cache = A_prev; self.W @ A_prev + self.b"), "`forward` returns nothing"),
    ],
    RELU: [
        (relu(backward="return dA.copy(), None, None"), "lets everything pass"),
        (relu(backward="return np.maximum(dA, 0), None, None"), "the sign of dA"),
        (relu(backward="return self.cache.astype(float), None, None"), "returns the slope alone"),
        (relu(backward="dA * self.cache, None, None"), "`backward` returns nothing"),
        (relu("self.cache = Z > 0; return np.maximum(Z, 1)"),
         "A with Z = [[-1, 0, 2], [3, -0.5, 0.25]]: yours is"),
        (relu(backward="pass"), "Not solved yet"),
        *((code, "your mask is made of numbers, with 8 bytes for each") for code in OF_FLOATS),
    ],
    COST: [
        (cost("D = A - Y; return np.sum(D * D) / m, D / m"), "your J is twice too large"),
        (cost("D = A - Y; return np.sum(D * D) / m / 2, 2 / m * D"), "your dA is twice too large"),
        (cost("D = A - Y; return np.sum(D * D) / m, 2 * D / m"), "to a cost without the 1/2"),
        (cost("D = A - Y; return sum(D * D) / m / 2, D / m"),
         "J of 4 samples, with 3 outputs each and m = 4: yours has shape (4,), it must be ()"),
        (cost("D = A - Y; return np.sum(D * D) / m / 2"), "The number of values that cost returns: yours is"),
        (cost("A -= Y; return np.sum(A * A) / m / 2, A / m"),
         "Whether A and Y are as they were: yours is [False, True]"),
        (cost("return None"), "Not solved yet"),
    ],
    FULL_BATCH: [
        (loops(order="range(len(layers))"), "begins at the first layer"),
        (loops(back="_, *pair = layers[k].backward(dA)"), "You hand the dA of the cost to each layer"),
        (loops(back="if not hasattr(layers[k], 'b'): continue\n        dA, *pair = layers[k].backward(dA)"),
         "leaves ReLU out"),
        (loops(store="if pair[0] is not None: found[layers[k]] = pair[0]"),
         "The gradients of layers[2] of 2 samples and layers of 3 - 3 - 3 units: yours is one array"),
        (loops(end="print(J)"), "`full_batch` returns nothing: it ends without a `return`"),
        (loops(m="len(X[0]); A = A.T"), "`full_batch` stopped with ValueError"),
        ("def full_batch(layers, X, Y):\n    '''Later.'''\n", "Not solved yet: the body of `full_batch`"),
    ],
    MICRO_BATCHES: [
        (cut("return list(np.array_split(X, M, 0))"), "You cut between rows"),
        (cut("return list(np.hsplit(X, M))"), "only if the parts are equal"),
        (cut("s = len(X[0]) // M; return [X[:, s * i:s * i + s] for i in range(M)]"),
         "Your cut loses samples"),
        (cut("return np.split(X.ravel(), M)"),
         "The number of axes of each part of 4 samples and M = 2: yours is [1, 1], it must be [2, 2]"),
        (cut("return [X]"), "The number of parts of 4 samples and M = 2: yours is 1"),
        (cut("return [X[:, :1], X[:, 1:]]"),
         "The sizes of the parts of 4 samples and M = 2: yours is [1, 3]"),
        (cut("np.array_split(X, M, axis=1)"), "`micro_batches` returns nothing: it ends without a `return`"),
        (cut("pass"), "Not solved yet"),
    ],
    IN_PARTS: [
        (loop(m="len(Y_part[0])"), "M times too large"),
        (loop(m="len(Y_part[0])", end=f"return J / M, {DIVIDED}"),
         "the mean of the parts' means"),
        (loop(start="J, found, m = 0, {}, len(X)"), "the number of rows of X"),
        (loop(back="dA, dW, db = layer.backward()"), "`in_parts` stopped with TypeError"),
        (loop(add_J="pass"), "Your J stays 0"),
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
         "Whether W and b stay as they are while the parts go through: yours is [False, False]"),
        (loop(end="J"), "`in_parts` returns nothing: it ends without a `return`"),
        (loop(add_J="full_batch(layers, X, Y)"), "in_parts uses `full_batch`"),
        ("def in_parts(layers, X, Y, M):\n    return None\n", "Not solved yet"),
    ],
})


def test_the_products_drawn_have_the_shapes_of_the_arrays():
    shapes = dict(X=(6, 2), W1=(4, 6), b1=(4, 1), Z1=(4, 2), A1=(4, 2), W2=(3, 4), b2=(3, 1), Z2=(3, 2))
    shapes |= {f"d{name}": shape for name, shape in shapes.items()}
    figure = layers_pictures.products({name: np.ones(shape) for name, shape in shapes.items()})
    forward, backward = figure.axes
    texts = [text.get_text() for text in backward.texts[:7]]
    assert texts == ["$dW^{[2]}$", "(3, 4)", "=", "$dZ^{[2]}$", "(3, 2)", "$A^{[1]T}$", "(2, 4)"]
    drawn = [(patch.get_height(), patch.get_width()) for patch in forward.patches[:4]]
    assert drawn == [shapes["Z1"], shapes["W1"], shapes["X"], shapes["b1"]]


def test_what_moves_is_written_into_the_stamps():
    moves = {"b[1]": np.array([[0, 0, 0], [1, -2, 1]]), "W[0, 0]": np.array([[3, 0, 1], [0, 0, 0]])}
    left, right = layers_pictures.stamps(moves).axes
    assert [text.get_text() for text in left.texts] == ["0", "0", "0", "+1", "-2", "+1"]
    assert right.get_title().startswith("raise W[0, 0] by 1")


class Doubles:
    """A layer with a slope of 2."""

    def forward(self, Z):
        return 2 * Z

    def backward(self, dA):
        return 2 * dA, None, None


def test_the_curve_of_relu_is_the_learners():
    Z = np.array([[-1.0, 0.0, 1.0]])
    left, right = layers_pictures.curves(Z, Z, Z, Doubles()).axes
    assert left.lines[1].get_ydata().tolist() == [-2, 0, 2]
    assert right.lines[1].get_ydata().tolist() == [2, 2, 2]


def test_the_needle_draws_the_distances_that_it_is_given():
    [ax] = whole_pictures.needle(lambda factor, h: factor * h, 1, 100).axes
    right, wrong = ax.lines
    assert np.array_equal(right.get_xdata(), right.get_ydata())
    assert np.array_equal(wrong.get_ydata(), 100 * right.get_xdata())
    assert [f"{h:.0e}" for h in right.get_xdata()] == [f"1e-{k:02d}" for k in range(1, 13)]


def test_misread_images_are_those_that_differ():
    images, truth, read = np.zeros((64, 4)), np.array([1, 2, 3, 4]), np.array([1, 7, 3, 9])
    figure = whole_pictures.misread(images, truth, read, n=2)
    assert [ax.get_title() for ax in figure.axes] == ["read 7\nis 2", "read 9\nis 4"]


@pytest.mark.parametrize("M", [1, 2, 3, 4, 10])
def test_in_parts_equals_the_package_in_fractions(M):
    part = part_named("in_parts")
    my, rng = module_of(part, part.solution), np.random.default_rng(M)
    layers = [my.Linear(3, 4, rng), my.ReLU(), my.Linear(4, 2, rng)]
    theirs = [mp.Linear(3, 4), mp.ReLU(), mp.Linear(4, 2)]
    for own, other in ((layers[0], theirs[0]), (layers[2], theirs[2])):
        own.W = other.W = rational(own.W.round(2))
        own.b = other.b = rational(rng.integers(-3, 4, own.b.shape)) / 5
    X, Y = rational(rng.integers(-9, 10, (3, 10))) / 7, rational(rng.integers(-9, 10, (2, 10))) / 3
    package = mp.Sequential(theirs, mp.MeanSquaredError())
    J, gradients = my.in_parts(layers, X, Y, M)
    assert J == package.forward_backward(X, Y)
    for k in (0, 2):
        for own, other in zip(gradients[layers[k]], package.gradients[k], strict=True):
            assert (own == other).all()


def test_the_weights_in_the_picture_add_up_to_one():
    [ax] = micro_batches_pictures.weights([3, 3, 2, 2]).axes
    by_m, of_means = ([bar.get_height() for bar in bars] for bars in ax.containers)
    assert by_m == [1 / 10] * 10 and of_means == [1 / 12] * 6 + [1 / 8] * 4
    assert abs(sum(of_means) - 1) <= 10 * 2**-53  # ten additions of numbers up to 1, each rounded once


def test_the_product_is_drawn_whole_and_in_two_parts():
    [ax] = micro_batches_pictures.product_in_parts().axes
    texts = [text.get_text() for text in ax.texts]
    assert all(texts.count(f"${letter}_{k}$") == 2 for letter in "abcd" for k in range(4))
