"""minipipe: learn, verify and try out pipeline-parallel training, in pure NumPy."""

from . import cluster, datasets, exact, models, plots, schedules, verification
from .cluster import Cluster, Compute, DeadlockError, Link, MemoryLimitError, Receive, Send, Trace
from .description import describe
from .functions import accuracy, one_hot
from .layers import (
    Add, AvgPool1d, AvgPool2d, AvgPool3d, BatchNorm, Chain, Concat, Conv1d, Conv2d, Conv3d, ConvTranspose1d,
    ConvTranspose2d, ConvTranspose3d, Dropout, Embedding, Flatten, Fork, GELU, GlobalAvgPool, GroupNorm, he, Join,
    Layer, LayerNorm, LeakyReLU, Linear, MaxPool1d, MaxPool2d, MaxPool3d, MultiHeadAttention, Pad,
    PositionalEmbedding, ReLU, Reshape, Residual, Sigmoid, SiLU, Softmax, Softplus, Tanh, TransformerBlock, xavier,
)
from .losses import BinaryCrossEntropy, MeanSquaredError, SoftmaxCrossEntropy
from .network import Sequential
from .optimizers import SGD, Adam, AdamW, RMSProp
from .partitioning import costs_of_layers, partition
from .pipeline import AsynchronousPipeline, Pipeline, Stage
from .planning import footprints, measure, simulate, what_fits
from .schedules import Costs, Overlap, Schedule, ScheduleError
from .training import fit

__all__ = [
    "Adam", "AdamW", "Add", "AsynchronousPipeline", "AvgPool1d", "AvgPool2d", "AvgPool3d", "BatchNorm",
    "BinaryCrossEntropy", "Chain", "Cluster", "Compute", "Concat", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d",
    "ConvTranspose2d", "ConvTranspose3d", "Costs", "DeadlockError", "Dropout", "Embedding", "Flatten", "Fork",
    "GELU", "GlobalAvgPool", "GroupNorm", "Join", "Layer", "LayerNorm", "LeakyReLU", "Linear", "Link", "MaxPool1d",
    "MaxPool2d", "MaxPool3d", "MeanSquaredError", "MemoryLimitError", "MultiHeadAttention", "Overlap", "Pad",
    "Pipeline", "PositionalEmbedding", "RMSProp", "ReLU", "Receive", "Reshape", "Residual", "SGD", "Schedule",
    "ScheduleError", "Send", "Sequential", "SiLU", "Sigmoid", "Softmax", "SoftmaxCrossEntropy", "Softplus", "Stage",
    "Tanh", "Trace", "TransformerBlock", "accuracy", "cluster", "costs_of_layers", "datasets", "describe", "exact",
    "fit", "footprints", "he", "measure", "models", "one_hot", "partition", "plots", "schedules", "simulate",
    "verification", "what_fits", "xavier",
]
