"""Solutions of the exercises in notebooks 40 and 41, and what their checkers say to typical wrong answers."""

from notebooks.checkers import are_named, are_right, of_each
from notebooks.template import solutions

from exercises.federated import check_average, check_sent
from exercises.servers import check_first_round, check_may_go_on

CHECKERS = [check_first_round, check_may_go_on, check_average, check_sent]
servers, federated = solutions("40"), solutions("41")

test_solutions = are_right([
    (check_first_round, servers.first_round),
    (check_first_round, lambda N, t, c: sum([c, c] * N, t)),
    (check_may_go_on, servers.may_go_on),
    (check_may_go_on, lambda clock, slowest, bound: not clock > slowest + bound),
    (check_average, federated.average),
    (check_sent, federated.sent),
])

FIRST_ROUND = [
    (lambda N, t, c: t + N * c, "the way in"),
    (lambda N, t, c: t + 2 * c, "one worker alone"),
    (lambda N, t, c: N * (t + 2 * c), "t counts once"),
    (lambda N, t, c: 2 * N * c, "t is missing"),
    (lambda N, t, c: t + (N + 1) * c, "behind another one"),
    (lambda N, t, c: t, "With N = 4, t = 10, c = 3 the count is 34, yours is 10."),
]
MAY_GO_ON = [
    (lambda clock, slowest, bound: True, "the bound binds nothing"),
    (lambda clock, slowest, bound: clock - slowest < bound, "One too strict"),
    (lambda clock, slowest, bound: clock - slowest - 1 <= bound, "One too many"),
    (lambda clock, slowest, bound: clock <= bound, "how far it is ahead"),
    (lambda clock, slowest, bound: clock - slowest > bound, "Turned round"),
    (lambda clock, slowest, bound: False, "With clock = 0, slowest = 0 and bound = 0, yours says False."),
    (lambda clock, slowest, bound: 2, "The answer is True or False, and yours is 2."),
]
AVERAGE = [
    (lambda clients: sum(w for _, w in clients) / len(clients), "the plain mean"),
    (lambda clients: sum(n * w for n, w in clients), "divide it by the samples"),
    (lambda clients: sum(n * w for n, w in clients) / len(clients), "not by how many clients"),
    (lambda clients: sum(w for _, w in clients), "the plain sum"),
    (lambda clients: 1.75, "Of [(1, 0.0), (2, 3.0), (5, -1.0)] the average is 0.125, yours is 1.75."),
]
SENT = [
    (lambda i, x, masks, R: (x + sum(masks.values())) % R, "nothing cancels"),
    (lambda i, x, masks, R: (x + sum(s if j < i else -s for j, s in masks.items())) % R, "turned round"),
    (lambda i, x, masks, R: x + sum(s if j > i else -s for j, s in masks.items()), "Take it mod R"),
    (lambda i, x, masks, R: x, "That is x itself"),
    (lambda i, x, masks, R: 0, "sends 38, and yours sends 0."),
]
test_mistakes = are_named(of_each(CHECKERS, (FIRST_ROUND, MAY_GO_ON, AVERAGE, SENT)))
