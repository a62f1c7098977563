"""A network, a schedule and a cluster joined."""

from .asynchronous import AsynchronousPipeline
from .pipeline import Pipeline
from .stage import Stage

__all__ = ["AsynchronousPipeline", "Pipeline", "Stage"]
