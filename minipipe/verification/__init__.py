"""Is the pipeline's gradient the full batch's? Four strengths of exactness, each as a verdict."""

from .rounding import Bounds, rounding_bounds
from .verdicts import equals_full_batch, same_bits, share_of_bound

__all__ = ["Bounds", "equals_full_batch", "rounding_bounds", "same_bits", "share_of_bound"]
