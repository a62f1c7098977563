"""The static site: the playground, schedules, public names and notebooks as pages."""

from .writing import write_site

__all__ = ["write_site"]
