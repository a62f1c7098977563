"""A network, a schedule and a cluster joined."""

from .pipeline import Pipeline
from .stage import Stage
from .without_flush import AsynchronousPipeline

__all__ = ["AsynchronousPipeline", "Pipeline", "Stage"]
