"""What notebooks 01 and 02 ask for: one neuron forward and backward, a gradient, and the walk down."""

from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np

from ..judging import Endless, Part
from .layers import how_many

POINTS = (  # w1, w2, b, x1, x2, y
    (1.5, -2.0, 0.25, 1.0, 0.125, 1.0),
    (-1.0, 3.0, -0.75, 0.625, 0.375, 0.0),
    (2.5, 0.75, 1.25, 0.125, 0.875, 1.0),
)


def of_forward(my: SimpleNamespace) -> Iterator[tuple[str, object]]:
    """Yield z, a and L at three points, labels 1 and 0 among them."""
    for point in POINTS:
        result = my.forward(*point)
        yield "How many things forward returns (z, a, L are three)", how_many(result)
        where = "at (w1, w2, b, x1, x2, y) = " + f"({', '.join(f'{number:g}' for number in point)})"
        for name, number in zip("zaL", result):
            yield f"{name} {where}", number


def of_backward(my: SimpleNamespace) -> Iterator[tuple[str, object]]:
    """Yield the four derivatives for three answers of a neuron, labels 1 and 0 among them."""
    for a, x1, x2, y in ((0.75, 1.0, 0.125, 1.0), (0.875, 0.625, 0.375, 0.0), (0.25, 0.125, 0.75, 1.0)):
        result = my.backward(a, x1, x2, y)
        yield "How many things backward returns (dz, dw1, dw2, db are four)", how_many(result)
        for name, number in zip(("dz", "dw1", "dw2", "db"), result):
            yield f"{name} at (a, x1, x2, y) = ({a:g}, {x1:g}, {x2:g}, {y:g})", number


LOSS = "-(y * np.log(a) + (1 - y) * np.log(1 - a))"
BACK = "return dz, dz * x1, dz * x2, dz"

FORWARD_MISTAKES = [
    (LOSS, "-(y * np.log10(a) + (1 - y) * np.log10(1 - a))",
     "Your L takes the logarithm to base 10. Only the natural one, np.log, has the slope 1 / a."),
    (LOSS, "y * np.log(a) + (1 - y) * np.log(1 - a)",
     "Your L is negative, as the logarithm of a number below 1 is: put a minus in front."),
    (LOSS, "-y * np.log(a) + (1 - y) * np.log(1 - a)",
     "The minus of your L reaches only the first term, and for y = 0 L is negative: use brackets."),
    (LOSS, "-y * np.log(a)", "Your L is 0 for every zero, whatever a is: the term with 1 - y is missing."),
    (LOSS, "-np.log(a)", "Your L is -log a for every y. For y = 0 it is -log(1 - a)."),
    (LOSS, "(a - y) ** 2 / 2", "Your L is the squared error. Here it is the one with logarithms."),
    ("1 / (1 + np.exp(-z))", "1 / (1 + np.exp(z))", "Your a falls when z grows: the exponent is -z."),
    ("1 / (1 + np.exp(-z))", "1 / 1 + np.exp(-z)",
     "Your a is 1 + e^-z, above 1: brackets around 1 + np.exp(-z), since / comes before +."),
    ("1 / (1 + np.exp(-z))", "np.tanh(z)", "Your a is tanh(z), from -1 to 1. The sigmoid goes from 0 to 1."),
    ("w1 * x1 + w2 * x2 + b", "w1 * x1 + w2 * x2", "Your z forgets the bias b."),
    ("w1 * x1 + w2 * x2 + b", "w1 * x2 + w2 * x1 + b", "Your weights and inputs are crossed: w1 x1, w2 x2."),
    ("return z, a, L", "return a, z, L", "Your forward returns a, z, L: the order is z, a, L."),
    ("return z, a, L", "return L", "Your forward returns L alone: return z, a, L."),
]
BACKWARD_MISTAKES = [
    ("dz = da * a * (1 - a)", "dz = da", "Your dz is da, handed on. From z to a the slope is a (1 - a)."),
    ("dz = da * a * (1 - a)", "dz = da * (1 - a)",
     "Your slope of the sigmoid is 1 - a. It is a (1 - a), near 0 at both ends."),
    ("dz = da * a * (1 - a)", "dz = da * a", "Your slope of the sigmoid is a. It is a (1 - a)."),
    ("dz = da * a * (1 - a)", "dz = a * (1 - a)",
     "Your dz is the slope of the sigmoid alone: multiply it by the derivative that arrives, da."),
    ("da = -y / a + (1 - y) / (1 - a)", "da = y / a - (1 - y) / (1 - a)",
     "Your signs are all turned round: for a one (y = 1), L falls when a grows, so da is negative."),
    ("da = -y / a + (1 - y) / (1 - a)", "da = -y / a - (1 - y) / (1 - a)",
     "Your da is negative for y = 0, too. There L grows with a: the second term has a plus."),
    ("da = -y / a + (1 - y) / (1 - a)", "da = -y / a", "Your da is 0 for y = 0: the second term is missing."),
    ("da = -y / a + (1 - y) / (1 - a)", "da = a - y",
     "Your dz is (a - y) a (1 - a), but a - y has the slope in it already. Multiply da by a (1 - a)."),
    (BACK, "return dz, da * x1, da * x2, da", "Your dw1, dw2, db start from da, not from dz."),
    (BACK, "return dz, dz * x1, dz * x2, 1",
     "Your db is 1: that is only the slope of z with respect to b. Multiply it by what arrives, dz."),
    (BACK, "return dz, x1, x2, 1", "Your dw1, dw2, db are the slopes of z. Multiply by what arrives, dz."),
    (BACK, "return dz, dz * x2, dz * x1, dz", "Your dw1 and dw2 are exchanged: w1 goes with x1."),
    (BACK, "return dz, dz, dz, dz", "Your dw1 and dw2 are dz. When w1 moves, z moves x1 times as much."),
    (BACK, "return dz * x1, dz * x2, dz, dz", "Your backward returns dw1, dw2, db and dz. Put dz first."),
    (BACK, "return dz * x1, dz * x2, dz", "Your backward returns dw1, dw2, db: put dz in front."),
]


