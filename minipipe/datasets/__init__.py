"""Real data that ship with the package: handwritten digits, and a book. Nothing is downloaded."""

from .digits import Dataset, digits
from .text import Text, alice, bigram_cross_entropy, characters

__all__ = ["Dataset", "Text", "alice", "bigram_cross_entropy", "characters", "digits"]
