"""Solutions of the exercises in notebooks 15 and 16, what their checkers say to typical wrong answers, and
their pictures.
"""

from fractions import Fraction

import numpy as np
import pytest
from notebooks.checkers import are_named, are_not_solved_yet, are_refused, are_right, of_each
from notebooks.template import solutions
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import minipipe as mp
from exercises import normalization_pictures as pictures
from exercises.normalization import check_dropout, check_put_together, check_running
from minipipe.functions import even_slices

CHECKERS = [check_put_together, check_running, check_dropout]

# ---------------------------------------------------------------- solutions

notebook, thrown = solutions("15"), solutions("16")
put_together = notebook.put_together
update_running = notebook.update_running
dropout = thrown.dropout


def by_squares(sizes, means, variances):
    weights = np.array(sizes) / sum(sizes)
    mean = weights @ means
    return np.float64(mean), weights @ (np.array(variances) + np.array(means) ** 2) - mean ** 2


def two_at_a_time(sizes, means, variances):
    total, *others = [mp.layers.normalization.Moments(n, mean, n * var)
                      for n, mean, var in zip(sizes, means, variances)]
    for other in others:
        total = total + other
    return [total.mean, total.M2 / total.n]


SOLUTIONS = [
    (check_put_together, put_together),
    (check_put_together, by_squares),
    (check_put_together, two_at_a_time),
    (check_running, update_running),
    (check_running, lambda *a: [Fraction(part) for part in update_running(*a)]),
    (check_running,
     lambda rm, rv, n, mean, var, p: (rm + p * (mean - rm), rv + p * (n * var / (n - 1) - rv))),
    (check_dropout, dropout),
    (check_dropout,
     lambda A_prev, D, p, training: np.where(D, A_prev / (1 - p), 0) if training else A_prev.tolist()),
]
test_solutions = are_right(SOLUTIONS)


# ---------------------------------------------------------------- half solved

test_stubs = are_not_solved_yet([
    (check_put_together, lambda *a: (put_together(*a)[0], None)),
    (check_running, lambda *a: (update_running(*a)[0], None)),
    (check_dropout, lambda A_prev, D, p, training: dropout(A_prev, D, p, training) if training else None),
])


# ---------------------------------------------------------------- typical wrong answers


def with_mean(mean):
    """The right var with another mean, of arrays of sizes, means and variances."""
    return lambda *a: (mean(*map(np.array, a)), put_together(*a)[1])


def with_var(var):
    """The right mean with another var, of arrays of sizes, means and variances."""
    return lambda *a: (put_together(*a)[0], var(*map(np.array, a)))


def within(n, means, variances):
    return n @ variances / n.sum()


def distances(n, means):
    return (means - n @ means / n.sum()) ** 2


PUT_TOGETHER = [
    (with_mean(lambda n, means, variances: means.mean()), "The mean is right for equal sizes only"),
    (with_mean(lambda n, means, variances: n @ means), "The mean is not divided yet"),
    (with_mean(lambda n, means, variances: means.sum()), "The means are only added up"),
    (with_mean(lambda n, means, variances: means[0]),
     "mean should be 4.5, yours is 2: (mean, var) of sizes [2, 2]"),
    (with_var(within), "var has only the spread within the micro-batches"),
    (with_var(lambda n, means, variances: variances.mean()), "the plain average of the variances"),
    (with_var(lambda n, means, variances: variances.mean() + means.var()),
     "var is right for equal sizes only"),
    (with_var(lambda n, means, variances: within(n, means, variances) + n @ distances(n, means) / len(n)),
     "divided by the number of micro-batches"),
    (with_var(lambda n, means, variances: within(n, means, variances) + distances(n, means).mean()),
     "In var each mean counts once: all"),
    (with_var(lambda n, means, variances: within(n, means, variances) + distances(n, means).sum()),
     "counts once, and is not divided"),
    (with_var(lambda n, means, variances: (variances.sum() + n @ distances(n, means)) / n.sum()),
     "A variance is no sum of squares yet"),
    (with_var(lambda n, means, variances: n @ variances + n @ distances(n, means)), "That is M2"),
    (lambda *a: (put_together(*a)[0], put_together(*a)[1] * sum(a[0]) / (sum(a[0]) - 1)),
     "var is divided by n - 1"),
    (with_var(lambda n, means, variances: n @ distances(n, means) / n.sum()),
     "That is the spread between the means alone"),
    (lambda *a: (put_together(*a)[0], put_together(*a)[1] ** 0.5), "That is the root of var"),
    (with_var(lambda n, means, variances: 7.25),
     "var should be 7.2, yours is 7.25: (mean, var) of sizes [3, 3, 2, 2]"),
    (lambda *a: put_together(*a)[0], "Return two things: mean, var."),
    (lambda *a: (put_together(*a)[0], [1, 2]), "var has shape (2,)"),
    (lambda sizes: 1, "Your function stopped with TypeError"),
    ((4.5, 7.25), "Pass the function itself"),
]


