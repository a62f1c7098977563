"""minipipe: learn, verify and try out pipeline-parallel training, in pure NumPy."""

from . import cluster, datasets, exact, plots, schedules, verification
from .cluster import Cluster, Compute, DeadlockError, Link, MemoryLimitError, Receive, Send, Trace
from .functions import accuracy, one_hot
from .layers import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    Flatten,
    Layer,
    Linear,
    ReLU,
    Sigmoid,
    Tanh,
    he,
    xavier,
)
from .losses import BinaryCrossEntropy, MeanSquaredError, SoftmaxCrossEntropy
from .network import Sequential
from .optimizers import SGD
from .pipeline import Costs, Pipeline, Stage, simulate
from .schedules import Schedule, ScheduleError
from .training import fit

__all__ = [
    "BinaryCrossEntropy", "Cluster", "Compute", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d",
    "ConvTranspose3d", "Costs", "DeadlockError", "Flatten", "Layer", "Linear", "Link", "MeanSquaredError", "MemoryLimitError",
    "Pipeline", "ReLU", "Receive", "SGD", "Schedule", "ScheduleError", "Send", "Sequential", "Sigmoid", "SoftmaxCrossEntropy",
    "Stage", "Tanh", "Trace", "accuracy", "cluster", "datasets", "exact", "fit", "he", "one_hot", "plots", "schedules",
    "simulate", "verification", "xavier",
]
