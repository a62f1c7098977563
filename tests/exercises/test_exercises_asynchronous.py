"""Solutions of the exercises in notebook 25, and what their checkers say to typical wrong answers."""

import numpy as np
import pytest
from notebooks.checkers import are_named, are_right, of_each
from notebooks.template import solutions

from exercises.asynchronous import check_next_weights, check_version_used, check_versions_kept

CHECKERS = [check_version_used, check_next_weights, check_versions_kept]


def rule(late_0, late_1, moved=1, sign=1):
    """next_weights with the gradient at weights that are so many updates late, subtracted from those `moved`
    from the end.
    """
    def next_weights(history, gradient, learning_rate):
        w0 = history[max(0, len(history) - 1 - late_0)][0]
        w1 = history[max(0, len(history) - 1 - late_1)][1]
        return tuple(w - sign * learning_rate * g for w, g in zip(history[-moved], gradient(w0, w1)))
    return next_weights


def kept(pipedream, vertical, two):
    return lambda schedule, K, r: {"pipedream": pipedream, "pipedream-vertical": vertical,
                                   "pipedream-2bw": two}[schedule](K, r)


# ---------------------------------------------------------------- solutions

notebook = solutions("25")

SOLUTIONS = [
    (check_version_used, notebook.version_used),
    (check_version_used, lambda K, s, i: np.int64(i - min(i, K - 1 - s))),
    (check_next_weights, notebook.next_weights),
    (check_next_weights, rule(1, 0)),
    (check_next_weights,
     lambda h, g, eta: np.array(h[-1]) - eta * np.array(g(h[max(0, len(h) - 2)][0], h[-1][1]))),
    (check_versions_kept, notebook.versions_kept),
]
test_solutions = are_right(SOLUTIONS)


# ---------------------------------------------------------------- stubs, and what is no answer at all


@pytest.mark.parametrize("check", CHECKERS)
@pytest.mark.parametrize("answer, words", [
    (7, "Pass the function itself"),
    (lambda: 7, "Your function stopped with TypeError"),
    (lambda *three: 1 / 0, "Your function stopped with ZeroDivisionError"),
    (lambda *three: "seven", "not an array of real numbers"),
    (lambda *three: [[1, 2, 3]], "has shape (1, 3)"),
    (lambda *three: [1, [2]], "not an array of numbers"),
])
def test_what_is_no_answer_is_told_why(check, answer, words):
    assert words in check(answer)


def test_a_pair_with_a_hole_is_answered_in_a_sentence():
    sentence = check_next_weights(lambda history, gradient, learning_rate: (1.0, None))
    assert sentence.endswith("yours are (1.0, nan).")


def test_an_answer_without_the_first_update_in_mind_is_told_what_stopped_it():
    sentence = check_next_weights(lambda h, g, eta: tuple(w - eta * d
                                                          for w, d in zip(h[-1], g(h[-2][0], h[-1][1]))))
    assert sentence == "Your function stopped with IndexError: list index out of range"


def test_what_an_answer_does_to_its_arguments_does_not_spoil_the_check():
    def emptied(history, gradient, learning_rate):
        result = rule(1, 0)(history, gradient, learning_rate)
        history.clear()
        return result
    assert check_next_weights(emptied).startswith("Right: ")


# ---------------------------------------------------------------- typical wrong answers

VERSION_USED = [
    (lambda K, s, i: i - (K - 1 - s), "a version below 0 does not exist"),
    (lambda K, s, i: max(0, i - (K - 1)), "That is vertical sync"),
    (lambda K, s, i: i, "Only the last stage has made so many"),
    (lambda K, s, i: max(0, i - (K - s)), "One too few"),
    (lambda K, s, i: max(0, i - s), "Turned round: the first stage is the stalest"),
    (lambda K, s, i: min(i, K - 1 - s), "That is the staleness; asked was the version, micro-batch"),
    (lambda K, s, i: K - 1 - s, "That is the staleness once the pipeline is full"),
    (lambda K, s, i: K - s, "how many versions the stage keeps"),
    (lambda K, s, i: max(0, i - 1), "that is 2BW's rule"),
    (lambda K, s, i: 0, "With K = 4, s = 2, i = 7 the count is 6, yours is 0."),
    (lambda K, s, i: max(0, i - (3 - s)),
     "Right for some numbers, but not for all. With K = 6, s = 1, i = 9 the count is 5, yours is 7."),
]

NEXT_WEIGHTS = [
    (rule(0, 0), "That is the synchronous rule"),
    (rule(1, 1), "That is vertical sync"),
    (rule(0, 1), "Turned round: stage 0 is the late one"),
    (rule(2, 1), "One update too late on both stages"),
    (rule(2, 0), "two updates late"),
    (lambda h, g, eta: (h[-2][0] - eta * g(h[-2][0], h[-1][1])[0], h[-1][1] - eta * g(h[-2][0], h[-1][1])[1]),
     "you moved the old w_0"),
    (rule(1, 0, sign=-1), "The wrong sign"),
    (lambda h, g, eta: rule(1, 0)(h, g, 1), "The learning rate is missing"),
    (lambda h, g, eta: g(h[-2][0], h[-1][1]), "That is the gradient; asked were the next weights"),
    (lambda h, g, eta: (0, 0), "After 2 updates the next weights are (-33.0, -20.0), yours are (0.0, 0.0)."),
    (lambda h, g, eta: rule(1, 0)(h, g, eta) if len(h) > 2 else rule(0, 0)(h, g, eta),
     "That is the synchronous rule"),
    (lambda h, g, eta: rule(1, 0)(h, g, eta) if len(h) > 1 else h[0], "not for the first update"),
]

VERSIONS_KEPT = [
    (lambda schedule, K, r: K - r, "Right for pipedream, but vertical sync keeps K"),
    (kept(lambda K, r: K - r, lambda K, r: K - r, lambda K, r: 2),
     "Right for pipedream and 2bw, but vertical sync"),
    (kept(lambda K, r: K, lambda K, r: K, lambda K, r: 2), "in pipedream a later stage needs fewer"),
    (kept(lambda K, r: K - 1 - r, lambda K, r: K - 1, lambda K, r: 1), "Those are the older versions"),
    (lambda schedule, K, r: r + 1, "Turned round, and only pipedream"),
    (kept(lambda K, r: r + 1, lambda K, r: K, lambda K, r: 2), "In pipedream it is turned round"),
    (lambda schedule, K, r: 2, "That is 2bw's number"),
    (kept(lambda K, r: K - r, lambda K, r: K, lambda K, r: 3),
     "Right for some numbers, but not for all. With schedule = pipedream-2bw, K = 4, r = 0 the "
     "count is 2, yours is 3."),
]
test_mistakes = are_named(of_each(CHECKERS, (VERSION_USED, NEXT_WEIGHTS, VERSIONS_KEPT)))