def with_running(mean=None, var=None):
    """The right update with another running_mean or running_var, of (rm, rv, n, mean, var, p)."""
    def wrong(*a):
        right = update_running(*a)
        return right[0] if mean is None else mean(*a), right[1] if var is None else var(*a)
    return wrong


RUNNING = [
    (with_running(mean=lambda rm, rv, n, mean, var, p: p * rm + (1 - p) * mean),
     "The two shares of running_mean are exchanged"),
    (with_running(mean=lambda rm, rv, n, mean, var, p: rm + p * mean),
     "The old running_mean must shrink, too"),
    (with_running(mean=lambda rm, rv, n, mean, var, p: mean), "running_mean forgets all mini-batches before"),
    (with_running(mean=lambda rm, rv, n, mean, var, p: rm), "running_mean has not moved"),
    (with_running(mean=lambda rm, rv, n, mean, var, p: 0.5),
     "running_mean should be 1.625, yours is 0.5: the result for running_mean = 2.0"),
    (with_running(var=lambda rm, rv, n, mean, var, p: (1 - p) * rv + p * var),
     "You took n where n - 1 belongs"),
    (with_running(var=lambda rm, rv, n, mean, var, p: (1 - p) * rv + p * var * (n - 1) / n),
     "The factor is turned round"),
    (with_running(var=lambda rm, rv, n, mean, var, p: (1 - p) * rv + p * var / (n - 1)),
     "var has been divided by n already"),
    (with_running(var=lambda rm, rv, n, mean, var, p: (1 - p) * rv + p * var * n), "That takes in M2"),
    (with_running(var=lambda rm, rv, n, mean, var, p: p * rv + (1 - p) * var * n / (n - 1)),
     "The two shares of running_var are exchanged"),
    (with_running(var=lambda rm, rv, n, mean, var, p: (1 - p) * rv + p * (var * n / (n - 1)) ** 0.5),
     "the root of the variance"),
    (with_running(var=lambda rm, rv, n, mean, var, p: ((1 - p) * rv + p * var) * n / (n - 1)),
     "Only the new variance is to be multiplied"),
    (with_running(var=lambda rm, rv, n, mean, var, p: rv), "running_var has not moved"),
    (with_running(var=lambda rm, rv, n, mean, var, p: 1 / 0), "Your function stopped with ZeroDivisionError"),
    (lambda *a: 3.0, "Return two things: running_mean, running_var."),
]


def in_training(wrong):
    return lambda A_prev, D, p, training: wrong(A_prev, D, p) if training else A_prev


def in_prediction(wrong):
    return lambda A_prev, D, p, training: A_prev * D / (1 - p) if training else wrong(A_prev, D, p)


DROPOUT = [
    (lambda A, D, p, training: A * D if training else A * (1 - p), "That is dropout's first form"),
    (in_training(lambda A, D, p: A * D),
     "In training: the division by 1 - p is missing: with p = 0.25 the expected value of A is only 0.75"),
    (in_training(lambda A, D, p: A * D * (1 - p)), "In training: you multiplied by 1 - p"),
    (in_training(lambda A, D, p: A * D / p), "In training: you divided by p"),
    (in_training(lambda A, D, p: A * (1 - D) / (1 - p)), "In training: the mask is turned round"),
    (in_training(lambda A, D, p: A * (1 - D) / p), "In training: the mask is turned round"),
    (in_training(lambda A, D, p: A / (1 - p)), "In training: D is missing"),
    (lambda A, D, p, training: A if training else A * D / (1 - p),
     "In training: nothing happens: A = A_prev D / (1 - p) there. Is training"),
    (in_training(lambda A, D, p: D / (1 - p)), "In training: A_prev is missing"),
    (in_training(lambda A, D, p: A + D), "In training, with p = 0.25, A should be"),
    (in_training(lambda A, D, p: A * D / 0.75), "In training, with p = 0.5, A should be"),
    (in_prediction(lambda A, D, p: A * D / (1 - p)), "At prediction time: numbers are still set to 0"),
    (in_prediction(lambda A, D, p: A * D), "At prediction time: numbers are still set to 0"),
    (in_prediction(lambda A, D, p: A * (1 - p)), "At prediction time: you multiplied by 1 - p"),
    (in_prediction(lambda A, D, p: A / (1 - p)), "At prediction time: you divided by 1 - p"),
    (in_prediction(lambda A, D, p: A + 1), "At prediction time A is A_prev"),
    (lambda A, D, p, training: A[:2], "A has shape (2, 4), but it must have shape (3, 4)"),
    (lambda A, D, p: A, "Your function stopped with TypeError"),
]
test_mistakes = are_named(of_each(CHECKERS, (PUT_TOGETHER, RUNNING, DROPOUT)))
test_junk = are_refused(CHECKERS, [
    lambda *a: ([1, [2]],) * 2, lambda *a: (np.nan,) * 2, lambda *a: (object(),) * 2,
    lambda *a: (1, 2, 3),
    lambda *a: (np.inf, -np.inf), lambda *a: np.full((3, 4), np.nan),
])


