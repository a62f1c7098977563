"""Cost functions, and the only place where 1/m appears.

Each file of this room registers its losses in `LOSSES`; they are found there, and
`minipipe` hands them on.
"""

from .loss import LOSSES, Loss  # noqa: F401

globals().update(LOSSES.load())

__all__ = sorted(LOSSES)
