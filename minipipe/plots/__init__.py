"""A trace as a picture, as text or as a web page. matplotlib is imported when something is drawn, not before."""

from .html import html
from .memory import memory
from .text import text
from .timeline import timeline

__all__ = ["html", "memory", "text", "timeline"]
