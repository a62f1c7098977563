"""The network and the mini-batches of the checks."""

import numpy as np
from cases import eighths

import minipipe as mp

LOSS = mp.MeanSquaredError()
LAYERS = [mp.Linear(3, 4), mp.ReLU(), mp.Linear(4, 4), mp.ReLU(), mp.Linear(4, 4)]


def exact(layers):
    return [layer.copy(eighths) for layer in mp.Sequential(layers, None).layers]


def mini_batch(m, convert=eighths):
    rng = np.random.default_rng(m)
    return convert(rng.standard_normal((3, m))), convert(rng.standard_normal((4, m)))
