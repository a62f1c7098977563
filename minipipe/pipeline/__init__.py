"""The options of a network; stages, and a schedule turned into programs for devices."""

from .stage import Stage

__all__ = ["Stage"]
