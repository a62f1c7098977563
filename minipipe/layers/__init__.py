"""Layers by hand: one class per formula, samples in columns.

`minipipe` hands on what stands in `__all__`. What networks and stages do with a list of layers
is in `through`.
"""

from .activations import GELU, LeakyReLU, ReLU, Sigmoid, SiLU, Softmax, Softplus, Tanh
from .attention import MultiHeadAttention, TransformerBlock
from .blocks import Add, Block, Chain, Concat, Residual
from .convolution import Conv1d, Conv2d, Conv3d
from .dropout import Dropout
from .embedding import Embedding, PositionalEmbedding
from .initialization import he, xavier
from .layer import Layer, every_layer
from .linear import Linear
from .normalization import BatchNorm, GroupNorm, LayerNorm
from .pooling import AvgPool1d, AvgPool2d, AvgPool3d, GlobalAvgPool, MaxPool1d, MaxPool2d, MaxPool3d
from .recomputing import recomputing
from .reshaping import Flatten, Pad, Reshape
from .skips import Fork, Join
from .transposed_convolution import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d

__all__ = [
    "Add", "AvgPool1d", "AvgPool2d", "AvgPool3d", "BatchNorm", "Block", "Chain", "Concat", "Conv1d", "Conv2d",
    "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "Dropout", "Embedding", "Flatten",
    "Fork", "GELU", "GlobalAvgPool", "GroupNorm", "Join", "Layer", "LayerNorm", "LeakyReLU", "Linear",
    "MaxPool1d", "MaxPool2d", "MaxPool3d", "MultiHeadAttention", "Pad", "PositionalEmbedding", "ReLU",
    "Reshape", "Residual", "SiLU", "Sigmoid", "Softmax", "Softplus", "Tanh", "TransformerBlock",
    "every_layer", "he", "recomputing", "xavier",
]
