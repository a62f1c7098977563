"""Pictures of a notebook, each with words for whoever cannot see it."""


def picture(thing, alt):
    """Show a figure or a trace below the cell.

    alt: what is to be seen, in a sentence or two.
    """
    from IPython.display import display

    is_figure = hasattr(thing, "savefig")
    if is_figure:
        import matplotlib.pyplot as plt

        plt.draw_if_interactive()  # loads the notebook's backend, without which a figure is shown as words
    display(thing, metadata={"image/png": {"alt": alt}})
    if is_figure:
        plt.close(thing)           # or it is shown once more at the end of the cell
