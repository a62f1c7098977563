"""What the core's notebooks show below a cell: figures, runs, words."""

import re

from minipipe.cluster import Trace

SHARES = re.compile(r"<div><dt>bubble: .*?</div>", re.DOTALL)


def picture(thing, alt=""):
    """Show a figure or a run below the cell; print words, and all else where there is no notebook.

    alt: what is to be seen, in a sentence or two, for whoever cannot see it.
    """
    if thing is None:              # a function has drawn it
        return
    try:
        from IPython.display import display
    except ImportError:
        display = None
    if display is None or isinstance(thing, str):
        print(thing)
        return
    is_figure = hasattr(thing, "savefig")
    if is_figure:
        import matplotlib.pyplot as plt

        plt.draw_if_interactive()  # loads the notebook's backend, without which a figure is shown as words
    shown = InTicks(thing) if isinstance(thing, Trace) else thing
    display(shown, metadata={"image/png": {"alt": alt}} if alt else {})
    if is_figure:
        plt.close(thing)           # or it is shown once more at the end of the cell


class InTicks:
    """A run as a cell shows it, without its four shares called bubble: the core explains one."""

    def __init__(self, run):
        self.run = run

    def _repr_html_(self):
        return SHARES.sub("", self.run._repr_html_())

    def _repr_png_(self):
        return self.run._repr_png_()

    def __repr__(self):
        return repr(self.run)
