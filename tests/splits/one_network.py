"""The network and the mini-batches of the tests of copies and of ZeRO."""

import numpy as np
from cases import Rounding, exact

import minipipe as mp

LOSS = mp.MeanSquaredError()
LAYERS = mp.Sequential(
    [mp.Linear(2, 8), mp.ReLU(), mp.Linear(8, 8), mp.Tanh(), mp.Linear(8, 8), mp.ReLU(), mp.Linear(8, 2)],
    None,
).layers
EXACT = exact([  # in rational numbers that stay short
    mp.Linear(2, 5), mp.ReLU(), Rounding(), mp.Linear(5, 4), mp.Tanh(), Rounding(), mp.Linear(4, 4),
    mp.ReLU(), Rounding(), mp.Linear(4, 2),
])


def mini_batch(m, dtype=np.float64, seed=0):
    rng = np.random.default_rng([seed, m])
    return rng.standard_normal((2, m)).astype(dtype), rng.standard_normal((2, m)).astype(dtype)
