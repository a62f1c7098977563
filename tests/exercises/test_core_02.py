"""What notebook 02 says to walks that are not written as its solutions are: right ones and wrong ones."""

import re

import pytest

from exercises import landscape_pictures
from exercises.judging import judged, part_named

GRADIENT, LEARN = part_named("gradient"), part_named("learn")


def gradient(body):
    return f"def gradient(w, b, x, y):\n{body}"


def learn(body):
    return f"def learn(x, y, rate):\n{body}"


RIGHT_GRADIENT = [
    gradient("""
    m, dw, db = len(x), 0, 0
    for k in range(m):
        a = 1 / (1 + np.exp(-w * x[k] - b))
        dw += (a - y[k]) * x[k]
        db += a - y[k]
    return dw / m, db / m
"""),
    gradient("""
    error = 1 / (1 + np.exp(-(w * x + b))) - y
    return np.mean(error * x), np.mean(error)
"""),
    "def sigma(z):\n    return (1 + np.tanh(z / 2)) / 2\n\n\n" + gradient("""
    dz = (sigma(w * x + b) - y) / x.size
    return [x @ dz, np.ones(len(x)) @ dz]
"""),
]

RIGHT_LEARN = [
    learn("""
    w = b = 0
    path = [(w, b)]
    dw, db = gradient(w, b, x, y)
    while abs(dw) > 0.02 or abs(db) > 0.02:
        w -= rate * dw
        b -= rate * db
        path.append((w, b))
        dw, db = gradient(w, b, x, y)
    return w, b, path
"""),
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
    learn("""
    w, b = 0.0, 0.0
    path = []
    for _ in range(10000):
        path += [[w, b]]
        a = 1 / (1 + np.exp(-(w * x + b)))          # without gradient()
        dw, db = np.mean((a - y) * x), np.mean(a - y)
        if max(abs(dw), abs(db)) <= 0.02:
            break
        w, b = w - rate * dw, b - rate * db
    return w, b, path
"""),
]

WRONG_GRADIENT = {
    "m times too large: J is a mean": gradient("""
    dw = db = 0
    for ink, label in zip(x, y):
        error = 1 / (1 + np.exp(-(w * ink + b))) - label
        dw, db = dw + error * ink, db + error
    return dw, db
"""),
    "m times too small: you divide by m twice": gradient("""
    dz = (1 / (1 + np.exp(-(w * x + b))) - y) / len(x)
    return np.mean(dz * x), np.mean(dz)
"""),
    "Your db is m times too small": gradient("""
    dz = (1 / (1 + np.exp(-(w * x + b))) - y) / len(x)
    return x @ dz, np.mean(dz)
"""),
    "Your dw is db": gradient("""
    a = 1 / (1 + np.exp(-(w * x + b)))
    return np.mean(a - y), np.mean(a - y)
"""),
    "a sum times a sum": gradient("""
    dz = (1 / (1 + np.exp(-(w * x + b))) - y) / len(x)
    return sum(dz) * sum(x), sum(dz)
"""),
    "and are not means": gradient("""
    error = 1 / (1 + np.exp(-(w * x + b))) - y
    return error * x, error
"""),
    "You divide by 288": gradient("""
    error = 1 / (1 + np.exp(-(w * x + b))) - y
    return sum(error * x) / 288, sum(error) / 288
"""),
    "Your dw and db have one number for each sample.": gradient("""
    error = 1 / (1 + np.exp(-(w * x + b))) - y
    return error * x / len(x), error / len(x)
"""),
    "Your db has one number for each sample": gradient("""
    error = 1 / (1 + np.exp(-(w * x + b))) - y
    return np.mean(error * x), error / len(x)
"""),
    "answer minus truth": gradient("""
    error = y - 1 / (1 + np.exp(-(w * x + b)))
    return np.mean(error * x), np.mean(error)
"""),
    "once more": gradient("""
    a = 1 / (1 + np.exp(-(w * x + b)))
    dz = (a - y) * (a - a ** 2)
    return np.mean(dz * x), np.mean(dz)
"""),
    "does not know the truth": gradient("""
    a = 1 / (1 + np.exp(-(w * x + b)))
    return np.mean(a * x), np.mean(a)
"""),
    "You divide by 2": gradient("""
    dz = (1 / (1 + np.exp(-(w * x + b))) - y) * 0.5
    return x @ dz, dz.sum()
"""),
    "exchanged": gradient("""
    error = 1 / (1 + np.exp(-(w * x + b))) - y
    return np.mean(error), np.mean(error * x)
"""),
    "reaches only w x": gradient("""
    error = 1 / (1 + np.exp(-w * x + b)) - y
    return np.mean(error * x), np.mean(error)
"""),
    "How many things gradient returns (dw, db are two): yours is 1": gradient("    return 0.5"),
    "Not solved yet": gradient("    ..."),
}

WALK = """
    w = b = 0.0
    path = [(w, b)]
    dw, db = gradient(w, b, x, y)
    while {condition}:
        {steps}
        path.append((w, b))
        dw, db = gradient(w, b, x, y)
    return w, b, path
"""
GO_ON = "abs(dw) > 0.02 or abs(db) > 0.02"


def walk(steps="w, b = w - rate * dw, b - rate * db", condition=GO_ON):
    """A walk with the question in front of its loop, which the solution does not have."""
    return learn(WALK.format(steps="\n        ".join(steps.split("; ")), condition=condition))


