"""What notebook 02 asks for: the gradient of a cost of many samples, and the walk to its bottom."""

from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np

from ..judging import Endless, Part

INK = np.array([0.0, 0.25, 0.375, 0.625, 0.75, 1.0, 0.5])
IS_ONE = np.array([0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0])


def of_gradient(my: SimpleNamespace) -> Iterator[tuple[str, object]]:
    """Yield dw and db at three points, of 3 and of 7 samples."""
    for m, w, b in ((3, 0.0, 0.0), (7, 1.5, -0.25), (7, -2.0, 0.75)):
        x, y = INK[:m].copy(), IS_ONE[:m].copy()
        result = my.gradient(w, b, x, y)
        yield "How many things gradient returns (dw, db are two)", _count(result)
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
        yield "How many things learn returns (w, b, path are three)", _count(result)
        w, b, path = result
        points = list(path) if isinstance(path, (list, tuple, np.ndarray)) else [path]
        sizes = sorted(set(map(_count, points)))
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


def _count(result):
    if isinstance(result, np.ndarray):
        return result.size
    return len(result) if isinstance(result, (tuple, list)) else 1


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
    (DZ, "dz = a - y",
     "Your dw and db are m times too large: J is a mean over m samples, so each counts for 1 / m."),
    (DZ, "dz = (a - y) / len(x) ** 2",
     "Your dw and db are m times too small: you divide by m twice. Once is enough."),
    (SUMS, "return (dz * x).sum(), dz.mean()",
     "Your db is m times too small: dz has its 1 / m already, so add it up as it is."),
    (SUMS, "return (dz * x).mean(), dz.sum()",
     "Your dw is m times too small: dz has its 1 / m already, so add it up as it is."),
    (SUMS, "return dz.sum(), dz.sum()",
     "Your dw is db. When w moves a little, z moves x times as much: multiply by x before you add."),
    (SUMS, "return dz * x, dz",
     "Your dw and db have one number for each sample. All samples share one w and one b: add up."),
    (SUMS, "return dz.sum(), (dz * x).sum()", "Your dw and db are exchanged: dw is the one with x."),
    (SUMS, "return (dz * w).sum(), dz.sum()",
     "Your dw has w in it. What w is multiplied by is x, so x is the slope."),
    (DZ, "dz = (y - a) / len(x)",
     "Your signs are turned round: answer minus truth, a - y, or you will climb."),
    (DZ, "dz = (a - y) * a * (1 - a) / len(x)",
     "You multiply by the slope of the sigmoid once more: it is in a - y already."),
    (DZ, "dz = (-y / a + (1 - y) / (1 - a)) / len(x)",
     "Your dz is da: the slope of the sigmoid, a (1 - a), is missing."),
    ("np.exp(-(w * x + b))", "np.exp(w * x + b)", "Your a falls when z grows: the exponent is -z."),
    ("np.exp(-(w * x + b))", "np.exp(-w * x + b)",
     "The minus in your exponent reaches only w x, not b: brackets around w * x + b."),
    ("np.exp(-(w * x + b))", "np.exp(-(w * x))", "Your z forgets b."),
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
    (ENOUGH, "if False:",
     "Your walk never stops: after each new gradient, ask whether both slopes are 0.02 or less."),
    (LOOP, ASK[4:] + "    while True:\n", ONCE),
    (LOOP + WALK, ASK[4:] + """    for _ in range(100):
        w, b = w - rate * dw, b - rate * db
        path.append((w, b))
    return w, b, path
""", ONCE),
    (STEP, "w, b = w + rate * dw, b + rate * db", "You climb: a slope says which way J grows, so subtract."),
    (STEP, "w, b = w - dw, b - db", "Your steps do not know the rate: it multiplies both slopes."),
    (ENOUGH, "if max(dw, db) <= 0.02:",
     "You stop on a slope that is steep and negative: its size counts, so take abs."),
    (ENOUGH, "if min(abs(dw), abs(db)) <= 0.02:",
     "You stop when one slope is small. The ground is flat when both are."),
    (ENOUGH, "if abs(dw) <= 0.02:", "You look only at dw. The ground is flat when db is small, too."),
    (ENOUGH, "if abs(db) <= 0.02:", "You look only at db. The ground is flat when dw is small, too."),
    (ENOUGH, "if abs(dw) + abs(db) <= 0.02:",
     "You ask the sum of both sizes to be small: enough is when neither is above 0.02."),
    (ENOUGH, "if np.hypot(dw, db) <= 0.02:",
     "You ask the length of the gradient to be small: enough is when neither slope is above 0.02."),
    (ENOUGH, "if max(abs(dw), abs(db)) >= 0.02:",
     "You stop where it is steep: you are done when both slopes are *small*."),
    (WALK, WALK.replace("        path.append((w, b))\n", ""),
     "Your path has only its start: add the new point after each update."),
    ("path = [(w, b)]", "path = []", "Your path lacks its start: the point (0, 0) is the first on it."),
    ("            return w, b, path", "            return w, b, [(w, b)] * len(path)",
     "All points of your path are the last one: you append one array and then change it. Append a copy."),
]

PARTS = [
    Part("gradient", 2, of_gradient, GRADIENT_MISTAKES,
         "the derivatives of all samples add up, and 1/m came in once."),
    Part("learn", 2, of_learn, LEARN_MISTAKES,
         "initialise, slopes, good enough?, update: all training is these four steps."),
]
