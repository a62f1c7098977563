"""A trace as a picture, a film, text, a web page, a cell of a notebook or a file for a trace viewer; a
network's cut; and curves of trainings.

matplotlib is imported when something is drawn.
"""

from .animation import animate
from .chrome import chrome_trace
from .comparison import compare
from .critical_path import critical_path
from .curves import curves, staleness
from .cut import cut
from .html import html
from .ledger import ledger
from .memory import alive, memory, timeline_with_memory
from .player import player, still
from .rates import learning_rates
from .text import text
from .timeline import timeline

__all__ = [
    "alive", "animate", "chrome_trace", "compare", "critical_path", "curves", "cut", "html",
    "learning_rates", "ledger", "memory", "player", "staleness", "still", "text", "timeline",
    "timeline_with_memory",
]
