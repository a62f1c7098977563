"""Exercises about servers and large mini-batches, in notebooks 44 to 47: other solutions than the notebooks',
and what the checkers say to typical wrong answers.
"""

from notebooks.checkers import are_named, are_right

from exercises.federated import check_average, check_sent
from exercises.large_batches import check_noise, check_rate
from exercises.servers import check_first_round, check_may_go_on
from exercises.traps import check_local, check_step


def trace(b, B, small, large):
    return (small - large) / (1 / b - 1 / B)


test_solutions = are_right({
    check_first_round: [lambda N, t, c: sum([c, c] * N, t)],
    check_may_go_on: [lambda clock, slowest, bound: not clock > slowest + bound],
    check_rate: [lambda i, W, eta, k: eta * (1 + (k - 1) * min(i / W, 1))],
    check_noise: [
        lambda b, B, small, large: trace(b, B, small, large) * (B - b) / (B * large - b * small),
    ],
    check_step: [lambda v, g, m, old, new: new * (m * v / old + g)],
})
test_mistakes = are_named({
    check_first_round: [
        (lambda N, t, c: t + N * c, "the way in"),
        (lambda N, t, c: t + 2 * c, "one worker alone"),
        (lambda N, t, c: N * (t + 2 * c), "t counts once"),
        (lambda N, t, c: 2 * N * c, "t is missing"),
        (lambda N, t, c: t + (N + 1) * c, "behind another one"),
    ],
    check_may_go_on: [
        (lambda clock, slowest, bound: True, "the bound binds nothing"),
        (lambda clock, slowest, bound: clock - slowest < bound, "One too strict"),
        (lambda clock, slowest, bound: clock - slowest - 1 <= bound, "One too many"),
        (lambda clock, slowest, bound: clock <= bound, "how far it is ahead"),
        (lambda clock, slowest, bound: clock - slowest > bound, "Turned round"),
        (lambda clock, slowest, bound: False, "With clock = 0, slowest = 0 and bound = 0, yours says False."),
        (lambda clock, slowest, bound: 2, "The answer is True or False, and yours is 2."),
    ],
    check_average: [
        (lambda clients: sum(w for _, w in clients) / len(clients), "the plain mean"),
        (lambda clients: sum(n * w for n, w in clients), "divide it by the samples"),
        (lambda clients: sum(n * w for n, w in clients) / len(clients), "not by how many clients"),
        (lambda clients: sum(w for _, w in clients), "the plain sum"),
        (lambda clients: 1.75, "Of [(1, 0.0), (2, 3.0), (5, -1.0)] the average is 0.125, yours is 1.75."),
    ],
    check_sent: [
        (lambda i, x, masks, R: (x + sum(masks.values())) % R, "nothing cancels"),
        (lambda i, x, masks, R: (x + sum(s if j < i else -s for j, s in masks.items())) % R, "turned round"),
        (lambda i, x, masks, R: x + sum(s if j > i else -s for j, s in masks.items()), "Take it mod R"),
        (lambda i, x, masks, R: x, "That is x itself"),
        (lambda i, x, masks, R: 0, "sends 38, and yours sends 0."),
    ],
    check_rate: [
        (lambda i, W, eta, k: eta if i < W else k * eta, "constant warm-up"),
        (lambda i, W, eta, k: eta + (k - 1) * eta * i / W, "grows on"),
        (lambda i, W, eta, k: k * eta * min(i, W) / W, "begins at 0"),
        (lambda i, W, eta, k: eta + k * eta * min(i, W) / W, "ends at (k + 1) eta"),
        (lambda i, W, eta, k: eta + (k - 1) * eta * min(i + 1, W) / W, "one update early"),
    ],
    check_noise: [
        (trace, "That is tr(Sigma)"),
        (lambda b, B, small, large: trace(b, B, small, large) / large, "of the large mini-batch"),
        (lambda b, B, small, large: trace(b, B, small, large) / small, "of the small mini-batch"),
        (lambda b, B, small, large: (small / trace(b, B, small, large) - 1 / b), "Upside down"),
    ],
    check_step: [
        (lambda v, g, m, old, new: m * v + new * g, "the form as it is written"),
        (lambda v, g, m, old, new: m * (old / new) * v + new * g, "Upside down"),
        (lambda v, g, m, old, new: (new / old) * (m * v + new * g), "has its rate already"),
        (lambda v, g, m, old, new: m * (new / old) * v + g, "forgets the rate"),
        (lambda v, g, m, old, new: (new / old) * v + new * g, "forgets the momentum"),
    ],
    check_local: [
        (lambda size, size_of_g, decay, trust: trust * size / (size_of_g + decay * size), "never moves"),
        (lambda size, size_of_g, decay, trust: trust * size / (size_of_g + decay * size) if size else 1,
         "without a gradient, too"),
        (lambda size, size_of_g, decay, trust: trust * size / size_of_g if size_of_g else 1,
         "Without the weight decay"),
        (lambda size, size_of_g, decay, trust: trust * (size_of_g + decay * size) / size if size else 1,
         "Upside down"),
    ],
})
