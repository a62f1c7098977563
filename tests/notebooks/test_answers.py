"""What all checkers say alike: of an answer that raises, its line; of a prediction, what came out."""

import numpy as np
import pytest
from notebooks.template import run

from exercises import called, judged, predicted

CELL = """def helper(x):
    return x / 0   # here


def answer(x):
    return helper(x) + 1


def of_numpy(x):
    return np.zeros((2, 3)) @ \\
        np.zeros(2)
"""


def test_the_innermost_line_of_a_cell_is_named():
    names = run("import numpy as np\n" + CELL)
    assert called(names["answer"], 3)[1] == (
        "Your function stopped with ZeroDivisionError: division by zero, "
        "in line 3 of your cell: `return x / 0 # here`."
    )
    assert called(names["of_numpy"], 3)[1].endswith("of your cell: `return np.zeros((2, 3)) @ \\`.")


def test_a_line_in_a_file_is_not_one_of_a_cell():
    assert called(lambda x: x / 0, 3)[1] == "Your function stopped with ZeroDivisionError: division by zero"


@pytest.mark.parametrize("function, sentence", [
    (lambda n, k: n * k, None),
    (lambda n, k: np.float32(n * k), None),
    (lambda n, k: n + k, "Multiply them."),
    (lambda n, k: 8,
     "Right for some numbers, but not for all. With n = 9, k = 2 the count is 18, yours is 8."),
    (lambda n, k: 0, "With n = 8, k = 1 the count is 8, yours is 0."),
    (lambda n, k: "8", "the result is 8, which is not an array of real numbers."),
    (lambda n, k: [n, [k]], "the result is [8, [1]], which is not an array of numbers."),
    (lambda n, k: [n, k], "the result has shape (2,), but it must have shape ()."),
    (lambda n, k: None, "Not solved yet: your function returns None."),
    (lambda n, k: n / 0, "Your function stopped with ZeroDivisionError: division by zero"),
    (8, "Pass the function itself: this is 8, which cannot be called."),
])
def test_a_function_of_numbers_is_judged_in_all_cases(function, sentence):
    mistakes = [(lambda n, k: n + k, "Multiply them.")]
    assert judged(function, "nk", [(8, 1), (9, 2)], [8, 18], mistakes) == sentence


@pytest.mark.parametrize("yours, right, words", [
    (None, 96, "You have not predicted it: it is 96."),
    ((None, None), (96, 0.75), "You have not predicted it: it is [96, 0.75]."),
    ([np.int64(96)], [np.int64(96)], "As you predicted: [96]."),
    (96, 96, "As you predicted: 96."),
    (96.0, np.int64(96), "As you predicted: 96."),
    (97, 96, "You predicted 97, but it is 96."),
    (96.0001, 96, "You predicted 96.0001, but it is 96."),
    (0.26, 3 / 11, "You predicted 0.26, but it is 0.2727."),
    (0.27, 3 / 11, "As you predicted: 0.2727."),
    ([1, 2], np.array([1, 2]), "As you predicted: [1, 2]."),
    ([1, 2, 3], [1, 2], "You predicted [1, 2, 3], but it is [1, 2]."),
    ([1, [2]], [1, 2], "You predicted [1, [2]], but it is [1, 2]."),
    ([[1], "b"], [[1.01], "B"], "As you predicted: [[1.01], 'B']."),
    ([1, 2], 3, "You predicted [1, 2], but it is 3."),
    (np.ones(2), 1.0, "You predicted [1. 1.], but it is 1.0."),
    ("GPipe ", "gpipe", "As you predicted: gpipe."),
    (7, "gpipe", "You predicted 7, but it is gpipe."),
    ("many", 3, "You predicted many, but it is 3."),
    (True, True, "As you predicted: True."),
    (False, True, "You predicted False, but it is True."),
])
def test_a_prediction_is_compared_with_what_came_out(yours, right, words):
    assert predicted(yours, right) == words
