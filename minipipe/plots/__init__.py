"""A trace as a picture or as text. matplotlib is imported when something is drawn, not before."""

from .memory import memory
from .text import text
from .timeline import timeline

__all__ = ["memory", "text", "timeline"]