WRONG_LEARN = {
    "Your b moves by a slope at the new w":
        walk("w -= rate * dw; db = gradient(w, b, x, y)[1]; b -= rate * db"),
    "Your w moves by a slope at the new b":
        walk("b -= rate * db; dw = gradient(w, b, x, y)[0]; w -= rate * dw"),
    "one update too many": learn("""
    w = b = 0.0
    path, dw, db = [(w, b)], 1, 1
    while abs(dw) > 0.02 or abs(db) > 0.02:
        dw, db = gradient(w, b, x, y)
        w -= rate * dw
        b -= rate * db
        path.append((w, b))
    return w, b, path
"""),
    "Your walk never stops": walk(condition="True"),
    "You take the gradient once": learn("""
    w = b = 0.0
    path = [(w, b)]
    dw, db = gradient(w, b, x, y)
    while abs(dw) > 0.02 or abs(db) > 0.02:
        w, b = w - rate * dw, b - rate * db
        path.append((w, b))
    return w, b, path
"""),
    "You climb": walk("w += rate * dw; b += rate * db"),
    "Your b never moves": walk("w -= rate * dw"),
    "do not know the rate": walk("w -= dw; b -= db"),
    "Each of your steps starts at 0 again": walk("w = -rate * dw; b = -rate * db"),
    "its size counts, so take abs": walk(condition="dw > 0.02 or db > 0.02"),
    "flat when both are": walk(condition="abs(dw) > 0.02 and abs(db) > 0.02"),
    "You look only at dw": walk(condition="abs(dw) > 0.02"),
    "one may hide the other": walk(condition="abs(dw + db) > 0.02"),
    "You stop where it is steep": walk(condition="abs(dw) < 0.02 and abs(db) < 0.02"),
    "All points of your path are the last one": learn("""
    place = np.zeros(2)
    path = [place]
    while True:
        slopes = np.array(gradient(*place, x, y))
        if abs(slopes).max() <= 0.02:
            return *place, path
        place -= rate * slopes
        path.append(place)
"""),
    "Your path has only its start": walk().replace("path.append((w, b))", "pass"),
    "Your path lacks its start": walk().replace("path = [(w, b)]", "path = []"),
    "return w, b, path": walk().replace("return w, b, path", "return path"),
    "How many numbers each point on the path has: yours is [1], it must be [2].":
        walk().replace("path = [(w, b)]", "path = [w]").replace("append((w, b))", "append(w)"),
    "The number of points on the path with rate 2, in walk 1":
        walk(condition="abs(dw) > 0.03 or abs(db) > 0.03"),
    "`learn` finds no end: a loop in it": walk("w = w - dw / 1000; b = b"),
    "`learn` finds no end": learn("    while True:\n        rate = rate / 2\n    return rate"),
    "`learn` returns nothing": learn("    for _ in range(9):\n        rate = rate / 2"),
    "Not solved yet": learn("    return None"),
}


@pytest.mark.parametrize(("part", "code"), [*((GRADIENT, code) for code in RIGHT_GRADIENT),
                                            *((LEARN, code) for code in RIGHT_LEARN)])
def test_other_right_ways(part, code):
    assert judged(part, code) == f"Right: {part.right}"


ONCE = """
    w = b = 0.0
    path = [(w, b)]
    dw, db = {slopes}
    for _ in range({times}):
        if max(abs(dw), abs(db)) <= 0.02:
            break
        w, b = w - rate * dw, b - rate * db
        path.append((w, b))
    return w, b, path
"""


@pytest.mark.parametrize("times", [5, 30, 1000])
@pytest.mark.parametrize("slopes", ["gradient(w, b, x, y)", "np.mean((0.5 - y) * x), np.mean(0.5 - y)"])
def test_a_gradient_that_is_taken_once_is_named_however_long_the_walk(times, slopes):
    said = judged(LEARN, learn(ONCE.format(slopes=slopes, times=times)))
    assert said == "You take the gradient once. When w and b have moved, it is worth nothing: take it anew."


@pytest.mark.parametrize("words", WRONG_GRADIENT)
def test_a_wrong_gradient_is_named(words):
    assert words in judged(GRADIENT, WRONG_GRADIENT[words])


@pytest.mark.parametrize("words", WRONG_LEARN)
def test_a_wrong_walk_is_named(words):
    assert words in judged(LEARN, WRONG_LEARN[words])


def test_a_dragged_path_is_drawn_inside_the_axes_with_its_costs_below():
    (left, right), (bottom, top) = landscape_pictures.W, landscape_pictures.B
    corners = [(left, bottom), (right, top), (left, top), (right, bottom)]
    map_of = landscape_pictures.Drag(lambda w, b: w ** 2 + b ** 2 + 1, {1: corners, 2: corners * 3})
    page = map_of._repr_html_()
    places = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', page)
    high = landscape_pictures.HIGH
    assert all(0 < float(x) < landscape_pictures.WIDE and 0 < float(y) < high for x, y in places[:4])
    assert places[0][0] == places[2][0] < places[1][0] and float(places[0][1]) > float(places[1][1])
    assert "rate 1: 3 updates; J = 86.00, 602.00, 30.00, 658.00<" in page
    assert f'y="{high + 20}"' in page and ", ..., 658.00<" in page