INK = np.array([0.0, 0.25, 0.375, 0.625, 0.75, 1.0, 0.5])
IS_ONE = np.array([0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0])


def of_gradient(my: SimpleNamespace) -> Iterator[tuple[str, object]]:
    """Yield dw and db at three points, of 3 and of 7 samples."""
    for m, w, b in ((3, 0.0, 0.0), (7, 1.5, -0.25), (7, -2.0, 0.75)):
        x, y = INK[:m].copy(), IS_ONE[:m].copy()
        result = my.gradient(w, b, x, y)
        yield "How many things gradient returns (dw, db are two)", how_many(result)
        for name, number in zip(("dw", "db"), result):
            yield f"{name} at w = {w:g}, b = {b:g}, of {m} samples", number
        yield "whether x and y are as before", np.array_equal(x, INK[:m]) and np.array_equal(y, IS_ONE[:m])


WALKS = (  # ink, label, rate; of the last two, one slope is 0 at the start
    (INK, IS_ONE, 2),
    (INK, 1 - IS_ONE, 0.5),
    (np.array([0.0, 0.25, 0.75, 1.0]), np.array([0.0, 0.0, 1.0, 1.0]), 3),
    (np.array([-1.0, 1.0, -1.0, 1.0, 0.0]), np.array([1.0, 1.0, 0.0, 0.0, 1.0]), 1),
)
MOST = 1000  # gradients in a walk: none of these needs a hundred


def of_learn(my: SimpleNamespace) -> Iterator[tuple[str, object]]:
    """Yield where the walks go; of one without end, the first points at which it asks for the gradient."""
    asked, gradient = [], my.gradient

    def noted(w, b, *samples):
        if len(asked) == MOST:
            raise Endless(f"{MOST} gradients, and no end")
        asked.append((w, b))
        return gradient(w, b, *samples)

    my.learn.__globals__["gradient"] = noted
    for place, (x, y, rate) in enumerate(WALKS):
        asked.clear()
        try:
            result = my.learn(x.copy(), y.copy(), rate)
        except Endless:
            if asked:
                yield "the first points at which learn asks for the gradient", asked[:5]
            raise
        yield "How many things learn returns (w, b, path are three)", how_many(result)
        w, b, path = result
        points = list(path) if isinstance(path, (list, tuple, np.ndarray)) else [path]
        sizes = sorted(set(map(how_many, points)))
        yield "How many numbers each point on the path has", sizes
        if sizes == [2] and _all_steps_alike(points):  # however many steps: a loop may count them
            yield "Whether each step on the path has slopes of its own", False
            return
        where = f"with rate {rate}, in walk {place + 1} of {len(WALKS)}"
        for name, part in (("first", points[:1]), ("second", points[1:2]), ("third", points[2:3])):
            yield f"the {name} point on the path {where}", _plain(part)
        yield f"the number of points on the path {where}", len(points)
        yield f"the last point on the path {where}", _plain(points[-1:])
        yield f"the w and b that are returned {where}", [w, b]


def _all_steps_alike(points):
    """Return whether a path of three points or more goes straight on, in steps of one length."""
    steps = np.diff(np.array(_plain(points)), axis=0)
    return len(steps) > 1 and bool(np.any(steps)) and bool(np.allclose(steps, steps[0], rtol=1e-9, atol=0))


def _plain(points):
    return [tuple(float(number) for number in point) for point in points]


DZ = "dz = (a - y) / len(x)"
SUMS = "return (dz * x).sum(), dz.sum()"
STEP = "w, b = w - rate * dw, b - rate * db"
ENOUGH = "if max(abs(dw), abs(db)) <= 0.02:"
ASK = "        dw, db = gradient(w, b, x, y)\n"
LOOP = "    while True:\n" + ASK
WALK = """        if max(abs(dw), abs(db)) <= 0.02:
            return w, b, path
        w, b = w - rate * dw, b - rate * db
        path.append((w, b))
"""
ONCE = "You take the gradient once. When w and b have moved, it is worth nothing: take it anew."

