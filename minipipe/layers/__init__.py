"""Layers by hand: one class per formula, samples in columns."""

from .activations import ReLU, Sigmoid, Tanh
from .convolution import Conv1d, Conv2d, Conv3d
from .initialization import he, xavier
from .layer import Layer
from .linear import Linear

__all__ = ["Conv1d", "Conv2d", "Conv3d", "Layer", "Linear", "ReLU", "Sigmoid", "Tanh", "he", "xavier"]
