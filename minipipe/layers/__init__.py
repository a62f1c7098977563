"""Layers by hand: one class per formula, samples in columns."""

from .activations import ReLU, Sigmoid, Tanh
from .convolution import Conv1d, Conv2d, Conv3d
from .initialization import he, xavier
from .layer import Layer
from .linear import Linear
from .reshaping import Flatten
from .transposed_convolution import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d

__all__ = [
    "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "Flatten", "Layer", "Linear", "ReLU",
    "Sigmoid", "Tanh", "he", "xavier",
]
