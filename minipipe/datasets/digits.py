"""Handwritten digits that ship with the package."""

from importlib import resources
from typing import NamedTuple

import numpy as np

from ..arrays import one_hot


class Dataset(NamedTuple):
    """Two pairs `(X, Y)`: samples are the last axis, Y is one-hot."""

    train: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]


def digits():
    """The UCI handwritten digits: 1,797 images of 8 x 8 pixels, as a `Dataset` of 1,437 and 360.

    X is (64, m), the pixels of an image row by row, from 0 (paper) to 1 (ink) in steps of 1/16; Y is
    (10, m), one-hot; both are float64. The split is fixed and stratified: each digit has the same share in
    both parts, as nearly as whole numbers allow.

    Source: E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning
    Repository, 1998, doi 10.24432/C50P49, licence CC BY 4.0; the part that scikit-learn's `load_digits` has.

    >>> X, Y = digits().train
    >>> X.shape, Y.shape
    ((64, 1437), (10, 1437))
    """
    with resources.files(__package__).joinpath("digits.npz").open("rb") as file, np.load(file) as stored:
        pixels, labels, in_test = stored["pixels"], stored["labels"], stored["in_test"]
    X, Y = pixels.T / 16, one_hot(labels, n_classes=10)
    parts = ([np.ascontiguousarray(array[:, chosen]) for array in (X, Y)] for chosen in (~in_test, in_test))
    return Dataset(*map(tuple, parts))
