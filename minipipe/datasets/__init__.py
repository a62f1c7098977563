"""Real data that ships with the package."""

from .digits import Dataset, digits

__all__ = ["Dataset", "digits"]