# ---------------------------------------------------------------- pictures


@pytest.fixture
def ax():
    return Figure().add_subplot()


@pytest.mark.parametrize("layer, groups", [
    (mp.BatchNorm(4), [[0, 0, 0, 4, 4], [1, 1, 1, 5, 5], [2, 2, 2, 6, 6], [3, 3, 3, 7, 7]]),
    (mp.LayerNorm(4), [[0, 1, 2, 3, 4]] * 4),
    (mp.GroupNorm(2, 4), [[0, 1, 2, 6, 7]] * 2 + [[3, 4, 5, 8, 9]] * 2),
    (mp.GroupNorm(4, 4),
     [[row * 3, row * 3 + 1, row * 3 + 2, row * 2 + 12, row * 2 + 13] for row in range(4)]),
])
def test_groups_are_found_by_derivatives(layer, groups):
    numbers = np.random.default_rng(0).random((4, 5)) + 0.5
    layer.initialize(np.random.default_rng(0))
    assert pictures.groups_of(layer, numbers, even_slices(5, 2)).tolist() == groups


def test_a_line_stands_between_neighbours_of_different_groups_only(ax):
    pictures.groups(ax, np.array([[0, 0, 1], [2, 2, 1]]), [slice(0, 2), slice(2, 3)], "title")
    colours = {(patch.get_x() + 0.5, patch.get_y() + 0.5): to_hex(patch.get_facecolor())
               for patch in ax.patches}
    groups = {place: pictures.COLOURS.index(colour.upper()) for place, colour in colours.items()}
    assert groups == {(0, 0): 0, (1, 0): 0, (2, 0): 1, (0, 1): 2, (1, 1): 2, (2, 1): 1}
    thin = [(tuple(line.get_xdata()), tuple(line.get_ydata())) for line in ax.lines
            if line.get_linewidth() == 1]
    assert sorted(thin) == [((-0.5, 0.5), (0.5, 0.5)), ((0.5, 1.5), (0.5, 0.5)), ((1.5, 1.5), (-0.5, 0.5)),
                            ((1.5, 1.5), (0.5, 1.5))]
    assert [tuple(line.get_xdata()) for line in ax.lines if line.get_linewidth() > 3] == [(1.5, 1.5)]
    assert ax.get_title() == "title" and ax.yaxis_inverted()


def test_a_mask_is_dark_where_it_is_not_0(ax):
    pictures.masks(ax, np.array([[0.0, 2.0], [2.0, 2.0]]), [slice(0, 1), slice(1, 2)], "1 + 1")
    assert ax.images[0].get_array().tolist() == [[False, True], [True, True]]
    assert [to_hex(colour).upper() for colour in ax.images[0].cmap.colors] == [pictures.PALE, pictures.KEPT]
    assert [tuple(line.get_xdata()) for line in ax.lines] == [(0.5, 0.5)] and ax.get_title() == "1 + 1"


def test_the_spread_shows_each_number_and_each_mean(ax):
    pictures.spread(ax, np.array([1.0, 3.0, 8.0]), [slice(0, 2), slice(2, 3)])
    assert [dots.get_offsets().tolist() for dots in ax.collections] == [[[1, 0], [3, 0]], [[8, 1]]]
    lines = [(tuple(line.get_xdata()), tuple(line.get_ydata())) for line in ax.lines[1:]]
    assert lines == [((2, 4), (0, 0)), ((2, 2), (-0.32, 0.32)), ((8, 4), (1, 1)),
                     ((8, 8), (1 - 0.32, 1 + 0.32))]
    assert tuple(ax.lines[0].get_xdata()) == (4, 4)


def test_the_shares_stand_end_to_end(ax):
    pictures.shares(ax, np.array([2.0, 1.0]), np.array([4.0, 5.0]))
    bars = [(patch.get_x(), patch.get_width(), patch.get_hatch()) for patch in ax.patches]
    assert bars == [(0, 2, None), (2, 1, None), (3, 4, "//"), (7, 5, "//")]
    assert [text.get_text() for text in ax.texts] == ["within: 3", "between: 9"]
