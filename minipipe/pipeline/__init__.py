"""A network, a schedule and a cluster joined."""

from .pipeline import Pipeline
from .stage import Stage

__all__ = ["Pipeline", "Stage"]
