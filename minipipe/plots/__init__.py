"""A trace as a picture, as text, as a web page or for a trace viewer. matplotlib is imported when something is drawn, not before."""

from .chrome import chrome_trace
from .html import html
from .memory import memory
from .text import text
from .timeline import timeline

__all__ = ["chrome_trace", "html", "memory", "text", "timeline"]
