"""The static site: the playground, schedules, public names and notebooks as pages."""

from .playground import serve
from .writing import write_site

__all__ = ["serve", "write_site"]
