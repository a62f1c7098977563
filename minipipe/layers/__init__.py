"""Layers by hand: one class per formula, samples in columns."""

from .activations import GELU, LeakyReLU, ReLU, Sigmoid, SiLU, Softmax, Softplus, Tanh
from .convolution import Conv1d, Conv2d, Conv3d
from .initialization import he, xavier
from .layer import Layer
from .linear import Linear
from .pooling import AvgPool1d, AvgPool2d, AvgPool3d, GlobalAvgPool, MaxPool1d, MaxPool2d, MaxPool3d
from .reshaping import Flatten, Pad, Reshape
from .transposed_convolution import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d

__all__ = [
    "AvgPool1d", "AvgPool2d", "AvgPool3d", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d",
    "ConvTranspose3d", "Flatten", "GELU", "GlobalAvgPool", "Layer", "LeakyReLU", "Linear", "MaxPool1d", "MaxPool2d",
    "MaxPool3d", "Pad", "ReLU", "Reshape", "SiLU", "Sigmoid", "Softmax", "Softplus", "Tanh", "he", "xavier",
]