GRADIENT_MISTAKES = [
    (DZ, "dz = a - y", "Your dw and db are m times too large: J is a mean, so each sample counts for 1 / m."),
    (DZ, "dz = (a - y) / len(x) ** 2", "Your dw and db are m times too small: you divide by m twice."),
    (SUMS, "return (dz * x).sum(), dz.mean()", "Your db is m times too small: dz has its 1 / m. Add up."),
    (SUMS, "return (dz * x).mean(), dz.sum()", "Your dw is m times too small: dz has its 1 / m. Add up."),
    (SUMS, "return dz.sum(), dz.sum()", "Your dw is db. When w moves a little, z moves x times as much."),
    (SUMS, "return dz * x, dz", "Your dw and db have one number for each sample. All share w and b: add up."),
    (SUMS, "return dz.sum(), (dz * x).sum()", "Your dw and db are exchanged: dw is the one with x."),
    (SUMS, "return (dz * w).sum(), dz.sum()", "Your dw has w in it. What w is multiplied by is x."),
    (DZ, "dz = (y - a) / len(x)", "Your signs are turned round: answer minus truth, or you will climb."),
    (DZ, "dz = (a - y) * a * (1 - a) / len(x)", "You multiply by the sigmoid's slope again: it is in a - y."),
    (DZ, "dz = (-y / a + (1 - y) / (1 - a)) / len(x)", "Your dz is da: the slope a (1 - a) is missing."),
    ("np.exp(-(w * x + b))", "np.exp(w * x + b)", "Your a falls when z grows: the exponent is -z."),
    ("np.exp(-(w * x + b))", "np.exp(-w * x + b)", "The minus of your exponent misses b: use brackets."),
    ("np.exp(-(w * x + b))", "np.exp(-(w * x))", "Your z forgets b."),
    (SUMS, "return dz.sum() * x.sum(), dz.sum()",
     "Your dw is a sum times a sum. Each dz meets its own x: multiply first, then add."),
    ("1 / (1 + np.exp(-(w * x + b)))", "w * x + b", "Your a is z: the sigmoid is missing."),
]
LEARN_MISTAKES = [
    (STEP, "w = w - rate * dw; b = b - rate * gradient(w, b, x, y)[1]",
     "Your b moves by a slope at the new w. Both belong to one point: two slopes, then two moves."),
    (WALK, """        enough = max(abs(dw), abs(db)) <= 0.02
        w, b = w - rate * dw, b - rate * db
        path.append((w, b))
        if enough:
            return w, b, path
""", "You make one update too many: you stop after a step. Where the slopes are small enough, stay."),
    (WALK, """        w, b = w - rate * dw, b - rate * db
        if max(abs(dw), abs(db)) <= 0.02:
            return w, b, path
        path.append((w, b))
""", "You move once more before you stop, to a point off the path: where it is flat, stay."),
    (ENOUGH, "if False:", "Your walk never stops: after each gradient, ask whether both are small enough."),
    (LOOP, ASK[4:] + "    while True:\n", ONCE),
    (LOOP + WALK, ASK[4:] + """    for _ in range(100):
        w, b = w - rate * dw, b - rate * db
        path.append((w, b))
    return w, b, path
""", ONCE),
    (STEP, "w, b = w + rate * dw, b + rate * db", "You climb: a slope says which way J grows, so subtract."),
    (STEP, "w, b = w - dw, b - db", "Your steps do not know the rate: it multiplies both slopes."),
    (ENOUGH, "if max(dw, db) <= 0.02:", "You stop on a slope that is steep and negative: take its abs."),
    (ENOUGH, "if min(abs(dw), abs(db)) <= 0.02:",
     "You stop when one slope is small. Flat is where both are."),
    (ENOUGH, "if abs(dw) <= 0.02:", "You look only at dw. The ground is flat when db is small, too."),
    (ENOUGH, "if abs(db) <= 0.02:", "You look only at db. The ground is flat when dw is small, too."),
    (ENOUGH, "if np.hypot(dw, db) <= 0.02:",
     "You ask the length of the gradient to be small: enough is when neither slope is above 0.02."),
    (ENOUGH, "if max(abs(dw), abs(db)) >= 0.02:", "You stop where it is steep: stop where it is *flat*."),
    (WALK, WALK.replace("        path.append((w, b))\n", ""),
     "Your path has only its start: append the others."),
    ("path = [(w, b)]", "path = []", "Your path lacks its start: the point (0, 0) is the first on it."),
    ("            return w, b, path", "            return w, b, [(w, b)] * len(path)",
     "All points of your path are the last one: you append one array and then change it. Append a copy."),
]

PARTS = [
    Part("forward", 1, of_forward, FORWARD_MISTAKES, "three steps, and each needs only what went before it."),
    Part("backward", 1, of_backward, BACKWARD_MISTAKES,
         "four derivatives for one walk back, and each is the one after it times a slope."),
    Part("gradient", 2, of_gradient, GRADIENT_MISTAKES,
         "the derivatives of all samples add up, and 1/m came in once."),
    Part("learn", 2, of_learn, LEARN_MISTAKES,
         "initialise, slopes, good enough?, update: all training is these four steps."),
]
