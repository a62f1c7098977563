"""The form in which every labelled dataset is returned."""

from typing import NamedTuple

import numpy as np


class Dataset(NamedTuple):
    """Two pairs `(X, Y)`: samples are the last axis, Y is one-hot."""

    train: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]
