"""What notebook 01 says to neurons that are not written as its solutions are: right ones and wrong ones."""

import pytest

from exercises.judging import judged, part_named

FORWARD, BACKWARD = part_named("forward"), part_named("backward")


def forward(body):
    return f"def forward(w1, w2, b, x1, x2, y):\n{body}"


def backward(body):
    return f"def backward(a, x1, x2, y):\n{body}"


RIGHT_FORWARD = [
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
]

RIGHT_BACKWARD = [
    backward("    dz = a - y\n    return dz, dz * x1, dz * x2, dz"),
    backward("""
    slopes = [x1, x2, 1]
    dz = a - 1 if y == 1 else a
    return [dz] + [dz * slope for slope in slopes]
"""),
    backward("    dz = a * (1 - y) - y * (1 - a)\n    dw1 = x1 * dz\n    return dz, dw1, x2 * dz, dz"),
]

WRONG_FORWARD = {
    "base 10": "import math\n" + forward("""
    z = b + w2 * x2 + w1 * x1
    a = 1.0 / (math.exp(-z) + 1.0)
    if y:
        return z, a, -math.log10(a)
    return z, a, -math.log10(1 - a)
"""),
    "base 2": forward("""
    z = w1 * x1 + w2 * x2 + b
    a = np.exp(z) / (1 + np.exp(z))
    return z, a, -np.log2(a if y == 1 else 1 - a)
"""),
    "Your L is negative": forward("""
    z = np.dot([w1, w2], [x1, x2]) + b
    a = (1 + np.exp(-z)) ** -1
    return z, a, np.log(a) if y == 1 else np.log(1 - a)
"""),
    "reaches only the first term": forward("""
    z = w1 * x1 + w2 * x2 + b
    a = 1 / (1 + np.exp(-z))
    return z, a, (1 - y) * np.log(1 - a) - np.log(a) * y
"""),
    "the term with 1 - y is missing": forward("""
    z = w1 * x1 + w2 * x2 + b
    a = 1 / (1 + np.exp(-z))
    L = 0
    if y == 1:
        L = -np.log(a)
    return z, a, L
"""),
    "Your a falls when z grows": forward("""
    z = w1 * x1 + w2 * x2 + b
    e = np.exp(z)
    a = 1 / (1 + e)
    return z, a, -(y * np.log(a) + (1 - y) * np.log(1 - a))
"""),
    "1 + np.exp(-z), since / comes before +": forward("""
    z = w1 * x1 + w2 * x2 + b
    a = 1 / 1 + np.exp(-z)
    L = -(y * np.log(a) + (1 - y) * np.log(1 - a))
    return z, a, L
"""),
    "forgets the bias": forward("""
    z = sum(w * x for w, x in [(w1, x1), (w2, x2)])
    a = 1 / (1 + np.exp(-z))
    return z, a, -np.log(a) * y - np.log(1 - a) * (1 - y)
"""),
    "crossed": forward("""
    z = w2 * x1 + w1 * x2 + b
    a = 1 / (1 + np.exp(-z))
    return z, a, -np.log(a) * y - np.log(1 - a) * (1 - y)
"""),
    "that of the first picture": forward("""
    z = 1.5 - 0.75 - 0.25
    a = 1 / (1 + np.exp(-z))
    return z, a, -np.log(a) * y - np.log(1 - a) * (1 - y)
"""),
    "returns L alone": forward("""
    a = 1 / (1 + np.exp(-(w1 * x1 + w2 * x2 + b)))
    return -np.log(a) * y - np.log(1 - a) * (1 - y)
"""),
    "the order is z, a, L": forward("""
    z = w1 * x1 + w2 * x2 + b
    a = 1 / (1 + np.exp(-z))
    return a, z, np.log(1 + np.exp(z)) - y * z
"""),
    "`forward` returns nothing": forward("    z = w1 * x1 + w2 * x2 + b\n    print(z)"),
    "uses `sigmoid`, which is not in its cell": forward("    return 0, sigmoid(b), 0"),
    "stopped with TypeError": forward("    z = w1(x1) + w2(x2) + b\n    return z, z, z"),
    "Not solved yet": forward('    """Return z, a and L."""\n    ...'),
    "(z, a, L are three): yours is 4, it must be 3.": forward("    return 1, 2, 3, 4"),
    "L at": forward("""
    z = w1 * x1 + w2 * x2 + b
    a = 1 / (1 + np.exp(-z))
    return z, a, -np.log(a) + 1
"""),
}

WRONG_BACKWARD = {
    "Your dz is da, handed on": backward("""
    if y == 1:
        dz = -1 / a
    else:
        dz = 1 / (1 - a)
    return dz, dz * x1, dz * x2, dz
"""),
    "Your slope of the sigmoid is 1 - a.": backward("""
    da = (1 - y) / (1 - a) - y / a
    dz = da - a * da
    return dz, x1 * dz, x2 * dz, dz
"""),
    "Your signs are all turned round": backward("    dz = y - a\n    return dz, dz * x1, dz * x2, dz"),
    "You start from da = a - y": backward("""
    dz = (a - y) * (a - a * a)
    return dz, dz * x1, dz * x2, dz
"""),
    "the wrong point": "def sigma(z):\n    return 1 / (1 + np.exp(-z))\n\n\n" + backward("""
    da = -y / a + (1 - y) / (1 - a)
    dz = da * sigma(a) * (1 - sigma(a))
    return dz, dz * x1, dz * x2, dz
"""),
    "for y = 0, too": backward("""
    da = -(y / a + (1 - y) / (1 - a))
    dz = da * (a - a * a)
    return [dz, dz * x1, dz * x2, dz]
"""),
    "Your db is 1": backward("    dz = a - y\n    return dz, dz * x1, dz * x2, 1.0"),
    "Your db is 0": backward("    dz = a - y\n    return dz, dz * x1, dz * x2, 0.0"),
    "asks for `w1`": backward("    dz = a - y\n    dw1 = w1 * dz\n    return dz, dw1, w2 * dz, dz"),
    "asks for `z`": backward("    dz = (a - y) + 0 * z\n    return dz, dz * x1, dz * x2, dz"),
    "asks for `b`": backward("    dz = a - y\n    db = b * dz\n    return dz, dz * x1, dz * x2, db"),
    "skip the sigmoid": backward("""
    da = -y / a + (1 - y) / (1 - a)
    return a - y, x1 * da, x2 * da, da
"""),
    "exchanged": backward("    dz = a - y\n    return dz, x2 * dz, x1 * dz, dz"),
    "Your dw1 and dw2 are dz": backward("    return [a - y] * 4"),
    "put dz in front": backward("    dz = a - y\n    return [dz * x1, dz * x2, dz]"),
    "the order is dz, dw1, dw2, db": backward("    dz = a - y\n    return dz * x1, dz * x2, dz, dz"),
    "Not solved yet": backward("    return None"),
}


@pytest.mark.parametrize(("part", "code"), [*((FORWARD, code) for code in RIGHT_FORWARD),
                                            *((BACKWARD, code) for code in RIGHT_BACKWARD)])
def test_other_right_ways(part, code):
    assert judged(part, code) == f"Right: {part.right}"


@pytest.mark.parametrize("words", WRONG_FORWARD)
def test_a_wrong_forward_is_named(words):
    assert words in judged(FORWARD, WRONG_FORWARD[words])


@pytest.mark.parametrize("words", WRONG_BACKWARD)
def test_a_wrong_backward_is_named(words):
    assert words in judged(BACKWARD, WRONG_BACKWARD[words])
