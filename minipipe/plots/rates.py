"""Learning rates over the epochs, before any training."""

from ..checks import shown
from ..arguments import argument
from ..rates import rates_of
from .canvas import label, new_figure

COLOURS = ("#D55E00", "#E69F00", "#0072B2", "#000000", "#009E73", "#CC79A7")  # of Okabe and Ito
STYLES = ("--", "-.", "-", ":")


def learning_rates(rates, n_epochs, n_updates):
    """Axes with the curves of learning rates, which `fit` would refuse or use as they are.

    rates: {name: a number, or a function of the epochs done, see `minipipe.rates`}.
    n_epochs: passes over the data.
    n_updates: in each of them.
    """
    ax = new_figure(7, 3).subplots()
    draw_rates(ax, rates, n_epochs, n_updates)
    label(ax, None, "epochs", "learning rate")
    return ax


def draw_rates(ax, rates, n_epochs, n_updates):
    """The same on axes that are there."""
    if not isinstance(rates, dict) or not rates:
        raise ValueError(f"rates={shown(rates)} must be a dict {{name: rate}} with at least one")
    n_epochs = argument("learning_rates.n_epochs", n_epochs)
    n_updates = argument("learning_rates.n_updates", n_updates)
    times = [epoch + i / n_updates for epoch in range(n_epochs) for i in range(n_updates)]
    for place, (name, rate) in enumerate(rates.items()):
        values = sum(rates_of(rate, [n_updates] * n_epochs), [])
        ax.plot(times, values, STYLES[place % 4], color=COLOURS[place % 6], label=name, linewidth=1.8)
    ax.set_yscale("log")
    ax.legend(frameon=False, fontsize=10)
