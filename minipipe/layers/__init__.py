"""Layers by hand: one class per formula, samples in columns."""

from .activations import GELU, LeakyReLU, ReLU, Sigmoid, SiLU, Softmax, Softplus, Tanh
from .initialization import he, xavier
from .layer import Layer
from .linear import Linear

__all__ = [
    "GELU", "Layer", "LeakyReLU", "Linear", "ReLU", "SiLU", "Sigmoid", "Softmax", "Softplus", "Tanh", "he", "xavier",
]
