"""A trace as a picture, a film, text, a web page or a file for trace viewers; the cut
of a network; and curves of trainings.

matplotlib is imported when something is drawn.
"""

from .comparison import compare, in_one_unit
from .curves import curves, cut, ledger, memory
from .html import html, player, still
from .saving import chrome_trace, save
from .text import text
from .timeline import critical_path, timeline, timeline_of

__all__ = [
    "chrome_trace", "compare", "critical_path", "curves", "cut", "html", "in_one_unit",
    "ledger", "memory", "player", "save", "still", "text",
    "timeline", "timeline_of",
]
