"""Layers by hand: one class per formula, samples in columns."""

from .activations import GELU, LeakyReLU, ReLU, Sigmoid, SiLU, Softmax, Softplus, Tanh
from .initialization import he, xavier
from .layer import Layer
from .linear import Linear
from .pooling import AvgPool1d, AvgPool2d, AvgPool3d, GlobalAvgPool, MaxPool1d, MaxPool2d, MaxPool3d
from .reshaping import Flatten, Pad, Reshape

__all__ = [
    "AvgPool1d", "AvgPool2d", "AvgPool3d", "Flatten", "GELU", "GlobalAvgPool", "Layer", "LeakyReLU", "Linear",
    "MaxPool1d", "MaxPool2d", "MaxPool3d", "Pad", "ReLU", "Reshape", "SiLU", "Sigmoid", "Softmax", "Softplus", "Tanh",
    "he", "xavier",
]
