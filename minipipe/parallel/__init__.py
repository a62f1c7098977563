"""Ways to split the training of a network other than by its layers."""

from .buckets import in_buckets
from .data import DataParallel

__all__ = ["DataParallel", "in_buckets"]
