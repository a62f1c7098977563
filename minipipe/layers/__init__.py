"""Layers by hand: one class per formula, samples in columns."""

from .activations import ReLU, Sigmoid, Tanh
from .initialization import he, xavier
from .layer import Layer
from .linear import Linear

__all__ = ["Layer", "Linear", "ReLU", "Sigmoid", "Tanh", "he", "xavier"]
