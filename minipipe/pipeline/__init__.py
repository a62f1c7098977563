"""A network, a schedule and a cluster joined."""

from .stage import Stage

__all__ = ["Stage"]
