"""What engines do for themselves, in a measured trace."""

from ..cluster import Label

OVERHEAD = Label("engine", "overhead")  # a span in which a lane copies a message, or waits for its turn
