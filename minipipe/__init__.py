"""minipipe: learn, verify and try out pipeline-parallel training, in pure NumPy."""

from . import cluster, datasets, exact, plots, schedules, verification
from .cluster import Cluster, Compute, DeadlockError, Link, MemoryLimitError, Receive, Send, Trace
from .functions import accuracy, one_hot
from .layers import (
    AvgPool1d, AvgPool2d, AvgPool3d, Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, Flatten,
    GELU, GlobalAvgPool, Layer, LeakyReLU, Linear, MaxPool1d, MaxPool2d, MaxPool3d, Pad, ReLU, Reshape, Sigmoid, SiLU,
    Softmax, Softplus, Tanh, he, xavier,
)
from .losses import BinaryCrossEntropy, MeanSquaredError, SoftmaxCrossEntropy
from .network import Sequential
from .optimizers import SGD, Adam, AdamW, RMSProp
from .pipeline import Costs, Pipeline, Stage, simulate
from .schedules import Schedule, ScheduleError
from .training import fit

__all__ = [
    "Adam", "AdamW", "AvgPool1d", "AvgPool2d", "AvgPool3d", "BinaryCrossEntropy", "Cluster", "Compute", "Conv1d",
    "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "Costs", "DeadlockError", "Flatten",
    "GELU", "GlobalAvgPool", "Layer", "LeakyReLU", "Linear", "Link", "MaxPool1d",
    "MaxPool2d", "MaxPool3d", "MeanSquaredError", "MemoryLimitError", "Pad", "Pipeline", "RMSProp", "ReLU", "Receive",
    "Reshape", "SGD", "Schedule", "ScheduleError", "Send", "Sequential", "SiLU", "Sigmoid", "Softmax",
    "SoftmaxCrossEntropy", "Softplus", "Stage", "Tanh", "Trace", "accuracy", "cluster", "datasets", "exact", "fit",
    "he", "one_hot", "plots", "schedules", "simulate", "verification", "xavier",
]
