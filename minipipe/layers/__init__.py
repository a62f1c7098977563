"""Layers by hand: one class per formula, samples in columns."""

from .activations import GELU, LeakyReLU, ReLU, Sigmoid, SiLU, Softmax, Softplus, Tanh
from .attention import MultiHeadAttention, TransformerBlock
from .blocks import Add, Block, Chain, Concat, Residual
from .convolution import Conv1d, Conv2d, Conv3d
from .dropout import Dropout
from .embedding import Embedding, PositionalEmbedding
from .initialization import he, xavier
from .layer import Layer, every_layer, set_moment
from .linear import Linear
from .normalization import BatchNorm, GroupNorm, LayerNorm
from .pooling import AvgPool1d, AvgPool2d, AvgPool3d, GlobalAvgPool, MaxPool1d, MaxPool2d, MaxPool3d
from .reshaping import Flatten, Pad, Reshape
from .skips import Fork, Join, backward_input_through, backward_through, forward_through, skip_routes
from .transposed_convolution import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d

__all__ = [
    "Add", "AvgPool1d", "AvgPool2d", "AvgPool3d", "BatchNorm", "Block", "Chain", "Concat", "Conv1d", "Conv2d",
    "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "Dropout", "Embedding", "Flatten", "Fork",
    "GELU", "GlobalAvgPool", "GroupNorm", "Join", "Layer", "LayerNorm", "LeakyReLU", "Linear", "MaxPool1d",
    "MaxPool2d", "MaxPool3d", "MultiHeadAttention", "Pad", "PositionalEmbedding", "ReLU", "Reshape", "Residual",
    "SiLU", "Sigmoid", "Softmax", "Softplus", "Tanh", "TransformerBlock", "backward_input_through",
    "backward_through", "every_layer", "forward_through", "he", "set_moment", "skip_routes", "xavier",
]
