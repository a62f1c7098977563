"""`minipipe batch-size`: train with small and large mini-batches, several seeds of each: the error of all."""

import numpy as np

from ..checks import chosen, whole_numbers
from ..datasets import Dataset
from ..experiments import (
    VARIANTS, Recipe, digits_in_float32, errors_of, mean_and_spread, with_batch_norm,
)
from ..plots.canvas import label, new_figure
from ..rates import rates_of
from ..watching import say
from .options import add_picture
from .output import checked_picture, save_figure

PURPOSE = "the test error against the size of the mini-batch, with and without scaled rates and a warm-up"
EPILOG = f"""variants: {', '.join(map(repr, VARIANTS))}

examples:
  python3 -m minipipe batch-size                            on the digits: some minutes
  python3 -m minipipe batch-size --sizes 32 512 1437 --seeds 2 --epochs 15 --base 0.02 --warm-up 3
"""
BATCH_SIZES = (32, 64, 128, 256, 512, 719, 1437)
LAYER_SIZES = (64, 64, 64, 64, 64, 64, 10)
LINE_STYLES = {  # colour of Okabe and Ito, marker
    "linear, gradual warm-up": ("#0072B2", "o"),
    "linear, no warm-up": ("#D55E00", "s"),
    "square root, gradual warm-up": ("#009E73", "^"),
    "fixed rate": ("#000000", "x"),
}


def add_options(parser):
    parser.add_argument("--samples", type=int, metavar="N", help="of the training data (default: all)")
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=list(BATCH_SIZES), metavar="N",
        help=f"samples in a mini-batch (default: {' '.join(map(str, BATCH_SIZES))})",
    )
    parser.add_argument(
        "--variants", nargs="+", default=list(VARIANTS), metavar="NAME",
        help="which ones, see below (default: all)",
    )
    parser.add_argument("--seeds", type=int, default=5, help="trainings of each kind (default: %(default)s)")
    add_recipe(parser, Recipe())
    add_picture(parser, "batch_size.png")


def add_recipe(parser, recipe):
    parser.add_argument("--epochs", type=int, default=recipe.n_epochs, help="default: %(default)s")
    parser.add_argument("--base", type=float, default=recipe.base, metavar="RATE",
                        help="the learning rate for --reference samples (default: %(default)s)")
    parser.add_argument("--reference", type=int, default=recipe.reference, metavar="N",
                        help="samples that --base is for (default: %(default)s)")
    parser.add_argument("--warm-up", type=float, default=recipe.warm_up, metavar="EPOCHS",
                        help="how long it takes (default: %(default)s)")
    parser.add_argument("--weight-decay", type=float, default=recipe.weight_decay, metavar="DECAY",
                        help="default: %(default)s")


def run(options):
    path = checked_picture(options.output)
    sizes = sorted(set(whole_numbers("--sizes", options.sizes, least=1)))
    variants = list(dict.fromkeys(chosen("--variants", options.variants, VARIANTS)))
    if options.seeds < 1:
        raise ValueError(f"--seeds {options.seeds} must be at least 1")
    recipe = Recipe(options.base, options.reference, options.epochs, options.warm_up, options.weight_decay)
    data = _data(options.samples)
    m = data.train[0].shape[-1]
    if sizes[-1] > m:
        raise ValueError(f"--sizes {sizes[-1]} exceeds the {m} samples: use at most that many")
    for size in sizes:
        for name in variants:  # whatever is wrong with them is said before the first training
            rates_of(recipe.rate(size, *VARIANTS[name]), [1] * options.epochs)
    layers = with_batch_norm(LAYER_SIZES)
    say(f"{m:,} digits, network mlp, {options.epochs} epochs, {options.seeds} seeds, "
        f"rate {options.base:g} for {options.reference} samples")
    found = errors_of(layers, data, recipe, sizes, variants, options.seeds)
    print("\ntest error in %, mean and standard deviation; a column for each size of the mini-batches")
    print(" " * 30 + "".join(f"{size:>12,}" for size in sizes))
    for name in variants:
        cells = (mean_and_spread(found[name, size]) for size in sizes)
        print(f"{name:30}" + "".join(f"{mean:6.2f} ±{spread:4.2f}".rjust(12) for mean, spread in cells))
    print()
    title = f"{m:,} digits, mlp, {options.epochs} epochs, {options.seeds} seeds"
    save_figure(_drawn(found, title), path)


def _drawn(found, title):
    """Return a matplotlib `Figure`: error against the size of a mini-batch, mean and spread over seeds."""
    figure = new_figure(8, 4.6)
    ax = figure.subplots()
    sizes = sorted({size for _, size in found})
    n_lines = len({name for name, _ in found})
    for place, name in enumerate(dict.fromkeys(name for name, _ in found)):
        colour, marker = LINE_STYLES[name]
        rows = [mean_and_spread(found[name, size]) for size in sizes]
        beside = [size * 1.05 ** (place - (n_lines - 1) / 2) for size in sizes]
        ax.errorbar(beside, *zip(*[(mean, spread) for mean, spread in rows]), color=colour, marker=marker,
                    capsize=3, linewidth=1.5, markersize=5, label=name)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xticks(sizes, sizes)
    ax.minorticks_off()
    ticks = [1, 2, 5, 10, 20, 50, 100]
    ax.set_yticks(ticks, ticks)
    ax.set_ylim(1, 120)
    ax.legend(frameon=False, loc="upper left", fontsize=10)
    label(ax, title, "samples in a mini-batch", "test error, % (mean and standard deviation)")
    return figure


def _data(n_samples):
    """Return the digits as a `Dataset` in float32, with only the first `n_samples` to train on; None: all."""
    (X, Y), test = digits_in_float32()
    if n_samples is not None:
        if not 1 <= n_samples <= X.shape[-1]:
            raise ValueError(f"--samples {n_samples} of {X.shape[-1]:,}: use from 1 to that many")
        X, Y = (np.ascontiguousarray(part[..., :n_samples]) for part in (X, Y))
    return Dataset((X, Y), test)
