"""Real data: some ship with the package, others are read from files that you have. Nothing is downloaded."""

from .cifar10 import cifar10
from .digits import digits
from .files import Dataset
from .mnist import mnist
from .text import Text, alice, bigram_cross_entropy, characters

__all__ = ["Dataset", "Text", "alice", "bigram_cross_entropy", "characters", "cifar10", "digits", "mnist"]
