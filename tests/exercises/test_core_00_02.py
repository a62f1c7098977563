"""What notebooks 00 to 02 say to a first schedule, neurons and walks not written as their solutions are."""

import re

from notebooks.checkers import are_named, are_right, edits, judge_of

from exercises import landscape_pictures
from exercises.start import NAIVE, check_first_schedule

FORWARD, BACKWARD = judge_of("forward"), judge_of("backward")
GRADIENT, LEARN = judge_of("gradient"), judge_of("learn")


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

test_solutions = are_right({
    FORWARD: [
        forward("""
    z = np.array([w1, w2]) @ np.array([x1, x2]) + b
    a = np.exp(z) / (np.exp(z) + 1)
    L = -np.log(a) if y == 1 else -np.log(1 - a)
    return z, a, L
"""),
        "import math\n" + forward("""
    z = b + x1 * w1 + x2 * w2
    a = 1 / (1 + math.exp(-z))
    return [z, a, -y * math.log(a) - (1 - y) * math.log(1 - a)]
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
        "def sigma(z):\n    return (1 + np.tanh(z / 2)) / 2\n\n\n" + gradient("""
    dz = (sigma(w * x + b) - y) / x.size
    return [x @ dz, np.ones(len(x)) @ dz]
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
    ],
})

LOSS = "-np.log(a) * y - np.log(1 - a) * (1 - y)"
Z = "sum(w * x for w, x in [(w1, x1), (w2, x2)]) + b"
OF_ALL, STEP = "abs(dw) > 0.02 or abs(db) > 0.02", "w, b = w - rate * dw, b - rate * db"
MEANS = "np.mean(error * x), np.mean(error)"
test_mistakes = are_named({
    FORWARD: [
        *edits(
            A_FORWARD,
            (LOSS, "-np.log10(a if y else 1 - a)", "base 10"),
            (LOSS, "-np.log2(a if y == 1 else 1 - a)", "base 2"),
            (LOSS, "np.log(a) if y == 1 else np.log(1 - a)", "Your L is negative"),
            ("return", "found =", "`forward` returns nothing"),
            ("1 / (1 + np.exp(-z))", "sigmoid(z)", "uses `sigmoid`, which is not in its cell"),
            (Z, "w1(x1) + w2(x2) + b", "stopped with TypeError"),
            ("z, a, L", "1, 2, 3, 4", "(z, a, L are three): yours is 4, it must be 3."),
            (LOSS, "1 - np.log(a)", "L at"),
        ),
        (forward('    """Return z, a and L."""\n    ...'), "Not solved yet"),
    ],
    BACKWARD: [
        *edits(
            A_BACKWARD,
            ("a - y", "-1 / a if y == 1 else 1 / (1 - a)", "Your dz is da, handed on"),
            ("a - y", "(1 - a) * ((1 - y) / (1 - a) - y / a)", "Your slope of the sigmoid is 1 - a."),
            ("a - y", "y - a", "Your signs are all turned round"),
        ),
        (backward("return None"), "Not solved yet"),
    ],
    GRADIENT: [
        *edits(
            A_GRADIENT,
            ("mean", "sum", "m times too large: J is a mean"),
            ("- y", "- y; error = error / len(x)", "m times too small: you divide by m twice"),
            (MEANS, "np.mean(error * x), np.mean(error) / len(x)", "Your db is m times too small"),
            (MEANS, "0.5", "How many things gradient returns (dw, db are two): yours is 1"),
        ),
        (gradient("    ..."), "Not solved yet"),
    ],
    LEARN: [
        *edits(
            A_WALK,
            (STEP, "w -= rate * dw; db = gradient(w, b, x, y)[1]; b -= rate * db",
             "Your b moves by a slope at the new w"),
            (STEP, "b -= rate * db; dw = gradient(w, b, x, y)[0]; w -= rate * dw",
             "Your w moves by a slope at the new b"),
            (OF_ALL, "True", "Your walk never stops"),
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
        (learn("    while True:\n        rate = rate / 2\n    return rate"), "`learn` finds no end"),
        (learn("    for _ in range(9):\n        rate = rate / 2"), "`learn` returns nothing"),
        (learn("    return None"), "Not solved yet"),
    ],
})


def test_a_dragged_path_is_inside_the_axes_with_its_costs():
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


TIMES = {
    "F0 F1 B0 F2 B1 B2\nF0 B0 F1 B1 F2 B2": "Right: 12 ticks",
    "F0 F1 F2 B2 B1 B0\nF0 F1 F2 B2 B1 B0": "Right: 12 ticks",
    "\n   F0 F1 B0 F2 B1 B2   \nF0 B0 F1 B1 F2 B2\n": "Right: 12 ticks",
    NAIVE:
        "It takes 18 ticks, and 12 are possible. Device 0 does nothing from tick 1 to 4: it waits for B0 of "
        "device 1. Could that come earlier, or device 0 do something else meanwhile?",
    "F0 F1 B0 B1 F2 B2\nF0 B0 F1 B1 F2 B2":
        "15 ticks, and 12 are possible. Device 1 does nothing from tick 7 to 10: it waits for F2 of device",
    "F0 F1 F2 B2 B1 B0\nF0 B0 F1 B1 F2 B2":
        "16 ticks, and 12 are possible. Device 0 does nothing from tick 3 to 10: it waits for B2 of device",
    "F0 F1 F2 B0 B1 B2\nF2 F1 F0 B0 B1 B2":
        "14 ticks, and 12 are possible. Device 0 does nothing from tick 3 to 8: it waits for B0 of device 1.",
}
DO_NOT_RUN = {
    "...\n...": "Not solved yet", "": "Not solved yet",
    "F0 B0 F1 B1 F2 B2\nF0 F1 B0 B1 F2 B2":
        "It cannot run: nobody can go on, a deadlock: device 0 cannot start B0 before device 1 has done B0, "
        "and device 1 cannot start F1 before device 0 has done F1.",
    "F0 F1 F2 B1 B2\nF0 B0 F1 B1 F2 B2":
        "It cannot run: device 0 never does B0: each device needs F and B of each micro-batch.\n",
    "F0 F1 F2 B0 B1 B2\nF0 B1 F1 B0 F2 B2": "It cannot run: device 1: B1 comes before its forward F1.",
    "F0 F0 F1 B0 F2 B1 B2\nF0 B0 F1 B1 F2 B2": "It cannot run: device 0 does F0 2 times: once is enough.",
    "F0 F1 B0 B1\nF0 B0 F1 B1": "asked were 3: 0, 1 and 2",
    "F0 F1 B0 B1 F2 B2": "Devices (lines) in your schedule: 1",
    "F0 I0 W0\nF0 I0 W0": "'I0' is not an action here: write F or B",
    "F1 F2 F3 B3 B2 B1\nF1 F2 F3 B3 B2 B1": "Micro-batches are counted from 0",
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
