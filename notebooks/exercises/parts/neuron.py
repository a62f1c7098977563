"""What notebook 01 asks for: one neuron, forward and backward."""

from collections.abc import Iterator
from types import SimpleNamespace

from ..judging import Part
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
    (LOSS, "-y * np.log(a)",
     "Your L is 0 for every zero, whatever the neuron says: the term with 1 - y is missing."),
    (LOSS, "-np.log(a)",
     "Your L is -log a for every y. For y = 0 a large a is the error: there L is -log(1 - a)."),
    (LOSS, "(a - y) ** 2 / 2", "Your L is the squared error. Here it is the one with logarithms."),
    ("1 / (1 + np.exp(-z))", "1 / (1 + np.exp(z))",
     "Your a falls when z grows: the exponent is -z, with its minus."),
    ("1 / (1 + np.exp(-z))", "1 / 1 + np.exp(-z)",
     "Your a is 1 + e^-z, above 1: brackets around 1 + np.exp(-z), since / comes before +."),
    ("1 / (1 + np.exp(-z))", "np.tanh(z)",
     "Your a is tanh(z), which goes from -1 to 1. The sigmoid goes from 0 to 1."),
    ("w1 * x1 + w2 * x2 + b", "w1 * x1 + w2 * x2", "Your z forgets the bias b."),
    ("w1 * x1 + w2 * x2 + b", "w1 * x2 + w2 * x1 + b",
     "Your weights and inputs are crossed: w1 belongs to x1, w2 to x2."),
    ("return z, a, L", "return a, z, L", "Your forward returns a, z, L: the order is z, a, L."),
]
BACKWARD_MISTAKES = [
    ("dz = da * a * (1 - a)", "dz = da",
     "Your dz is da, handed on as it came. The step from z to a has a slope too, a (1 - a)."),
    ("dz = da * a * (1 - a)", "dz = da * (1 - a)",
     "Your slope of the sigmoid is 1 - a. It is a (1 - a): near 0 for an a near 0, too."),
    ("dz = da * a * (1 - a)", "dz = da * a", "Your slope of the sigmoid is a. It is a (1 - a)."),
    ("dz = da * a * (1 - a)", "dz = a * (1 - a)",
     "Your dz is the slope of the sigmoid alone: multiply it by the derivative that arrives, da."),
    ("da = -y / a + (1 - y) / (1 - a)", "da = y / a - (1 - y) / (1 - a)",
     "Your signs are all turned round: for a one (y = 1), L falls when a grows, so da is negative."),
    ("da = -y / a + (1 - y) / (1 - a)", "da = -y / a - (1 - y) / (1 - a)",
     "Your da is negative for y = 0, too. There L grows with a: the second term has a plus."),
    ("da = -y / a + (1 - y) / (1 - a)", "da = -y / a",
     "Your da is 0 for every zero (y = 0): the second term, with 1 - y, is missing."),
    ("da = -y / a + (1 - y) / (1 - a)", "da = a - y",
     "Your dz is (a - y) a (1 - a), but a - y has the slope in it already. Multiply da by a (1 - a)."),
    (BACK, "return dz, da * x1, da * x2, da",
     "Your dw1, dw2, db start from da and skip the sigmoid. What arrives at the sum is dz."),
    (BACK, "return dz, dz * x1, dz * x2, 1",
     "Your db is 1: that is only the slope of z with respect to b. Multiply it by what arrives, dz."),
    (BACK, "return dz, x1, x2, 1",
     "Your dw1, dw2, db are the slopes of z alone. Multiply each by what arrives, dz."),
    (BACK, "return dz, dz * x2, dz * x1, dz",
     "Your dw1 and dw2 are exchanged: what moves with w1 is the product with x1."),
    (BACK, "return dz, dz, dz, dz",
     "Your dw1 and dw2 are dz, as db is. When w1 moves by a little, z moves x1 times as much."),
    (BACK, "return dz * x1, dz * x2, dz, dz",
     "Your backward returns dw1, dw2, db and dz: the order is dz, dw1, dw2, db."),
]

PARTS = [
    Part("forward", 1, of_forward, FORWARD_MISTAKES, "three steps, and each needs only what went before it."),
    Part("backward", 1, of_backward, BACKWARD_MISTAKES,
         "four derivatives for one walk back, and each is the one after it times a slope."),
]
