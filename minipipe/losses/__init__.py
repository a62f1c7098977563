"""Cost functions, and the only place where 1/m appears.

Each file registers its losses in `LOSSES`, from which `minipipe` takes them.
"""

from .loss import LOSSES, Loss  # noqa: F401

globals().update(LOSSES.load())

__all__ = sorted(LOSSES)
