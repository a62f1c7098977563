"""The static site: runs to choose and step through, schedules, public names and notebooks as pages."""

from .writing import write_site

__all__ = ["write_site"]
