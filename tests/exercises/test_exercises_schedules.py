"""An exercise about stale weights, in notebook 29: other solutions than the
notebooks', and what the checkers say to typical wrong answers.
"""

import numpy as np
from notebooks.checkers import are_named, are_right

from exercises.asynchronous import check_next_weights


def rule(late_0, late_1, moved=1, sign=1):
    """next_weights with the gradient at weights that are so many updates late, subtracted from those `moved`
    from the end.
    """
    def next_weights(history, gradient, learning_rate):
        w0 = history[max(0, len(history) - 1 - late_0)][0]
        w1 = history[max(0, len(history) - 1 - late_1)][1]
        return tuple(w - sign * learning_rate * g for w, g in zip(history[-moved], gradient(w0, w1)))
    return next_weights


test_solutions = are_right({
    check_next_weights: [
        rule(1, 0),
        lambda h, g, eta: np.array(h[-1]) - eta * np.array(g(h[max(0, len(h) - 2)][0], h[-1][1])),
    ],
})
test_mistakes = are_named({
    check_next_weights: [
        (rule(0, 0), "That is the synchronous rule"),
        (rule(1, 1), "That is vertical sync"),
        (rule(0, 1), "Turned round: stage 0 is the late one"),
        (rule(2, 1), "One update too late on both stages"),
        (rule(2, 0), "two updates late"),
        (lambda h, g, eta: (rule(1, 0, moved=2)(h, g, eta)[0], rule(1, 0)(h, g, eta)[1]), "the old w_0"),
        (rule(1, 0, sign=-1), "The wrong sign"),
        (lambda h, g, eta: rule(1, 0)(h, g, 1), "The learning rate is missing"),
        (lambda h, g, eta: g(h[-2][0], h[-1][1]), "That is the gradient; asked were the next weights"),
        (lambda h, g, eta: (1.0, None), "yours are (1.0, nan)."),
        (lambda h, g, eta: (0, 0), "After 2 updates the next weights are (-33.0, -20.0), yours are (0.0,"),
        (lambda h, g, eta: rule(1, 0)(h, g, eta) if len(h) > 2 else rule(0, 0)(h, g, eta),
         "That is the synchronous rule"),
        (lambda h, g, eta: rule(1, 0)(h, g, eta) if len(h) > 1 else h[0], "not for the first update"),
    ],
})
