"""The static site: runs to choose and step through, a page for each schedule, and the notebooks as pages."""

from .writing import write_site

__all__ = ["write_site"]
