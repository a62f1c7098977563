"""What notebook 16 asks for: the moments of a mini-batch, and masks that can be drawn twice."""

import numpy as np

from ..judging import Part
from .convolution import as_array
from .layers import how_many


def of_put_together(my):
    """Yield mean and variance of mini-batches, with equal and with ragged micro-batches."""
    cases = (
        ([2, 2], [2.0, 7.0], [1.0, 4.0]),
        ([3, 3, 2, 2], [2.0, 9.0, 5.0, 13.5], [0.5, 4.0, 1.0, 6.25]),
        ([5, 1], [1.0, 7.0], [2.5, 0.0]),
    )
    for case in cases:
        handed = my.put_together(*case)
        yield "The number of values that put_together returns", how_many(handed)
        for name, value in zip(("mean", "var"), handed):
            yield f"{name}, with sizes {case[0]}, means {case[1]} and variances {case[2]}", value


def of_masks(my):
    """Yield what must be equal, and what must not, among masks; their numbers are up to the learner."""
    whole = as_array(my.masks(3, 0, 8, 200, 0.25))
    yield "The shape of masks(3, 0, 8, 200, 0.25)", np.shape(whole)
    yield "The numbers that occur in a mask", np.unique(whole).astype(float).tolist()
    again = as_array(my.masks(3, 0, 8, 200, 0.25))
    yield "Whether masks are the same if they are asked for twice", np.array_equal(whole, again)
    for first, m in ((0, 3), (3, 3), (6, 2)):
        part = as_array(my.masks(3, first, m, 200, 0.25))
        words = f"Whether samples {first} to {first + m - 1} have the same masks alone as among all 8"
        yield words, np.array_equal(part, whole[:, first:first + m])
    is_new = (whole[:, 1:] != whole[:, :-1]).any(axis=0)
    yield "Whether neighbouring samples have different masks", bool(is_new.all())
    other = as_array(my.masks(4, 0, 8, 200, 0.25))
    yield "Whether another key gives other masks", not np.array_equal(whole, other)
    one, next_one = (as_array(my.masks(key, 1 - shift, 1, 200, 0.25)) for key, shift in ((3, 0), (4, 1)))
    yield "Whether sample 1 of a key and sample 0 of the next key differ", not np.array_equal(one, next_one)
    yield "The share of ones for p = 0.25, to one digit", round(float(np.mean(whole)) * 4) / 4


VAR, MEAN = "size * (v + (m - mean) ** 2)", "sum(size * m for size, m in zip(sizes, means)) / n"
DRAWN = "np.random.default_rng([key, first + j]).random(n)"

PUT_TOGETHER_MISTAKES = [
    (VAR, "size * v", "Your variance has only what is within each micro-batch. Their means differ, too."),
    (VAR, "size * (m - mean) ** 2", "Your variance has only what is between the means, not within."),
    ("n = sum(sizes)", "n, sizes = len(sizes), [1] * len(sizes)",
     "Your micro-batches count alike, in the mean and in the variance: use sizes."),
    (VAR, "size * (v + np.var(means))", "Between the means, too, each micro-batch counts with its size."),
    (MEAN, "sum(means) / len(means)", "Your mean is that of the means: weight each with its size."),
    (VAR, "size * v + (m - mean) ** 2",
     "Your squared distances count once a micro-batch, not once a number."),
    (") / n\n    return", ") / (n - 1)\n    return", "Your variance divides by n - 1: it is a mean, by n."),
    ("return mean, var", "return var, mean", "The order is mean, var."),
]
MASKS_MISTAKES = [
    ("first + j", "j", "Your samples are counted from the start of the micro-batch: take first + j."),
    ("[key, first + j]", "[first + j]", "Your key counts nowhere: each step would drop the same."),
    (f"[{DRAWN} for j in range(m)]", "np.random.default_rng([key, first]).random((n, m)).T",
     "Your masks depend on how many samples come together: give each sample a generator of its own."),
    ("[key, first + j]", "[key, first]", "All samples of a micro-batch have one mask: each needs its own."),
    ("[key, first + j]", "key + first + j",
     "Your key and sample are added: sample 1 of key 0 has the mask of sample 0 of key 1. Take a pair."),
    (DRAWN, "np.random.random(n)", "Your dice fall differently each time: seed with key and sample."),
    (">= p", "< p", "Your mask is turned round: a number is 0 with probability p."),
    ("1.0 * (np.stack(columns, axis=1) >= p)", "(np.stack(columns, axis=1) >= p) / (1 - p)",
     "You have divided already. A mask has zeros and ones, the layer divides."),
]

PARTS = [
    Part("put_together", 16, of_put_together, PUT_TOGETHER_MISTAKES,
         "within and between, each micro-batch with its size."),
    Part("masks", 16, of_masks, MASKS_MISTAKES, "a mask depends on key and sample, and on nothing else."),
]
