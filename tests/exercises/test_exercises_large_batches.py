"""Solutions of the exercises in notebooks 42 and 43, and what their checkers say to typical wrong answers."""

from notebooks.checkers import are_named, are_right, of_each
from notebooks.template import solutions

from exercises.large_batches import check_noise, check_rate
from exercises.traps import check_local, check_step

CHECKERS = [check_rate, check_noise, check_step, check_local]
LARGE, TRAPS = solutions("42"), solutions("43")


def trace(b, B, small, large):
    return (small - large) / (1 / b - 1 / B)


test_solutions = are_right([
    (check_rate, LARGE.rate),
    (check_rate, lambda i, W, eta, k: eta * (1 + (k - 1) * min(i / W, 1))),
    (check_noise, LARGE.noise),
    (check_noise, lambda b, B, small, large: trace(b, B, small, large) * (B - b) / (B * large - b * small)),
    (check_step, TRAPS.step),
    (check_step, lambda v, g, m, old, new: new * (m * v / old + g)),
    (check_local, TRAPS.local),
])
test_mistakes = are_named(of_each(CHECKERS, [
    [
        (lambda i, W, eta, k: eta if i < W else k * eta, "constant warm-up"),
        (lambda i, W, eta, k: eta + (k - 1) * eta * i / W, "grows on"),
        (lambda i, W, eta, k: k * eta * min(i, W) / W, "begins at 0"),
        (lambda i, W, eta, k: eta + k * eta * min(i, W) / W, "ends at (k + 1) eta"),
        (lambda i, W, eta, k: eta + (k - 1) * eta * min(i + 1, W) / W, "one update early"),
        (lambda i: 0, "stopped with TypeError"),
    ],
    [
        (trace, "That is tr(Sigma)"),
        (lambda b, B, small, large: trace(b, B, small, large) / large, "of the large mini-batch"),
        (lambda b, B, small, large: trace(b, B, small, large) / small, "of the small mini-batch"),
        (lambda b, B, small, large: (small / trace(b, B, small, large) - 1 / b), "Upside down"),
        (lambda b: 0, "stopped with TypeError"),
    ],
    [
        (lambda v, g, m, old, new: m * v + new * g, "the form as it is written"),
        (lambda v, g, m, old, new: m * (old / new) * v + new * g, "Upside down"),
        (lambda v, g, m, old, new: (new / old) * (m * v + new * g), "has its rate already"),
        (lambda v, g, m, old, new: m * (new / old) * v + g, "forgets the rate"),
        (lambda v, g, m, old, new: (new / old) * v + new * g, "forgets the momentum"),
        (lambda v: 0, "stopped with TypeError"),
    ],
    [
        (lambda size, size_of_g, decay, trust: trust * size / (size_of_g + decay * size), "never moves"),
        (lambda size, size_of_g, decay, trust: trust * size / (size_of_g + decay * size) if size else 1,
         "without a gradient, too"),
        (lambda size, size_of_g, decay, trust: trust * size / size_of_g if size_of_g else 1,
         "Without the weight decay"),
        (lambda size, size_of_g, decay, trust: trust * (size_of_g + decay * size) / size if size else 1,
         "Upside down"),
        (lambda size: 0, "stopped with TypeError"),
    ],
]))
